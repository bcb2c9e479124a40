"""Bounded queues in front of threads: what does not fit is sent away at once, so that memory stays flat."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from superfeat.service.problems import Problem, busy

Result = TypeVar("Result")


class Lane:
    """Runs work in `threads` threads, with room for `room` more that wait; belongs to one event loop."""

    def __init__(self, name: str, threads: int, room: int, refusal: str) -> None:
        self.name, self.refusal = name, refusal
        self.threads, self.room = threads, room
        self.inside = 0  # waiting and running
        self._turn = asyncio.Semaphore(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"superfeat-{name}")

    @property
    def waiting(self) -> int:
        return max(0, self.inside - self.threads)

    async def run(self, work: Callable[[], Result], *, gone: Callable[[], Awaitable[bool]] | None = None) -> Result:
        """The result of `work`; a Problem if there is no room. Work whose client is `gone` by its turn is dropped."""
        if self.inside >= self.threads + self.room:
            raise busy(self.refusal)
        self.inside += 1
        try:
            async with self._turn:
                if gone is not None and await gone():
                    raise Problem(499, "gone", "the client did not wait")
                return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self.inside -= 1

    def close(self) -> None:
        """Waits for what is running."""
        self._pool.shutdown(wait=True, cancel_futures=True)
