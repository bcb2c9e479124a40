"""Addresses as text: what lies elsewhere, what lies in an archive, and which part of an address is nobody's business.

Passwords and signatures stay in the memory of the process that they were given to: what is shown, stored or sent is
the address without them.
"""

import re
import urllib.parse
from pathlib import Path
from typing import TypeGuard

ARCHIVE_ENDINGS = (".tar", ".zip")
# A member of these can only be reached by unpacking all that comes before it.
PACKED_ENDINGS = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".7z", ".rar")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C:// is a disk
ADDRESS_IN_TEXT = re.compile(ADDRESS.pattern + r"[^\s'\"<>]+")
LOCAL = "file://"
IN_ARCHIVE = re.compile(r"\.(?:tar|zip)(?:\?[^/]*)?/", re.IGNORECASE)
PATTERN = re.compile(r"[*\[]")
WEB = ("http://", "https://")
# In names of parameters; whoever signs addresses has names of his own, so that a long value tells as well.
SECRET_WORDS = (
    "sig",
    "token",
    "key",
    "secret",
    "pass",
    "pwd",
    "auth",
    "cred",
    "policy",
    "session",
    "jwt",
    "code",
    "x-",
)
LONGEST_PLAIN_VALUE = 40
KNOWN_OTHERWISE = ("s3", "s3a", "gs", "gcs", "memory")  # who takes no password in an address

_given: dict[str, str] = {}  # addresses as they were given, by what is left without secrets
_logins: dict[str, str] = {}  # user:password@ by scheme and host


def is_remote(text: object) -> TypeGuard[str]:
    """Whether this is the address of something that is no file of this machine."""
    return isinstance(text, str) and ADDRESS.match(text) is not None and not text.lower().startswith(LOCAL)


def is_archive(name: str) -> bool:
    """Whether something of this name holds photos that can be read one by one."""
    return _without_query(name).lower().endswith(ARCHIVE_ENDINGS)


def is_packed(name: str) -> bool:
    """Whether it may hold photos that cannot."""
    return _without_query(name).lower().endswith(PACKED_ENDINGS)


def ending_of(name: str) -> str:
    """The ending ('.jpg') of the last part of an address or a path, in small letters."""
    return Path(_without_query(name)).suffix.lower()


def _without_query(name: str) -> str:
    return name.partition("?")[0] if is_remote(name) else name


def split_member(text: str) -> tuple[str, str] | None:
    """The archive and the member that an address or a path names; None if it names no member."""
    found = IN_ARCHIVE.search(text)
    return None if found is None or found.end() == len(text) else (text[: found.end() - 1], text[found.end() :])


def join(folder: str, name: str) -> str:
    """The address of what lies below another."""
    return f"{folder.rstrip('/')}/{name}"


def parent_of(address: str) -> str:
    """The folder that something lies in, without the question that was asked for it."""
    return _without_query(address).rpartition("/")[0]


def fixed_part(address: str) -> str:
    """The folder below which all lies that an address may match as a pattern; one that is no pattern is that folder."""
    found = PATTERN.search(address) if is_pattern(address) else None
    return address.rstrip("/") if found is None else address[: found.start()].rpartition("/")[0]


def is_pattern(address: str) -> bool:
    """Whether an address may match several objects: by a star. Brackets alone are letters of a name."""
    return "*" in address


def public(address: str) -> str:
    """An address without secrets. The whole of it stays in memory, for this process to open it."""
    bare, login, dropped = _split(address)
    if dropped:
        _given[bare] = address
    if login and address.partition("://")[0].lower() not in KNOWN_OTHERWISE:
        _logins[_host(bare)] = login
    return bare


def private(address: str) -> str:
    """A public address with the secrets that it was given with, if it was."""
    if address in _given:
        return _given[address]
    login = _logins.get(_host(address))
    return address if login is None else address.replace("://", f"://{login}", 1)


def hide_secrets(message: str) -> str:
    """A message with the public form of all addresses in it."""
    return ADDRESS_IN_TEXT.sub(lambda found: _split(found.group())[0], message)


def _host(address: str) -> str:
    return "/".join(address.split("/")[:3])


def _split(address: str) -> tuple[str, str, bool]:
    """The public part, user:password@, and whether a query was left out."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    login, at, bare = host.rpartition("@")
    secret = bool(at) and (":" in login or scheme.lower() in ("http", "https"))  # container@account is no secret
    path, mark, query = path.partition("?")
    dropped = bool(mark) and _is_secret(query)
    plain = f"{scheme}://{bare if secret else host}{slash}{path}"
    return plain if dropped or not mark else f"{plain}?{query}", login + at if secret else "", dropped


def _is_secret(query: str) -> bool:
    """Whether a query may sign anything. One with a slash could not be told from the path behind an archive."""
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    named = any(word in name.lower() for name, _ in pairs for word in SECRET_WORDS)
    return named or "/" in query or any(len(value) > LONGEST_PLAIN_VALUE for _, value in pairs) or not pairs
