"""Local features by name, one file each, all with the same two calls."""

from superfeat.errors import ConfigError
from superfeat.mapping.local.interface import LocalMethod

NAMES = ("sift", "xfeat")


def load_local(name: str) -> LocalMethod:
    """The local features of this name."""
    if name == "sift":
        from superfeat.mapping.local.sift import ColmapSift

        return ColmapSift()
    if name == "xfeat":
        from superfeat.mapping.local.xfeat import MutualXFeat

        return MutualXFeat()
    raise ConfigError(f"unknown local features '{name}'; known are {', '.join(NAMES)}")
