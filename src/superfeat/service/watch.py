"""Takes in what other processes do to the index, a moment later."""

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor

from superfeat.contents import MANIFEST
from superfeat.errors import SuperfeatError
from superfeat.index import Index
from superfeat.service.limits import WATCH_SECONDS

logger = logging.getLogger("superfeat.service")
Mark = list[tuple[str, int, int]]


class Watch:
    """Refreshes an index when its files have changed, unless this process says that it was the one."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._mark = self._look()

    def seen(self) -> None:
        """This process has changed the index, and knows what is in it. To be called while it holds the lock."""
        self._mark = self._look()

    def _look(self) -> Mark:
        """Sizes and times of the files that every change touches."""
        mark: Mark = []
        for file in sorted([self.index.path / MANIFEST, *self.index.path.glob("journal-*")]):
            with contextlib.suppress(OSError):
                found = file.stat()
                mark.append((file.name, found.st_size, found.st_mtime_ns))
        return mark

    def check(self) -> None:
        """Refreshes if somebody else has changed the index."""
        mark = self._look()
        if mark != self._mark:
            try:
                self.index.refresh()
                self._mark = mark
            except SuperfeatError as error:
                logger.warning("cannot read the index again: %s", error)

    async def run(self) -> None:
        """Until it is cancelled. In a thread of its own, because it waits for this process's own changes to end."""
        with ThreadPoolExecutor(1, thread_name_prefix="superfeat-watch") as pool:
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                await asyncio.get_running_loop().run_in_executor(pool, self.check)
