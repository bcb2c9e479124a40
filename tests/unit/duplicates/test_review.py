"""Which copy is kept and why; and the script, run by a real shell on files of hostile names."""

import datetime
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fixtures_archives import pack
from fixtures_index import CODEBOOK, vectors
from fixtures_recipe import noise
from superfeat.duplicates import Group, Member
from superfeat.duplicates.review import ReviewedGroup, letter_of, review_groups
from superfeat.duplicates.script import tidy_script
from superfeat.index.identity import file_digest
from superfeat.index.index import Index

HOSTILE = (
    "it's.png",
    '"; touch broken; ".png',
    "$(touch broken).png",
    "`touch broken`.png",
    "-rf.png",
    "two\nlines.png",
    "\ntouch broken\n",
    "back\\slash.png",
    " spaces  and\ttabs .png",
    "* ? [a].png",
    "#comment.png",
    os.fsdecode(b"no-\xff-letters.png"),
)


class Collection:
    """Photos on disk and an index that knows their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "photos"
        self.folder.mkdir()
        self.index = Index.create(folder / "index", CODEBOOK)

    def add(self, name: str, seed: int = 0, *, size: int = 24, taken: str | None = None, changed: int = 1000) -> Path:
        path = self.folder / name
        photo = Image.fromarray(noise(size, size, seed))
        exif = photo.getexif()
        if taken is not None:
            exif[0x0132] = taken
        photo.save(path, "PNG", exif=exif)
        return self.note(path, changed)

    def copy(self, name: str, of: Path, changed: int = 1000) -> Path:
        path = self.folder / name
        shutil.copyfile(of, path)
        return self.note(path, changed)

    def note(self, path: Path, changed: int) -> Path:
        os.utime(path, (changed, changed))
        facts = path.stat()
        stamp = [facts.st_size, facts.st_mtime_ns]
        self.index.add(path.name, vectors(0), {"path": str(path), "stamp": stamp, "digest": file_digest(path)})
        return path

    def review(self, *names: str, copies: int | None = 0) -> ReviewedGroup:
        members = tuple(Member(name, self.index.id(name), 0.9, copies) for name in names)
        (reviewed,) = review_groups(self.index, [Group(members, 0.9)])
        return reviewed


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return Collection(tmp_path)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def advice(group: ReviewedGroup) -> dict[str, tuple[str, str]]:
    return {photo.member.name: (photo.advice, photo.reason) for photo in group.photos}


@pytest.mark.parametrize(
    ("better", "worse", "reason", "other"),
    [
        ({"size": 32}, {"taken": "2019:01:01 00:00:00"}, "the most pixels", "fewer pixels"),
        ({"taken": "2019:01:01 00:00:00"}, {}, "it has the date of its camera", "without the date of its camera"),
        ({"changed": 500}, {"changed": 600}, "the oldest file", "a newer file"),
    ],
)
def test_the_best_is_kept(
    better: dict[str, Any], worse: dict[str, Any], reason: str, other: str, collection: Collection
) -> None:
    collection.add("b.png", 1, **worse)
    collection.add("a-longer-name.png", 1 if better.keys() == {"changed"} else 2, **better)
    group = collection.review("b.png", "a-longer-name.png")
    assert advice(group)["a-longer-name.png"] == ("keep", reason)
    kind = "the same bytes" if better.keys() == {"changed"} else "nearly the same picture"
    assert advice(group)["b.png"] == ("move", f"{kind}, {other}")
    assert group.best == "a-longer-name.png"
    assert [photo.member.name for photo in group.moved] == ["b.png"]


def test_a_larger_file_is_less_compressed(collection: Collection) -> None:
    for name, colours in (("few.png", 2), ("many.png", 256)):
        pixels = np.random.default_rng(0).integers(0, colours, (24, 24, 3), np.uint8)
        Image.fromarray(pixels).save(collection.folder / name)
        collection.note(collection.folder / name, 1000)
    group = collection.review("few.png", "many.png")
    assert advice(group)["many.png"] == ("keep", "the largest file")
    assert advice(group)["few.png"] == ("move", "nearly the same picture, a smaller file")


def test_the_same_bytes_are_told_and_paths_decide_at_last(collection: Collection) -> None:
    first = collection.add("b.png")
    for name in ("a.png", "long.png"):
        collection.copy(name, first)
    group = collection.review("b.png", "a.png", "long.png")
    assert advice(group) == {
        "a.png": ("keep", "the first by its path"),
        "b.png": ("move", "the same bytes, a later path"),
        "long.png": ("move", "the same bytes, a longer path"),
    }
    assert all(photo.same_bytes for photo in group.moved)


def test_what_is_no_copy_is_kept(collection: Collection) -> None:
    collection.add("a.png", 1, size=32)
    collection.add("b.png", 2)
    group = collection.review("a.png", "b.png", copies=None)
    assert advice(group) == dict.fromkeys(("a.png", "b.png"), ("keep", "another photo of the same thing"))
    assert group.best == "a.png"


def test_sets_of_copies_inside_of_a_group(collection: Collection) -> None:
    for number, name in enumerate(("a.png", "a2.png", "b.png", "b2.png", "c.png")):
        collection.add(name, number)
    sets = dict(zip(("a.png", "a2.png", "b.png", "b2.png", "c.png"), (0, 0, 1, 1, None), strict=True))
    members = tuple(Member(name, collection.index.id(name), 0.9, copies) for name, copies in sets.items())
    (group,) = review_groups(collection.index, [Group(members, 0.9)])
    kept = {"a.png": "keep", "a2.png": "move", "b.png": "keep", "b2.png": "move", "c.png": "keep"}
    assert {name: what for name, (what, _) in advice(group).items()} == kept
    assert [photo.kept and Path(photo.kept.path).name for photo in group.moved] == ["a.png", "b.png"]


def test_what_is_not_as_it_was_indexed_is_not_judged(collection: Collection) -> None:
    for name in ("best.png", "gone.png", "changed.png", "damaged.png"):
        collection.add(name, size=8 if name == "best.png" else 32)
    (collection.folder / "gone.png").unlink()
    os.utime(collection.folder / "changed.png", (2000, 2000))
    (collection.folder / "damaged.png").write_bytes(b"no photo")
    collection.index.delete("damaged.png")
    collection.note(collection.folder / "damaged.png", 1000)
    collection.index.add("features", vectors(1))
    group = collection.review("best.png", "gone.png", "changed.png", "damaged.png", "features")
    assert group.moved == []
    found = advice(group)
    assert found["best.png"] == ("keep", "its copies are not there as they were indexed")
    assert found["gone.png"] == ("unsure", "its file is not there")
    assert found["changed.png"] == ("unsure", "its file has changed since it was indexed")
    assert found["damaged.png"][0] == "unsure"
    assert found["damaged.png"][1].startswith("its file cannot be read")
    assert found["features"] == ("unsure", "the index does not know its file")
    assert collection.review("gone.png", "features").best is None


def test_what_lies_in_an_archive_or_elsewhere_is_never_moved(collection: Collection) -> None:
    first = collection.add("a.png")
    pack(collection.folder / "0.tar", {"b.png": first.read_bytes()})
    for name, path in (("b.png", f"{collection.folder}/0.tar/b.png"), ("c.png", "s3://bucket/c.png")):
        collection.index.add(name, vectors(0), {"path": path, "stamp": [1, 1], "digest": file_digest(first)})
    reviewed = collection.review("a.png", "b.png", "c.png")
    assert [photo.advice for photo in reviewed.photos] == ["keep", "unsure", "unsure"]
    assert "stays there" in reviewed.photos[1].reason


def test_the_facts_of_a_file(collection: Collection) -> None:
    path = collection.add("a.png", size=20, taken="2019:08:04 12:30:00", changed=86400)
    file = collection.review("a.png").photos[0].file
    assert file is not None
    assert (file.path, file.bytes, file.digest) == (str(path), path.stat().st_size, file_digest(path))
    assert file.header == ((20, 20), datetime.datetime(2019, 8, 4, 12, 30))
    assert file.changed == datetime.datetime.fromtimestamp(86400)


def test_letters_end_in_numbers() -> None:
    assert [letter_of(number) for number in (0, 25, 26)] == ["A", "Z", "26"]


# -- The script


@pytest.fixture
def tidy(collection: Collection, tmp_path: Path) -> Callable[..., str]:
    """Runs the script that tidies these groups up; gives what it says."""

    def run(groups: list[ReviewedGroup], *arguments: str) -> str:
        place = tmp_path / "elsewhere"
        place.mkdir(exist_ok=True)
        script = tmp_path / "tidy.sh"
        script.write_bytes(tidy_script(groups, tmp_path / "tra'sh"))
        done = subprocess.run(["sh", script, *arguments], cwd=place, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert list(place.iterdir()) == []  # nothing in a name was run
        return done.stdout.decode(errors="replace")

    return run


def test_hostile_names(collection: Collection, tidy: Callable[..., str], tmp_path: Path) -> None:
    groups = []
    for number, name in enumerate(HOSTILE):
        kept = collection.add(f"kept {name}", number, changed=10)
        collection.copy(f"copy {name}", kept)
        collection.add(name, number, size=12)
        groups.append(collection.review(f"kept {name}", f"copy {name}", name))
    count = 2 * len(HOSTILE)
    before = names_in(collection.folder)
    said = tidy(groups)
    assert names_in(collection.folder) == before
    assert said.count("would move: ") == count
    assert said.splitlines()[-1] == f"{count} would be moved, 0 left alone; nothing was done: --move does it"
    said = tidy(groups, "--move")
    assert said.splitlines()[-1] == f"{count} moved, 0 left alone"
    assert len(said.splitlines()) == count + 1  # a name is one line, whatever is in it
    assert names_in(collection.folder) == sorted(f"kept {name}" for name in HOSTILE)
    away = Path(f"{tmp_path / 'tra'}'sh{collection.folder}")
    assert names_in(away) == sorted([*HOSTILE, *(f"copy {name}" for name in HOSTILE)])


def test_what_has_changed_since_is_left_alone(collection: Collection, tidy: Callable[..., str], tmp_path: Path) -> None:
    originals = [collection.add(f"{number}.png", number, changed=10) for number in range(5)]
    groups = []
    for number, original in enumerate(originals):
        if number < 3:
            collection.copy(f"{number}-copy.png", original)
        else:
            collection.add(f"{number}-copy.png", number, size=12)
        groups.append(collection.review(f"{number}.png", f"{number}-copy.png"))
    originals[0].write_bytes(b"other")
    (collection.folder / "1-copy.png").unlink()
    taken = Path(f"{tmp_path / 'tra'}'sh{collection.folder / '2-copy.png'}")
    taken.parent.mkdir(parents=True)
    taken.write_bytes(b"there before")
    originals[3].unlink()
    said = tidy(groups, "--move").splitlines()
    assert [line.split(":")[0] for line in said] == [
        "left alone, not the same bytes any more",
        "left alone, not the same bytes any more",
        "left alone, the trash holds one of this path",
        "left alone, the copy to keep has gone",
        "moved",
        "1 moved, 4 left alone",
    ]
    assert taken.read_bytes() == b"there before"
    assert tidy(groups, "--move").splitlines()[-1] == "0 moved, 5 left alone"


def test_a_copy_that_is_the_kept_file_itself_stays(collection: Collection, tidy: Callable[..., str]) -> None:
    """Whatever the paths say: a photo of which one name alone is left must not go."""
    kept = collection.add("a.png", changed=10)
    copy = collection.copy("b.png", kept)
    group = collection.review("a.png", "b.png")
    kept.unlink()
    kept.symlink_to(copy)
    assert tidy([group], "--move").splitlines()[-1] == "0 moved, 1 left alone"
    assert copy.is_file()


def test_the_script_does_what_it_is_told_or_nothing(collection: Collection, tmp_path: Path) -> None:
    (tmp_path / "tidy.sh").write_bytes(tidy_script([], tmp_path / "trash"))
    done = subprocess.run(["sh", tmp_path / "tidy.sh", "--mvoe"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "only --move is understood" in done.stderr
