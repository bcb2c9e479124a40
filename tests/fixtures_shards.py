"""Shards that answer from this process, as those of a cluster answer from theirs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from superfeat.index.part import ShardPart


class Here:
    """Shards in this process; those of `dead` do not answer."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.parts = [ShardPart(str(path), name) for name in names]
        self.dead: set[int] = set()

    def ask(self, method: str, *arguments: Any, shards: Sequence[int] | None = None) -> dict[int, Any]:
        asked = range(len(self.parts)) if shards is None else shards
        return {number: getattr(self.parts[number], method)(*arguments) for number in asked if number not in self.dead}

    def share(self, value: Any) -> Any:
        return value
