"""The kinds of analysis: what each decides itself, what may be asked of it, and how much it shows unless told."""

import dataclasses

FEW_PHOTOS, FEW_IDS = 3, 5  # in a picture of the paper
NEAREST = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512)  # the paper's K
KEPT_FEATURES = (50, 100, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000)
ALL_SCALES = frozenset({"features_per_image", "attention"})
SCALE_1 = ALL_SCALES | {"scales"}


@dataclasses.dataclass(frozen=True)
class Kind:
    """`decides` are the settings of ExtractConfig that it sets itself.

    The others are defaults: the first so many `photos` (None: all), the so many strongest `ids`, the `top` photos of
    each, `counts` of features. What is None, or False, cannot be asked of it.
    """

    decides: frozenset[str]
    photos: int | None = None
    ids: int | None = None
    top: int | None = None
    counts: tuple[int, ...] | None = None
    codebook: bool = False


KINDS = {
    "attention": Kind(SCALE_1, photos=FEW_PHOTOS, ids=FEW_IDS),
    "attention-scales": Kind(ALL_SCALES, photos=FEW_PHOTOS, ids=1),
    "ids": Kind(SCALE_1, ids=FEW_IDS, top=6),
    "correlation": Kind(SCALE_1),
    "redundancy": Kind(SCALE_1, counts=NEAREST),
    "scales": Kind(frozenset({"attention"})),
    "words": Kind(ALL_SCALES, counts=KEPT_FEATURES, codebook=True),
}
