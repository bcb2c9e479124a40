"""Long work beside the requests: begun when somebody asks for it, in a thread of its own, and gives way to searches."""

import logging
import threading
import time
from collections.abc import Callable, Iterator

from superfeat.errors import SuperfeatError

logger = logging.getLogger("superfeat.service")
PAUSE = 0.02  # seconds between looks whether searches are done
LONGEST_PAUSE = 1.0  # that one step gives way: under constant load it goes on, slowly


class Background:
    """Runs one piece of work at a time, step by step, and not at all until it is asked to."""

    def __init__(self, name: str, busy: Callable[[], bool]) -> None:
        self.name, self._busy = name, busy
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    @property
    def working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, work: Callable[[], Iterator[object]]) -> None:
        """Starts this work, unless some is under way or the service is being stopped."""
        with self._lock:
            if not self.working and not self._stopped.is_set():
                name = f"superfeat-{self.name}"
                self._thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
                self._thread.start()

    def _run(self, work: Callable[[], Iterator[object]]) -> None:
        try:
            for _ in work():
                until = time.monotonic() + LONGEST_PAUSE
                while self._busy() and time.monotonic() < until and not self._stopped.wait(PAUSE):
                    pass
                if self._stopped.is_set():
                    return
        except SuperfeatError as error:
            logger.warning("%s: %s", self.name, error)
        except Exception:
            logger.exception("%s", self.name)

    def close(self) -> None:
        """Ends what is under way after its next step."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
