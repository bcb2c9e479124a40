"""An index that follows its folders: real changes on a real disk; and when files count as holding still."""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fixtures_recipe import noise
from superfeat import Network, index_photos, save_network
from superfeat.errors import MissingExtraError, SuperfeatError
from superfeat.index.index import Index
from superfeat.index.make import Indexed
from superfeat.index.watch import PATIENCE, Trouble, Unsettled, WatchedFolders, WatchEvent, watch_photos, watching
from superfeat.storage.store import writer_lock

SMALL = {"max_side": 48, "scales": (1.0,), "features_per_image": 6}
WAIT = 60.0  # seconds after which a test gives up
QUIET = 0.1


@pytest.fixture
def place(tiny_network: Network, tmp_path: Path) -> Path:
    """A network, two photos, and an index of them."""
    save_network(tiny_network, tmp_path / "network")
    (tmp_path / "photos").mkdir()
    for number in range(2):
        draw(tmp_path / "photos" / f"{number}.png", number)
    options: dict[str, Any] = {"settings": SMALL, "codebook": "own", "workers": 1}
    index_photos(tmp_path / "photos", tmp_path / "index", weights=tmp_path / "network", **options)
    return tmp_path


def draw(path: Path, seed: int) -> Path:
    Image.fromarray(noise(40, 48, seed)).save(path)
    return path


class Watching:
    """Follows folders; the next thing it tells, or a failed test if nothing comes."""

    def __init__(self, folders: Any, index: Path, **options: Any) -> None:
        self.stop = threading.Event()
        self.alarm = threading.Timer(WAIT, self.stop.set)
        self.alarm.daemon = True
        self.alarm.start()
        self.events = watch_photos(
            folders, index, **{"workers": 1, "quiet": QUIET, "untold": 4 * WAIT, "stop": self.stop, **options}
        )

    def next(self) -> Indexed | Trouble:
        for event in self.events:
            if isinstance(event, (Indexed, Trouble)):
                return event
        raise AssertionError("it has stopped, and told nothing")

    def update(self) -> dict[str, Any]:
        """What the next update did, without what is zero."""
        done = self.next()
        assert isinstance(done, Indexed), done
        kinds = ("new", "replaced", "moved", "copied", "same", "dropped", "skipped")
        return {kind: value for kind in kinds if (value := getattr(done, kind))}


@pytest.fixture
def follow() -> Iterator[Callable[..., Watching]]:
    started: list[Watching] = []

    def begin(*arguments: Any, **options: Any) -> Watching:
        started.append(Watching(*arguments, **options))
        return started[-1]

    yield begin
    for one in started:
        one.stop.set()
        one.alarm.cancel()


def test_what_comes_changes_moves_and_goes(place: Path, follow: Callable[..., Watching]) -> None:
    photos = place / "photos"
    watched = follow(photos, place / "index")
    (photos / "0.png").unlink()  # before it began: the first look finds it
    assert watched.update() == {"same": 1, "dropped": ["0.png"]}
    for number in range(3, 8):
        draw(photos / f"{number}.png", number)
    assert watched.update() == {"new": 5, "same": 1}  # a burst is one update
    (photos / "a.folder").mkdir()
    (photos / "3.png").rename(photos / "a.folder" / "three.png")
    assert watched.update() == {"moved": 1, "same": 5}
    draw(photos / "4.png", 40)
    assert watched.update() == {"replaced": 1, "same": 5}
    shutil.rmtree(photos / "a.folder")
    assert watched.update() == {"same": 5, "dropped": ["a.folder/three.png"]}
    (photos / "broken.jpg").write_bytes(b"no photo")
    assert [one.name for one in watched.update()["skipped"]] == ["broken.jpg"]
    assert sorted(Index.open(place / "index").names()) == ["1.png", "4.png", "5.png", "6.png", "7.png"]


def test_nothing_is_lost_between_two_runs(place: Path, follow: Callable[..., Watching]) -> None:
    """Stopped in the middle of an update; what it had not done the next run does."""
    for number in range(3, 8):
        draw(place / "photos" / f"{number}.png", number)
    watched = follow(place / "photos", place / "index")
    for event in watched.events:
        if not isinstance(event, (Indexed, Trouble)) and event.done == 3:  # the two that it knew, and one
            watched.stop.set()
    assert 2 < len(Index.open(place / "index")) < 7, "it went on to the end"
    done = follow(place / "photos", place / "index").next()
    assert isinstance(done, Indexed)
    assert (done.new + done.same, len(done.open())) == (7, 7)


def test_several_folders_and_an_index_inside_of_one(place: Path, follow: Callable[..., Watching]) -> None:
    """What superfeat writes does not wake it."""
    inside = place / "photos" / "index"
    shutil.move(place / "index", inside)
    (place / "more").mkdir()
    watched = follow([place / "photos", place / "more"], inside)
    assert watched.update() == {"same": 2}
    draw(place / "more" / "new.png", 9)
    assert watched.update() == {"new": 1, "same": 2}
    draw(place / "photos" / "other.png", 10)
    assert watched.update() == {"new": 1, "same": 3}


def test_an_empty_folder_waits_for_its_first_photo(place: Path, follow: Callable[..., Watching]) -> None:
    (place / "empty").mkdir()
    options = {"weights": place / "network", "settings": SMALL, "codebook": "own"}
    watched = follow(place / "empty", place / "second", **options)
    threading.Timer(0.5, lambda: (place / "photos" / "1.png").rename(place / "empty" / "1.png")).start()
    assert watched.update() == {"new": 1}


def test_troubles_are_told_once_and_tried_again(place: Path, follow: Callable[..., Watching]) -> None:
    watched = follow(place / "photos", place / "index")
    assert watched.update() == {"same": 2}
    draw(place / "photos" / "new.png", 9)
    with writer_lock(place / "index"):
        trouble = watched.next()
        assert isinstance(trouble, Trouble)
        assert "is being written by another process" in trouble.reason
        released = threading.Timer(0.5, lambda: None)
        released.start()
        released.join()  # long enough for further attempts: they would tell the same
    done = watched.next()
    assert isinstance(done, Indexed)
    assert done.new == 1


def test_photos_of_a_folder_that_is_away_are_kept(place: Path, follow: Callable[..., Watching]) -> None:
    watched = follow(place / "photos", place / "index", untold=0.2)
    assert watched.update() == {"same": 2}
    (place / "photos").rename(place / "away")
    trouble = watched.next()
    assert isinstance(trouble, Trouble)
    assert "photos is not there; its photos stay in the index" in trouble.reason
    assert len(Index.open(place / "index")) == 2


def test_what_nobody_tells_is_found_later(
    place: Path, follow: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network disk; and a look that finds nothing is not told."""
    monkeypatch.setattr(WatchedFolders, "matters", lambda *_: False)
    watched = follow(place / "photos", place / "index", untold=0.05)
    assert watched.update() == {"same": 2}
    threading.Timer(0.5, lambda: draw(place / "photos" / "new.png", 9)).start()
    assert watched.update() == {"new": 1, "same": 2}


def test_what_is_wrong_at_the_start_is_raised(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SuperfeatError, match="is not a folder; only folders can be watched"):
        watch_photos(place / "photos" / "0.png", place / "index")
    with pytest.raises(SuperfeatError, match="nobody"):
        list(watch_photos(place / "photos", place / "other", weights="nobody", stop=threading.Event()))
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(MissingExtraError, match=r"watching a folder needs .* 'superfeat\[watch\]'"):
        watch_photos(place / "photos", place / "index")


def test_beside_something_else(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread, which begins anew after a trouble and ends with its block."""
    told: list[WatchEvent] = []
    came = threading.Condition()

    def note(event: WatchEvent) -> None:
        with came:
            told.append(event)
            came.notify_all()

    def wait_for(wanted: Callable[[WatchEvent], bool]) -> None:
        with came:
            assert came.wait_for(lambda: any(wanted(event) for event in told), WAIT), told

    with pytest.raises(SuperfeatError, match="is not a folder"), watching([place / "no"], place / "index", note):
        pass
    threads = threading.active_count()
    lock = writer_lock(place / "index")
    draw(place / "photos" / "new.png", 9)
    lock.__enter__()
    with watching([place / "photos"], place / "index", note, workers=1, quiet=QUIET):
        wait_for(lambda event: isinstance(event, Trouble))
        lock.__exit__(None, None, None)
        wait_for(lambda event: isinstance(event, Indexed) and event.new == 1)
    assert threading.active_count() == threads


# -- What matters, and when


def test_which_changes_matter(tmp_path: Path) -> None:
    (tmp_path / "photos" / "a.b").mkdir(parents=True)
    photos = tmp_path / "photos"
    watched = WatchedFolders([photos], photos / "index", ["@eaDir", "*.tmp"])
    for name in ("a.jpg", "A.JPG", "b/c.png", "no-ending", "a.b", "shard.tar", "b/c.ZIP"):
        assert watched.matters(str(photos / name)), name
    for name in ("a.txt", "a.jpg.xmp", ".hidden.jpg", "b/.trash/c.jpg", "@eaDir/a.jpg", "x.tmp", "index"):
        assert not watched.matters(str(photos / name)), name
    for name in ("index/journal-1", "index.features/a.npy", "index.codebook"):
        assert not watched.matters(str(photos / name), deleted=True), name
    assert watched.matters(str(photos / "gone.folder"), deleted=True)


def test_files_that_grow_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("superfeat.index.watch.time.monotonic", lambda: clock[0])
    pending = Unsettled(2.0)
    assert not pending.is_ready()
    file = tmp_path / "a.jpg"
    file.write_bytes(b"begin")
    pending.note([str(file)])
    clock[0] += 1.9
    assert not pending.is_ready()
    pending.note([str(file)])  # told that it grows
    clock[0] += 1.9
    assert not pending.is_ready()
    file.write_bytes(b"begin, middle")  # not told
    clock[0] += 0.2
    assert not pending.is_ready()
    clock[0] += 2.0
    assert pending.is_ready()
    pending.clear()
    assert not pending.is_ready()
    for _ in range(int(PATIENCE)):
        pending.note([str(file)])
        assert not pending.is_ready()
        clock[0] += 1.0
    assert pending.is_ready()  # it has been long enough
