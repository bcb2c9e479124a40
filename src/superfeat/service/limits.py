"""How much a request may ask for and how long it may take; whom the service listens to. Imports nothing heavy."""

import dataclasses
import ipaddress
import re
import socket

from superfeat.errors import ConfigError

SIZE_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
SHORTEST_TOKEN = 16  # letters: shorter ones can be guessed

THUMBNAIL, VIEW, FULL = 320, 1280, 8192  # longest side, in pixels, of photos that are sent
PICTURE = 1200  # width of an explanation
MOST_HITS, MOST_LISTED = 200, 200
MOST_CONNECTIONS = 512
HEAD_BYTES = 16 << 10
FORM_BYTES = 64 << 10  # what a form needs besides its photo

HEAD_SECONDS = 10.0  # for the head of a request
IDLE_SECONDS = 15.0  # between two parts of a body, or of an answer that the client does not take
BODY_SECONDS = 120.0  # for a whole body
LINGER_SECONDS = 1.0  # that a refused connection is still read from
STOP_SECONDS = 30  # for the requests that are under way when the service is stopped
RETRY_SECONDS = 2  # after which a client that was sent away may come again
WATCH_SECONDS = 2.0  # between two looks at what other processes have changed


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the operator can set."""

    max_upload: int = 20 * 10**6  # bytes of a photo
    max_pixels: int = 64 * 10**6  # of a photo: about 200 MB when it is decoded
    queue: int = 32  # requests that may wait for the network

    @property
    def bodies(self) -> int:
        """Bytes of request bodies that may be in memory at once."""
        return 8 * (self.max_upload + FORM_BYTES)

    @property
    def kept(self) -> int:
        """Bytes of uploaded queries that are remembered."""
        return 4 * self.max_upload


KEPT_QUERIES = 64  # uploaded queries that are remembered, if their bytes allow
RENDERED_BYTES = 64 * 10**6  # of JPEGs that are ready to be sent

MOST_READERS = 256  # requests that may wait for anything but the network


def parse_size(text: str) -> int:
    """'20MB' -> 20000000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    unit = SIZE_UNITS.get(match[2].upper()) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if size <= 0:
        raise ConfigError(f"'{text}' is not a size; write it like 20MB or 500KB")
    return size


def is_loopback(host: str) -> bool:
    """Whether this name or address can only be reached from this machine."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"the host '{host}' is not known: {error.strerror}") from error
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def require_near(host: str, files: bool) -> bool:
    """Whether files themselves may be had; ConfigError where others than this machine could ask for them."""
    if files and not is_loopback(host):
        raise ConfigError(f"'{host}' can be reached from other machines: files themselves are for this one alone")
    return files


def require_token(host: str, token: str | None) -> str | None:
    """The token, if it is good enough for this host; ConfigError says what to do."""
    advice = "make one: export SUPERFEAT_TOKEN=$(python3 -c 'import secrets; print(secrets.token_urlsafe())')"
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ConfigError(f"a token needs {SHORTEST_TOKEN} or more plain letters and digits; {advice}")
    if token is None and not is_loopback(host):
        raise ConfigError(f"'{host}' can be reached from other machines, which needs a token; {advice}")
    return token
