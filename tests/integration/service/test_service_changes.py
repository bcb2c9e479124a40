"""The service while photos are added and deleted, or change under it."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures_disk import Disk
from fixtures_service import PHOTOS, WAIT, Served, encoded, error_of, ids, make_index, pattern, photo, serving, state_of
from superfeat.index.index import Index
from superfeat.index.watch import watching
from superfeat.service.uploads import FOLDER, plain_name

# -- Adding and deleting


def test_a_photo_that_is_added_is_found_and_one_that_is_deleted_is_not(served: Served) -> None:
    added = served.add(photo(77), "new.jpg")
    assert added.status_code == 201
    assert added.json()["outcome"] == "new"
    assert added.json()["images"] == PHOTOS + 1
    assert served.found(photo(77))[0] == "new.jpg"
    stored = list((served.index.path / FOLDER).iterdir())
    assert [file.read_bytes() for file in stored] == [photo(77)]
    gone = served.client.delete(added.json()["image"])
    assert gone.json() == {"id": added.json()["id"], "name": "new.jpg", "images": PHOTOS}
    assert "new.jpg" not in served.found(photo(77))
    assert list((served.index.path / FOLDER).iterdir()) == []
    assert error_of(served.client.delete(added.json()["image"])) == (404, "no_such_photo")
    assert len(Index.open(served.index.path)) == PHOTOS


def test_a_name_is_taken_until_it_is_replaced(served: Served) -> None:
    first = served.add(photo(77), "new.jpg").json()
    assert error_of(served.add(photo(78), "new.jpg")) == (409, "name_taken")
    same = served.add(photo(77), "new.jpg", replace="true").json()
    assert (same["outcome"], same["id"]) == ("same", first["id"])
    other = served.add(photo(78), "new.jpg", replace="true").json()
    assert other["outcome"] == "replaced"
    assert other["id"] != first["id"]
    assert [file.read_bytes() for file in (served.index.path / FOLDER).iterdir()] == [photo(78)]
    assert error_of(served.client.get(first["image"])) == (404, "no_such_photo")


def test_the_files_of_indexed_folders_are_never_deleted(served: Served, made: Path) -> None:
    before = state_of(made.parent / "photos")
    numbers = ids(served)
    assert served.client.delete(f"/images/{numbers['2.jpg']}").status_code == 200
    assert served.add(photo(80), "3.jpg", replace="true").json()["outcome"] == "replaced"
    assert served.client.delete(f"/images/{ids(served)['3.jpg']}").status_code == 200
    assert state_of(made.parent / "photos") == before
    assert "2.jpg" not in served.names()


def test_names_of_uploads_are_made_plain(served: Served) -> None:
    added = served.add(photo(77), "x.jpg", name="../../etc/pass wd\x00.jpg").json()
    assert added["name"] == "pass wd_.jpg"
    (stored,) = (served.index.path / FOLDER).iterdir()
    assert stored.name.endswith("-pass wd_.jpg")


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("a.jpg", "a.jpg"),
        ("C:\\photos\\Käfer & Co.JPG", "Käfer _ Co.JPG"),
        ("..", "photo"),
        ("/", "photo"),
        (".hidden", "hidden"),
        ("a/b\nc.png", "b_c.png"),
        ("y" * 300 + ".jpeg", "y" * 95 + ".jpeg"),
        ("ü" * 300 + ".jpeg", "ü" * 87 + ".jpeg"),
        ("-rf", "-rf"),
    ],
)
def test_plain_names(given: str, made: str) -> None:
    assert plain_name(given) == made
    assert plain_name(made) == made


def test_a_read_only_service_changes_nothing(reader: Served, made: Path) -> None:
    before = state_of(made)
    assert error_of(reader.add(photo(77), "new.jpg")) == (403, "read_only")
    assert error_of(reader.client.delete("/images/0")) == (403, "read_only")
    assert state_of(made) == before


def test_what_a_crash_left_is_swept_at_the_next_start(index: Path) -> None:
    with serving(index) as served:
        served.add(photo(77), "kept.jpg")
    folder = index / FOLDER
    (folder / "0123456789abcdef-lost.jpg").write_bytes(b"written, but never indexed")
    (folder / "note.txt").write_text("not ours")
    with serving(index) as served:
        assert served.found(photo(77))[0] == "kept.jpg"
    assert sorted(file.name.partition("-")[2] or file.name for file in folder.iterdir()) == ["kept.jpg", "note.txt"]


def test_a_full_disk_loses_nothing(made: Path, disk: Disk) -> None:
    index = Path(shutil.copytree(made, disk.path / "index"))
    with serving(index) as served:
        disk.fill(1)
        assert error_of(served.add(photo(77), "new.jpg")) == (507, "disk_full")
        assert len(served.names()) == PHOTOS
        assert list((index / FOLDER).glob("*")) == []
        disk.free()
        assert served.add(photo(77), "new.jpg").status_code == 201


def test_an_index_that_another_process_writes(served: Served) -> None:
    holding = (
        "import sys; from superfeat.index.index import Index\n"
        "with Index.open(sys.argv[1]).writing(): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holding, str(served.index.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        refused = served.add(photo(77), "new.jpg")
        assert error_of(refused) == (503, "busy")
        assert refused.headers["retry-after"]
        assert served.found(name="1.jpg")[0] == "1.jpg"
        other.stdin.close()
    assert served.add(photo(77), "new.jpg").status_code == 201


def test_what_another_process_adds_is_seen(served: Served) -> None:
    other = Index.open(served.index.path)
    other.add("theirs.jpg", other.codebook.centroids[:3] + 0.5)
    served.service.watch.check()
    assert "theirs.jpg" in served.names()
    served.add(photo(77), "ours.jpg")
    contents = served.index._contents
    served.service.watch.check()
    assert served.index._contents is contents  # what it did itself it does not read again


# -- Only files that were indexed


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """An index whose photos the test may change."""
    return make_index(tmp_path / "loose", photos=3)


def test_a_watched_folder_is_followed_while_others_search(loose: Path) -> None:
    """What `serve --watch` does: photos that come are found, those that go are not, and no search is refused."""
    photos = loose.parent / "photos"
    with serving(loose) as served, watching([photos], loose, lambda _: None, quiet=0.1, workers=1):
        pattern(77).save(loose.parent / "77.jpg", quality=95)
        (loose.parent / "77.jpg").rename(photos / "77.jpg")
        (photos / "0.jpg").unlink()
        deadline = time.monotonic() + WAIT
        while set(served.names()) != {"1.jpg", "more/2.jpg", "77.jpg"} and time.monotonic() < deadline:
            assert served.found(name="1.jpg")[0] == "1.jpg"
        assert served.found(photo(77), top=1)[0] == "77.jpg"
        assert sorted(served.names()) == ["1.jpg", "77.jpg", "more/2.jpg"]


def test_a_changed_file_is_not_shown(loose: Path) -> None:
    secret = encoded(pattern(500))
    with serving(loose) as served:
        assert served.client.get("/images/0").status_code == 200
        (loose.parent / "photos" / "0.jpg").write_bytes(secret)
        for response in (served.client.get("/images/0"), served.client.get("/images/0/thumbnail")):
            assert error_of(response) == (410, "file_changed")
        assert error_of(served.search(image=0, box="0,0,1,1")) == (410, "file_changed")
        assert error_of(served.client.get("/explain", params={"image": 1, "found": 0})) == (410, "file_changed")
        assert served.search(image=0).status_code == 200  # its words are stored


def test_a_file_that_is_gone(loose: Path) -> None:
    with serving(loose) as served:
        (loose.parent / "photos" / "0.jpg").unlink()
        assert error_of(served.client.get("/images/0")) == (410, "file_gone")


@pytest.mark.parametrize("level", ["file", "folder"])
def test_links_lead_nowhere(loose: Path, tmp_path: Path, level: str) -> None:
    """Even to a file of the same size and time, which an attacker could prepare."""
    photos = loose.parent / "photos"
    name = "0.jpg" if level == "file" else "more/2.jpg"
    with serving(loose) as served:
        image = ids(served)[name]
        assert served.client.get(f"/images/{image}").status_code == 200
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        secret, path = elsewhere / Path(name).name, photos / name
        status = path.stat()
        secret.write_bytes(encoded(pattern(501))[: status.st_size].ljust(status.st_size, b"\0"))
        os.utime(secret, ns=(status.st_atime_ns, status.st_mtime_ns))
        if level == "file":
            path.unlink()
            path.symlink_to(secret)
        else:
            shutil.rmtree(photos / "more")
            (photos / "more").symlink_to(elsewhere)
        response = served.client.get(f"/images/{image}/thumbnail")
        assert error_of(response) in {(410, "file_gone"), (410, "file_linked")}


def test_a_pipe_in_the_place_of_a_photo_does_not_hang(loose: Path) -> None:
    path = loose.parent / "photos" / "0.jpg"
    with serving(loose) as served:
        path.unlink()
        os.mkfifo(path)
        assert error_of(served.client.get("/images/0")) == (410, "file_changed")
