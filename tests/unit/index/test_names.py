"""Names of a segment: whatever a file can be called goes in and comes out the same."""

import errno
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from superfeat.errors import StoreError
from superfeat.index.names import MOST_VARIABLES, Image, MemoryNames, Names, NotedNames, key_of, write_names

ODD = (
    "",
    " ",
    "photo.jpg",
    "a/b/c.jpg",
    'it\'s "quoted"; DROP TABLE images; --',
    "line\nbreak\r\ttab",
    "nul\0inside",
    "ünï çødé 名前 🏛",
    "e\u0301",
    "é",
    "caf\udce9.jpg",
    "\udcff\udcfe",
    "?",
    "*%_",
    "long" * 5000,
)


def images(names: Sequence[str]) -> list[Image]:
    return [Image(name, -(number**5), {"n": number} if number % 2 else {}) for number, name in enumerate(names)]


def written(path: Path, names: Sequence[str]) -> Names:
    write_names(path / "names.sqlite", images(names))
    return Names(path / "names.sqlite", len(names))


def test_odd_names_come_back(tmp_path: Path) -> None:
    names, memory = written(tmp_path, ODD), MemoryNames(images(ODD))
    for found in (names, memory):
        assert list(found) == images(ODD)
        assert found.find(list(ODD)) == dict(enumerate(images(ODD)))
        assert found.images_of([0, 7, 3]) == {number: images(ODD)[number] for number in (0, 7, 3)}
        for number, name in enumerate(ODD):
            assert found.find([name]) == {number: images(ODD)[number]}
        assert found.find(["absent", "caf\udce9", "PHOTO.JPG", "?*"]) == {}
        assert found.find([]) == {}
        assert found.images_of([]) == {}


def test_numbers_of_any_size_and_deep_meta(tmp_path: Path) -> None:
    meta = {"a": [1, 2.5, None, True, {"b": "ü\0'\"", "": {}}], "big": 2**70, "surrogate": "\udcff"}
    whole = [Image("a", -(2**63), meta), Image("b", 2**63 - 1, {})]
    write_names(tmp_path / "n", whole)
    assert list(Names(tmp_path / "n", 2)) == whole


def test_more_names_than_one_statement_takes(tmp_path: Path) -> None:
    many = [f"n{number}" for number in range(2 * MOST_VARIABLES + 3)]
    names = written(tmp_path, many)
    assert {number: image.name for number, image in names.find([*many, "absent"]).items()} == dict(enumerate(many))
    assert names.images_of(range(len(many))) == dict(enumerate(images(many)))


def test_an_open_file_may_be_removed(tmp_path: Path) -> None:
    many = [f"{'long' * 50}{number}" for number in range(2000)]  # more than one page of the file
    names = written(tmp_path, many)
    (tmp_path / "names.sqlite").unlink()
    assert [image.name for image in names] == many
    assert list(names.find([many[1999]])) == [1999]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["plain", "with space", "a?b#c%20d", "ü'\"", "bad\udcff"])
def test_folders_of_any_name(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    assert list(written(tmp_path / folder, ["a"]).find(["a"])) == [0]


def test_a_file_that_is_missing_or_something_else(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"absent"):
        Names(tmp_path / "absent", 1)
    assert not (tmp_path / "absent").exists()
    for data in (b"", b"SQLite format 3\0", b"something else" * 1000):
        (tmp_path / "other").write_bytes(data)
        with pytest.raises(StoreError, match=r"other is damaged: .*; run superfeat verify"):
            Names(tmp_path / "other", 1)
    sqlite3.connect(tmp_path / "another").execute("CREATE TABLE photos (name)").connection.close()
    with pytest.raises(StoreError, match="no such table"):
        Names(tmp_path / "another", 1)


def test_another_count(tmp_path: Path) -> None:
    written(tmp_path, ["a", "b"])
    with pytest.raises(StoreError, match="is damaged: it names 2 images, not 3"):
        Names(tmp_path / "names.sqlite", 3)


def read_all(names: Names) -> None:
    list(names)
    names.find(["a", "b"])
    names.images_of([0, 1])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE images SET meta = 'no json' WHERE number = 1",
        "UPDATE images SET meta = x'ff' WHERE number = 1",
        "UPDATE images SET name = 5 WHERE number = 1",
        "UPDATE images SET number = -7 WHERE number = 0",
    ],
)
def test_rows_that_make_no_sense(damage: str, tmp_path: Path) -> None:
    """A checksum that happens to be right is no reason to fail with anything but a StoreError."""
    written(tmp_path, ["a", "b"])
    connection = sqlite3.connect(tmp_path / "names.sqlite")
    connection.executescript(damage)
    connection.close()
    with pytest.raises(StoreError, match=r"names\.sqlite is damaged"):
        read_all(Names(tmp_path / "names.sqlite", 2))


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    """SQLite quotes it in its messages, which are then no text either."""
    written(tmp_path, ["a", "b"])
    file = tmp_path / "names.sqlite"
    whole = file.read_bytes()
    end = whole.index(b"meta TEXT)")
    first = whole.index(b"CREATE INDEX")
    refused = 0
    for place in range(first, end):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        try:
            read_all(Names(file, 2))
        except StoreError:
            refused += 1
    assert refused > 20


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError) as error:
        write_names(tmp_path / "absent" / "names.sqlite", images(["a"]))
    assert error.value.errno == errno.EIO


PATHS = ("/a", "/b", "/a\udcff", "/ü")


def filed(count: int) -> list[Image]:
    return [Image(f"n{n}", n, {"path": PATHS[n % 4], "digest": f"d{n % 3}"}) for n in range(count)]


def without_keys(path: Path) -> None:
    """As superfeat 0.1 wrote it."""
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE keys")
    connection.close()


@pytest.mark.parametrize("kind", ["file", "old file", "memory", "noted"])
def test_images_are_found_by_path_and_digest(kind: str, tmp_path: Path) -> None:
    every = filed(9)
    changed = {2: Image("other", 2, {"path": "/b", "digest": "new"}), 4: Image("n4", 4, {})}
    names: Names | MemoryNames | NotedNames = MemoryNames(every)
    if "file" in kind:
        write_names(tmp_path / "n", every)
        if kind == "old file":
            without_keys(tmp_path / "n")
        names = Names(tmp_path / "n", len(every))
    if kind == "noted":
        names = NotedNames.of(NotedNames.of(names, {4: every[4]}), changed)
        every = [changed.get(number, image) for number, image in enumerate(every)]
    for field in ("path", "digest"):
        for value in (*PATHS, "d0", "d1", "new", "/absent"):
            wanted = {number: image for number, image in enumerate(every) if image.meta.get(field) == value}
            assert names.find_keys([key_of(field, value)]) == wanted
    assert names.find_keys([]) == {}
    assert list(names) == every
    assert names.images_of(range(9)) == dict(enumerate(every))
    assert names.find(["other", "n2", "n3"]) == {
        n: one for n, one in enumerate(every) if one.name in ("other", "n2", "n3")
    }
