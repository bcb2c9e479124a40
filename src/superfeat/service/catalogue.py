"""The photos of the index by folder and by the day that they were taken.

Folders are those of their names. Days are read from the photos' EXIF in the background, once for each photo, when
somebody first asks for photos of some days; they stay in memory as long as the service runs.
"""

import datetime
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from superfeat.errors import ImageError
from superfeat.images import read_header
from superfeat.index.snapshot import Snapshot
from superfeat.service.background import Background
from superfeat.service.photos import Gallery, shown
from superfeat.service.problems import Problem

NEVER = 0  # the day of a photo that does not say when it was taken


class Wanted(NamedTuple):
    """Which photos: those of a folder and of the folders in it, taken from one day to another."""

    folder: str | None = None
    since: datetime.date | None = None
    until: datetime.date | None = None

    @property
    def by_day(self) -> bool:
        return self.since is not None or self.until is not None


class Chosen(NamedTuple):
    """The ids of some photos, rising, and of how many the day is not known yet."""

    ids: Int64[np.ndarray, "n"]
    unread: int


class _Sorted(NamedTuple):
    """The photos of a snapshot by folder."""

    snapshot: "weakref.ref[Snapshot]"
    ids: Int64[np.ndarray, "n"]
    folder_of: Int64[np.ndarray, "n"]
    folders: tuple[str, ...]


class Catalogue:
    """Chooses photos."""

    def __init__(self, gallery: Gallery, busy: Callable[[], bool]) -> None:
        self.gallery = gallery
        self.background = Background("dates", busy)
        self._sorted: _Sorted | None = None
        self._lock = threading.Lock()
        self._days: dict[int, int] = {}

    def folders(self) -> list[tuple[str, int]]:
        """All folders that hold photos, themselves or further down, and how many."""
        photos = self._sort()
        counts = np.bincount(photos.folder_of, minlength=len(photos.folders)).tolist()
        total: dict[str, int] = {}
        for folder, count in zip(photos.folders, counts, strict=True):
            parts = folder.split("/") if folder else []
            for length in range(1, len(parts) + 1):
                above = "/".join(parts[:length])
                total[above] = total.get(above, 0) + count
        return sorted(total.items())

    def choose(self, wanted: Wanted) -> Chosen:
        """The photos that are wanted, as far as their days are known."""
        if wanted == Wanted():
            return Chosen(self.gallery.index.snapshot().ids(), 0)
        photos = self._sort()
        kept = np.ones(len(photos.ids), np.bool_)
        if wanted.folder is not None:
            kept &= self._inside(photos, wanted.folder)
        unread = 0
        if wanted.by_day:
            days = np.asarray([self._days.get(image, -1) for image in photos.ids.tolist()], np.int64)
            unread = int((days < 0).sum())
            if unread:
                self.background.begin(self._read_days)
            first, last = (None if day is None else day.toordinal() for day in (wanted.since, wanted.until))
            kept &= (days > NEVER) & (days >= (first or 0)) & (days <= (last or np.iinfo(np.int64).max))
        return Chosen(photos.ids[kept], unread)

    def day_of(self, image: int) -> datetime.date | None:
        """When a photo was taken, if that was read."""
        day = self._days.get(image, NEVER)
        return datetime.date.fromordinal(day) if day > NEVER else None

    def _inside(self, photos: _Sorted, folder: str) -> Bool[np.ndarray, "n"]:
        within = [one == folder or one.startswith(f"{folder}/") for one in photos.folders]
        if not any(within):
            raise Problem(404, "no_such_folder", f"there is no folder {folder} in the index")
        return np.asarray(np.asarray(within, np.bool_)[photos.folder_of])

    def _sort(self) -> _Sorted:
        """Once for each state of the index."""
        snapshot = self.gallery.index.snapshot()
        with self._lock:
            if self._sorted is None or self._sorted.snapshot() is not snapshot:
                ids, numbers, folders = [], [], dict[str, int]()
                for image, one in snapshot.images():
                    folder = shown(one.name).rpartition("/")[0]
                    ids.append(image)
                    numbers.append(folders.setdefault(folder, len(folders)))
                owners = np.asarray(numbers, np.int64)
                self._sorted = _Sorted(weakref.ref(snapshot), np.asarray(ids, np.int64), owners, tuple(folders))
            return self._sorted

    def _read_days(self) -> Iterator[object]:
        for image in self._sort().ids.tolist():
            if image not in self._days:
                self._days[image] = self._read_day(image)
                yield image

    def _read_day(self, image: int) -> int:
        """Of the file that was indexed; one that has gone, or was exchanged, has none."""
        try:
            with self.gallery.open(self.gallery.find(image)) as file:
                taken = read_header(file).taken
        except (Problem, ImageError):
            return NEVER
        return NEVER if taken is None else taken.toordinal()
