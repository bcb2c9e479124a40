"""What a look at one thing gives, and the guard that keeps an odd system from stopping the others."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at. A problem is something without which superfeat does not work."""

    name: str
    state: Literal["ok", "note", "problem"]
    text: str
    advice: str | None = None  # what to do about it, as one line
    slows: float = 1.0  # how many times longer work takes because of it, roughly: the order of the advice


def guarded(name: str, look: Callable[[], Iterable[Check]]) -> list[Check]:
    """What `look` finds, or a note that it could not: a doctor must not die of the illness."""
    try:
        return list(look())
    except Exception as error:
        return [Check(name, "note", f"cannot be found out here ({type(error).__name__}: {first_line(error)})")]


def first_line(error: BaseException) -> str:
    """An error in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


def advise(checks: Iterable[Check]) -> list[str]:
    """What to do, the most important first: what is broken, then what costs the most time."""
    given = [check for check in checks if check.advice is not None]
    ordered = sorted(given, key=lambda check: (check.state != "problem", -check.slows, check.name))
    return [str(check.advice) for check in ordered]
