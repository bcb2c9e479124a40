"""From the trunk's map to one vector: MAC, SPoC, GeM and R-MAC, and the squares that R-MAC looks at.

Maps are (batch, channels, height, width), vectors (batch, channels). Nothing is normalised at the end unless said.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

GEM_FLOOR = 1e-6
NORM_FLOOR = 1e-6  # added to norms by cirtorch and SOLAR
OVERLAP = 0.4  # of neighbouring squares along the longer side, as near as can be
MOST_SQUARES = 7  # along the longer side, at the first level
Kind = Literal["mac", "spoc", "gem", "rmac"]
Maps = Float[Tensor, "batch channels height width"]
Vectors = Float[Tensor, "batch channels"]
Square = tuple[int, int, int, int]  # y, x, height, width


def unit(x: Float[Tensor, "*batch dim"], floor: float = NORM_FLOOR) -> Float[Tensor, "*batch dim"]:
    """x / (norm + floor)."""
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return x / (length + floor)


def mac(maps: Maps) -> Vectors:
    """The largest activation of each channel."""
    return maps.amax(dim=(-2, -1))


def spoc(maps: Maps) -> Vectors:
    """The mean activation of each channel."""
    return maps.mean(dim=(-2, -1))


def gem(maps: Maps, p: float | Tensor = 3.0) -> Vectors:
    """(mean of max(x, 1e-6)^p)^(1/p): between SPoC (1) and MAC (infinity). `p` may differ from channel to channel."""
    power = p.reshape(-1, 1, 1) if isinstance(p, Tensor) else p
    root = 1 / (p.reshape(-1) if isinstance(p, Tensor) else p)
    return maps.clamp(min=GEM_FLOOR).pow(power).mean(dim=(-2, -1)).pow(root)


def rmac(maps: Maps, levels: int = 3) -> Vectors:
    """The sum, over the whole map and squares of several sizes, of their MAC vectors of length one."""
    return regional(maps, mac, levels).sum(dim=1)


def regional(maps: Maps, pool: Callable[[Maps], Vectors], levels: int = 3) -> Float[Tensor, "batch squares channels"]:
    """The vector of each square, of length one; the first is the whole map."""
    height, width = maps.shape[-2:]
    parts = [pool(maps[..., y : y + h, x : x + w]) for y, x, h, w in squares(height, width, levels)]
    return unit(torch.stack(parts, dim=1))


def squares(height: int, width: int, levels: int = 3) -> list[Square]:
    """The whole map, then squares with the side 2 w / (l + 1) for each level l, evenly spread; w is the shorter side.

    Positions are computed in 32 bits, as the released code does: the last digit decides where a square begins.
    """
    short = min(height, width)
    extra = _extra(short, max(height, width))
    found: list[Square] = [(0, 0, height, width)]
    for level in range(1, levels + 1):
        side = 2 * short // (level + 1)
        if side:
            rows, columns = (_starts(size, side, level + (extra if size > short else 0)) for size in (height, width))
            found += [(y, x, side, side) for y in rows for x in columns]
    return found


def _extra(short: int, long: int) -> int:
    """How many squares more there are along the longer side."""
    if long == short:
        return 0
    counts = np.arange(2, MOST_SQUARES + 1, dtype=np.float32)
    steps = np.float32(long - short) / (counts - 1)
    overlaps = (np.float32(short**2) - short * steps) / np.float32(short**2)
    return int(np.abs(overlaps - np.float32(OVERLAP)).argmin()) + 1


def _starts(size: int, side: int, count: int) -> list[int]:
    half = side // 2 - 1
    step = 0.0 if count == 1 else (size - side) / (count - 1)
    places = np.floor(np.float32(half) + np.arange(count, dtype=np.float32) * np.float32(step)) - half
    return [int(place) for place in places]


class Pooling(nn.Module):
    """One of the poolings as a module; GeM learns its power."""

    def __init__(self, kind: Kind, p: float = 3.0, levels: int = 3) -> None:
        super().__init__()
        self.kind, self.levels = kind, levels
        self.p = nn.Parameter(torch.full((1,), p)) if kind == "gem" else None

    def forward(self, maps: Maps) -> Vectors:
        if self.p is not None:
            return gem(maps, self.p)
        if self.kind == "rmac":
            return rmac(maps, self.levels)
        return mac(maps) if self.kind == "mac" else spoc(maps)
