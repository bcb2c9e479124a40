"""Uploaded photos that were asked with: remembered for a while, so that a box on one need not send it again."""

from superfeat.engine import photo_key
from superfeat.recent import Recent
from superfeat.service.limits import KEPT_QUERIES, Limits
from superfeat.service.problems import Problem


class Queries:
    """The bytes of the last uploads, by a digest of their content."""

    def __init__(self, limits: Limits) -> None:
        self.kept: Recent[bytes] = Recent(KEPT_QUERIES, limits.kept)

    def keep(self, data: bytes) -> str:
        """Remembers an upload; its id is the same each time."""
        key = photo_key(data)
        self.kept.put(key, data, len(data))
        return key

    def get(self, key: str) -> bytes:
        data = self.kept.get(key)
        if data is None:
            raise Problem(410, "query_expired", "this uploaded photo is no longer remembered; send it again")
        return data
