"""How an index changes on disk: records into the journal, the journal into a segment, segments into larger ones.

Every step writes new files, syncs them, and then replaces the manifest as a whole; only then are the old files removed.
Whatever a killed writer left behind is swept away by the next one.
"""

import collections
import contextlib
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

import numpy as np

from superfeat.config import VECTOR_KERNELS, IndexConfig
from superfeat.errors import StoreError
from superfeat.index.codebook import Codebook
from superfeat.index.contents import SEGMENTS, Contents, compact_groups, next_join
from superfeat.index.journal import HEADER, Record, append, encode, new_journal
from superfeat.index.manifest import (
    FORMAT,
    MANIFEST,
    VECTORS_VERSION,
    VERSION,
    DeadFacts,
    IndexFacts,
    Manifest,
    SegmentFacts,
    read_manifest,
    write_manifest,
)
from superfeat.index.names import NotedNames
from superfeat.index.segments import Segment, join_segments, verify_segment, write_renamed, write_segment
from superfeat.settings import as_dict
from superfeat.storage.store import explained, sync, sync_folder, umask

JOURNAL, DEAD = "journal-{:06}", "dead-{:06}.npy"


def create_folder(
    folder: Path,
    codebook: Codebook,
    config: IndexConfig,
    network: str | None,
    facts: IndexFacts,
    *,
    next_id: int = 0,
) -> None:
    """An empty index, there whole or not at all. Its first image will have the id `next_id`."""
    require_free(folder)
    manifest: Manifest = {
        "format": FORMAT,
        "version": VECTORS_VERSION if config.kernel in VECTOR_KERNELS else VERSION,
        "made": uuid.uuid4().hex,
        "words": codebook.words,
        "dim": codebook.dim,
        "kernel": config.kernel,
        "codebook": codebook.digest,
        "network": network,
        "settings": as_dict(config),
        "facts": facts,
        "segments": [],
        "dead": None,
        "journal": JOURNAL.format(0),
        "next_id": next_id,
        "next_file": 1,
    }
    with explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
        try:
            (beside / SEGMENTS).mkdir()
            codebook.save(beside / "codebook")
            new_journal(beside / manifest["journal"])
            write_manifest(beside, manifest)
            beside.chmod(0o777 & ~umask())
            beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        sync_folder(folder.parent)


def require_free(folder: Path) -> None:
    """StoreError unless a new index can be made there."""
    if (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} exists already; open it, or choose another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(f"{folder} exists already and is no index; choose a new folder for it")


def is_current(path: Path, contents: Contents) -> bool:
    """Whether nobody else has changed the index since `contents` were read."""
    with explained(path, "read"):
        manifest = read_manifest(path)
        return manifest == contents.manifest and (path / manifest["journal"]).stat().st_size == contents.end


def sweep(path: Path, manifest: Manifest) -> None:
    """Removes what the manifest does not name: the leavings of a killed writer."""
    dead = manifest["dead"]
    files = {manifest["journal"], dead["file"] if dead else None}
    folders = {facts["folder"] for facts in manifest["segments"]}
    with explained(path):
        for pattern in ("journal-*", "dead-*", f".{MANIFEST}.*"):
            for file in path.glob(pattern):
                if file.name not in files:
                    file.unlink(missing_ok=True)
        for folder in (path / SEGMENTS).iterdir():
            if folder.name not in folders and folder.name.isdigit():
                shutil.rmtree(folder)


def write_records(path: Path, contents: Contents, records: Sequence[Record], bulk: bool) -> Contents:
    """Makes the records safe; returns the contents to go on with."""
    for some in _parts(records, *contents.most_at_once()):
        contents.take(some, append(path / contents.manifest["journal"], contents.end, some))
        if contents.tail_is_full(bulk):
            contents = seal(path, contents)
    return contents


def _parts(records: Sequence[Record], most_images: int, most_postings: int) -> Iterator[list[Record]]:
    """Each small enough to become a segment together with what is in the journal already."""
    part: list[Record] = []
    postings = 0
    for record in records:
        part.append(record)
        postings += 0 if record.words is None else len(record.words)
        if len(part) >= most_images or postings >= most_postings:
            yield part
            part, postings = [], 0
    if part:
        yield part


def seal(path: Path, contents: Contents) -> Contents:
    """The journal becomes a segment, its notes go to the images of which they speak, small segments are joined."""
    number = contents.manifest["next_file"]
    segments = list(contents.manifest["segments"])
    tail = contents.tail_segment()
    renamed: set[str] = set()
    with _undone_on_failure(path):
        for place, segment in enumerate(contents.segments):
            if isinstance(segment.names, NotedNames):
                before = segments[place]["folder"]
                folder = path / SEGMENTS / f"{number:06}"
                segments[place] = write_renamed(segment, path / SEGMENTS / before, segments[place], folder)
                renamed.add(before)
                number += 1
        if tail is not None:
            segments.append(write_segment(tail, path / SEGMENTS / f"{number:06}"))
        contents = _commit(path, contents, segments, number + 1, fresh_journal=True, renamed=renamed)
    while (group := next_join(contents.segments, contents.alive, contents.layout)) is not None:
        contents = join_group(path, contents, group)
    return contents


def join_group(path: Path, contents: Contents, group: slice) -> Contents:
    """One segment in the place of several; their dead images are gone."""
    number = contents.manifest["next_file"]
    segments = list(contents.manifest["segments"])
    parts, masks = contents.segments[group], contents.alive[group]
    with _undone_on_failure(path):
        for segment, facts in zip(parts, segments[group], strict=True):  # damage must not get new checksums
            collections.deque(verify_segment(segment, path / SEGMENTS / facts["folder"], facts), maxlen=0)
        if any(mask.any() for mask in masks):
            joined = join_segments(parts, masks)
            segments[group] = [write_segment(joined, path / SEGMENTS / f"{number:06}")]
        else:
            segments[group] = []
        return _commit(path, contents, segments, number + 1)


def compact(path: Path, contents: Contents) -> Iterator[Contents]:
    """Yields the contents after each step; at the end nothing of a deleted image is left, and segments are full."""
    if contents.is_best_as_journal():
        kept = contents.living_records()
        if HEADER.size + sum(len(encode(record)) for record in kept) != contents.end:
            yield _commit(path, contents, [], contents.manifest["next_file"], True, kept=kept)
        return
    if contents.tail or contents.notes:
        contents = seal(path, contents)
        yield contents
    groups = compact_groups(contents.segments, contents.alive, contents.layout)
    for group in reversed(groups):  # from the end, so that the places of the earlier ones stay
        if group.stop - group.start > 1 or not contents.alive[group.start].all():
            contents = join_group(path, contents, group)
            yield contents
    if contents.manifest["dead"] is not None or contents.end > HEADER.size:
        contents = _commit(path, contents, list(contents.manifest["segments"]), contents.manifest["next_file"], True)
        yield contents
    sweep(path, contents.manifest)


def adopt(path: Path, contents: Contents, segments: Iterable[Segment], replaced: Set[int]) -> Contents:
    """Takes in segments whose ids follow the index's own, all at once; the images that they replace die with that.

    `replaced` is looked at when all segments are written.
    """
    number = contents.manifest["next_file"]
    facts: list[SegmentFacts] = []
    following = contents.next_id
    with _undone_on_failure(path):
        for segment in segments:
            facts.append(write_segment(segment, path / SEGMENTS / f"{number:06}"))
            following = max(following, int(segment.images[-1]) + 1)
            number += 1
        if not facts:
            return contents
        every = [*contents.manifest["segments"], *facts]
        return _commit(path, contents, every, number, next_id=following, replaced=sorted(replaced))


def _commit(
    path: Path,
    contents: Contents,
    segments: list[SegmentFacts],
    number: int,
    fresh_journal: bool = False,
    *,
    next_id: int | None = None,
    replaced: Sequence[int] = (),
    renamed: Set[str] = frozenset(),
    kept: Sequence[Record] = (),
) -> Contents:
    """Replaces the manifest: the one moment at which the change happens. `renamed` segments go on in other folders.

    A fresh journal begins with the records that are `kept`.
    """
    following = contents.next_id if next_id is None else next_id
    dead = contents.dead({facts["folder"] for facts in segments} | renamed, replaced)
    dead = np.concatenate([dead, np.asarray([image for image in replaced if image >= contents.next_id], np.int64)])
    manifest: Manifest = {
        **contents.manifest,
        "segments": segments,
        "next_id": following,
        "next_file": number + 2,
        "dead": _write_dead(path, DEAD.format(number), dead) if len(dead) else None,
    }
    if fresh_journal:
        manifest["journal"] = JOURNAL.format(number + 1)
        new_journal(path / manifest["journal"])
    if kept:
        append(path / manifest["journal"], HEADER.size, kept)
        manifest["version"] = max(VERSION, manifest["version"])  # 1 took the ids of a journal for a row without gaps
    write_manifest(path, manifest)
    new = Contents(path, manifest, contents)
    with contextlib.suppress(StoreError):  # the next writer's sweep finds them
        sweep(path, manifest)
    return new


def _write_dead(path: Path, name: str, dead: np.ndarray) -> DeadFacts:
    with explained(path / name), (path / name).open("wb") as file:
        np.save(file, dead)
        sync(file)
    return {"file": name, "count": len(dead), "crc32": zlib.crc32(dead.tobytes())}


@contextlib.contextmanager
def _undone_on_failure(path: Path) -> Iterator[None]:
    """A full disk gets its space back at once."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            sweep(path, read_manifest(path))
        raise
