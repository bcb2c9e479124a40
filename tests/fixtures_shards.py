"""Shards that answer from this process, as those of a cluster answer from theirs; workers that die of photos."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from superfeat.cluster.photos import PhotoWorker
from superfeat.images import Photo
from superfeat.index.part import ShardPart
from superfeat.index.vocabulary import Vocabulary


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


class MortalWorker(PhotoWorker):
    """Dies of every photo called poison, and once of each that is called fright."""

    def look(self, photos: list[Photo], vocabulary: Vocabulary | None) -> list[Any]:
        for photo in photos:
            survived = photo.path.with_suffix(".survived")
            if "poison" in photo.name or ("fright" in photo.name and not survived.exists()):
                survived.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().look(photos, vocabulary)
