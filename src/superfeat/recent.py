"""A bounded memory of the values that were used last."""

import collections
import threading
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """At most `count` values of together at most `size`; the one that was not used for longest goes first.

    May be used from several threads. Values that are put without a size are only counted.
    """

    def __init__(self, count: int, size: int = 0) -> None:
        self.count, self.size = count, size
        self.held = 0
        self._values: collections.OrderedDict[str, tuple[Value, int]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: str, value: Value, size: int = 0) -> None:
        """A value that is larger than all room is not kept."""
        with self._lock:
            if key in self._values:
                self.held -= self._values.pop(key)[1]
            if size > self.size:
                return
            self._values[key] = value, size
            self.held += size
            while len(self._values) > self.count or self.held > self.size:
                self.held -= self._values.popitem(last=False)[1][1]
