"""A photo as the network sees it, and what there is to say of it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from superfeat.addresses.address import Where
from superfeat.config import ExtractConfig
from superfeat.errors import ImageError
from superfeat.images import Box, Photo, Skipped, read_image


class Decoded(NamedTuple):
    """A photo, limited and upright as the settings have it, and what there is to say of it."""

    pixels: UInt8[np.ndarray, "height width 3"]
    note: str | None


def read_for(config: ExtractConfig, source: str | Where | bytes, box: Box | None = None) -> Decoded:
    """A photo decoded as these settings say. ImageError if it cannot be."""
    notes: list[str] = []
    pixels = read_image(
        source,
        max_side=config.max_side,
        upright=config.upright,
        box=box,
        draft=config.draft,
        bilinear=config.resampling == "bilinear",
        on_note=notes.append,
    )
    return Decoded(pixels, "; ".join(notes) or None)


def decode(photo: Photo, config: ExtractConfig) -> Decoded | Skipped:
    """The same, or why not."""
    try:
        return read_for(config, photo.where, photo.box)
    except ImageError as error:
        return Skipped(photo.name, str(error))
