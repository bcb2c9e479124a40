"""Local features by name, one file each, all with the same two calls."""

from superfeat.errors import ConfigError
from superfeat.mapping.local.interface import LocalMethod

NAMES = ("sift", "xfeat", "aliked", "disk")
R2D2 = "r2d2:"  # and a file of its weights


def load_local(name: str) -> LocalMethod:
    """The local features of this name."""
    if name == "sift":
        from superfeat.mapping.local.sift import ColmapSift

        return ColmapSift()
    if name == "xfeat":
        from superfeat.mapping.local.xfeat import MutualXFeat

        return MutualXFeat()
    if name in ("aliked", "disk"):
        from superfeat.mapping.local.lightglue import LightGlued

        return LightGlued("aliked" if name == "aliked" else "disk")
    if name.startswith(R2D2):
        from superfeat.mapping.local.r2d2 import MutualR2D2

        return MutualR2D2(name.removeprefix(R2D2))
    raise ConfigError(f"unknown local features '{name}'; known are {', '.join(NAMES)}, and {R2D2}FILE")
