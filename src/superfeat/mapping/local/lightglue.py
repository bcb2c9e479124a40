"""ALIKED's or DISK's points, joined by LightGlue (extra `lightglue`, the networks come with it)."""

import numpy as np
from jaxtyping import Int64, UInt8

from superfeat.geometry.keypoints import find_keypoints
from superfeat.geometry.lightglue import LightGlueKind, match_points, require_lightglue
from superfeat.mapping.local.interface import LocalPoints

MOST_POINTS = 2048
CENTRE = 0.5  # their places are those of pixels, and a pixel's centre lies half a pixel from its corner


class LightGlued:
    """Points by a network, pairs by another that looks at both photos."""

    def __init__(self, name: LightGlueKind, most: int = MOST_POINTS) -> None:
        require_lightglue()
        self.name: str = name
        self._kind, self._most = name, most

    def find(self, pixels: UInt8[np.ndarray, "height width 3"]) -> LocalPoints:
        found = find_keypoints(pixels, self._kind, self._most)
        return LocalPoints(found.places + np.float32(CENTRE), found.vectors)

    def match(self, one: LocalPoints, other: LocalPoints) -> Int64[np.ndarray, "m 2"]:
        sides = ((points.places - np.float32(CENTRE), points.vectors) for points in (one, other))
        return match_points(self._kind, *sides)
