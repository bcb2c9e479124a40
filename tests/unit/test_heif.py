"""Photos of phones, where the HEIF plug-in is installed (superfeat[heif]; `make test` installs it)."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from superfeat.images import image_endings, read_image
from superfeat.sources.listing import list_photos


def test_heif_photos_are_listed_and_read(tmp_path: Path) -> None:
    plug_in = pytest.importorskip("pillow_heif")
    gradient = np.linspace(0, 255, 64 * 48 * 3).reshape(48, 64, 3).astype(np.uint8)
    plug_in.from_pillow(Image.fromarray(gradient)).save(tmp_path / "phone.heic", quality=95)
    assert ".heic" in image_endings()
    (photo,) = list_photos([tmp_path]).photos
    found = read_image(photo.path)
    assert found.shape == (48, 64, 3)
    assert np.abs(found.astype(int) - gradient).mean() < 6
