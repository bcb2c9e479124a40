"""What an index says of one image: that it is there, and what became of it."""

from typing import Literal, NamedTuple

from superfeat.features import Meta

Outcome = Literal["new", "replaced", "same", "moved", "copied", "dropped"]


class Added(NamedTuple):
    """What became of an image: its id, and whether it is `new`, took the place of an older one, or was there.

    Of a photo that is brought in by its file also whether it was `moved`, or is `copied` from one with the same bytes;
    and `dropped` is one whose file now holds another photo that was there before.
    """

    name: str
    id: int
    outcome: Outcome
    note: str | None = None  # what there is to say of its photo


class IndexedImage(NamedTuple):
    """An image of the index."""

    id: int
    name: str
    meta: Meta
