"""Photos by their names: which files are taken for photos, and what is said of the others."""

import fnmatch
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from superfeat.addresses.text import ending_of, is_packed
from superfeat.images import NEEDS_HEIF

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
PACKED = "compressed as a whole, so that no photo can be read alone: make it a .tar or a .zip"
NESTED = "an archive in an archive: unpack it"
NAMED_AS_ARCHIVE = "an object below one that is called as an archive: rename it"
LISTED_ELSEWHERE = "a list that lies elsewhere names no files of this machine"


class NameRules(NamedTuple):
    """What is left out by its name, and which endings photos have here."""

    patterns: Sequence[str]
    endings: set[str]


def excluded(name: str, last: str, patterns: Iterable[str]) -> str | None:
    """Why a file or folder of this name, and of this last part of it, is left out; None if it is not."""
    if last.startswith("."):
        return HIDDEN
    matches = any(fnmatch.fnmatchcase(last, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    return EXCLUDED_BY_PATTERN if matches else None


def excluded_by_part(name: str, rules: NameRules) -> str | None:
    """The same of a whole path, whose folders nobody has looked at yet."""
    parts = name.split("/")
    above = ("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    reasons = (excluded(path, part, rules.patterns) for path, part in zip(above, parts, strict=True))
    return next((reason for reason in reasons if reason is not None), None)


def no_photo(name: str, endings: set[str]) -> str | None:
    """Why a file of this name is no photo; one without an ending may be one."""
    ending = ending_of(name)
    if ending in endings or not ending:
        return None
    if ending in HEIF_ENDINGS:
        return NEEDS_HEIF
    if is_packed(name):
        return PACKED
    return RAW_FILE if ending in RAW_ENDINGS else VIDEO if ending in VIDEO_ENDINGS else NO_PHOTO
