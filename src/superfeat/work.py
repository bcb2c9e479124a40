"""Long work that tells how far it is: iterate over it for its events, or ask for its result."""

import functools
import inspect
from collections.abc import Callable, Generator, Iterator
from typing import Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Event = TypeVar("Event", covariant=True)
Result = TypeVar("Result", covariant=True)


class Work(Generic[Event, Result]):
    """Nothing is done before it is iterated over or its result is asked for."""

    def __init__(self, steps: Generator[Event, None, Result]) -> None:
        self._steps = steps
        self._result: list[Result] = []

    def __iter__(self) -> Iterator[Event]:
        """Does the work, and says how far it is. Stopped early, `result` goes on from there."""
        while not self._result:
            try:
                event = next(self._steps)
            except StopIteration as end:
                self._result.append(end.value)
                return
            yield event

    def result(self) -> Result:
        """What came out; the rest of the work is done first."""
        for _ in self:
            pass
        return self._result[0]


def at_once(name: str, begin: Callable[Arguments, Work[Event, Result]]) -> Callable[Arguments, Result]:
    """The same function under another name: it does the work and returns its result."""

    @functools.wraps(begin)
    def done(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        return begin(*given, **named).result()

    done.__name__ = done.__qualname__ = name
    signature = inspect.signature(begin).replace(return_annotation=inspect.Signature.empty)
    done.__signature__ = signature  # type: ignore[attr-defined]  # what help() shows
    return done
