"""The memory that looking at photos takes."""

import contextlib
import ctypes
import os
import sys

from superfeat.threads import all_cores

MALLOC_ARENA_MAX, MALLOC_MMAP_MAX, MALLOC_TRIM_THRESHOLD = -8, -4, -1  # of glibc's mallopt
BYTES_PER_WORKER = 2 << 30  # the trunk at scale 2.0 of 1024 x 1024 needs about 1.5 GB


def default_workers() -> int:
    """One per core that this process may use, as far as memory allows."""
    cores = all_cores()
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return min(cores, 4)
    return max(1, min(cores, memory // BYTES_PER_WORKER))


def keep_memory() -> None:
    """Lets this process keep freed memory, up to 1 GB, for the next map: fewer page faults on Linux.

    glibc gives large blocks back to the system at once, and every page that is taken again costs a fault. It is a
    setting of the whole process, so the command line calls this and the library does not.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            for option, value in ((MALLOC_ARENA_MAX, 1), (MALLOC_MMAP_MAX, 0), (MALLOC_TRIM_THRESHOLD, 1 << 30)):
                libc.mallopt(option, value)
