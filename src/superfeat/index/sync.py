"""What has gone: images whose file is certainly no longer there, and those of which that cannot be said."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from superfeat.addresses.address import Address, Where, address_of
from superfeat.addresses.buckets import is_there
from superfeat.addresses.text import is_remote, public
from superfeat.features import Meta
from superfeat.index.index import Index
from superfeat.sources.listing import LeftOut


class Missing(NamedTuple):
    """Images whose file cannot be seen."""

    gone: list[str]  # their names: certainly gone
    unsure: list[LeftOut]  # their names, and why nobody can tell


def is_gone(path: str | Where) -> bool:
    """Whether there is no such file, member or object; one that may not be looked at may be there."""
    try:
        address_of(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


class Disks:
    """Which disk a file lies on, and whether it is connected; every folder is looked at once."""

    def __init__(self) -> None:
        self._mounts: dict[Path, str] = {}
        self._doubts: dict[tuple[Path, bool], str | None] = {}
        self._connected: dict[str, bool] = {}

    def mount_of(self, path: Where) -> str:
        """Where the disk is mounted on which a file lies; of what lies elsewhere, the machine or the bucket."""
        if isinstance(path, Address):
            if path.is_remote:
                return "/".join(path.container.split("/")[:3])
            path = Path(path.container)
        folder = path.parent
        if folder not in self._mounts:
            top = folder == folder.parent or os.path.ismount(folder)
            self._mounts[folder] = str(folder) if top else self.mount_of(folder)
        return self._mounts[folder]

    def doubt(self, meta: Meta) -> str | None:
        """Why it cannot be said that a file which is not to be seen has gone; None if it can.

        Its disk may not be connected, or the folder that held it, or the nearest one above that has not gone with it,
        cannot be listed. Where no disk was noted, an empty folder may be one that is not connected. Of an object its
        bucket says so, if that is there.
        """
        mount = meta.get("mount")
        if isinstance(mount, str):
            if mount not in self._connected:
                self._connected[mount] = is_there(mount) if is_remote(mount) else os.path.ismount(mount)
            if not self._connected[mount]:
                return f"{mount} is not connected"
        if is_remote(meta.get("path")):
            return None
        folder = Path(str(meta.get("path", ""))).parent
        while folder != folder.parent and not folder.is_dir():
            folder = folder.parent
        key = folder, isinstance(mount, str)
        if key not in self._doubts:
            self._doubts[key] = _doubt(*key)
        return self._doubts[key]


def _doubt(folder: Path, may_be_empty: bool) -> str | None:
    try:
        with os.scandir(folder) as entries:
            known = may_be_empty or any(True for _ in entries)
            return None if known else f"{folder} is empty: is its disk connected?"
    except OSError as error:
        return f"{folder} cannot be listed: {error.strerror}"


def root_of(source: str | Path) -> str:
    """What the paths of all photos of a folder, an archive or a prefix begin with."""
    root = public(source) if isinstance(source, str) and is_remote(source) else str(Path(source).resolve())
    return root.rstrip("/") + "/"


def missing_photos(index: Index, folders: Sequence[str | Path], listed: Iterable[Where]) -> Missing:
    """The images that lay in one of these folders and are not there; `listed` are photos that were seen just now."""
    roots = tuple(map(root_of, folders))
    seen = {str(path.resolve()) for path in listed}
    found = Missing([], [])
    disks = Disks()
    for _, image in index.snapshot().images():
        path = image.meta.get("path")
        if not isinstance(path, str) or path in seen or not path.startswith(roots):
            continue
        if is_gone(path):
            doubt = disks.doubt(image.meta)
            if doubt is None:
                found.gone.append(image.name)
            else:
                found.unsure.append(LeftOut(image.name, doubt))
    return found
