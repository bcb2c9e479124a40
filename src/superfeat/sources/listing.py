"""Which files are photos, and why the others are not: nothing that lies in a folder is passed over without a word."""

import contextlib
import contextvars
import dataclasses
import errno
import fnmatch
import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from superfeat.errors import ImageError
from superfeat.images import NEEDS_HEIF, Photo, image_endings

TRASH = "superfeat-trash"  # where copies go that are not wanted any more
# Previews, waste and catalogues of other programs. Whatever begins with a dot is left out too.
EXCLUDED = (
    TRASH,
    "@eaDir",
    "#recycle",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
    "__MACOSX",
    "*.lrdata",
    "*.photoslibrary",
)
HEIF_ENDINGS = frozenset({".heic", ".heif", ".hif"})
RAW_ENDINGS = frozenset(
    {".3fr", ".arw", ".cr2", ".cr3", ".dng", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".srw", ".x3f"}
)
VIDEO_ENDINGS = frozenset({".3gp", ".avi", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".webm"})

HIDDEN, EXCLUDED_BY_PATTERN, OWN_FILES = "hidden", "excluded", "superfeat's own files"
LINKED_FOLDER = "a linked folder: name it too if its photos are wanted"
MATCHED_FOLDER = "a folder that the pattern matches: name it too if its photos are wanted"
RAW_FILE, VIDEO, NO_PHOTO = "a raw file: export it as a JPEG", "a video", "not a photo by its ending"
SAME_FILE = "the same file as {}"


class LeftOut(NamedTuple):
    """A file or folder that is not taken for a photo, and why."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """The photos found, in order of name; what was left out; and folders that could not be looked into."""

    photos: list[Photo]
    left_out: list[LeftOut] = dataclasses.field(default_factory=list)
    unlisted: list[LeftOut] = dataclasses.field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How many were left out for which reason, most first."""
        found: dict[str, int] = {}
        for one in self.left_out:
            reason = SAME_FILE.format("another") if one.reason.startswith(SAME_FILE.format("")) else one.reason
            found[reason] = found.get(reason, 0) + 1
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))


_heard: contextvars.ContextVar[list[Listing] | None] = contextvars.ContextVar("heard", default=None)


def list_photos(sources: Sequence[str | Path], *, exclude: Iterable[str] = ()) -> Listing:
    """Photos of folders (with all below them), glob patterns, list files (*.txt, a path per line) and single files.

    Names are relative to the folder or list; with several sources each name begins with its source. No two photos of
    a listing have one name, and a file that is reached twice is one photo. `exclude` are patterns of names, or of
    folders and files anywhere, that are left out besides `EXCLUDED`.
    """
    patterns = (*EXCLUDED, *exclude)
    parts = []
    for source in sources:
        part = _list_source(str(source), patterns)
        parts.append(part if len(sources) == 1 else _prefixed(part, _prefix(str(source))))
    photos = [photo for part in parts for photo in part.photos]
    left_out = [one for part in parts for one in part.left_out]
    unlisted = [one for part in parts for one in part.unlisted]
    kept, doubles = _one_each(photos)
    listing = Listing(kept, left_out + doubles, unlisted)
    if (heard := _heard.get()) is not None:
        heard.append(listing)
    return listing


@contextlib.contextmanager
def listings() -> Iterator[list[Listing]]:
    """All listings that are made inside, by whatever function, so that an edge can account for every file."""
    made: list[Listing] = []
    before = _heard.set(made)
    try:
        yield made
    finally:
        _heard.reset(before)


def nothing_there(sources: Iterable[str | Path], listing: Listing) -> str:
    """Why there are no photos."""
    reasons = [f"{count} {reason}" for reason, count in listing.counts().items()]
    reasons += [f"{one.name} {one.reason}" for one in listing.unlisted]
    left = f" (left out: {'; '.join(reasons)})" if reasons else ""
    return f"no photos in {', '.join(map(str, sources))}{left}"


def _prefixed(part: Listing, prefix: str) -> Listing:
    photos = [dataclasses.replace(photo, name=prefix + photo.name) for photo in part.photos]
    rest = ([LeftOut(prefix + one.name, one.reason) for one in some] for some in (part.left_out, part.unlisted))
    return Listing(photos, *rest)


def _prefix(source: str) -> str:
    return Path(source).as_posix().rstrip("/") + "/" if Path(source).is_dir() else ""


def _one_each(photos: Sequence[Photo]) -> tuple[list[Photo], list[LeftOut]]:
    """Each file once, and each with a name of its own."""
    kept: list[Photo] = []
    doubles: list[LeftOut] = []
    files: dict[Path, str] = {}
    names: set[str] = set()
    for photo in sorted(photos, key=_is_link):  # the file itself before links to it
        file = photo.path.resolve()
        if file in files:
            if files[file] != photo.name:
                doubles.append(LeftOut(photo.name, SAME_FILE.format(files[file])))
            continue
        name = next(name for name in longer_names(photo) if name not in names)
        kept.append(dataclasses.replace(photo, name=name))
        files[file] = name
        names.add(name)
    order = {photo.path: place for place, photo in reversed(list(enumerate(photos)))}
    return sorted(kept, key=lambda photo: order[photo.path]), doubles


def _is_link(photo: Photo) -> bool:
    try:
        return photo.path.is_symlink()
    except OSError:  # it may not even be looked at; whoever reads it says so
        return False


def longer_names(photo: Photo) -> Iterator[str]:
    """What a photo may be called: its name, then with more and more of the folders above it, at last numbered."""
    yield photo.name
    parts = photo.path.absolute().parts
    for count in range(1, len(parts)):
        name = "/".join(parts[-count:])
        if len(name) > len(photo.name):
            yield name
    yield (whole := photo.path.absolute().as_posix())
    number = 2
    while True:
        yield f"{whole} ({number})"
        number += 1


def _list_source(source: str, patterns: Sequence[str]) -> Listing:
    path = Path(source)
    if path.is_dir():
        return _list_folder(path, patterns)
    if path.suffix.lower() == ".txt" and path.is_file():
        return Listing(_read_list(path))
    if path.exists():
        return Listing([Photo(path, path.as_posix() if path.parent != Path() else path.name)])
    matches = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not matches:
        raise ImageError(f"no photos at {source}: give a folder, a file, a glob pattern or a .txt list of paths")
    return _list_matches([Path(match) for match in matches], patterns)


def _list_matches(matches: Sequence[Path], patterns: Sequence[str]) -> Listing:
    """Files that a pattern matches, by their whole path. A folder among them is named unless what is in it matches."""
    endings = image_endings()
    looked_into = {folder for match in matches for folder in match.parents}
    found = Listing([])
    for match in matches:
        name, reason = match.as_posix(), MATCHED_FOLDER if match.is_dir() else None
        if reason is None:
            reason = _excluded(name, match.name, patterns) or _no_photo(match.suffix.lower(), endings)
        if reason is None:
            found.photos.append(Photo(match, name))
        elif match not in looked_into:
            found.left_out.append(LeftOut(name, reason))
    return found


def _list_folder(folder: Path, patterns: Sequence[str]) -> Listing:
    """All files below a folder. One that cannot be listed itself is an error; one below it is named."""
    try:
        with os.scandir(folder):
            pass
    except OSError as error:
        raise ImageError(f"cannot list {folder}: {error.strerror}") from error
    endings = image_endings()
    found = Listing([])

    def name_of(path: str) -> str:
        return Path(path).relative_to(folder).as_posix()

    def unlisted(error: OSError) -> None:
        found.unlisted.append(LeftOut(name_of(str(error.filename)), f"cannot be listed: {error.strerror}"))

    for here, folders, files in _walk(folder, unlisted):
        own = here != str(folder) and _is_own(here, files)
        if own:
            found.left_out.append(LeftOut(name_of(here), OWN_FILES))
            folders.clear()
            continue
        for name in list(folders):
            inner = Path(here, name)
            reason = LINKED_FOLDER if inner.is_symlink() else _excluded(name_of(str(inner)), name, patterns)
            if reason is not None:
                folders.remove(name)
                found.left_out.append(LeftOut(name_of(str(inner)), reason))
        for name in files:
            file = Path(here, name)
            reason = _excluded(name_of(str(file)), name, patterns) or _no_photo(file.suffix.lower(), endings)
            if reason is None:
                found.photos.append(Photo(file, name_of(str(file))))
            else:
                found.left_out.append(LeftOut(name_of(str(file)), reason))
    found.photos.sort(key=lambda photo: photo.name)
    found.left_out.sort()
    return found


def _walk(folder: Path, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str]]]:
    """As os.walk, without folders that may be listed but not entered: nothing that is in them can be looked at."""
    for here, folders, files in os.walk(folder, onerror=on_error):
        if os.access(here, os.X_OK):
            yield here, folders, files
        else:
            folders.clear()
            on_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES), here))


def _is_own(folder: str, files: Sequence[str]) -> bool:
    """Whether superfeat made this folder: an index holds photos that were uploaded to it."""
    if "manifest.json" not in files:
        return False
    try:
        facts = json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and str(facts.get("format", "")).startswith("superfeat")


def _excluded(name: str, last: str, patterns: Iterable[str]) -> str | None:
    if last.startswith("."):
        return HIDDEN
    excluded = any(fnmatch.fnmatchcase(last, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    return EXCLUDED_BY_PATTERN if excluded else None


def _no_photo(ending: str, endings: set[str]) -> str | None:
    """Why a file of this ending is no photo; one without an ending may be one."""
    if ending in endings or not ending:
        return None
    if ending in HEIF_ENDINGS:
        return NEEDS_HEIF
    return RAW_FILE if ending in RAW_ENDINGS else VIDEO if ending in VIDEO_ENDINGS else NO_PHOTO


def _read_list(path: Path) -> list[Photo]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"cannot read the list {path}: {error}; it must be UTF-8 text with one path a line") from error
    return [Photo(path.parent / line.strip(), line.strip()) for line in lines if line.strip() and line[0] != "#"]
