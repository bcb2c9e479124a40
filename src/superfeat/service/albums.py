"""Albums: the groups of photos of the same thing, found in the background and kept until the index changes."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from superfeat.duplicates import Group, Looked, find_duplicates
from superfeat.engine import Engine
from superfeat.service.background import Background


class Found(NamedTuple):
    """The groups, of the index as it was then, and how far the work on newer ones is."""

    groups: tuple[Group, ...]
    working: bool
    done: int
    images: int

    def by_id(self, album: int) -> Group | None:
        """The album of this id: that of the first of its photos."""
        return next((group for group in self.groups if album_id(group) == album), None)

    def of(self, image: int) -> Group | None:
        """The album that a photo is in."""
        return next((group for group in self.groups if any(one.id == image for one in group.members)), None)


def album_id(group: Group) -> int:
    """The lowest id of its photos: it stays when photos are added, as ids only rise."""
    return min(one.id for one in group.members)


class Albums:
    """Looks for groups when somebody asks for them and the index has changed since they were last looked for."""

    def __init__(self, engine: Engine, busy: Callable[[], bool]) -> None:
        self.engine = engine
        self.background = Background("albums", busy)
        self._groups: tuple[Group, ...] = ()
        self._of: object = None  # the index whose groups they are
        self._progress = Looked(0, 0)

    def find(self) -> Found:
        """What there is now; does not wait."""
        if self._of != self.engine.index.stamp():
            self.background.begin(self._look)
        return Found(self._groups, self.background.working, *self._progress)

    def _look(self) -> Iterator[object]:
        stamp, groups = self.engine.index.stamp(), []
        self._progress = Looked(0, len(self.engine.index))
        for outcome in find_duplicates(self.engine.index, self.engine.calibration, workers=1):
            if isinstance(outcome, Group):
                groups.append(outcome)
            else:
                self._progress = outcome
                yield outcome
        self._groups, self._of = tuple(groups), stamp
