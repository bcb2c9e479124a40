"""Which files are photos, and why the others are not: nothing that lies in a folder is passed over without a word."""

import contextlib
import contextvars
import dataclasses
import errno
import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from superfeat.addresses.address import Address, Where, address_of, directory_of
from superfeat.addresses.buckets import is_listable, is_object, list_objects, read_object
from superfeat.addresses.text import (
    LOCAL,
    ending_of,
    fixed_part,
    is_archive,
    is_packed,
    is_pattern,
    is_remote,
    join,
    parent_of,
    private,
    public,
    split_member,
)
from superfeat.errors import ImageError
from superfeat.images import Photo, image_endings
from superfeat.sources.reasons import (
    EXCLUDED,
    LINKED_FOLDER,
    LISTED_ELSEWHERE,
    MATCHED_FOLDER,
    NAMED_AS_ARCHIVE,
    NESTED,
    OWN_FILES,
    PACKED,
    SAME_FILE,
    NameRules,
    excluded,
    excluded_by_part,
    no_photo,
)

LOOKED_AT_ONCE = 16  # objects of a list
READ_TOGETHER = 8  # archives of a bucket


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

    def take(self, more: "Listing") -> None:
        """Adds what another one has found."""
        self.photos.extend(more.photos)
        self.left_out.extend(more.left_out)
        self.unlisted.extend(more.unlisted)

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

    Each may lie elsewhere (s3://bucket/prefix, https://host/list.txt), and archives (.tar, .zip) are taken like folders
    wherever they are. Names are relative to the folder or list; with several sources each name begins with its source.
    No two photos of a listing have one name, and a file that is reached twice is one photo. `exclude` are patterns of
    names, or of folders and files anywhere, that are left out besides `EXCLUDED`.
    """
    rules = NameRules((*EXCLUDED, *exclude), image_endings())
    found = Listing([])
    for source in sources:
        part, prefix = _list_source(str(source), rules)
        found.take(part if len(sources) == 1 else _prefixed(part, prefix))
    kept, doubles = _one_each(found.photos)
    listing = Listing(kept, found.left_out + doubles, found.unlisted)
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


def holds_photos(source: str) -> bool:
    """Whether a source is a folder, an archive or a prefix, so that what it does not hold any more has gone."""
    if is_remote(source):
        return is_archive(source) or (is_listable(source) and ending_of(source) != ".txt" and not is_pattern(source))
    return Path(source).is_dir() or (is_archive(source) and Path(source).is_file())


def nothing_there(sources: Iterable[str | Path], listing: Listing) -> str:
    """Why there are no photos."""
    reasons = [f"{count} {reason}" for reason, count in listing.counts().items()]
    reasons += [f"{one.name} {one.reason}" for one in listing.unlisted]
    left = f" (left out: {'; '.join(reasons)})" if reasons else ""
    shown = [public(one) if is_remote(one) else str(one) for one in sources]
    return f"no photos in {', '.join(map(str, shown))}{left}"


def _prefixed(part: Listing, prefix: str) -> Listing:
    photos = [dataclasses.replace(photo, name=prefix + photo.name) for photo in part.photos]
    rest = ([LeftOut(prefix + one.name, one.reason) for one in some] for some in (part.left_out, part.unlisted))
    return Listing(photos, *rest)


def _one_each(photos: Sequence[Photo]) -> tuple[list[Photo], list[LeftOut]]:
    """Each file once, and each with a name of its own."""
    kept: list[Photo] = []
    doubles: list[LeftOut] = []
    files: dict[Where, str] = {}
    names: set[str] = set()
    for photo in sorted(photos, key=_is_link):  # the file itself before links to it
        file = photo.where.resolve()
        if file in files:
            if files[file] != photo.name:
                doubles.append(LeftOut(photo.name, SAME_FILE.format(files[file])))
            continue
        name = next(name for name in longer_names(photo) if name not in names)
        kept.append(dataclasses.replace(photo, name=name))
        files[file] = name
        names.add(name)
    order = {photo.where: place for place, photo in reversed(list(enumerate(photos)))}
    return sorted(kept, key=lambda photo: order[photo.where]), doubles


def _is_link(photo: Photo) -> bool:
    try:
        return photo.where.is_symlink()
    except OSError:  # it may not even be looked at; whoever reads it says so
        return False


def longer_names(photo: Photo) -> Iterator[str]:
    """What a photo may be called: its name, then with more and more of the folders above it, at last numbered."""
    yield photo.name
    parts = photo.where.absolute().parts
    for count in range(1, len(parts)):
        name = "/".join(parts[-count:])
        if len(name) > len(photo.name):
            yield name
    yield (whole := photo.where.absolute().as_posix())
    number = 2
    while True:
        yield f"{whole} ({number})"
        number += 1


def _list_source(source: str, rules: NameRules) -> tuple[Listing, str]:
    """What a source holds, and what its names begin with where there are several."""
    if is_remote(source):
        return _list_remote(public(source), rules)
    path = Path(source)
    if path.is_dir():
        return _list_folder(path, rules), path.as_posix().rstrip("/") + "/"
    found = Listing([])
    if path.suffix.lower() == ".txt" and path.is_file():
        _take_lines(found, _read_list(path), path.parent, rules)
    elif path.is_file() and is_archive(path.name):
        _take_members(found, path, path.name, rules)
    elif path.is_file() and is_packed(path.name):
        raise ImageError(f"{path} is {PACKED}")
    elif path.exists() or isinstance(address_of(path), Address):
        found.photos.append(Photo(address_of(path), path.as_posix() if path.parent != Path() else path.name))
    else:
        matches = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
        if not matches:
            raise ImageError(
                f"no photos at {source}: give a folder, a file, an archive, a glob pattern or a .txt list of paths"
            )
        _take_matches(found, [Path(match) for match in matches], rules)
    return found, ""


def _list_remote(address: str, rules: NameRules) -> tuple[Listing, str]:
    """The same of an address: a list, an archive, a photo, or all that lies below it."""
    found = Listing([])
    last = address.rstrip("/").rpartition("/")[2]
    try:
        if ending_of(last) == ".txt":
            _take_lines(found, _decode_list(address, read_object(address, 0)), address, rules)
        elif is_archive(address):
            _take_members(found, Address(address), last, rules)
        elif not is_listable(address) or split_member(address) or (not is_pattern(address) and is_object(address)):
            found.photos.append(Photo(address_of(address), address))
        else:
            _take_objects(found, address.rstrip("/"), rules)
            return found, address.rstrip("/") + "/"
    except OSError as error:
        raise ImageError(f"cannot list {address}: {error.strerror or error}") from None
    return found, ""


def _take_objects(found: Listing, address: str, rules: NameRules) -> None:
    archives: list[tuple[Address, str]] = []
    for one in list_objects(address):
        where = Address(join(fixed_part(address), one.name), seen=one.stamp)
        reason = excluded_by_part(one.name, rules)
        if reason is None and any(map(is_archive, one.name.split("/")[:-1])):
            reason = NAMED_AS_ARCHIVE
        if reason is not None:
            found.left_out.append(LeftOut(one.name, reason))
        elif is_archive(one.name):
            archives.append((where, one.name))
        else:
            _take(found, where, one.name, rules)

    def look_into(archive: tuple[Address, str]) -> Listing:
        inside = Listing([])
        _take_members(inside, *archive, rules)
        return inside

    with ThreadPoolExecutor(READ_TOGETHER) as pool:  # one alone would mostly wait for answers
        for inside in pool.map(look_into, archives):
            found.take(inside)
    found.photos.sort(key=lambda photo: photo.name)
    found.left_out.sort()
    found.unlisted.sort()


def _take(found: Listing, where: Where, name: str, rules: NameRules) -> None:
    """A file or an object is a photo, an archive of them, or neither, by its name."""
    last = name.rpartition("/")[2]
    reason = excluded(name, last, rules.patterns)
    if reason is None and is_archive(last):
        _take_members(found, where, name, rules)
        return
    reason = reason or no_photo(last, rules.endings)
    if reason is None:
        found.photos.append(Photo(where, name))
    else:
        found.left_out.append(LeftOut(name, reason))


def _take_members(found: Listing, archive: Where, name: str, rules: NameRules) -> None:
    """The photos of an archive. One that cannot be read, or not whole, is named as a folder that cannot be listed."""
    container = str(archive.resolve())
    try:
        directory = directory_of(container, archive.seen if isinstance(archive, Address) else None)
    except OSError as error:
        found.unlisted.append(LeftOut(name, f"cannot be read: {error.strerror or error}"))
        return
    found.left_out.extend(LeftOut(f"{name}/{one.name}", one.reason) for one in directory.refused)
    for member in directory.members.values():
        last = member.name.rpartition("/")[2]
        reason = excluded_by_part(member.name, rules) or (NESTED if is_archive(last) or is_packed(last) else None)
        reason = reason or no_photo(last, rules.endings)
        if reason is None:
            where = Address(container, member.name, member.stamp, member)
            found.photos.append(Photo(where, f"{name}/{member.name}"))
        else:
            found.left_out.append(LeftOut(f"{name}/{member.name}", reason))
    if directory.damage is not None:
        found.unlisted.append(LeftOut(name, directory.damage))


def _take_lines(found: Listing, lines: Sequence[str], base: Path | str, rules: NameRules) -> None:
    """What a list names: photos, members of archives, archives; `base` is where the list lies."""
    for line in lines:
        if isinstance(base, str) and not is_remote(line) and line.lower().startswith((LOCAL, "/")):
            found.left_out.append(LeftOut(line, LISTED_ELSEWHERE))
            continue
        if is_remote(line) or line.lower().startswith(LOCAL):
            where = address_of(line)
        else:
            where = address_of(base / line if isinstance(base, Path) else join(parent_of(private(base)), line))
        name = str(where) if is_remote(line) else line
        if isinstance(base, str) and not is_remote(line):  # a line there may be signed
            name = str(where).removeprefix(f"{parent_of(base)}/")
        if is_archive(name) and not (isinstance(where, Path) and where.is_dir()):
            _take_members(found, where, name, rules)
        else:
            found.photos.append(Photo(where, name))
    elsewhere = [photo.where for photo in found.photos if isinstance(photo.where, Address) and photo.where.seen is None]
    if elsewhere:  # each is an answer to wait for, and whoever sorts photos asks for them one by one
        with ThreadPoolExecutor(LOOKED_AT_ONCE) as pool:
            list(pool.map(Address.exists, elsewhere))


def _take_matches(found: Listing, matches: Sequence[Path], rules: NameRules) -> None:
    """Files that a pattern matches, by their whole path. A folder among them is named unless what is in it matches."""
    looked_into = {folder for match in matches for folder in match.parents}
    for match in matches:
        if not match.is_dir():
            _take(found, match, match.as_posix(), rules)
        elif match not in looked_into:
            found.left_out.append(LeftOut(match.as_posix(), MATCHED_FOLDER))


def _list_folder(folder: Path, rules: NameRules) -> Listing:
    """All files below a folder. One that cannot be listed itself is an error; one below it is named."""
    try:
        with os.scandir(folder):
            pass
    except OSError as error:
        raise ImageError(f"cannot list {folder}: {error.strerror}") from error
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
            reason = LINKED_FOLDER if inner.is_symlink() else excluded(name_of(str(inner)), name, rules.patterns)
            if reason is not None:
                folders.remove(name)
                found.left_out.append(LeftOut(name_of(str(inner)), reason))
        for name in files:
            _take(found, Path(here, name), name_of(str(Path(here, name))), rules)
    found.photos.sort(key=lambda photo: photo.name)
    found.left_out.sort()
    found.unlisted.sort()
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


def _read_list(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImageError(f"cannot read the list {path}: {error}; it must be UTF-8 text with one path a line") from error
    return _decode_list(path, data)


def _decode_list(where: Path | str, data: bytes) -> list[str]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ImageError(
            f"cannot read the list {where}: {error}; it must be UTF-8 text with one path a line"
        ) from error
    return [line.strip() for line in lines if line.strip() and line[0] != "#"]
