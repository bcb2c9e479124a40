"""Takes in what other processes do to the index, a moment later."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from superfeat.errors import SuperfeatError
from superfeat.index.index import Index
from superfeat.service.limits import WATCH_SECONDS

logger = logging.getLogger("superfeat.service")


class Watch:
    """Refreshes an index when its files have changed, unless this process says that it was the one."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._mark = index.stamp()

    def seen(self) -> None:
        """This process has changed the index, and knows what is in it. To be called while it holds the lock."""
        self._mark = self.index.stamp()

    def check(self) -> None:
        """Refreshes if somebody else has changed the index."""
        mark = self.index.stamp()
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
