"""What the activations of a trunk range over: learned once, from photos, and kept beside the weights (int8.json).

So whoever has the network makes the same int8 network of it, on any machine, without photos.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np

from superfeat.errors import StoreError, WeightsError
from superfeat.storage.records import as_record

RANGES_FILE = "int8.json"  # in a network's folder
FORMAT, VERSION = "superfeat-int8", 1


class RangesFacts(TypedDict):
    """int8.json of a network's folder."""

    format: str
    version: int
    network: str
    photos: int
    max_side: int
    ranges: dict[str, list[float]]


@dataclasses.dataclass(frozen=True)
class Ranges:
    """The least and the largest value that each tensor of a trunk had on some photos."""

    network: str  # digest of the float32 network
    photos: int
    max_side: int
    values: Mapping[str, tuple[float, float]]  # by the tensor's name in the exported graph

    def as_bytes(self) -> bytes:
        """int8.json."""
        facts: RangesFacts = {
            "format": FORMAT,
            "version": VERSION,
            "network": self.network,
            "photos": self.photos,
            "max_side": self.max_side,
            "ranges": {name: list(ends) for name, ends in sorted(self.values.items())},
        }
        return (json.dumps(facts, indent=1) + "\n").encode()


def read_ranges(path: Path) -> Ranges:
    """The ranges in an int8.json. WeightsError if it is damaged, or of a newer superfeat."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(read, dict) and read.get("format") == FORMAT and read.get("version") != VERSION:
            raise WeightsError(f"{path} has format {read.get('version')}; this superfeat reads {VERSION}: upgrade it")
        facts = as_record(RangesFacts, read, path)
        ends = {name: (float(least), float(most)) for name, (least, most) in facts["ranges"].items()}
    except (OSError, ValueError, TypeError, StoreError) as error:
        raise WeightsError(f"{path} is damaged ({error}); learn it again with superfeat weights ranges") from error
    good = all(np.isfinite(pair).all() and pair[0] <= pair[1] for pair in ends.values())
    if facts["format"] != FORMAT or not ends or not good:
        raise WeightsError(f"{path} does not hold ranges for int8; learn them with superfeat weights ranges")
    return Ranges(facts["network"], facts["photos"], facts["max_side"], ends)
