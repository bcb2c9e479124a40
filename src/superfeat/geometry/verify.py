"""Geometric verification: matches of keypoints that agree on one homography."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from superfeat.geometry.keypoints import Keypoints, opencv
from superfeat.geometry.lightglue import LIGHTGLUED, match_points

KEYPOINT_RATIO = 0.85  # Lowe's: the nearest must be this much nearer than the second
LEAST_ALIKE = 0.82  # product of two XFeat vectors that may be the same point
TOLERANCE = 4.0  # pixels that an inlier may be off
RANSAC_ROUNDS = 400
CONFIDENCE = 0.99
LEAST_MATCHES = 8  # fewer cannot become a verified pair, whatever they agree on


class Agreement(NamedTuple):
    """How many matches agree on one homography, and which share of each photo their convex hull covers."""

    inliers: int
    covered: tuple[float, float]

    def holds(self, inliers: int, spread: float) -> bool:
        """Whether there are enough inliers, spread over enough of both photos."""
        return self.inliers >= inliers and min(self.covered) >= spread


class MatchedKeypoints(NamedTuple):
    """The matches of two photos that agree on one homography: their places in both, and how much they cover."""

    agreement: Agreement
    first: Float32[np.ndarray, "inliers 2"]
    second: Float32[np.ndarray, "inliers 2"]


NO_AGREEMENT = Agreement(0, (0.0, 0.0))
NO_MATCH = MatchedKeypoints(NO_AGREEMENT, np.empty((0, 2), np.float32), np.empty((0, 2), np.float32))


def agreement_between(a: Keypoints, b: Keypoints) -> Agreement:
    """Matches the keypoints of two photos and counts those that one homography explains (MAGSAC++)."""
    return match_photos(a, b).agreement


def match_photos(a: Keypoints, b: Keypoints) -> MatchedKeypoints:
    """The same, with the places of those that agree."""
    matches = match_keypoints(a, b)
    if len(matches) < LEAST_MATCHES:
        return NO_MATCH
    from_a, to_b = a.places[matches[:, 0]], b.places[matches[:, 1]]
    cv2 = opencv()
    transform, mask = cv2.findHomography(
        from_a, to_b, cv2.USAC_MAGSAC, TOLERANCE, maxIters=RANSAC_ROUNDS, confidence=CONFIDENCE
    )
    if transform is None or mask is None:
        return NO_MATCH
    inliers: Bool[np.ndarray, " matches"] = mask.ravel().astype(bool)
    # Matches that share a place (a repeated pattern onto one point) count once.
    distinct = min(len(np.unique(np.rint(side[inliers]), axis=0)) for side in (from_a, to_b))
    covered = _covered(from_a[inliers], a.size), _covered(to_b[inliers], b.size)
    return MatchedKeypoints(Agreement(distinct, covered), from_a[inliers], to_b[inliers])


def match_keypoints(a: Keypoints, b: Keypoints) -> Int64[np.ndarray, "matches 2"]:
    """Keypoints that are the same, as rows (of a, of b): ALIKED's and DISK's by LightGlue; of the others those that are
    each other's nearest, SIFT's by the ratio test, XFeat's by how alike they are.
    """
    if a.kind in LIGHTGLUED:
        return match_points(a.kind, (a.places, a.vectors), (b.places, b.vectors))
    if min(len(a.vectors), len(b.vectors)) < 2:
        return np.empty((0, 2), np.int64)
    products = a.vectors @ b.vectors.T
    forth, back = products.argmax(axis=1), products.argmax(axis=0)
    own = np.arange(len(products))
    good = back[forth] == own
    if a.kind == "xfeat":
        good &= products[own, forth] >= LEAST_ALIKE
    else:
        good &= _distinct(products, forth) & _distinct(products.T, back)[forth]
    return np.stack((own[good], forth[good]), axis=1)


def _distinct(products: Float32[np.ndarray, "n m"], nearest: Int64[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Whether the nearest of each row is enough nearer than the second; distances^2 are 2 - 2 x product."""
    rows = np.arange(len(products))
    rest = products.copy()
    rest[rows, nearest] = -1.0
    distinct: np.ndarray = 1 - products[rows, nearest] <= KEYPOINT_RATIO**2 * (1 - rest.max(axis=1))
    return distinct


def _covered(places: Float32[np.ndarray, "n 2"], size: tuple[int, int]) -> float:
    if len(places) < 3:
        return 0.0
    cv2 = opencv()
    return float(cv2.contourArea(cv2.convexHull(places)) / (size[0] * size[1]))
