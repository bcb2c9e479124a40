"""Lines on a terminal: names stay one line, progress stays in its line and tells the truth about the time left."""

import io
import os
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfeat.cli.lines import Follow, Progress, cut, printable, say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def last(self) -> str:
        """What the changing line shows now."""
        return self.getvalue().rpartition("\r\x1b[K")[2]


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Puts a terminal of 40 columns at stderr, in the test itself: pytest puts its own there before."""
    return lambda: _attach(monkeypatch)


def _attach(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((40, 20)))
    return found


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def some(seconds: float) -> None:
        now[0] += seconds

    return some


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain name-é.jpg", "plain name-é.jpg"),
        ("a\nb\r.jpg", "a\\nb\\r.jpg"),
        ("\x1b[2Jgone\x07.jpg", "\\x1b[2Jgone\\x07.jpg"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\u2028b\x85", "a\\u2028b\\x85"),
        (os.fsdecode(b"caf\xe9.jpg"), "caf\\xe9.jpg"),
        ("\ud800", "\\ud800"),
        ("👨\u200d👩\u200d👧 10\u202f30.jpg", "👨\u200d👩\u200d👧 10\u202f30.jpg"),
        ("C:\\new\\table.jpg", "C:\\new\\table.jpg"),
    ],
)
def test_control_characters_are_written_out(name: str, shown: str) -> None:
    assert printable(name) == shown
    shown.encode()  # it can be sent to a terminal


@given(st.text())
def test_any_text_is_one_line(text: str) -> None:
    assert len(printable(text).splitlines()) <= 1
    assert printable(printable(text)) == printable(text)


def test_notes_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    say("skipped a\nb.jpg")
    assert capsys.readouterr().err == "skipped a\\nb.jpg\n"


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abcdef", 3, "abc"),
        ("abc", 3, "abc"),
        ("照片照片", 5, "照片"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("a", 0, ""),
    ],
)
def test_text_is_cut_by_columns(text: str, columns: int, shown: str) -> None:
    assert cut(text, columns) == shown


@pytest.mark.parametrize("name", ["x" * 200, "照片" * 60, "two\nlines\x1b[31m" * 20])
def test_a_progress_line_never_wraps(name: str, attach: Callable[[], Terminal], wait: Callable[[float], None]) -> None:
    terminal, progress = attach(), Progress("reading", 1000)
    progress.step()
    wait(1)
    progress.step(name)
    shown = terminal.last()
    assert shown.startswith("reading 2 of 1000, about ")
    assert "\n" not in terminal.getvalue()
    assert sum(2 if letter in "照片" else 1 for letter in shown) < 40


def test_what_an_earlier_run_did_counts_and_tells_nothing_of_the_speed(
    attach: Callable[[], Terminal], wait: Callable[[float], None]
) -> None:
    """900 of 1000 photos were there; each of the others takes two seconds."""
    terminal, progress = attach(), Progress("reading", 1000)
    progress.at(900)
    for _ in range(10):
        wait(2)
        progress.step()
    assert terminal.last() == "reading 910 of 1000, about 3 min left"


def test_photos_that_are_known_come_first_and_fast(
    attach: Callable[[], Terminal], wait: Callable[[float], None]
) -> None:
    """As an index reports them: one after another, known ones among them."""
    terminal, follow = attach(), Follow()
    for done in range(1, 901):
        wait(0.001)
        follow("indexing", done, 1000, known=done)
    for done in range(901, 911):
        wait(2)
        follow("indexing", done, 1000, known=900)
    assert terminal.last() == "indexing 910 of 1000, about 3 min left"
    follow("indexing", 959, 1000, known=949)  # 49 copies turn up, which take no time
    wait(0.2)
    follow("indexing", 959, 1000, known=949)
    assert terminal.last() == "indexing 959 of 1000, about 83 s left"


def test_a_first_report_is_not_the_speed(attach: Callable[[], Terminal], wait: Callable[[float], None]) -> None:
    """It comes when the first photo is done, and nobody knows how long that took."""
    terminal, follow = attach(), Follow()
    wait(5)
    follow("indexing", 1, 25, known=0)
    assert terminal.last() == "indexing 1 of 25"
    wait(2)
    follow("indexing", 2, 25, known=0)
    assert terminal.last() == "indexing 2 of 25, about 46 s left"


def test_elsewhere_lines_are_whole_and_seldom(
    capsys: pytest.CaptureFixture[str], wait: Callable[[float], None]
) -> None:
    progress = Progress("indexing", 4)
    for name in ("a", "b", "c\nd", "e" * 150):
        wait(6)
        progress.step(name)
    assert capsys.readouterr().err.splitlines() == [
        "indexing 2 of 4, about 12 s left  b",
        f"indexing 4 of 4, about 0 s left  {'e' * 150}",
    ]
