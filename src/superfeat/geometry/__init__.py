"""Whether two photos show the same surface: local features of both that agree on one transform."""

from superfeat.geometry.keypoints import Keypoints, find_keypoints
from superfeat.geometry.verify import Agreement, agreement_between

__all__ = ["Agreement", "Keypoints", "agreement_between", "find_keypoints"]
