"""Long work beside the requests: one at a time, gives way, stops when it is told to, and fails alone."""

import logging
import threading
from collections.abc import Iterator

import pytest

from superfeat.errors import SuperfeatError
from superfeat.service.background import Background

WAIT = 30.0


def test_one_piece_of_work_at_a_time() -> None:
    background, go_on, done = Background("test", lambda: False), threading.Event(), []

    def work() -> Iterator[object]:
        assert go_on.wait(WAIT)
        done.append(1)
        yield 1

    assert not background.working
    for _ in range(3):
        background.begin(work)
    assert background.working
    go_on.set()
    background.close()
    assert done == [1]
    background.begin(work)  # after the end nothing begins
    assert done == [1]


def test_it_gives_way_and_stops() -> None:
    """While requests are under way it waits between two steps, and closing does not wait for it."""
    asked, steps = threading.Event(), []

    def busy() -> bool:
        asked.set()
        return True

    background = Background("test", busy)

    def work() -> Iterator[object]:
        for step in range(1000):
            steps.append(step)
            yield step

    background.begin(work)
    assert asked.wait(WAIT)
    background.close()
    assert len(steps) < 1000
    assert not background.working


@pytest.mark.parametrize("error", [SuperfeatError("no such thing"), ValueError("no such thing")])
def test_what_fails_is_told_and_can_begin_again(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    background, done = Background("test", lambda: False), threading.Event()

    def fail() -> Iterator[object]:
        yield 1
        raise error

    def work() -> Iterator[object]:
        done.set()
        yield 1

    with caplog.at_level(logging.WARNING, "superfeat.service"):
        background.begin(fail)
        while background.working:
            done.wait(0.01)
    assert "no such thing" in caplog.text
    background.begin(work)
    assert done.wait(WAIT)
    background.close()
