"""How many cores there are, and how to share work out over them."""

import collections
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_all(work: Callable[[Any], None], tasks: list[Any], workers: int) -> None:
    """Runs the tasks, in threads if there are several of both."""
    if workers == 1 or len(tasks) <= 1:
        for task in tasks:
            work(task)
        return
    with ThreadPoolExecutor(min(workers, len(tasks))) as pool:
        for done in [pool.submit(work, task) for task in tasks]:
            done.result()


def in_order(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    initialise: Callable[[], object] | None = None,
) -> Iterator[Result]:
    """work(task) of each task, in the order of the tasks; the threads run at most a few tasks ahead."""
    running: collections.deque[Future[Result]] = collections.deque()
    with worker_pool(workers, initialise) as pool:
        for task in tasks:
            running.append(pool.submit(work, task))
            if len(running) > 2 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


@contextlib.contextmanager
def worker_pool(workers: int, initialise: Callable[[], object] | None = None) -> Iterator[ThreadPoolExecutor]:
    """Threads that drop their unstarted work when the caller stops early (Ctrl-C, or a closed generator)."""
    pool = ThreadPoolExecutor(workers, initializer=initialise)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def all_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
