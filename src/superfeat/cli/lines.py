"""Lines for people: each stays one line whatever is in a name, and those that tell how far a job is change in place."""

import os
import re
import sys
import time
import unicodedata

import click

REPORT_EVERY = 10.0  # seconds between progress lines when stderr is not a terminal
# What moves the cursor, breaks a line, or turns the order of letters round; and bytes that are no text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FIRST_BYTE = 0xDC00  # Python keeps the byte b of a file name that is no text as the character FIRST_BYTE + b


def printable(text: str) -> str:
    """The text with control characters and the like written out, as in a\\nb.jpg."""
    return UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if FIRST_BYTE + 128 <= code < FIRST_BYTE + 256:
        return f"\\x{code - FIRST_BYTE:02x}"
    return found.group().encode("unicode_escape", "surrogatepass").decode()


def cut(text: str, columns: int) -> str:
    """As much of a printable text as so many columns of a terminal hold; wide letters take two."""
    taken = 0
    for place, letter in enumerate(text):
        taken += 0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        if taken > columns:
            return text[:place]
    return text


def say(text: str) -> None:
    """A line beside the results."""
    click.echo(printable(text), err=True)


class Progress:
    """How far a long job is, on stderr: one changing line on a terminal, a line now and then elsewhere."""

    def __init__(self, doing: str, total: int | None, unit: str = "", per_unit: float = 1) -> None:
        self.doing, self.total, self.unit, self.per_unit = doing, total, unit, per_unit
        self.position = 0
        self.known: int | None = None  # what was done before counts as done, and tells nothing of the speed
        self.untimed: int | None = None  # what was worked on before there was a clock: the first report comes after it
        self.terminal = sys.stderr.isatty()
        self.began = self.reported = time.monotonic()

    def step(self, name: str = "") -> None:
        """One more."""
        self.at(self.position + 1, name)

    def at(self, position: int, name: str = "", known: int | None = None) -> None:
        """`position` are done, `known` of them without any work; unless it is said, those of the first report."""
        now = time.monotonic()
        if known is not None or self.known is None:
            self.known = position if known is None else known
        self.position = position
        if self.untimed is None or position <= self.known:
            self.began, self.untimed = now, max(0, position - self.known)  # the work begins
        if now - self.reported >= (0.1 if self.terminal else REPORT_EVERY):
            self.reported = now
            self._show(now, name)

    def done(self) -> None:
        """Takes the line away."""
        if self.terminal:
            click.echo("\r\x1b[K", err=True, nl=False)

    def _show(self, now: float, name: str) -> None:
        total = "" if self.total is None else f" of {self.total / self.per_unit:.0f}"
        line = f"{self.doing} {self.position / self.per_unit:.0f}{total} {self.unit}".rstrip()
        worked = self.position - (self.known or 0) - (self.untimed or 0)
        if self.total and worked > 0:
            left = (now - self.began) / worked * (self.total - self.position)
            line += f", about {left / 60:.0f} min left" if left > 90 else f", about {left:.0f} s left"
        line = printable(f"{line}  {name}".rstrip())
        shown = f"\r\x1b[K{cut(line, _columns() - 1)}" if self.terminal else line  # the last column may wrap
        click.echo(shown, err=True, nl=not self.terminal)


def _columns() -> int:
    """Of the terminal at stderr, as wide as it is now."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


class Follow:
    """Progress of one thing after another, each with its own line."""

    def __init__(self) -> None:
        self.what, self.progress = "", Progress("", None)

    def __call__(self, what: str, done: int, total: int | None, note: str = "", known: int | None = None) -> None:
        """`done` of `total` of what is going on, `known` of them without any work."""
        if what != self.what or total != self.progress.total or done < self.progress.position:
            self.end()
            reported = self.progress.reported  # many short jobs report as often as one long job
            self.what, self.progress = what, Progress(what, total)
            self.progress.reported = reported
        self.progress.at(done, note, known)

    def end(self) -> None:
        """Takes the line away."""
        self.progress.done()
