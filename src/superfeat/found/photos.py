"""Photos as people have them: a file, its bytes, pixels, or the name of one that is in an index."""

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from PIL import Image

from superfeat.addresses.address import Address, Where, address_of
from superfeat.addresses.text import is_remote
from superfeat.explain.explain import Explanation
from superfeat.features import Features
from superfeat.images import pixel_file


@dataclasses.dataclass(frozen=True)
class Named:
    """A photo of the index, asked for by its name there."""

    name: str


PhotoLike = str | os.PathLike[str] | Address | bytes | Image.Image | np.ndarray | Named


def as_file(photo: PhotoLike) -> Where | bytes | Named:
    """Where a photo lies, or the bytes of it; pixels become a file that holds just them."""
    if isinstance(photo, (bytes, Named)):
        return photo
    if isinstance(photo, (Image.Image, np.ndarray)):
        return pixel_file(photo)
    return address_of(photo)


def name_of_photo(photo: PhotoLike | Features) -> str:
    """What a photo is called; empty for bytes and pixels."""
    if isinstance(photo, (Features, Named)):
        return photo.name
    if isinstance(photo, (bytes, Image.Image, np.ndarray)):
        return ""
    return str(address_of(photo) if is_remote(photo) else photo)


def photo_key(data: bytes) -> str:
    """By what a photo is remembered: a digest of its bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class Looker(Protocol):
    """Who can look at photos once more: the engine that answered."""

    def pixels(self, photo: PhotoLike) -> np.ndarray:
        """A photo, upright: (height, width, 3)."""

    def explain(self, photo: PhotoLike, found: str, *, box: Iterable[float] | None = None) -> Explanation:
        """Where the score of the indexed photo `found` comes from."""
