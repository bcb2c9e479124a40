"""A photo at a scale, and where in the photo the features of a scale look."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.local import Local

ROUNDED = "rounded"  # how `resize` makes sizes, for DELF


def resize(
    image: Float[Tensor, "batch 3 height width"], scale: float, recompute: bool | str
) -> Float[Tensor, "batch 3 h w"]:
    """Bilinear without antialias. `recompute` takes the ratio of the sizes, which are cut off, as the scale, as HOW
    does; ROUNDED the ratio of sizes that are rounded, half to even, as DELF does."""
    if scale == 1:
        return image
    if recompute == ROUNDED:
        sizes = [max(1, round(side * float(np.float32(scale)))) for side in image.shape[-2:]]
        return nn.functional.interpolate(image, size=sizes, mode="bilinear", align_corners=False)
    return nn.functional.interpolate(
        image, scale_factor=scale, mode="bilinear", align_corners=False, recompute_scale_factor=bool(recompute)
    )


def find_regions(local: Local, steps: tuple[float, float] | None = None) -> Float[Tensor, "n 4"]:
    """Centroid x, y and standard deviation in x, y of each feature's attention, as fractions of the image.

    A place is in the middle of its share of the image; with `steps`, the height and width of one place as fractions,
    where its receptive field is centred, as DELF has it: on pixel 0 for the first.
    """
    height, width = local.grid
    device = local.vectors.device
    columns, rows = (torch.arange(side, device=device) for side in (width, height))
    x, y = (columns + 0.5) / width, (rows + 0.5) / height
    if steps is not None:
        x, y = (columns * steps[1]).clamp(max=1), (rows * steps[0]).clamp(max=1)
    x, y = x.expand(height, width).flatten(), y.unsqueeze(1).expand(height, width).flatten()
    within = torch.tensor([width, height], device=device).float().square().mul(12).reciprocal()  # a place is a cell
    places = torch.stack((x, y), dim=1)
    if local.maps is None:
        return torch.cat((places, within.sqrt().expand(len(places), 2)), dim=1)
    maps = local.maps[0].flatten(1)
    centroids = maps @ places
    variances = maps @ places.square() - centroids.square()
    return torch.cat((centroids, (variances.clamp(min=0) + within).sqrt()), dim=1)
