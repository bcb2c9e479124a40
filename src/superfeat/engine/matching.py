"""For those who want to be certain: the query matched with the first results by keypoints, which are kept in memory."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, UInt8

from superfeat.found.hits import FoundPhoto
from superfeat.found.keypoint_matches import KeypointMatch
from superfeat.geometry.keypoints import KeypointKind, Keypoints, find_keypoints
from superfeat.geometry.pairs import LEAST_INLIERS, PairRules
from superfeat.geometry.verify import match_photos
from superfeat.recent import Recent

KEPT_KEYPOINTS = 64  # photos that stay in memory: half a megabyte of keypoints and up to one of pixels each
FIRST_MATCHED = 20  # results that are matched

Read = Callable[[], UInt8[np.ndarray, "height width 3"]]


class Matcher:
    """Keypoints of photos, found once and kept for as long as there is room."""

    def __init__(self, kind: KeypointKind = "sift") -> None:
        self.rules = PairRules(kind=kind)
        self._kept: Recent[tuple[Keypoints, UInt8[np.ndarray, "height width 3"]]] = Recent(KEPT_KEYPOINTS)

    def match(self, name: str, query: tuple[str, Read], found: tuple[str, Read]) -> KeypointMatch:
        """Matches two photos, each given by a key that no other photo has and a way to read its pixels."""
        (mine, shown), (theirs, other) = self._keypoints(*query), self._keypoints(*found)
        matched = match_photos(mine, theirs)
        rules = self.rules
        certain = matched.agreement.holds(rules.inliers or LEAST_INLIERS[rules.kind], rules.spread)
        places = _fractions(matched.first, mine), _fractions(matched.second, theirs)
        inliers, covered = matched.agreement
        return KeypointMatch(name, inliers, certain, covered, *places, (shown, other))

    def _keypoints(self, key: str, read: Read) -> tuple[Keypoints, UInt8[np.ndarray, "height width 3"]]:
        found = self._kept.get(key)
        if found is None:
            pixels = read()
            found = find_keypoints(pixels, self.rules.kind, self.rules.keypoints), pixels
            self._kept.put(key, found)
        return found


def _fractions(places: np.ndarray, keypoints: Keypoints) -> Float64[np.ndarray, "n 2"]:
    return np.asarray(places, np.float64) / keypoints.size


def certain_first(hits: list[FoundPhoto]) -> list[FoundPhoto]:
    """Those whose keypoints match come first; otherwise the order stays."""
    return sorted(hits, key=lambda hit: not hit.certain)
