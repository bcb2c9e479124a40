"""An index that follows its folders: what changes in them is indexed as soon as it holds still.

Each update is a whole `begin_indexing` with `sync`: it looks at everything that is there. So nothing is lost if the
process is killed, if a folder tells of a change too late, or not at all: now and then it looks without being told.
"""

import contextlib
import fnmatch
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from superfeat.addresses.text import ARCHIVE_ENDINGS
from superfeat.config import DEFAULT_QUIET
from superfeat.errors import MissingExtraError, SuperfeatError
from superfeat.extraction.folder import photo_stamp
from superfeat.images import image_endings
from superfeat.index.make import Indexed, begin_indexing
from superfeat.index.sync import is_gone
from superfeat.index.target import Indexing
from superfeat.sources.listing import list_photos
from superfeat.sources.reasons import EXCLUDED
from superfeat.work import Work

PATIENCE = 300.0  # seconds after which they are indexed although some still change
UNTOLD = 600.0  # after which everything is looked at although nothing was told
LONGEST_PAUSE = 300.0  # between two attempts


class Trouble(NamedTuple):
    """Why the index could not be brought up to date; it is tried again."""

    reason: str


WatchEvent = Indexing | Indexed | Trouble  # how far an update is, what it did, or why it failed


def watch_photos(
    folders: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    exclude: Iterable[str] = (),
    quiet: float = DEFAULT_QUIET,
    untold: float = UNTOLD,
    stop: threading.Event | None = None,
    **options: Any,
) -> Iterator[WatchEvent]:
    """Indexes what is in the folders, then whatever changes there, until `stop` is set.

    Files that are being written are waited for: nothing is done before all of them hold still for `quiet` seconds, so
    a burst of changes is one update. `options` are those of `begin_indexing`. What is wrong at the start is raised;
    later troubles are told, and it is tried again.
    """
    given = [folders] if isinstance(folders, (str, Path)) else list(folders)
    roots, patterns = require_folders(given), tuple(exclude)
    update = functools.partial(begin_indexing, given, path, exclude=patterns, sync=True, **options)
    watched = WatchedFolders(roots, Path(path), (*EXCLUDED, *patterns))
    return _follow(_Updates(update, given, Path(path), patterns), watched, quiet, untold, stop or threading.Event())


@contextlib.contextmanager
def watching(
    folders: Sequence[str | Path], path: str | Path, on_event: Callable[[WatchEvent], None], **options: Any
) -> Iterator[None]:
    """The same in a thread, as long as the `with` lasts; what is wrong at the start is told as well."""
    require_folders(folders)
    stop = threading.Event()

    def run() -> None:
        pause = options.get("quiet", DEFAULT_QUIET)
        while not stop.is_set():
            try:
                for event in watch_photos(folders, path, stop=stop, **options):
                    on_event(event)
            except SuperfeatError as error:
                on_event(Trouble(str(error)))
            stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    thread = threading.Thread(target=run, name="superfeat-watch-photos", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def require_folders(folders: Sequence[str | Path]) -> list[Path]:
    """Where the folders really are; SuperfeatError if one is none, or if folders cannot be watched here."""
    try:
        import watchfiles  # noqa: F401 - what is missing is said before anything is done
    except ImportError as error:
        raise MissingExtraError("watching a folder", "watch") from error
    for folder in folders:
        if not Path(folder).is_dir():
            raise SuperfeatError(f"{folder} is not a folder; only folders can be watched")
    return [Path(folder).resolve() for folder in folders]


class _Updates:
    """Brings the index up to date, once for each call."""

    def __init__(
        self,
        update: Callable[[], Work[Indexing, Indexed]],
        folders: Sequence[str | Path],
        path: Path,
        exclude: Sequence[str],
    ) -> None:
        self.update, self.folders, self.path, self.exclude = update, folders, path, exclude

    def begin(self) -> Work[Indexing, Indexed] | None:
        """The work; None as long as there is neither an index nor a photo. SuperfeatError if a folder is away."""
        if away := [folder for folder in self.folders if is_gone(folder)]:
            raise SuperfeatError(f"{away[0]} is not there; its photos stay in the index")
        if (self.path / "manifest.json").is_file() or list_photos(self.folders, exclude=self.exclude).photos:
            return self.update()
        return None


def _follow(
    updates: _Updates, watched: "WatchedFolders", quiet: float, untold: float, stop: threading.Event
) -> Iterator[WatchEvent]:
    changes = watched.changes(quiet, stop)
    next(changes, None)  # from here on everything that changes is told, also during the first update
    yield from _run(updates.begin(), stop, told=True)
    pending, pause, last = Unsettled(quiet), quiet, ""
    due = time.monotonic() + untold
    for paths in changes:
        pending.note(paths)
        told = pending.is_ready()
        if not told and time.monotonic() < due:
            continue
        pending.clear()
        try:
            yield from _run(updates.begin(), stop, told=told)
        except SuperfeatError as error:
            if str(error) != last:
                yield Trouble(str(error))
            last, due, pause = str(error), time.monotonic() + pause, min(2 * pause, LONGEST_PAUSE)
        else:
            last, due, pause = "", time.monotonic() + untold, quiet


def _run(work: Work[Indexing, Indexed] | None, stop: threading.Event, *, told: bool) -> Iterator[WatchEvent]:
    """One update; one that nobody asked for is worth a word only if there was something to do."""
    if work is None:
        return
    for event in work:
        if stop.is_set():
            return
        yield event
    done = work.result()
    if told or done.changed:
        yield done


class Unsettled:
    """Files that have changed, until they hold still."""

    def __init__(self, quiet: float) -> None:
        self.quiet = quiet
        self.clear()

    def clear(self) -> None:
        self.stamps: dict[str, tuple[int, int]] = {}
        self.first = self.last = 0.0

    def note(self, paths: Iterable[str]) -> None:
        """These have changed now."""
        new = {path: photo_stamp(Path(path)) for path in paths}
        if new:
            self.last = time.monotonic()
            self.first = self.first or self.last
            self.stamps |= new

    def is_ready(self) -> bool:
        """Whether all have held still long enough. Not every file system tells that a file grows: each is looked at."""
        now = time.monotonic()
        if not self.stamps or now - self.first >= PATIENCE:
            return bool(self.stamps)
        if now - self.last < self.quiet:
            return False
        before, self.stamps = self.stamps, {path: photo_stamp(Path(path)) for path in self.stamps}
        if self.stamps != before:
            self.last = now
        return self.stamps == before


class WatchedFolders:
    """Folders, and which changes in them matter."""

    def __init__(self, roots: Sequence[Path], index: Path, patterns: Sequence[str]) -> None:
        self.roots, self.patterns, self.endings = roots, patterns, image_endings() | set(ARCHIVE_ENDINGS)
        self.own = str(index.resolve())

    def changes(self, quiet: float, stop: threading.Event) -> Iterator[set[str]]:
        """The paths that have changed since the last time, perhaps none, several times in each quiet span."""
        import watchfiles

        part = max(1, int(250 * quiet))  # milliseconds
        found = watchfiles.watch(
            *self.roots,
            watch_filter=None,
            debounce=part,
            step=min(50, part),
            rust_timeout=part,
            yield_on_timeout=True,
            stop_event=stop,
            ignore_permission_denied=True,
        )
        try:
            for batch in found:
                yield {path for change, path in batch if self.matters(path, change == watchfiles.Change.deleted)}
        except OSError as error:
            raise SuperfeatError(
                f"cannot watch {', '.join(map(str, self.roots))}: {error}; the system may allow too few watches "
                "(fs.inotify.max_user_watches)"
            ) from error

    def matters(self, path: str, deleted: bool = False) -> bool:
        """Whether a path may be a photo, or a folder that may hold some; what has gone may have been either."""
        if path == self.own or path.startswith((f"{self.own}/", f"{self.own}.")):
            return False  # what superfeat writes itself
        root = next((root for root in self.roots if Path(path).is_relative_to(root)), None)
        parts = Path(path).relative_to(root).parts if root is not None else ()
        if any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in (".*", *self.patterns)):
            return False
        ending = Path(path).suffix.lower()
        return deleted or not ending or ending in self.endings or Path(path).is_dir()
