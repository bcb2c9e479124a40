"""An index that other processes and threads write and read meanwhile."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fixtures_index import QUERY, attempt, codes, holds, make, vectors
from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import ImageWords
from superfeat.index import contents
from superfeat.index.index import Index

pytestmark = pytest.mark.usefixtures("small_segments")

# -- Other writers and readers


OTHER = """
import sys
import numpy as np
from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords
from superfeat.index.index import Index
from superfeat.index.kernel import aggregate, binarise

index = Index.open(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except SuperfeatError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
"""


class Other:
    """Another process with the same index, told what to do."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", OTHER, str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.answer() == "open"

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, expression: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self.answer()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    make(tmp_path / "index", range(10))
    started = Other(tmp_path / "index")
    yield started
    started.process.kill()
    started.process.communicate()


def test_one_process_writes_at_a_time(other: Other, tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index")
    refused = f"StoreError: {tmp_path / 'index'} is being written by another process; wait for it to end, or stop it"
    with index.writing():
        for change in ('index.add("x", np.ones((1, 128), "f4"))', 'index.delete("n1")', "index.compact()"):
            assert other.do(change) == refused
        assert other.do("len(index)") == "10"
        index.add("mine", QUERY)
        assert other.do("len(index)") == "10"
        assert other.do("index.refresh(), len(index)") == "(None, 11)"
    assert other.do('index.delete("n1")') == "1"
    assert other.do("setattr(sys, 'lock', index.writing()), sys.lock.__enter__()") == "(None, None)"
    with pytest.raises(StoreError, match="is being written by another process; wait for it to end, or stop it"):
        index.add("y", QUERY)
    other.process.kill()
    other.process.wait()
    index.add("y", QUERY)
    assert ("n1" in index, "y" in index, len(index)) == (False, True, 11)


def test_what_another_process_wrote_is_taken_in_before_writing(other: Other, tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index")
    assert other.do('index.add("theirs", np.ones((2, 128), "f4")).id') == "10"
    assert other.do("index.delete('n2'), index.compact()") == "(1, None)"
    assert "theirs" not in index
    assert index.add("ours", QUERY).id == 11
    assert ("theirs" in index, "n2" in index) == (True, False)
    assert other.do("index.refresh(), list(index.names())[-2:]") == "(None, ['theirs', 'ours'])"
    with pytest.raises(SuperfeatError, match="has no image called n2"):
        index.delete("n2")


def test_a_reader_keeps_its_images(other: Other, tmp_path: Path) -> None:
    """Its files are removed under it, and it does not notice; `refresh` shows the new ones."""
    index = Index.open(tmp_path / "index")
    before, ranking, files = holds(index), index.search(QUERY, None), sorted((index.path / "segments").iterdir())
    assert other.do('index.add("n3", np.ones((2, 128), "f4")).outcome') == "replaced"
    assert other.do('index.add("theirs", np.ones((2, 128), "f4")).outcome') == "new"
    assert other.do('index.delete(["n0", "n9"])') == "2"
    for change in ("None", "index.compact()"):
        other.do(change)
        assert holds(index) == before
        assert len(index) == 10
        again = index.search(QUERY, None)
        assert (again.names, again.scores.tobytes()) == (ranking.names, ranking.scores.tobytes())
        assert index.search("n0", 1).names == ("n0",)
    assert not set(files) & set((index.path / "segments").iterdir())
    index.refresh()
    assert list(index.names()) == ["n1", "n2", "n4", "n5", "n6", "n7", "n8", "n3", "theirs"]
    assert index.search(QUERY, None).names == Index.open(index.path).search(QUERY, None).names


def test_an_index_made_anew_at_the_same_place(tmp_path: Path) -> None:
    """The same file names with other contents: a reader that refreshes shows the new images."""
    index = make(tmp_path / "index", range(4))
    assert index.info().segments == 1
    shutil.rmtree(tmp_path / "index")
    make(tmp_path / "index", range(20, 24))
    index.refresh()
    assert holds(index) == {f"n{seed}": codes(seed) for seed in range(20, 24)}


CHURN = """
import sys
import numpy as np
from superfeat.index import contents
from superfeat.features import ImageWords
from superfeat.index.index import Index
from superfeat.index.kernel import aggregate, binarise

contents.SMALL, contents.MIDDLE, contents.FAN = 2, 6, 3
index = Index.open(sys.argv[1])
rng = np.random.default_rng(0)
print("open", flush=True)
number = 0
while True:
    number += 1
    index.add(f"c{number % 7}", rng.standard_normal((3, 128)).astype("f4"))
    if number % 5 == 0:
        index.delete(f"c{number % 7}")
    if number % 3 == 0:
        index.compact()
"""


def test_readers_never_fail_while_another_process_writes(tmp_path: Path) -> None:
    """Opening, refreshing, searching and describing, again and again, while files come and go."""
    index = make(tmp_path / "index", range(10))
    with subprocess.Popen([sys.executable, "-c", CHURN, str(index.path)], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            seen: set[int] = set()
            began = time.monotonic()
            while time.monotonic() < began + 3 or (len(seen) <= 3 and time.monotonic() < began + 120):
                opened = Index.open(index.path)
                names = opened.search(QUERY, None).names
                assert {f"n{seed}" for seed in range(10)} <= set(names) == set(opened.names())
                seen.add(opened.id(next(name for name in ("c1", "c2", "c3", "n1") if name in opened)))
                index.refresh()
                assert len(index.search(QUERY, None)) == len(index)
                index.info()
            assert writer.poll() is None
        finally:
            writer.kill()
    assert len(seen) > 3
    assert list(Index.open(index.path).verify())


# -- Threads


def hurried(work: Sequence[Callable[[], object]], seconds: float) -> list[BaseException]:
    """Each in a thread of its own, over and over, switching as often as possible; returns what was raised."""
    errors: list[BaseException] = []
    end = time.monotonic() + seconds

    def repeat(job: Callable[[], object]) -> None:
        while time.monotonic() < end and not errors:
            try:
                job()
            except BaseException as error:
                errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=repeat, args=(job,)) for job in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return errors


def test_threads_that_search_while_one_writes(tmp_path: Path) -> None:
    """Every search sees a whole state: all the images that are never touched, and each name once."""
    index = make(tmp_path / "index", range(12))
    number = iter(range(10**9))

    def write() -> None:
        at = next(number)
        index.add(f"t{at % 5}", vectors(at % 40))
        if at % 3 == 0:
            index.delete(f"t{at % 5}")
        if at % 7 == 0:
            index.compact()

    def search() -> None:
        names = index.search(QUERY, None, workers=1).names
        assert len(set(names)) == len(names)
        assert {f"n{seed}" for seed in range(12)} <= set(names)

    def by_name() -> None:
        assert index.search("n1", 1, workers=1).names == ("n1",)
        assert index.meta(["n1", "n2"]) == {"n1": {}, "n2": {}}

    def describe() -> None:
        names = list(index.names())
        assert {f"n{seed}" for seed in range(12)} <= set(names)
        assert len(set(names)) == len(names)
        assert index.info().images >= 12

    assert hurried([write, search, search, by_name, describe], 1.5) == []
    assert next(number) > 0  # it wrote meanwhile
    assert list(index.verify())


def test_an_image_is_always_there_while_it_is_replaced(tmp_path: Path) -> None:
    index = make(tmp_path / "index", range(6))
    number = iter(range(10**9))

    def replace() -> None:
        index.add("n2", vectors(next(number) % 40))

    def look() -> None:
        assert "n2" in index
        assert len(index) == 6
        assert index.words_of("n2").words.size
        assert "n2" in index.search("n2", None, only=["n2", "n3"], workers=1).names
        assert sorted(index.names()) == [f"n{seed}" for seed in range(6)]

    assert hurried([replace, look, look], 1.5) == []


def test_an_image_that_comes_and_goes(tmp_path: Path) -> None:
    """Asking for it gives its words, or the error that says that it is not there."""
    index = make(tmp_path / "index", range(3))

    def toggle() -> None:
        index.add("x", vectors(7))
        index.delete("x")

    def look() -> None:
        found: list[ImageWords] = []
        error = attempt(lambda: found.append(index.words_of("x")))
        assert "has no image called x" in error or found[0].codes.tobytes() == codes(7)

    assert hurried([toggle, look, look], 1.5) == []


def test_threads_that_search_find_the_same(tmp_path: Path) -> None:
    index = make(tmp_path / "index", range(30))
    wanted = index.search(QUERY, None, workers=1)

    def search() -> None:
        found = index.search(QUERY, None, workers=2)
        assert (found.names, found.scores.tobytes()) == (wanted.names, wanted.scores.tobytes())

    assert hurried([search] * 4, 1) == []
    for workers in (1, 2, 5):
        for found in index.search_many([QUERY] * 3, None, workers=workers):
            assert (found.names, found.scores.tobytes()) == (wanted.names, wanted.scores.tobytes())


def test_a_journal_of_deletions_alone_becomes_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every opening would read all deletions that there ever were."""
    index = make(tmp_path / "index", range(30))
    monkeypatch.setattr(contents, "JOURNAL_BYTES", 200)
    for seed in range(20):
        index.delete(f"n{seed}")
    (journal,) = (tmp_path / "index").glob("journal-*")
    assert journal.stat().st_size < 300
    assert len(Index.open(tmp_path / "index")) == 10
