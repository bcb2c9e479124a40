"""What goes into the network while training: photos, or maps of a frozen trunk that were computed once."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from superfeat.errors import DatasetError, ImageError, StoreError
from superfeat.images import Photo, limit, normalise, read_image
from superfeat.nets.trunk import Normalisation
from superfeat.storage.store import explained, read_json, sync, sync_folder, write_json
from superfeat.threads import in_order
from superfeat.training.views import make_view


class Showing(NamedTuple):
    """How an image is to be shown: flipped left to right, within this longest side, as a view made by this seed."""

    flip: bool = False
    side: int | None = None  # None: as large as may be
    view: tuple[int, ...] | None = None


AS_IT_IS = Showing()


@runtime_checkable
class Inputs(Protocol):
    """The input of an image by its number."""

    def __call__(self, number: int, showing: Showing = AS_IT_IS) -> Float[Tensor, "channels height width"]: ...


class PhotoInputs:
    """Photos: decoded upright, limited, normalised; scale 1 only."""

    def __init__(self, photos: Sequence[Photo], max_side: int, normalisation: Normalisation) -> None:
        self.photos, self.max_side, self.normalisation = photos, max_side, normalisation

    def __call__(self, number: int, showing: Showing = AS_IT_IS) -> Float[Tensor, "3 height width"]:
        photo = self.photos[number]
        side = showing.side or self.max_side
        try:
            # A view shows a part, larger: it is made from more pixels, and limited afterwards.
            pixels = read_image(photo.where, max_side=side if showing.view is None else 2 * side, box=photo.box)
        except ImageError as error:
            raise DatasetError(
                f"{photo.name} cannot be read ({error}): repair it and resume the run, or leave it out",
                arguments=["resume"],
            ) from error
        if showing.view is not None:
            pixels = limit(make_view(pixels, np.random.default_rng(showing.view)), side)
        return torch.from_numpy(normalise(pixels[:, ::-1] if showing.flip else pixels, *self.normalisation))


class MapInputs:
    """Maps of a frozen trunk, stored as 16-bit floats. Flipping one stands for flipping its photo."""

    def __init__(self, folder: Path) -> None:
        manifest = read_json(folder / "manifest.json")
        self.sizes = np.asarray(manifest["sizes"], np.int64).reshape(-1, 3)
        self.ends = np.cumsum(self.sizes.prod(axis=1))
        values = folder / "values.bin"
        with explained(folder, "read"):
            if values.stat().st_size != 2 * self.sizes.prod(axis=1).sum():
                raise StoreError(
                    f"{values} is damaged: it is not as long as {folder} says; remove the folder and go on"
                )
            self.values = np.asarray(np.memmap(values, np.float16, "r"))

    def __len__(self) -> int:
        return len(self.sizes)

    def __call__(self, number: int, showing: Showing = AS_IT_IS) -> Float[Tensor, "channels height width"]:
        size, end = self.sizes[number], self.ends[number]
        values = self.values[end - size.prod() : end].reshape(size).astype(np.float32)
        return torch.from_numpy(values[..., ::-1].copy() if showing.flip else values)


def store_maps(
    folder: Path,
    facts: Mapping[str, int],
    trunk: Callable[[Tensor], Tensor],
    read: Callable[[int], Tensor],
    count: int,
    workers: int,
    device: str = "cpu",
) -> Iterator[int]:
    """Computes the trunk's map of each input into a folder, whole or not at all; yields how many are done.

    Nothing is done if the folder is there and was made from the same `facts`.
    """
    if (folder / "manifest.json").is_file() and read_json(folder / "manifest.json")["facts"] == facts:
        return

    @torch.inference_mode()
    def compute(number: int) -> np.ndarray:
        return trunk(read(number).unsqueeze(0).to(device))[0].half().contiguous().cpu().numpy()

    sizes = []
    with explained(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with (folder / "values.bin").open("wb") as file:
            for values in in_order(compute, range(count), workers, one_thread):
                file.write(values.tobytes())
                sizes.append(values.shape)
                yield len(sizes)
            sync(file)
        write_json(folder / "manifest.json", {"facts": facts, "sizes": sizes})
        sync_folder(folder)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch works with so many threads of its own; results on a CPU may depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> None:
    """A task runs on one thread alone: so its result cannot depend on how many workers there are."""
    torch.set_num_threads(1)
