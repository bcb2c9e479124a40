"""How many cores there are, and how to share work out over them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_all(work: Callable[[Any], None], tasks: list[Any], workers: int) -> None:
    """Runs the tasks, in threads if there are several of both."""
    if workers == 1 or len(tasks) <= 1:
        for task in tasks:
            work(task)
        return
    with ThreadPoolExecutor(min(workers, len(tasks))) as pool:
        for done in [pool.submit(work, task) for task in tasks]:
            done.result()


def all_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
