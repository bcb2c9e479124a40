"""Objects that lie elsewhere, read through fsspec: S3 and what is like it, the web, and whatever else it knows.

Who we are is for the SDKs to find out, in their usual places. A read that fails, or that ends early, is tried again
after a pause, then a longer one; what still fails is an OSError that gives the reason and no secret.
"""

import asyncio
import errno
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from superfeat.addresses.archives import LARGEST_PHOTO, TOO_LARGE, Stamp, mark_of
from superfeat.addresses.text import WEB, fixed_part, hide_secrets, is_archive, is_pattern, private
from superfeat.errors import ImageError, MissingExtraError

PAUSES = (0.25, 1.0, 4.0)  # seconds before each further try
QUIET_SECONDS = 20  # without a byte, after which a read from the web has failed; the SDKs of buckets have limits too
IN_BUCKETS = ("s3", "s3a", "http", "https")  # what superfeat[buckets] reads
MARKS = ("ETag", "etag", "md5Hash", "md5", "content_md5", "checksum", "Content-MD5", "Digest")
TIMES = ("LastModified", "last_modified", "Last-Modified", "updated", "mtime", "created")
READ_AT_ONCE = 1 << 20
Result = TypeVar("Result")


class FoundObject(NamedTuple):
    """An object below a prefix."""

    name: str  # below it, or below the folder of a pattern
    stamp: Stamp


def look_at(address: str) -> Stamp:
    """Size of an object and a number that changes with its bytes: by ETag or checksum, or else by time."""
    return patiently(address, lambda: _stamp(_info(address)))


def read_range(address: str, start: int, length: int) -> bytes:
    """So many bytes of an object from there on; OSError if fewer come."""

    def read() -> bytes:
        system, path = _system(address)
        data: bytes = system.cat_file(path, start=start, end=start + length)
        if len(data) > length:  # a server that gives all or nothing
            data = data[start : start + length]
        if len(data) < length:
            raise OSError(f"the read ended after {len(data)} of {length} bytes")
        return data

    return patiently(address, read) if length > 0 else b""


def read_object(address: str, size: int) -> bytes:
    """All of an object that was seen with this size; the web may not tell it beforehand (0)."""
    if size > LARGEST_PHOTO:
        raise OSError(errno.EFBIG, TOO_LARGE)
    if size:
        return read_range(address, 0, size)

    def read() -> bytes:
        system, path = _system(address)
        data = bytearray()
        with system.open(path, "rb") as file:
            while len(data) <= LARGEST_PHOTO and (block := file.read(READ_AT_ONCE)):
                data += block
        return bytes(data)

    data = patiently(address, read)
    if len(data) > LARGEST_PHOTO:  # of somebody who does not stop sending
        raise OSError(errno.EFBIG, TOO_LARGE)
    return data


def is_object(address: str) -> bool:
    """Whether there is an object of this very address, not only some below it. FileNotFoundError if there is neither.

    The web has nothing but objects.
    """
    if address.lower().startswith(WEB):
        return True
    return patiently(address, lambda: bool(_info(address)["type"] == "file"))


def is_there(bucket: str) -> bool:
    """Whether a bucket can be looked into; of the web nobody can tell."""
    if bucket.lower().startswith(WEB):
        return True
    try:
        patiently(bucket, lambda: _info(bucket))
    except (OSError, ImageError):
        return False
    return True


def list_objects(address: str) -> Iterator[FoundObject]:
    """All objects below an address, or all that match it as a pattern, in order of name."""

    def find() -> dict[str, dict[str, Any]]:
        system, path = _system(address)
        found: dict[str, dict[str, Any]] = (system.glob if is_pattern(address) else system.find)(path, detail=True)
        return found

    root = _system(fixed_part(address))[1].rstrip("/") + "/"
    for path, facts in sorted(patiently(address, find).items()):
        if facts.get("type") == "file" and not path.endswith("/"):
            yield FoundObject(path.removeprefix(root), _stamp(facts))


def patiently(address: str, work: Callable[[], Result]) -> Result:
    """The result of something that may fail for a while."""
    for pause in PAUSES:
        try:
            return work()
        except ImageError:
            raise
        except Exception as error:  # each SDK has its own
            told = explain(error, address)
            if isinstance(told, (FileNotFoundError, PermissionError)):
                raise told from None
        time.sleep(pause)
    try:
        return work()
    except Exception as error:
        # Whatever caused it may say with which password: it is not passed on.
        raise explain(error, address, tries=1 + len(PAUSES)) from None


def explain(error: BaseException, address: str, tries: int = 1) -> OSError:
    """What went wrong, as an error of a file, without secrets."""
    if address.lower().startswith(WEB) and isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return explain(error.__cause__, address, tries)  # whatever the web refuses, fsspec takes for not there
    status, kind = getattr(error, "status", None), type(error).__name__
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return FileNotFoundError(errno.ENOENT, "no such object", address)
    said = hide_secrets(str(error).splitlines()[0] if str(error) else kind)
    if isinstance(error, PermissionError) or status in (401, 403) or "Credentials" in kind:
        return PermissionError(errno.EACCES, f"may not be read with the credentials that were found ({said})", address)
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        said = "no answer in time"
    return OSError(errno.EIO, f"{said} (tried {tries} times)" if tries > 1 else said, address)


def _stamp(info: dict[str, Any]) -> Stamp:
    for key in (*MARKS, *TIMES):
        if info.get(key):
            return int(info.get("size") or 0), mark_of(str(info[key]))
    return int(info.get("size") or 0), 0


def _info(address: str) -> dict[str, Any]:
    system, path = _system(address)
    info: dict[str, Any] = system.info(path)
    return info


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there. ImageError if the package that reads it is not installed."""
    scheme = address.partition("://")[0].lower()
    if scheme == "local" or "::" in address:  # which could lead from a stranger's list to files of this machine
        raise ImageError(f"{address} is not read: give a path, or the address of one object, archive or prefix")
    options: dict[str, Any] = {"use_listings_cache": False}  # what was there a while ago is of no use
    reasons: dict[str, Any] = {}
    try:
        import fsspec
        from fsspec.registry import known_implementations

        reasons = known_implementations
        if scheme in ("http", "https"):
            import aiohttp

            options["client_kwargs"] = {"timeout": aiohttp.ClientTimeout(total=None, sock_read=QUIET_SECONDS)}
        system, path = fsspec.core.url_to_fs(private(address), **options)
    except ImportError as error:
        if scheme in reasons and scheme not in IN_BUCKETS:
            raise ImageError(f"{scheme}:// needs one more package: {reasons[scheme]['err']}") from error
        raise ImageError(str(MissingExtraError(f"reading {scheme}:// addresses", "buckets"))) from error
    except ValueError:
        raise ImageError(f"nobody knows how to read {scheme}:// addresses; fsspec does not") from None
    return system, path


def is_listable(address: str) -> bool:
    """Whether what lies below an address can be listed: the web cannot, and an archive is one object."""
    return not address.lower().startswith(WEB) and not is_archive(address)
