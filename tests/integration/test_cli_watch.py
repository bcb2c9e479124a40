"""superfeat watch in this process: a line for each update, and a real Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from fixtures_cli import assert_refused, run
from fixtures_service import WAIT, make_index, pattern
from superfeat.cli.serve import _watching
from superfeat.index.index import Index
from superfeat.index.make import Indexed
from superfeat.index.watch import Trouble, WatchEvent, watch_photos


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("watched"), photos=3)


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Where these tests are a background job of a shell, Ctrl-C is ignored, and nothing would ever stop."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_updates_until_ctrl_c(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[Any] = []
    echo = click.echo

    def note(message: Any = None, **options: Any) -> None:
        echo(message, **options)
        printed.append(message)

    def wait_for(lines: int) -> None:
        deadline = time.monotonic() + WAIT
        while sum(str(line).startswith("{") for line in printed) < lines and time.monotonic() < deadline:
            time.sleep(0.02)

    def change_and_stop() -> None:
        try:
            wait_for(1)
            (index.parent / "5.jpg").rename(index.parent / "photos" / "two\nlines.jpg")
            wait_for(2)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(click, "echo", note)
    pattern(4).save(index.parent / "photos" / "4.jpg")
    pattern(5).save(index.parent / "5.jpg")
    changing = threading.Thread(target=change_and_stop)
    changing.start()
    result = run("watch", index.parent / "photos", "-o", index, "--quiet", "0.1", "--workers", "1", "--json")
    changing.join()
    assert result.exit_code == 130, result.stderr
    assert "superfeat: stopped; what is finished is kept" in result.stderr
    updates = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["images"], one["new"], one["same"]) for one in updates] == [(4, 1, 3), (5, 1, 4)]


def test_a_watch_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """With what cannot be caught, while photos go in; the next one brings in the rest, and looks at none again."""
    index = make_index(tmp_path, photos=2)
    photos = tmp_path / "photos"
    for number in range(10, 40):
        pattern(number).save(photos / f"{number}.jpg")
    command = [sys.executable, "-m", "superfeat", "watch", photos, "-o", index, "--quiet", "0.1", "--workers", "1"]
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL) as watcher:
        deadline = time.monotonic() + 4 * WAIT
        while len(Index.open(index)) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        watcher.kill()
    before = {image.name: one for one, image in Index.open(index).snapshot().images()}
    assert len(before) >= 4
    stop = threading.Event()
    for event in watch_photos(photos, index, quiet=0.1, workers=1, stop=stop):
        if isinstance(event, Indexed):
            assert (event.same, event.new, event.replaced) == (len(before), 32 - len(before), 0)
            stop.set()
    after = {image.name: one for one, image in Index.open(index).snapshot().images()}
    assert before.items() <= after.items()
    assert len(after) == 32


def test_lines_for_people(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when something goes wrong meanwhile."""

    def told(*_: object, **__: object) -> Iterator[WatchEvent]:
        yield Indexed(index, new=2, dropped=["gone\n.jpg"])
        yield Trouble("the disk is full")

    monkeypatch.setattr("superfeat.index.watch.watch_photos", told)
    result = run("watch", index.parent / "photos", "-o", index)
    assert result.exit_code == 0
    first, *more = result.stdout.splitlines()
    assert "(2 new, 0 replaced, 0 unchanged, 1 dropped)" in first
    assert more == ["  dropped: gone\\n.jpg"]
    assert result.stderr == "superfeat: the disk is full; it will be tried again\n"


def test_a_service_tells_what_its_folder_brings(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, and only where something has changed; without a folder nothing is watched."""
    said = ""
    pattern(6).save(index.parent / "photos" / "6.jpg")
    with _watching([index.parent / "photos"], index, {"workers": 1}):
        deadline = time.monotonic() + WAIT
        while not said and time.monotonic() < deadline:
            time.sleep(0.02)
            said = capsys.readouterr().err
    assert said.startswith(f"{index}: ")
    assert "1 new" in said
    with _watching([], index, {}):
        assert "superfeat-watch-photos" not in {thread.name for thread in threading.enumerate()}


def test_what_cannot_be_watched(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(run("watch", index / "nowhere", "-o", index), "only folders can be watched")
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert_refused(run("watch", index.parent / "photos", "-o", index), "pip install 'superfeat[watch]'")
