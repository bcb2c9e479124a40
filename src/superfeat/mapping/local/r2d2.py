"""R2D2's points, from a file of its weights: `r2d2:FILE`. They are for non-commercial use, and nothing is shipped.

Revaud et al., "R2D2: Repeatable and Reliable Detector and Descriptor" (NeurIPS 2019). A point is a local maximum of
repeatability where both maps reach 0.7, at each of the scales from 1024 to 256 pixels; the best by the product of both
are kept. Pairs are mutual nearest neighbours.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from superfeat.errors import ConfigError, WeightsError
from superfeat.mapping.local.interface import LocalPoints, mutual_nearest
from superfeat.storage.unpickle import read_torch

if TYPE_CHECKING:
    from torch import Tensor

MOST_POINTS = 5000
LEAST = 0.7  # of reliability and of repeatability
LARGEST, SMALLEST = 1024, 256  # pixels of the longer side
STEP = 2**0.25  # between scales
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EPSILON = 1e-5  # of its batch norms
# Convolutions by their place in the file, with their dilation: where L2-Net halves the size, R2D2 keeps it and looks
# twice as far. After the first six comes a ReLU; all but the last are normalised.
DILATIONS = {0: 1, 3: 1, 6: 1, 9: 2, 12: 2, 15: 4, 18: 4, 20: 8, 22: 16}
RELU_UP_TO, LAST = 15, 22


class MutualR2D2:
    """The network of one file."""

    def __init__(self, path: str | Path, most: int = MOST_POINTS) -> None:
        self.name = f"r2d2:{path}"
        self._most = most
        self._weights = read_r2d2(Path(path))

    def find(self, pixels: UInt8[np.ndarray, "height width 3"]) -> LocalPoints:
        import torch

        image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).unsqueeze(0).float() / 255
        image = (image - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(DEVIATION).view(1, 3, 1, 1)
        with torch.inference_mode():
            parts = [self._at_scale(scaled, pixels.shape[:2]) for scaled in _scales(image)]
        places, vectors, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(-scores, kind="stable")[: self._most]
        return LocalPoints(places[order], vectors[order])

    def _at_scale(
        self, image: "Tensor", size: tuple[int, ...]
    ) -> tuple[Float32[np.ndarray, "n 2"], Float32[np.ndarray, "n dim"], Float32[np.ndarray, "n"]]:
        """Places in pixels of the photo of that size, vectors and scores."""
        import torch

        vectors, reliable, repeatable = maps(self._weights, image)
        highest = torch.nn.functional.max_pool2d(repeatable[None, None], 3, stride=1, padding=1)[0, 0]
        kept = (repeatable == highest) & (repeatable >= LEAST) & (reliable >= LEAST)
        y, x = kept.nonzero(as_tuple=True)
        scale = np.asarray([size[1] / image.shape[3], size[0] / image.shape[2]], np.float32)
        places = (torch.stack([x, y], dim=1).numpy().astype(np.float32) + np.float32(0.5)) * scale
        return places, vectors[:, y, x].T.numpy(), (reliable * repeatable)[y, x].numpy()

    def match(self, one: LocalPoints, other: LocalPoints) -> Int64[np.ndarray, "m 2"]:
        return mutual_nearest(one.vectors, other.vectors)


def _scales(image: "Tensor") -> Iterator["Tensor"]:
    """The photo, smaller and smaller; a small photo once, as it is."""
    import torch

    height, width = image.shape[2:]
    scale, yielded = 1.0, False
    while scale * max(height, width) >= SMALLEST or not yielded:
        size = round(height * scale), round(width * scale)
        if max(size) <= LARGEST:
            yielded = True
            same = size == (height, width)
            yield image if same else torch.nn.functional.interpolate(image, size, mode="bilinear", align_corners=False)
        scale /= STEP


def maps(weights: dict[str, "Tensor"], image: "Tensor") -> tuple["Tensor", "Tensor", "Tensor"]:
    """Of one photo: vectors (dim, height, width) of length one, how reliable each is, how repeatable."""
    from torch.nn import functional

    x = image
    for place, dilation in DILATIONS.items():
        kernel = weights[f"ops.{place}.weight"]
        padding = (kernel.shape[2] - 1) * dilation // 2
        x = functional.conv2d(x, kernel, weights[f"ops.{place}.bias"], padding=padding, dilation=dilation)
        if place != LAST:
            mean, variance = (weights[f"ops.{place + 1}.running_{what}"] for what in ("mean", "var"))
            x = functional.batch_norm(x, mean, variance, eps=EPSILON)
        if place <= RELU_UP_TO:
            x = functional.relu(x)
    squares = x**2
    sure = functional.conv2d(squares, weights["clf.weight"], weights["clf.bias"]).softmax(dim=1)[0, 1]
    seen = functional.softplus(functional.conv2d(squares, weights["sal.weight"], weights["sal.bias"])[0, 0])
    return functional.normalize(x, dim=1)[0], sure, seen / (1 + seen)


def read_r2d2(path: Path) -> dict[str, Any]:
    """The weights of a file as R2D2 writes them; nothing in it is run."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; local features r2d2 need a file of its weights, as in r2d2:FILE")
    contents = read_torch(path)
    state = contents.get("state_dict") if isinstance(contents, dict) else None
    if not isinstance(state, dict):
        raise WeightsError(f"{path} has no state_dict; give a file of R2D2's weights, such as r2d2_WASF_N16.pt")
    named = {re.sub("^module\\.", "", str(name)): value for name, value in state.items()}
    wanted = [f"ops.{place}.{what}" for place in DILATIONS for what in ("weight", "bias")]
    wanted += [f"ops.{place + 1}.running_{what}" for place in DILATIONS if place != LAST for what in ("mean", "var")]
    wanted += [f"{head}.{what}" for head in ("clf", "sal") for what in ("weight", "bias")]
    missing = [name for name in wanted if name not in named]
    if missing or named["ops.0.weight"].shape[1:] != (3, 3, 3):
        raise WeightsError(
            f"{path} is not R2D2's network: it lacks {len(missing)} of {len(wanted)} weights"
            + (f" ({missing[0]}, …)" if missing else "")
        )
    return {name: named[name].float() for name in wanted}
