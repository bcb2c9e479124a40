"""Long work: events by iterating, the result by asking."""

import inspect
from collections.abc import Generator

import pytest

from superfeat.work import Work, at_once


def counted(log: list[str]) -> Generator[int, None, str]:
    for number in range(3):
        log.append(f"did {number}")
        yield number
    return "done"


def test_nothing_is_done_before_it_is_asked_for() -> None:
    log: list[str] = []
    work = Work(counted(log))
    assert log == []
    assert work.result() == "done"
    assert log == ["did 0", "did 1", "did 2"]


def test_events_then_the_result_without_doing_anything_twice() -> None:
    log: list[str] = []
    work = Work(counted(log))
    assert list(work) == [0, 1, 2]
    assert (work.result(), work.result()) == ("done", "done")
    assert list(work) == []
    assert len(log) == 3


def test_stopped_early_the_result_goes_on() -> None:
    log: list[str] = []
    work = Work(counted(log))
    for event in work:
        if event == 1:
            break
    assert len(log) == 2
    assert work.result() == "done"
    assert len(log) == 3


def test_an_error_comes_out() -> None:
    def failing() -> Generator[int, None, str]:
        yield 0
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Work(failing()).result()


def test_at_once() -> None:
    def begin_counting(end: int, *, step: int = 1) -> Work[int, str]:
        """Counts."""
        return Work(counting(end, step))

    def counting(end: int, step: int) -> Generator[int, None, str]:
        yield from range(0, end, step)
        return "done"

    count = at_once("count", begin_counting)
    assert count(4, step=2) == "done"
    assert (count.__name__, count.__doc__) == ("count", "Counts.")
    assert str(inspect.signature(count)) == "(end: int, *, step: int = 1)"
