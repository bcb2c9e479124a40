"""Which parts of a collection did not answer, for whoever asks: an answer without them says so."""

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class MissingPart(NamedTuple):
    """A shard that did not answer in time, and how many images it holds."""

    shard: str
    images: int


_COLLECTED: contextvars.ContextVar[set[MissingPart] | None] = contextvars.ContextVar("collected", default=None)


@contextlib.contextmanager
def collect_missing() -> Iterator[set[MissingPart]]:
    """The parts that do not answer while this is open, in this thread; whoever has one open around it gets them too."""
    outer, own = _COLLECTED.get(), set[MissingPart]()
    token = _COLLECTED.set(own)
    try:
        yield own
    finally:
        _COLLECTED.reset(token)
        if outer is not None:
            outer |= own


def doubt(missing: Iterable[MissingPart]) -> str:
    """What is to be added where something was not found; nothing if all were asked."""
    names = sorted(part.shard for part in missing)
    return f" in the shards that answer; {', '.join(names)} did not: try again in a moment" if names else ""


def note_missing(parts: Iterable[MissingPart]) -> None:
    """Says that these did not answer."""
    collected = _COLLECTED.get()
    if collected is not None:
        collected.update(parts)
