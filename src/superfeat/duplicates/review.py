"""Which photo of a set of copies to keep, by what the files themselves tell, and why. Nothing is changed."""

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from superfeat.addresses.address import Address, address_of
from superfeat.duplicates.find import Group, Member
from superfeat.errors import ImageError
from superfeat.images import PhotoHeader, read_header
from superfeat.index.index import Index

Advice = Literal["keep", "move", "unsure"]  # `unsure` of a file that is not there as it was indexed
ANOTHER, ALONE = "another photo of the same thing", "its copies are not there as they were indexed"


class PhotoFile(NamedTuple):
    """The file of a photo as it is now, the same as when it was indexed."""

    path: str
    bytes: int
    changed: datetime.datetime
    header: PhotoHeader
    digest: str | None  # of its bytes


@dataclasses.dataclass(frozen=True)
class ReviewedPhoto:
    """A photo of a group, and what to do with it."""

    member: Member
    path: str | None  # where its file lay when it was indexed
    file: PhotoFile | None
    advice: Advice
    reason: str
    kept: PhotoFile | None = None  # the copy that stays if this one is moved away

    @property
    def same_bytes(self) -> bool:
        """Whether the copy that stays has the same bytes."""
        if self.file is None or self.kept is None or self.file.digest is None:
            return False
        return self.file.digest == self.kept.digest


@dataclasses.dataclass(frozen=True)
class ReviewedGroup:
    """A group with the facts of its files."""

    group: Group
    photos: tuple[ReviewedPhoto, ...]
    best: str | None  # the name of the best photo of all; None if no file is there

    @property
    def moved(self) -> list[ReviewedPhoto]:
        """The copies that can go."""
        return [photo for photo in self.photos if photo.advice == "move"]


class Merit(NamedTuple):
    """A reason to prefer one photo to another: what is said of the better one, and of the other."""

    better: str
    worse: str


# In this order: more pixels, a camera's own date, less compression; then what does not change the picture.
MERITS = (
    Merit("the most pixels", "fewer pixels"),
    Merit("it has the date of its camera", "without the date of its camera"),
    Merit("the largest file", "a smaller file"),
    Merit("the oldest file", "a newer file"),
    Merit("the shortest path", "a longer path"),
    Merit("the first by its path", "a later path"),
)


def letter_of(copies: int) -> str:
    """The mark of a set of copies inside of a group: A, B, …, and numbers where letters end."""
    return chr(ord("A") + copies) if copies < 26 else str(copies)


def review_groups(index: Index, groups: Iterable[Group]) -> Iterator[ReviewedGroup]:
    """Looks at the files of each group. Of each set of copies one is to be kept; what is no copy is kept too."""
    for group in groups:
        metas = index.meta([member.name for member in group.members])
        files = {member.name: _look_at(metas.get(member.name, {})) for member in group.members}
        paths = {name: meta.get("path") for name, meta in metas.items()}
        photos = tuple(photo for some in _sets(group.members) for photo in _review(some, files, paths))
        there = [found for found in files.values() if isinstance(found, PhotoFile)]
        first = best_file(there)[0] if there else None
        best = next((name for name, found in files.items() if found is first and first is not None), None)
        yield ReviewedGroup(group, photos, best)


def _look_at(meta: Mapping[str, Any]) -> PhotoFile | str:
    """The file of an image, or why it cannot be judged."""
    path = meta.get("path")
    if not isinstance(path, str):
        return "the index does not know its file"
    if isinstance(address_of(path), Address):
        return "it is no file of its own: what lies in archives and buckets stays there"
    try:
        facts = Path(path).stat()
    except OSError:
        return "its file is not there"
    if [facts.st_size, facts.st_mtime_ns] != meta.get("stamp"):
        return "its file has changed since it was indexed"
    try:
        header = read_header(Path(path))
    except ImageError as error:
        return f"its file cannot be read: {error}"
    changed = datetime.datetime.fromtimestamp(facts.st_mtime)
    digest = meta.get("digest")
    return PhotoFile(path, facts.st_size, changed, header, digest if isinstance(digest, str) else None)


def _sets(members: Sequence[Member]) -> Iterator[list[Member]]:
    """Copies of one photo together, each other photo alone; the order stays."""
    copies: list[Member] = []
    for member in members:
        if copies and (member.copies is None or member.copies != copies[0].copies):
            yield copies
            copies = []
        copies.append(member)
    if copies:
        yield copies


def _review(
    copies: Sequence[Member], files: Mapping[str, PhotoFile | str], paths: Mapping[str, str | None]
) -> Iterator[ReviewedPhoto]:
    """What to do with the copies of one photo."""
    there = [found for member in copies if isinstance(found := files[member.name], PhotoFile)]
    best, why = best_file(there) if there else (None, "")
    for member in copies:
        found, path = files[member.name], paths.get(member.name)
        if isinstance(found, str) or best is None:
            yield ReviewedPhoto(member, path, None, "unsure", str(found))
        elif found is best:
            alone = ANOTHER if len(copies) == 1 else ALONE
            yield ReviewedPhoto(member, path, found, "keep", why if len(there) > 1 else alone)
        else:
            yield ReviewedPhoto(member, path, found, "move", _worse(found, best), best)


def best_file(files: Sequence[PhotoFile]) -> tuple[PhotoFile, str]:
    """The file to keep, and in what it is better than the next best."""
    best, *others = sorted(files, key=_merits, reverse=True)
    place = _first_difference(best, others[0]) if others else 0
    return best, MERITS[place].better


def _worse(file: PhotoFile, best: PhotoFile) -> str:
    worse = MERITS[_first_difference(best, file)].worse
    if file.digest is not None and file.digest == best.digest:
        return f"the same bytes, {worse}"
    return f"nearly the same picture, {worse}"


def _merits(file: PhotoFile) -> tuple[Any, ...]:
    """A value for each of MERITS: the larger, the better."""
    width, height = file.header.size
    taken = file.header.taken is not None
    last = tuple(-ord(letter) for letter in file.path)
    return width * height, taken, file.bytes, -file.changed.timestamp(), -len(file.path), last


def _first_difference(one: PhotoFile, other: PhotoFile) -> int:
    pairs = zip(_merits(one), _merits(other), strict=True)
    return next((place for place, (first, second) in enumerate(pairs) if first != second), len(MERITS) - 1)
