"""What goes into the network while training: photos as they are and flipped, and maps that were computed once."""

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fixtures_recipe import absolute_error, noise
from superfeat.errors import DatasetError, StoreError
from superfeat.images import Photo, limit, normalise, read_image
from superfeat.nets.trunk import Normalisation
from superfeat.sources.listing import list_photos
from superfeat.training.inputs import AS_IT_IS, MapInputs, PhotoInputs, Showing, store_maps
from superfeat.training.views import make_view
from superfeat.weights import Network

HALF = 2.0**-11  # relative rounding of a 16-bit float
SMALLEST_HALF = 2.0**-25  # absolute rounding below its normal range
EXIF_ORIENTATION = 0x0112


@pytest.fixture
def photos(photo_folder: Path) -> list[Photo]:
    return list_photos([photo_folder]).photos


@pytest.fixture
def inputs(photos: list[Photo]) -> PhotoInputs:
    return PhotoInputs(photos, 1024, Normalisation())


# --- Photos -----------------------------------------------------------------------------------------------------------


def test_a_photo_is_read_and_normalised(photos: list[Photo], inputs: PhotoInputs) -> None:
    for number, photo in enumerate(photos):
        expected = normalise(read_image(photo.path), *Normalisation())
        assert np.array_equal(inputs(number).numpy(), expected)
        assert inputs(number).dtype == torch.float32


def test_flipped_left_to_right(photos: list[Photo], inputs: PhotoInputs) -> None:
    for number in range(len(photos)):
        plain, flipped = inputs(number), inputs(number, Showing(flip=True))
        assert torch.equal(flipped, plain.flip(-1))
        assert not torch.equal(flipped, plain)
        assert flipped.is_contiguous()


@pytest.mark.parametrize(
    ("max_side", "size"), [(16, (12, 16)), (40, (30, 40)), (64, (48, 64)), (65, (48, 64)), (1024, (48, 64))]
)
def test_the_longest_side_is_limited_and_never_enlarged(tmp_path: Path, max_side: int, size: tuple[int, int]) -> None:
    Image.fromarray(noise(48, 64)).save(tmp_path / "a.png")
    found = PhotoInputs([Photo(tmp_path / "a.png", "a.png")], max_side, Normalisation())(0)
    assert found.shape == (3, *size)


def test_other_normalisations(photos: list[Photo]) -> None:
    found = PhotoInputs(photos, 1024, Normalisation((0.5, 0.5, 0.5), (0.25, 0.5, 1.0)))(0)
    pixels = read_image(photos[0].path).transpose(2, 0, 1) / 255 - 0.5
    assert absolute_error(found, pixels / np.array([0.25, 0.5, 1.0])[:, None, None]) <= 1e-6


def test_a_box_is_cut_out(tmp_path: Path) -> None:
    Image.fromarray(noise(48, 64)).save(tmp_path / "a.png")
    found = PhotoInputs([Photo(tmp_path / "a.png", "a.png", (10, 4, 30, 24))], 1024, Normalisation())(0)
    assert np.array_equal(found.numpy(), normalise(noise(48, 64)[4:24, 10:30], *Normalisation()))


def test_a_photo_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    Image.fromarray(noise(48, 64)).save(tmp_path / "a.png", exif=exif)
    found = PhotoInputs([Photo(tmp_path / "a.png", "a.png")], 1024, Normalisation())(0)
    assert found.shape == (3, 64, 48)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "the file is empty"), (b"not a photo", "not an image"), (None, "No such file")]
)
def test_an_unreadable_photo_is_named(photos: list[Photo], tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "x.jpg").write_bytes(content)
    bad = Photo(tmp_path / "x.jpg", "tower/x.jpg")
    inputs = PhotoInputs([*photos, bad], 1024, Normalisation())
    with pytest.raises(DatasetError) as error:
        inputs(len(photos))
    message = str(error.value)
    assert message.startswith(f"tower/x.jpg cannot be read ({reason}")
    assert "resume the run" in message
    assert "\n" not in message
    assert inputs(0).shape[0] == 3


# --- Looks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> PhotoInputs:
    """One photo of 96 x 128, limited to 64."""
    Image.fromarray(noise(96, 128)).save(tmp_path / "large.png")
    return PhotoInputs([Photo(tmp_path / "large.png", "large.png")], 64, Normalisation())


@pytest.mark.parametrize(
    ("side", "size"), [(None, (48, 64)), (64, (48, 64)), (32, (24, 32)), (16, (12, 16)), (500, (96, 128))]
)
def test_a_look_has_a_longest_side_of_its_own(large: PhotoInputs, side: int | None, size: tuple[int, int]) -> None:
    found = large(0, Showing(side=side))
    assert found.shape == (3, *size)
    pixels = read_image(large.photos[0].path, max_side=max(size))
    assert np.array_equal(found.numpy(), normalise(pixels, *Normalisation()))
    assert torch.equal(large(0, Showing(flip=True, side=side)), found.flip(-1))


def test_nothing_said_is_as_it_is(large: PhotoInputs) -> None:
    assert Showing(flip=False, side=None, view=None) == AS_IT_IS
    assert torch.equal(large(0), large(0, Showing()))


@pytest.mark.parametrize("side", [None, 40])
@pytest.mark.parametrize("flip", [False, True])
def test_a_view_is_made_from_more_pixels_and_limited_afterwards(
    large: PhotoInputs, side: int | None, flip: bool
) -> None:
    for seed in range(4):
        found = large(0, Showing(flip, side, (7, seed)))
        longest = side or 64
        source = read_image(large.photos[0].path, max_side=2 * longest)
        view = limit(make_view(source, np.random.default_rng((7, seed))), longest)
        assert np.array_equal(found.numpy(), normalise(view[:, ::-1] if flip else view, *Normalisation()))
        assert max(found.shape[1:]) <= longest
        assert found.is_contiguous()


def test_a_view_is_the_same_by_the_same_seed_and_another_by_another(large: PhotoInputs) -> None:
    first, again, other = (large(0, Showing(view=seed)) for seed in ((1, 2), (1, 2), (2, 1)))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)
    assert first.shape != large(0).shape or not torch.equal(first, large(0))


def test_a_view_of_a_box_shows_nothing_outside_it(tmp_path: Path) -> None:
    """Black all around, bright inside."""
    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[10:50, 20:70] = 200
    Image.fromarray(pixels).save(tmp_path / "a.png")
    inputs = PhotoInputs(
        [Photo(tmp_path / "a.png", "a.png", (20, 10, 70, 50))], 64, Normalisation((0, 0, 0), (1, 1, 1))
    )
    brightest = [float(inputs(0, Showing(view=(seed,))).amin(dim=0).median()) for seed in range(20)]
    assert min(brightest) > 0.1  # dimmed at times, and partly hidden


def test_a_view_of_an_unreadable_photo_is_refused_alike(tmp_path: Path) -> None:
    inputs = PhotoInputs([Photo(tmp_path / "x.jpg", "tower/x.jpg")], 64, Normalisation())
    with pytest.raises(DatasetError, match=r"^tower/x\.jpg cannot be read"):
        inputs(0, Showing(view=(1,)))


# --- Maps -------------------------------------------------------------------------------------------------------------


class Counting:
    """A trunk that notes how often it is asked."""

    def __init__(self, trunk: Callable[[Tensor], Tensor]) -> None:
        self.trunk, self.calls = trunk, 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.trunk(x)


@pytest.fixture
def trunk(tiny_network: Network) -> Counting:
    return Counting(tiny_network.module.trunk)


FACTS = {"images": 6, "max_side": 1024}


@pytest.mark.parametrize("workers", [1, 3])
def test_maps_come_back_to_half_precision(tmp_path: Path, trunk: Counting, inputs: PhotoInputs, workers: int) -> None:
    """Of photos of different sizes, in their order, whatever number of threads computes them."""
    folder = tmp_path / "new" / "maps"
    assert list(store_maps(folder, FACTS, trunk, inputs, 6, workers)) == [1, 2, 3, 4, 5, 6]
    assert trunk.calls == 6
    maps = MapInputs(folder)
    assert len(maps) == 6
    for number in range(6):
        with torch.inference_mode():
            exact = trunk.trunk(inputs(number).unsqueeze(0))[0]
        found = maps(number)
        assert found.dtype == torch.float32
        assert found.shape == exact.shape
        assert bool(((found - exact).abs() <= HALF * exact.abs() + SMALLEST_HALF).all())
        assert torch.equal(found, exact.half().float())


def test_a_map_is_flipped_and_does_not_remember(tmp_path: Path, trunk: Counting, inputs: PhotoInputs) -> None:
    for _ in store_maps(tmp_path / "maps", FACTS, trunk, inputs, 6, 1):
        pass
    maps = MapInputs(tmp_path / "maps")
    plain = maps(2).clone()
    assert torch.equal(maps(2, Showing(flip=True)), plain.flip(-1))
    maps(2).zero_()
    maps(2, Showing(flip=True)).zero_()
    assert torch.equal(maps(2), plain)


def test_maps_can_be_trained_on(tmp_path: Path, trunk: Counting, inputs: PhotoInputs) -> None:
    """They were computed in inference mode, and must not be marked by it."""
    for _ in store_maps(tmp_path / "maps", FACTS, trunk, inputs, 6, 1):
        pass
    for flip in (False, True):
        x = MapInputs(tmp_path / "maps")(0, Showing(flip))
        assert not x.is_inference()
        weight = torch.ones((), requires_grad=True)
        (x * weight).square().sum().backward()


def test_nothing_is_done_twice(tmp_path: Path, trunk: Counting, inputs: PhotoInputs) -> None:
    folder = tmp_path / "maps"
    for _ in store_maps(folder, FACTS, trunk, inputs, 6, 1):
        pass
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert list(store_maps(folder, dict(FACTS), trunk, inputs, 6, 1)) == []
    assert trunk.calls == 6
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_other_facts_are_computed_anew(tmp_path: Path, trunk: Counting, photos: list[Photo]) -> None:
    folder = tmp_path / "maps"
    for side in (1024, 32):
        small = PhotoInputs(photos, side, Normalisation())
        assert list(store_maps(folder, {**FACTS, "max_side": side}, trunk, small, 6, 1)) == [1, 2, 3, 4, 5, 6]
    assert trunk.calls == 12
    assert MapInputs(folder)(0).shape == trunk(small(0).unsqueeze(0))[0].shape


def test_what_was_interrupted_is_computed_anew(tmp_path: Path, trunk: Counting, inputs: PhotoInputs) -> None:
    """Maps are there whole or not at all: without a manifest nothing counts."""
    folder = tmp_path / "maps"
    stopped = store_maps(folder, FACTS, trunk, inputs, 6, 1)
    assert list(itertools.islice(stopped, 2)) == [1, 2]
    stopped.close()  # type: ignore[attr-defined]
    assert not (folder / "manifest.json").exists()
    with pytest.raises(StoreError, match="No such file"):
        MapInputs(folder)
    assert list(store_maps(folder, FACTS, trunk, inputs, 6, 1)) == [1, 2, 3, 4, 5, 6]
    assert len(MapInputs(folder)) == 6


def test_an_unreadable_photo_leaves_no_maps(tmp_path: Path, trunk: Counting, photos: list[Photo]) -> None:
    photos[3].path.write_bytes(b"broken")
    folder = tmp_path / "maps"
    with pytest.raises(DatasetError, match=photos[3].name):
        list(store_maps(folder, FACTS, trunk, PhotoInputs(photos, 1024, Normalisation()), 6, 1))
    assert not (folder / "manifest.json").exists()


def test_the_manifest_says_what_is_there(tmp_path: Path, trunk: Counting, inputs: PhotoInputs) -> None:
    for _ in store_maps(tmp_path / "maps", FACTS, trunk, inputs, 6, 1):
        pass
    manifest = json.loads((tmp_path / "maps" / "manifest.json").read_text())
    assert manifest["facts"] == FACTS
    values = sum(int(np.prod(size)) for size in manifest["sizes"])
    assert (tmp_path / "maps" / "values.bin").stat().st_size == 2 * values


def test_a_cut_off_file_is_an_error(tmp_path: Path, trunk: Counting, inputs: PhotoInputs) -> None:
    """A power cut can leave a manifest and too few values: that is damage to tell, not numbers to train on."""
    folder = tmp_path / "maps"
    for _ in store_maps(folder, FACTS, trunk, inputs, 6, 1):
        pass
    values = (folder / "values.bin").read_bytes()
    (folder / "values.bin").write_bytes(values[: len(values) // 2])
    with pytest.raises(StoreError, match=re.escape(str(folder))):
        MapInputs(folder)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks up what is synced as Linux tells it")
def test_values_are_on_the_disk_before_the_manifest(
    tmp_path: Path, trunk: Counting, inputs: PhotoInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave a manifest that vouches for values that are not there."""
    folder, synced, real = tmp_path / "maps", [], os.fsync

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").resolve().name)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in store_maps(folder, FACTS, trunk, inputs, 6, 1):
        pass
    assert "values.bin" in synced
    assert synced.index("values.bin") < next(n for n, name in enumerate(synced) if "manifest" in name)
