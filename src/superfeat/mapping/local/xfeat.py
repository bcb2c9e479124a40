"""XFeat, a small network (extra `xfeat`); pairs are mutual nearest neighbours."""

import numpy as np
from jaxtyping import Int64, UInt8

from superfeat.geometry.keypoints import find_keypoints
from superfeat.mapping.local.interface import LocalPoints, mutual_nearest

MOST_POINTS = 2048
CENTRE = 0.5  # its places are those of pixels, and a pixel's centre lies half a pixel from its corner


class MutualXFeat:
    """XFeat's points."""

    name = "xfeat"

    def find(self, pixels: UInt8[np.ndarray, "height width 3"]) -> LocalPoints:
        found = find_keypoints(pixels, "xfeat", MOST_POINTS)
        return LocalPoints(found.places + np.float32(CENTRE), found.vectors)

    def match(self, one: LocalPoints, other: LocalPoints) -> Int64[np.ndarray, "m 2"]:
        return mutual_nearest(one.vectors, other.vectors)
