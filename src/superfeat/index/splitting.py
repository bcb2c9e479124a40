"""Shards out of an index, another number of shards, and one index out of shards: same images, ids and answers."""

import collections
import contextlib
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, UInt16

from superfeat.config import IndexConfig
from superfeat.errors import SuperfeatError
from superfeat.index.codebook import Codebook
from superfeat.index.contents import load_contents
from superfeat.index.index import Index
from superfeat.index.kernel import SEGMENT_IMAGES, Postings
from superfeat.index.manifest import MANIFEST, IndexFacts
from superfeat.index.names import Image, MemoryNames
from superfeat.index.postings import join_postings
from superfeat.index.segments import Segment
from superfeat.index.shards import (
    ACROSS,
    SHARD,
    ShardFolders,
    is_sharded,
    new_manifest,
    shard_of,
    write_shards_manifest,
)
from superfeat.index.snapshot import Snapshot
from superfeat.index.writer import adopt, create_folder, require_free
from superfeat.storage.store import explained, sync_folder, umask
from superfeat.work import Work, at_once

MOST_SHARDS = 4096


class Splitting(NamedTuple):
    """How far it is: `done` of `total` images are where they belong."""

    done: int
    total: int


class Places(NamedTuple):
    """Living images in the order of their ids: where each lies, and how many words it has."""

    ids: Int64[np.ndarray, "n"]
    segments: Int32[np.ndarray, "n"]
    numbers: Int32[np.ndarray, "n"]
    sizes: Int64[np.ndarray, "n"]

    def some(self, chosen: np.ndarray | slice) -> "Places":
        """Of these images alone."""
        return Places(*(column[chosen] for column in self))


Steps = Generator[Splitting, None, Index]


def begin_sharding(index: Index, count: int, path: str | Path) -> Work[Splitting, Index]:
    """The images of an index (or of shards) in `count` shards, in a new folder, whole or not at all."""
    return Work(_shard(index, _require_count(count), Path(path)))


def begin_joining(index: Index, path: str | Path) -> Work[Splitting, Index]:
    """The images of shards in one new index, with the ids they have."""
    return Work(_join(index, Path(path)))


def begin_rebalancing(path: str | Path, count: int | None = None) -> Work[Splitting, Index]:
    """Shards of equal size, as many as there are or `count`, in the place of those of a folder.

    Deleted images are gone then. Until the last moment the old shards are there beside the new ones.
    """
    if not is_sharded(Path(path)):
        raise SuperfeatError(f"{path} is not in shards; make some of it with: superfeat shard {path} -o SHARDS")
    return Work(_rebalance(ShardFolders(Path(path)), None if count is None else _require_count(count)))


shard_index = at_once("shard_index", begin_sharding)
join_shards = at_once("join_shards", begin_joining)
rebalance_shards = at_once("rebalance_shards", begin_rebalancing)


def create_shards(
    path: str | Path,
    count: int,
    codebook: Codebook,
    config: IndexConfig = IndexConfig(),  # noqa: B008 - frozen
    *,
    network: str | None = None,
    facts: IndexFacts | None = None,
) -> Index:
    """A new, empty index in so many shards; the rest as `Index.create` has it."""
    require_free(Path(path))
    with _beside(Path(path)) as folder:
        names = [SHARD.format(number) for number in range(_require_count(count))]
        for name in names:
            create_folder(folder / name, codebook, config, network or codebook.network, facts or {})
        write_shards_manifest(folder, new_manifest(names, count))
    return Index.open(path)


def _require_count(count: int) -> int:
    if not 1 <= count <= MOST_SHARDS:
        raise SuperfeatError(f"there can be 1 to {MOST_SHARDS} shards, not {count}")
    return count


def _shard(index: Index, count: int, path: Path) -> Steps:
    require_free(path)
    collections.deque(index.verify(), maxlen=0)  # damage must not get new checksums
    with _beside(path) as folder:
        names = [SHARD.format(number) for number in range(count)]
        yield from _write_shards(index, [folder / name for name in names])
        write_shards_manifest(folder, new_manifest(names, count))
        _copy_rest(index.path, folder)
    return Index.open(path)


def _join(index: Index, path: Path) -> Steps:
    require_free(path)
    collections.deque(index.verify(), maxlen=0)
    places = places_of(index.snapshot())
    with _beside(path) as folder:
        shutil.rmtree(folder)  # which makes it a place for a whole index
        yield from _write_index(index, folder, places, Splitting(0, len(places.ids)))
        _copy_rest(index.path, folder)
    return Index.open(path)


def _rebalance(disk: ShardFolders, count: int | None) -> Steps:
    with disk.locked():
        before = disk.tidy(disk.load())
        index = Index(disk, before)
        collections.deque(index.verify(), maxlen=0)
        first = before.shards["next_shard"]
        names = [SHARD.format(first + number) for number in range(count or len(before.shards["shards"]))]
        yield from _write_shards(index, [disk.path / name for name in names])
        write_shards_manifest(disk.path, new_manifest(names, first + len(names)))
        disk.tidy(disk.load())
    return Index.open(disk.path)


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A folder beside `path` that takes its name at the end, or goes if that is not reached."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    try:
        yield folder
        with explained(path):
            folder.chmod(0o777 & ~umask())
            folder.rename(path)
            sync_folder(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_shards(index: Index, folders: Sequence[Path]) -> Generator[Splitting, None, None]:
    snapshot = index.snapshot()
    places = places_of(snapshot)
    owners = np.empty(len(places.ids), np.int32)
    for row, (_, image) in enumerate(snapshot.images()):
        owners[row] = shard_of(image.name, len(folders))
    done = 0
    for number, folder in enumerate(folders):
        mine = places.some(owners == number)
        yield from _write_index(index, folder, mine, Splitting(done, len(places.ids)))
        done += len(mine.ids)


def _write_index(index: Index, folder: Path, places: Places, at: Splitting) -> Generator[Splitting, None, None]:
    """An index of its own of some images; new ones will have the ids that they would have had in the old one."""
    create_folder(folder, index.codebook, index.config, index.network, index.facts, next_id=index.next_id)
    done: list[int] = []

    def counted() -> Iterator[Segment]:
        for segment in gather(index.snapshot(), places):
            done.append(len(segment))
            yield segment

    adopt(folder, load_contents(folder), counted(), frozenset())
    yield Splitting(at.done + sum(done), at.total)


def _copy_rest(source: Path, target: Path) -> None:
    """What lies beside the images: probabilities, labels. Photos that were uploaded stay where they are known to be."""
    own = {MANIFEST, ACROSS, "segments", "codebook", "uploads"}
    with explained(target):
        for entry in source.iterdir():
            if entry.name in own or entry.name.startswith((".", "journal-", "dead-")) or entry.name.isdigit():
                continue
            if entry.is_dir():
                shutil.copytree(entry, target / entry.name)
            else:
                shutil.copy2(entry, target / entry.name)


# -- Images of several segments, in the order of their ids


def places_of(snapshot: Snapshot) -> Places:
    """Of all living images."""
    columns: list[list[np.ndarray]] = [[np.empty(0, np.int64)], [np.empty(0, np.int32)]]
    columns += [[np.empty(0, np.int32)], [np.empty(0, np.int64)]]
    for place, (segment, mask) in enumerate(zip(snapshot.segments, snapshot.alive, strict=True)):
        numbers = np.flatnonzero(mask).astype(np.int32)
        rows = segment.images[mask], np.full(len(numbers), place, np.int32), numbers, segment.sizes[mask]
        for column, row in zip(columns, rows, strict=True):
            column.append(row)
    found = Places(*(np.concatenate(column) for column in columns))
    return found.some(np.argsort(found.ids, kind="stable"))


def gather(snapshot: Snapshot, places: Places) -> Iterator[Segment]:
    """These images as segments, each as full as one may be."""
    first = 0
    ends = np.cumsum(places.sizes)
    while first < len(places.ids):
        before = int(ends[first - 1]) if first else 0
        most = int(np.searchsorted(ends, before + snapshot.layout.most_postings, side="right"))
        end = min(first + SEGMENT_IMAGES, max(most, first + 1))
        yield _gather(snapshot, places.some(slice(first, end)))
        first = end


def _gather(snapshot: Snapshot, places: Places) -> Segment:
    used = np.unique(places.segments).tolist()
    parts, masks, images = [], [], []
    for place in used:
        segment = snapshot.segments[place]
        numbers = places.numbers[places.segments == place]
        mask = np.zeros(len(segment), np.bool_)
        mask[numbers] = True
        rows = segment.names.images_of(numbers.tolist())
        parts.append(segment)
        masks.append(mask)
        images += [rows[number] for number in numbers.tolist()]
    ids = np.concatenate([part.images[mask] for part, mask in zip(parts, masks, strict=True)])
    order = np.argsort(ids, kind="stable")
    postings = join_postings([part.postings for part in parts], masks)
    if not bool((order[1:] > order[:-1]).all()):
        ranks = np.empty(len(order), np.uint16)
        ranks[order] = np.arange(len(order), dtype=np.int64).astype(np.uint16)
        postings = _renumber(postings, ranks)
    names: list[Image] = [images[row] for row in order.tolist()]
    return Segment(snapshot.layout, postings, ids[order], places.sizes.astype(np.uint32), MemoryNames(names))


def _renumber(postings: Postings, ranks: UInt16[np.ndarray, "images"]) -> Postings:
    """Lists whose images have other numbers, in the order of these."""
    starts = postings.starts.astype(np.int64)
    lengths = starts[1:] - starts[:-1]
    keys = np.repeat(np.arange(len(lengths), dtype=np.int64) << 16, lengths) | ranks[postings.ids]
    order = np.argsort(keys, kind="stable")
    return Postings(postings.starts, ranks[postings.ids][order], postings.codes[order])
