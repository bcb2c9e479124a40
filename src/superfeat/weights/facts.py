"""What a network's file says of itself, read without torch."""

import json
from pathlib import Path
from typing import Any, TypedDict

from superfeat.errors import StoreError, WeightsError
from superfeat.settings import Values
from superfeat.storage.records import as_record

FORMAT = "superfeat-network"
VERSION = 1
ORIGIN = "origin"  # in the provenance of an int8 network: the digest of the float32 one that it was made from
Provenance = dict[str, Any]  # where weights come from, in the words of whoever made them
TAUGHT_BY = "teacher"  # of a provenance: the digest of the network that it learned from


class NetworkFacts(TypedDict):
    """config.json of a network's folder."""

    format: str
    version: int
    network: Values  # of NetworkConfig
    digest: str
    provenance: Provenance


def is_taught_by(provenance: Provenance, network: str | None) -> bool:
    """Whether weights of this provenance learned from the network with this digest, or are made of it in int8."""
    return network is not None and network in (provenance.get(TAUGHT_BY), provenance.get(ORIGIN))


def read_config(folder: Path) -> NetworkFacts:
    """The facts in a network folder's config.json."""
    path = folder / "config.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"cannot read {path}: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise WeightsError(f"{path} does not describe a superfeat network")
    if facts.get("version") != VERSION:
        raise WeightsError(
            f"{path} has format version {facts.get('version')}; this superfeat reads {VERSION}: upgrade it"
        )
    try:
        return as_record(NetworkFacts, {"provenance": {}, **facts}, path)
    except StoreError as error:
        raise WeightsError(str(error)) from error
