"""What is in tars that lie elsewhere, kept in the user's cache: to find out means to read all of them.

An archive that has not changed, by its ETag, is not read again to compare it with an index.
"""

import contextlib
import gzip
import hashlib
import json
import zlib
from pathlib import Path

from superfeat.addresses.archives import ArchiveDirectory, ArchiveMember, Refused, Stamp
from superfeat.errors import StoreError
from superfeat.storage.cache import cache_folder
from superfeat.storage.store import write_file

FORMAT, VERSION = "superfeat-archive", 1


def remember(container: str, stamp: Stamp, directory: ArchiveDirectory) -> None:
    """Keeps what is in an archive, in the place of what was in it before. Who cannot write there does without."""
    members = [[one.name, *one.stamp, one.start] for one in directory.members.values()]
    facts = {"format": FORMAT, "version": VERSION, "stamp": stamp, "members": members, "refused": directory.refused}
    path = _path(container)
    with contextlib.suppress(OSError, StoreError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, gzip.compress(json.dumps(facts).encode(), mtime=0))


def recall(container: str, stamp: Stamp) -> ArchiveDirectory | None:
    """What was in an archive with this stamp, if that is known."""
    try:
        facts = json.loads(gzip.decompress(_path(container).read_bytes()))
        if (facts["format"], facts["version"], tuple(facts["stamp"])) != (FORMAT, VERSION, stamp):
            return None
        members = [ArchiveMember(name, (size, mark), stamp, start) for name, size, mark, start in facts["members"]]
        refused = [Refused(name, reason) for name, reason in facts["refused"]]
    except (OSError, ValueError, EOFError, zlib.error, KeyError, TypeError):  # a damaged one is made again
        return None
    return ArchiveDirectory({member.name: member for member in members}, refused)


def _path(container: str) -> Path:
    name = hashlib.blake2b(container.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    return cache_folder() / "archives" / f"{name}.json.gz"
