"""Where things are kept that can be made again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$SUPERFEAT_CACHE, or superfeat below the user's cache folder."""
    if "SUPERFEAT_CACHE" in os.environ:
        return Path(os.environ["SUPERFEAT_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "superfeat"
