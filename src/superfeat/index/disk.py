"""Where the contents of an index lie, and how a change gets there: one folder, or a folder of shards (`shards`)."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from superfeat.index.codebook import Codebook
from superfeat.index.contents import Contents, describe, load_contents, verify_contents
from superfeat.index.journal import Record
from superfeat.index.manifest import MANIFEST, IndexInfo, Manifest
from superfeat.index.merging import Merging
from superfeat.index.names import Image
from superfeat.index.segments import Layout
from superfeat.index.snapshot import Snapshot
from superfeat.index.writer import adopt, compact, is_current, seal, sweep, write_records
from superfeat.storage.store import writer_lock

Stamp = list[tuple[str, int, int]]


class Held(Protocol):
    """What an index holds, as far as it is asked."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def next_id(self) -> int: ...

    def __len__(self) -> int: ...

    def find(self, names: Sequence[str]) -> dict[str, tuple[int, Image]]: ...

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]: ...

    def snapshot(self) -> Snapshot: ...

    def note_network(self, path: Path, network: str) -> None: ...


class Disk(Protocol):
    """Reads and changes what an index holds; contents go in and the contents to go on with come out."""

    @property
    def path(self) -> Path: ...

    def load(self, before: Any = None) -> Held:
        """What is there now; what `before` has open stays open."""

    def codebook(self) -> Codebook:
        """The words."""

    def stamp(self) -> Stamp:
        """Name, size and time of the files that every change touches."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other writers out."""

    def is_current(self, contents: Any) -> bool:
        """Whether nobody else has changed the index since `contents` were read."""

    def tidy(self, contents: Any) -> Held:
        """Finishes or removes what a killed writer left."""

    def write(self, contents: Any, records: Sequence[Record], bulk: bool) -> Held:
        """Makes records safe."""

    def compact(self, contents: Any) -> Iterator[Held]:
        """Frees the space of deleted images, step by step."""

    def merge(self, contents: Any, snapshots: Sequence[Snapshot]) -> Held:
        """Takes in the images of others."""

    def verify(self, contents: Any) -> Iterator[str]:
        """Reads everything; yields each file found whole."""

    def describe(self, contents: Any) -> IndexInfo:
        """Counts and sizes."""


class Folder:
    """The folder of an index that is one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, before: Contents | None = None) -> Contents:
        return load_contents(self.path, before)

    def codebook(self) -> Codebook:
        return Codebook.open(self.path / "codebook")

    def stamp(self) -> Stamp:
        return stamp_of(self.path, [self.path / MANIFEST, *self.path.glob("journal-*")])

    def locked(self) -> contextlib.AbstractContextManager[None]:
        return writer_lock(self.path)

    def is_current(self, contents: Contents) -> bool:
        return is_current(self.path, contents)

    def tidy(self, contents: Contents) -> Contents:
        sweep(self.path, contents.manifest)
        return contents

    def write(self, contents: Contents, records: Sequence[Record], bulk: bool) -> Contents:
        if any("notes" in record.facts for record in records):
            contents.upgrade(self.path)
        return write_records(self.path, contents, records, bulk)

    def compact(self, contents: Contents) -> Iterator[Contents]:
        return compact(self.path, contents)

    def merge(self, contents: Contents, snapshots: Sequence[Snapshot]) -> Contents:
        if contents.tail:
            contents = seal(self.path, contents)
        merging = Merging(contents)
        return adopt(self.path, contents, merging.segments(snapshots), merging.replaced)

    def verify(self, contents: Contents) -> Iterator[str]:
        return verify_contents(self.path, contents)

    def describe(self, contents: Contents) -> IndexInfo:
        return describe(contents, self.path)


def stamp_of(folder: Path, files: Sequence[Path]) -> Stamp:
    """Name, size and time of those of these files that are there."""
    found = []
    for file in sorted(files):
        with contextlib.suppress(OSError):
            facts = file.stat()
            found.append((str(file.relative_to(folder)), facts.st_size, facts.st_mtime_ns))
    return found
