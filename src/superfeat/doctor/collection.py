"""An index from outside: where it lies, what has piled up in it, and whether what it refers to is still there."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from superfeat.addresses.address import seems_gone
from superfeat.doctor.checks import Check, guarded
from superfeat.doctor.machine import ROOT, file_system, find_memory, is_network
from superfeat.errors import SuperfeatError
from superfeat.storage.sizes import as_size

if TYPE_CHECKING:
    from superfeat.index.index import Index
    from superfeat.index.manifest import IndexInfo

PHOTOS_LOOKED_FOR = 200  # photos whose files are looked for
MANY_DELETED = 0.2  # of the stored images: worth rewriting
MANY_SEGMENTS = 16  # more than joining leaves by itself


def check_index(path: Path, names: Mapping[str, bool], root: Path = ROOT) -> Iterator[Check]:
    """`names` are the weights that are known by name, and whether they are here."""
    from superfeat.index.index import Index

    try:
        index = Index.open(path)
        facts = index.info()
    except SuperfeatError as error:
        yield Check("index", "problem", str(error), str(error))
        return
    yield from guarded("index", lambda: _check_contents(index, facts))
    yield from guarded("index memory", lambda: _check_size(facts.bytes, root))
    yield from guarded("index place", lambda: _check_place(path, root))
    yield from guarded("index network", lambda: _check_network(index, names))
    yield from guarded("index photos", lambda: _check_photos(index))
    yield from guarded("index calibration", lambda: _check_calibration(index))


def _check_contents(index: "Index", facts: "IndexInfo") -> Iterator[Check]:
    images, deleted, segments = facts.images, facts.deleted, facts.segments
    text = (
        f"{images} images, {facts.words_per_image} words each, {as_size(facts.bytes)}; {segments} segments, "
        f"{facts.in_journal} images in the journal, {deleted} deleted"
    )
    if deleted > MANY_DELETED * (images + deleted):
        advice = f"superfeat compact {index.path}: {deleted} deleted images are still searched through"
        yield Check("index", "note", text, advice, (images + deleted) / max(1, images))
    elif segments > MANY_SEGMENTS:
        yield Check("index", "note", text, f"superfeat compact {index.path}: it has {segments} segments", 1.2)
    else:
        yield Check("index", "ok", text)


def _check_size(size: int, root: Path) -> Iterator[Check]:
    memory = find_memory(root)
    if memory is not None and size > memory.free:
        text = f"{as_size(size)}, and {as_size(memory.free)} of memory are free"
        yield Check("index memory", "note", text, "the index is larger than the free memory: searches read the disk", 8)


def _check_place(path: Path, root: Path) -> Iterator[Check]:
    kind = file_system(path.resolve(), root)
    if kind is None:
        yield Check("index place", "ok", "this system does not tell what it lies on")
    elif is_network(kind):
        advice = f"copy the index to a disk of this machine: {path} lies on a file system over a network ({kind})"
        yield Check("index place", "note", f"{kind}, over a network", advice, 5)
    else:
        yield Check("index place", "ok", kind)


def _check_network(index: "Index", names: Mapping[str, bool]) -> Iterator[Check]:
    source = index.facts.get("weights")
    if source is None:
        yield Check("index network", "note", "it does not say which: to search with photos name it with --weights")
    elif names.get(str(source)) or Path(str(source)).exists():
        yield Check("index network", "ok", str(source))
    elif str(source) in names:
        advice = f"superfeat weights get {source}: the index cannot be asked with photos without its network"
        yield Check("index network", "note", f"{source} is not here", advice)
    else:
        advice = f"the network {source} is gone: bring it back, or name a copy with --weights"
        yield Check("index network", "note", f"{source} is not there", advice)


def _check_photos(index: "Index") -> Iterator[Check]:
    snapshot = index.snapshot()
    ids = snapshot.ids().tolist()
    chosen = random.Random(0).sample(ids, min(PHOTOS_LOOKED_FOR, len(ids)))  # the same ones each time
    metas = index.meta(snapshot.names(chosen)).values()
    paths = [meta["path"] for meta in metas if isinstance(meta.get("path"), str)]
    if not paths:
        if ids:
            yield Check("index photos", "ok", "where their files lie is not known: they were indexed from features")
        return
    gone = [path for path in paths if seems_gone(path)]
    if gone:
        text = f"{len(gone)} of {len(paths)} looked for are not where they were, for example {gone[0]}"
        advice = (
            f"superfeat index PHOTOS -o {index.path} finds photos that were moved, PHOTOS being where they are now; "
            "with --sync it drops those that are gone"
        )
        yield Check("index photos", "note", text, advice)
    else:
        yield Check("index photos", "ok", f"all of {len(paths)} looked for are where they were")


def _check_calibration(index: "Index") -> Iterator[Check]:
    from superfeat.config import CALIBRATION

    if (index.path / CALIBRATION).is_file():
        yield Check("index calibration", "ok", "there: results come with probabilities")
    else:
        yield Check("index calibration", "note", "none: results come with scores and no probabilities")
