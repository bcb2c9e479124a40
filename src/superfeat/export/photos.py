"""What is exported: sets of photos, as a search or a group of duplicates gives them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from superfeat.addresses.address import address_of
from superfeat.duplicates.review import ReviewedGroup, ReviewedPhoto
from superfeat.engine import Answer

Fact = str | int | float | None


class ExportedPhoto(NamedTuple):
    """A photo, where its file lay when it was indexed, and what is known of it."""

    name: str
    path: str | None
    facts: Mapping[str, Fact]

    def file(self) -> Path | None:
        """Its file, if it is there."""
        found = None if self.path is None else address_of(self.path)
        return found if isinstance(found, Path) and found.is_file() else None


@dataclasses.dataclass(frozen=True)
class PhotoSet:
    """Photos that belong together."""

    title: str
    photos: tuple[ExportedPhoto, ...]


def found_photos(query: str, answer: Answer) -> PhotoSet:
    """What was found for a query, best first; a query that is in the index comes before, with the rank 0."""
    itself = answer.itself
    photos = [] if itself is None else [ExportedPhoto(itself.name, itself.path, {"rank": 0})]
    photos += [
        ExportedPhoto(hit.name, hit.path, {"rank": rank, "score": hit.score, "probability": hit.probability})
        for rank, hit in enumerate(answer.hits, 1)
    ]
    return PhotoSet(query, tuple(photos))


def grouped_photos(number: int, group: ReviewedGroup) -> PhotoSet:
    """A group of duplicates, with what is to be kept of it and why."""
    return PhotoSet(f"group {number}", tuple(_grouped(group, photo) for photo in group.photos))


def _grouped(group: ReviewedGroup, photo: ReviewedPhoto) -> ExportedPhoto:
    member, file = photo.member, photo.file
    facts: dict[str, Fact] = {"kind": group.group.kind, "likeness": member.likeness, "copies": member.copies}
    facts |= {"advice": photo.advice, "reason": photo.reason, "kept": photo.kept and photo.kept.path}
    if file is not None:
        width, height = file.header.size
        taken = file.header.taken
        facts |= {"bytes": file.bytes, "width": width, "height": height}
        facts |= {"taken": None if taken is None else taken.isoformat()}
        facts |= {"changed": file.changed.isoformat(timespec="seconds")}
    return ExportedPhoto(member.name, photo.path, facts)
