"""Which files of a folder are photos, and what is said of the others."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import superfeat.sources.listing as listing_module
from superfeat.errors import ImageError
from superfeat.images import NEEDS_HEIF, Photo
from superfeat.sources.listing import list_photos, longer_names
from superfeat.sources.reasons import (
    EXCLUDED_BY_PATTERN,
    HIDDEN,
    LINKED_FOLDER,
    MATCHED_FOLDER,
    NO_PHOTO,
    OWN_FILES,
    RAW_FILE,
    VIDEO,
)


def names(*sources: str | Path) -> list[str]:
    return [photo.name for photo in list_photos(sources).photos]


def test_a_folder_is_listed_with_all_below_it_in_order(photo_folder: Path) -> None:
    (photo_folder / "Z.PNG").write_bytes(b"x")
    (photo_folder / "noending").write_bytes(b"x")
    assert names(photo_folder) == ["Z.PNG", "a.png", "b.jpg", "c.png", "d.jpg", "e.bmp", "more/f.png", "noending"]
    assert list_photos([photo_folder]).photos[1] == Photo(photo_folder / "a.png", "a.png")


def test_every_file_that_is_no_photo_is_named_with_the_reason(photo_folder: Path) -> None:
    (photo_folder / ".DS_Store").write_bytes(b"x")
    (photo_folder / ".thumbs").mkdir()
    (photo_folder / ".thumbs" / "a.png").write_bytes(b"x")
    (photo_folder / "._a.png").write_bytes(b"x")
    (photo_folder / "notes.txt").write_text("x")
    (photo_folder / "clip.mp4").write_bytes(b"x")
    (photo_folder / "figure.eps").write_bytes(b"x")
    (photo_folder / "folder.jpg").mkdir()
    listing = list_photos([photo_folder])
    assert len(listing.photos) == 6
    assert listing.left_out == [
        (".DS_Store", HIDDEN),
        ("._a.png", HIDDEN),
        (".thumbs", HIDDEN),
        ("clip.mp4", VIDEO),
        ("figure.eps", NO_PHOTO),
        ("notes.txt", NO_PHOTO),
    ]
    assert listing.counts() == {HIDDEN: 3, NO_PHOTO: 2, VIDEO: 1}


def test_a_folder_below_a_hidden_one_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "photos"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes(b"x")
    assert names(folder) == ["a.png"]


def test_links(photo_folder: Path) -> None:
    (photo_folder / "dangling.jpg").symlink_to(photo_folder / "nowhere")
    (photo_folder / "loop").symlink_to(photo_folder)
    assert "dangling.jpg" in names(photo_folder), "it is for the run to report"
    assert not any(name.startswith("loop/loop") for name in names(photo_folder))


def test_glob_patterns(photo_folder: Path) -> None:
    assert names(f"{photo_folder}/*.png") == [f"{photo_folder}/a.png", f"{photo_folder}/c.png"]
    assert len(names(f"{photo_folder}/**/*.png")) == 3
    assert names(f"{photo_folder}/[bm]*") == [f"{photo_folder}/b.jpg"], "folders that match are no photos"


def test_what_a_pattern_matches_besides_photos_is_named(tmp_path: Path) -> None:
    for file in ("a.jpg", "clip.mp4", "b.png", "more/c.jpg"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"x")
    found = list_photos([f"{tmp_path}/*"], exclude=["*.png"])
    assert [photo.name for photo in found.photos] == [f"{tmp_path}/a.jpg"]
    assert found.left_out == [
        (f"{tmp_path}/b.png", EXCLUDED_BY_PATTERN),
        (f"{tmp_path}/clip.mp4", VIDEO),
        (f"{tmp_path}/more", MATCHED_FOLDER),
    ]
    deep = list_photos([f"{tmp_path}/**"])
    assert [photo.path.name for photo in deep.photos] == ["a.jpg", "b.png", "c.jpg"]
    assert deep.left_out == [(f"{tmp_path}/clip.mp4", VIDEO)], "what is in the folder matches too"


def test_a_file_with_a_pattern_in_its_name(tmp_path: Path) -> None:
    file = tmp_path / "a[1].png"
    file.write_bytes(b"x")
    assert [photo.path for photo in list_photos([file]).photos] == [file]


def test_list_files(photo_folder: Path) -> None:
    listed = photo_folder / "some.txt"
    listed.write_text(f"# two of them\n\nb.jpg\n  more/f.png  \n{photo_folder}/a.png\n", encoding="utf-8")
    assert names(listed) == ["b.jpg", "more/f.png", f"{photo_folder}/a.png"]
    assert [photo.path.is_file() for photo in list_photos([listed]).photos] == [True, True, True]


def test_a_list_with_the_mark_that_windows_writes(photo_folder: Path) -> None:
    listed = photo_folder / "some.txt"
    listed.write_bytes(b"\xef\xbb\xbfb.jpg\r\na.png\r\n")
    assert names(listed) == ["b.jpg", "a.png"]


def test_a_list_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xff\xfea.png")
    with pytest.raises(ImageError, match="must be UTF-8 text with one path a line"):
        list_photos([tmp_path / "list.txt"])


def test_several_sources_keep_their_names_apart(photo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = photo_folder.parent / "other"
    other.mkdir()
    (other / "a.png").write_bytes(b"x")
    monkeypatch.chdir(photo_folder.parent)
    found = names("photos", "other", "photos/b.jpg")
    assert found == [
        "photos/a.png",
        "photos/b.jpg",
        "photos/c.png",
        "photos/d.jpg",
        "photos/e.bmp",
        "photos/more/f.png",
        "other/a.png",
    ]


def test_the_same_photo_twice_is_one_photo(photo_folder: Path) -> None:
    assert names(photo_folder / "a.png", photo_folder / "a.png") == [str(photo_folder / "a.png")]
    listed = photo_folder / "twice.txt"
    listed.write_text("a.png\nb.jpg\na.png\n")
    assert names(listed) == ["a.png", "b.jpg"]


def test_two_photos_of_one_name(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "list.txt").write_text("a.png\n")
    assert names(tmp_path / "one" / "list.txt", tmp_path / "two" / "list.txt") == ["a.png", "two/a.png"]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Closes a folder to whoever wants to look into it, root included."""
    scandir = os.scandir

    def close(folder: Path) -> None:
        def fail(path: str | Path) -> object:
            if Path(path) == folder:
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", fail)

    return close


def test_a_folder_that_cannot_be_listed(tmp_path: Path, closed: Callable[[Path], None]) -> None:
    closed(tmp_path)
    with pytest.raises(ImageError, match=r"cannot list .*: Permission denied"):
        list_photos([tmp_path])


def test_a_folder_below_that_cannot_be_listed_is_named(photo_folder: Path, closed: Callable[[Path], None]) -> None:
    closed(photo_folder / "more")
    listing = list_photos([photo_folder])
    assert len(listing.photos) == 5
    assert listing.unlisted == [("more", "cannot be listed: Permission denied")]


def test_a_folder_that_can_be_listed_but_not_entered_is_named(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name != "more" and may(path, how))
    (photo_folder / "more" / "below").mkdir()
    listing = list_photos([photo_folder])
    assert len(listing.photos) == 5
    assert listing.unlisted == [("more", "cannot be listed: Permission denied")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look at everything")
@pytest.mark.parametrize("rights", [0o000, 0o444, 0o111])
def test_folders_of_others(rights: int, photo_folder: Path) -> None:
    (photo_folder / "more").chmod(rights)
    try:
        listing = list_photos([photo_folder])
        by_link = photo_folder / "list.txt"
        by_link.write_text("more/f.png\na.png\n")
        listed = list_photos([by_link])
    finally:
        (photo_folder / "more").chmod(0o755)
    assert len(listing.photos) == 5
    assert listing.unlisted == [("more", "cannot be listed: Permission denied")]
    assert len(listed.photos) == 2, "whoever reads them says what is wrong with one"


def test_linked_folders_are_named_and_linked_files_are_one_photo(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.png").write_bytes(b"x")
    (photo_folder / "linked").symlink_to(tmp_path / "elsewhere")
    (photo_folder / "0.png").symlink_to(photo_folder / "more" / "f.png")
    listing = list_photos([photo_folder])
    assert [photo.name for photo in listing.photos] == ["a.png", "b.jpg", "c.png", "d.jpg", "e.bmp", "more/f.png"]
    assert listing.left_out == [("linked", LINKED_FOLDER), ("0.png", "the same file as more/f.png")]
    assert list_photos([photo_folder, photo_folder / "linked"]).photos[-1].path.name == "x.png"
    assert listing.counts() == {LINKED_FOLDER: 1, "the same file as another": 1}


def test_what_other_programs_keep_is_left_out(photo_folder: Path) -> None:
    for name in ("@eaDir", "#recycle", "$RECYCLE.BIN", "more/@eaDir"):
        (photo_folder / name).mkdir()
        (photo_folder / name / "a.png").write_bytes(b"x")
    listing = list_photos([photo_folder])
    assert len(listing.photos) == 6
    assert [one.reason for one in listing.left_out] == [EXCLUDED_BY_PATTERN] * 4


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("more", ["a.png", "b.jpg", "c.png", "d.jpg", "e.bmp"]),
        ("more/*", ["a.png", "b.jpg", "c.png", "d.jpg", "e.bmp"]),
        ("*.png", ["b.jpg", "d.jpg", "e.bmp"]),
        ("[a-d].*", ["e.bmp", "more/f.png"]),
    ],
)
def test_patterns_leave_out_files_and_folders(pattern: str, left: list[str], photo_folder: Path) -> None:
    assert [photo.name for photo in list_photos([photo_folder], exclude=[pattern]).photos] == left


def test_an_index_among_the_photos_is_not_looked_into(photo_folder: Path) -> None:
    index = photo_folder / "index"
    (index / "uploads").mkdir(parents=True)
    (index / "uploads" / "a.png").write_bytes(b"x")
    (index / "manifest.json").write_text('{"format": "superfeat-index"}')
    for name, text in (("web", '{"name": "an app"}'), ("broken", "{"), ("list", "[]")):
        (photo_folder / name).mkdir()
        (photo_folder / name / "manifest.json").write_text(text)
        (photo_folder / name / "icon.png").write_bytes(b"x")
    listing = list_photos([photo_folder])
    assert ("index", OWN_FILES) in listing.left_out
    assert [photo.name for photo in listing.photos if "/" in photo.name] == [
        "broken/icon.png",
        "list/icon.png",
        "more/f.png",
        "web/icon.png",
    ]


@pytest.mark.parametrize(
    ("file", "reason"),
    [("IMG_1.HEIC", NEEDS_HEIF), ("DSC_1.NEF", RAW_FILE), ("a.MOV", VIDEO), ("a.pdf", NO_PHOTO)],
)
def test_reasons(file: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "image_endings", lambda: {".jpg"})  # as without the plug-in for HEIC
    (tmp_path / file).write_bytes(b"x")
    assert list_photos([tmp_path]).left_out == [(file, reason)]


def test_longer_names_never_end() -> None:
    names = longer_names(Photo(Path("/a/b/c.png"), "c.png"))
    assert [next(names) for _ in range(6)] == [
        "c.png",
        "b/c.png",
        "a/b/c.png",
        "/a/b/c.png",
        "/a/b/c.png (2)",
        "/a/b/c.png (3)",
    ]


def test_nothing_found(tmp_path: Path) -> None:
    for source in (tmp_path / "absent", tmp_path / "*.jpg"):
        with pytest.raises(ImageError, match=r"no photos at .*: give a folder, a file, an archive, a glob pattern"):
            list_photos([source])
    assert list_photos([tmp_path]).photos == []


def test_names_are_relative_to_the_folder_however_it_is_written(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photo_folder)
    assert names(".") == names(photo_folder) == names(f"{photo_folder}/")
    assert names("a.png") == ["a.png"]
