"""One photo -> features by ONNX Runtime and numpy alone: torch takes more than a second to import.

The features are those of `extract` to rounding, and have the same digest. FIRe and HOW look at photos so, the
other methods do not.
"""

import copy
import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from superfeat.config import ExtractConfig, NetworkConfig
from superfeat.errors import ConfigError, WeightsError
from superfeat.extraction.decode import Decoded
from superfeat.extraction.joining import FeatureKind, ScaleFeatures, join_scales
from superfeat.extraction.memory import default_workers
from superfeat.features import Features
from superfeat.images import normalise, scaled_size
from superfeat.settings import overlay
from superfeat.threads import worker_pool
from superfeat.weights.facts import is_taught_by
from superfeat.weights.sealed import OnnxFacts, open_sealed

Pixels = Float32[np.ndarray, "3 height width"]


class Manner(NamedTuple):
    """What superfeat.methods says of a method (a test compares them), which cannot be imported without torch."""

    recompute: bool  # scales are ratios of whole sizes
    relative: bool  # strengths are shares of a photo's largest


MANNERS = {"fire": Manner(recompute=False, relative=False), "how": Manner(recompute=True, relative=True)}


class Onlooker:
    """An exported network that looks at photos without torch. Threads may share it."""

    def __init__(self, session: Any, facts: OnnxFacts) -> None:
        self._session, self.digest, self.provenance = session, facts["digest"], facts["provenance"]
        method = str(facts["network"].get("method"))
        if method not in MANNERS or facts["network"].get("trunk", {}).get("layout") is not None:
            raise WeightsError(f"a network of method '{method}' on such a trunk looks at photos with torch alone")
        self.config: NetworkConfig = overlay(NetworkConfig(), facts["network"])
        self.manner = MANNERS[method]
        known = [output.name for output in session.get_outputs()]
        self._outputs = [name for name in ("vectors", "strengths", "grid", "maps") if name in known]
        lit = self.config.lit
        dim, count = session.get_outputs()[known.index("vectors")].shape[-1], None if lit is None else lit.templates
        self.kind = FeatureKind(dim, count, self.config.points is not None, self.manner.relative)

    @classmethod
    def open(cls, path: Path) -> "Onlooker":
        """Of an .onnx file that superfeat exported. WeightsError if it is none, or of a method that needs torch."""
        session, facts = open_sealed(path)
        try:
            return cls(session, facts)
        except ConfigError as error:
            raise WeightsError(f"{path}: {error}") from error

    def standing_for(self, network: str | None) -> "Onlooker":
        """As `Network.standing_for`: a student's features are taken for those of the teacher with this digest."""
        if not is_taught_by(self.provenance, network):
            return self
        student = copy.copy(self)
        student.digest = str(network)
        return student

    def look(self, decoded: Decoded, config: ExtractConfig, *, name: str = "", workers: int | None = None) -> Features:
        """The features of one decoded photo."""
        height, width = decoded.pixels.shape[:2]
        scales = [scale for scale in config.scales if min(scaled_size(height, width, scale)) >= 1]
        image = normalise(decoded.pixels, self.config.trunk.mean, self.config.trunk.std)
        with worker_pool(workers or default_workers()) as pool:
            parts = list(pool.map(functools.partial(self._run_scale, image, config.attention), scales))
        found = join_scales(self.kind, scales, parts, config)
        size = width, height
        return dataclasses.replace(found, name=name, image_size=size, network=self.digest, note=decoded.note)

    def _run_scale(self, image: Pixels, attention: str, scale: float) -> ScaleFeatures:
        scaled = resize(image, scale, recompute=self.manner.recompute)
        results = self._session.run(self._outputs, {"image": scaled[None]})
        found = dict(zip(self._outputs, results, strict=True))
        maps = found["maps"][0] if "maps" in found else None
        grid = self._grid(scaled, found)
        regions = None if attention == "none" else find_regions(grid, maps)
        kept = maps if attention == "maps" else None
        return ScaleFeatures(found["vectors"][0], found["strengths"][0], regions, kept, grid)

    def _grid(self, scaled: Pixels, found: dict[str, np.ndarray]) -> tuple[int, int]:
        """Height and width of the trunk's map."""
        if "maps" in found:
            height, width = found["maps"].shape[2:]
        elif "grid" in found:
            height, width = (int(side) for side in found["grid"])
        else:
            stride = 2 ** (self.config.trunk.stages + 1)
            height, width = (-(-side // stride) for side in scaled.shape[1:])  # each halving rounds up
        return height, width


def resize(image: Pixels, scale: float, *, recompute: bool) -> Float32[np.ndarray, "3 h w"]:
    """Bilinear without antialias, as `superfeat.extraction.scaling.resize` has it of torch."""
    if scale == 1:
        return image
    height, width = image.shape[1:]
    sizes = scaled_size(height, width, scale)
    steps = [side / size if recompute else 1 / scale for side, size in zip((height, width), sizes, strict=True)]
    (top, bottom, low), (left, right, along) = (
        _neighbours(side, size, step) for side, size, step in zip((height, width), sizes, steps, strict=True)
    )
    upper, lower = image[:, top], image[:, bottom]
    rows = upper + low[:, None] * (lower - upper)
    before, behind = rows[:, :, left], rows[:, :, right]
    return np.ascontiguousarray(before + along * (behind - before))


def _neighbours(side: int, size: int, step: float) -> tuple[np.ndarray, np.ndarray, Float32[np.ndarray, " size"]]:
    """For each pixel of a scaled line: the two that it lies between, and how far it is from the first.

    torch copies a line whose length stays, whatever the factor (two pixels times 1.414 are two).
    """
    if size == side:
        return np.arange(size), np.arange(size), np.zeros(size, np.float32)
    places = np.maximum((np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(step) - np.float32(0.5), 0)
    first = np.minimum(places.astype(np.int64), side - 1)
    return first, np.minimum(first + 1, side - 1), np.clip(places - first, 0, 1).astype(np.float32)


def find_regions(
    grid: tuple[int, int], maps: Float32[np.ndarray, "n height width"] | None
) -> Float32[np.ndarray, "n 4"]:
    """Centroid x, y and standard deviation in x, y of each feature's attention, as fractions of the image."""
    height, width = grid
    x, y = ((np.arange(side, dtype=np.float32) + np.float32(0.5)) / np.float32(side) for side in (width, height))
    places = np.stack([part.ravel() for part in np.meshgrid(x, y)], axis=1)
    within = 1 / (np.square(np.asarray([width, height], np.float32)) * 12)  # a place is a cell
    if maps is None:
        return np.concatenate([places, np.broadcast_to(np.sqrt(within), places.shape)], axis=1)
    flat = maps.reshape(len(maps), -1)
    centroids = flat @ places
    variances = flat @ np.square(places) - np.square(centroids)
    return np.concatenate([centroids, np.sqrt(np.maximum(variances, 0) + within)], axis=1).astype(np.float32)
