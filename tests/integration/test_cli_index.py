"""codebook, index, search, delete, compact, merge, info and verify as a user meets them."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import superfeat
from fixtures_cli import assert_refused, run, run_json
from fixtures_recipe import listen_to_ctrl_c, save_random_network

PHOTOS = 6


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_network(tmp_path_factory.mktemp("network") / "tiny", templates=24, whitened_dim=16)


def draw(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 14, 3), np.uint8)
    Image.fromarray(pixels).resize((84, 72), Image.Resampling.NEAREST).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(PHOTOS):
        draw(folder / f"{number}.png", number)
    return folder


@pytest.fixture
def features(photos: Path, network: Path, tmp_path: Path) -> Path:
    run_json("extract", photos, "-o", tmp_path / "features", "-w", network)
    return tmp_path / "features"


@pytest.fixture
def index(features: Path, tmp_path: Path) -> Path:
    run_json("codebook", features, "-o", tmp_path / "codebook", "--words", "16")
    run_json("index", features, "-o", tmp_path / "index", "--codebook", tmp_path / "codebook")
    return tmp_path / "index"


def names(*arguments: object) -> list[str]:
    (result,) = run_json("search", *arguments)["results"]
    return [hit["name"] for hit in result["hits"]]


def test_from_features_to_answers(index: Path, features: Path, tmp_path: Path) -> None:
    made = run_json("info", index)
    assert (made["images"], made["words"], made["dim"], made["deleted"]) == (PHOTOS, 16, 16, 0)
    assert made["network"] == superfeat.FeatureStore(features).manifest["network"]["digest"]
    assert run_json("info", tmp_path / "codebook")["digest"] == made["codebook"]
    assert "3.png" not in names(index, "3.png", "--all")  # the query is no result
    assert len(names(index, "3.png", "--all")) == PHOTOS - 1
    assert len(names(index, "3.png", "--top", "2")) == 2
    answers = run_json("search", index, features, "--top", "1", "--set", "assignments=1")["results"]
    assert [(one["query"], one["hits"][0]["name"]) for one in answers] == [(f"{n}.png", f"{n}.png") for n in range(6)]
    for artefact in (index, tmp_path / "codebook", features):
        assert run_json("verify", artefact)["whole"] is True


def test_indexing_the_same_features_again_changes_nothing(index: Path, features: Path) -> None:
    before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file()}
    again = run_json("index", features, "-o", index)
    assert (again["new"], again["replaced"], again["same"]) == (0, 0, PHOTOS)
    assert {path: path.read_bytes() for path in index.rglob("*") if path.is_file()} == before


def test_a_learned_codebook_is_left_in_the_index_alone(features: Path, tmp_path: Path) -> None:
    run_json("index", features, "-o", tmp_path / "index")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "index", "photos"]


def test_from_photos_with_one_command(photos: Path, network: Path, tmp_path: Path) -> None:
    (photos / "empty.jpg").touch()
    out = tmp_path / "index"
    made = run_json("index", photos, "-o", out, "-w", network)
    assert (made["images"], made["new"]) == (PHOTOS, PHOTOS)
    assert made["skipped"] == [{"name": "empty.jpg", "reason": "the file is empty"}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "photos"]  # no work folders are left
    draw(tmp_path / "77.png", 77)
    assert len(names(out, tmp_path / "77.png")) == PHOTOS  # the index knows its network and settings
    (tmp_path / "77.png").unlink()
    draw(photos / "new.png", 77)
    draw(photos / "2.png", 78)
    (photos / "empty.jpg").unlink()
    again = run_json("index", photos, "-o", out)
    assert (again["new"], again["replaced"], again["same"]) == (1, 1, PHOTOS - 1)
    for name in ("2.png", "new.png"):
        (by_file,) = run_json("search", out, photos / name)["results"]
        (by_name,) = run_json("search", out, name)["results"]
        assert by_file["itself"]["name"] == name
        assert by_file["hits"] == by_name["hits"]


def test_one_index_from_features_and_photos_ranks_alike(
    photos: Path, features: Path, network: Path, tmp_path: Path
) -> None:
    run_json("codebook", features, "-o", tmp_path / "codebook", "--words", "16")
    common = ["--codebook", tmp_path / "codebook"]
    run_json("index", features, "-o", tmp_path / "a", *common)
    run_json("index", photos, "-o", tmp_path / "b", "-w", network, *common)
    first = run_json("search", tmp_path / "a", features)["results"]
    second = run_json("search", tmp_path / "b", features)["results"]
    plain = [
        [[(hit["name"], hit["score"], hit["id"]) for hit in one["hits"]] for one in results]
        for results in (first, second)
    ]
    assert plain[0] == plain[1]
    assert all(hit["region"] is None for one in first for hit in one["hits"])  # features do not say where they look
    assert all(hit["region"] is not None for one in second for hit in one["hits"] if hit["score"] > 0)


def test_sync_drops_what_vanished(photos: Path, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    run_json("index", photos, "-o", out, "-w", network)
    (photos / "1.png").unlink()
    (photos / "2.png").rename(photos / "two.png")
    two = superfeat.Index.open(out).id("2.png")
    kept = run_json("index", photos, "-o", out)
    assert (kept["images"], kept["new"], kept["moved"]) == (PHOTOS, 0, 1)
    assert (kept["dropped"], kept["gone"]) == ([], ["1.png"])  # not unless asked
    assert superfeat.Index.open(out).id("two.png") == two
    assert "1 photo of the index is no longer there (--sync drops it)" in run("index", photos, "-o", out).stdout
    synced = run_json("index", photos, "-o", out, "--sync")
    assert (synced["images"], synced["new"], synced["dropped"], synced["gone"]) == (PHOTOS - 1, 0, ["1.png"], [])
    assert sorted(superfeat.Index.open(out).names()) == ["0.png", "3.png", "4.png", "5.png", "two.png"]
    refused = run("index", out, "-o", out, "--sync")
    assert refused.exit_code == 1
    assert "--sync compares an index with folders of photos" in refused.stderr


def test_a_network_may_bring_its_codebook_and_calibration(photos: Path, network: Path, tmp_path: Path) -> None:
    carrier = tmp_path / "carrier"
    shutil.copytree(network, carrier)
    run_json("extract", photos, "-o", tmp_path / "features", "-w", network)
    run_json("codebook", tmp_path / "features", "-o", carrier / "codebook", "--words", "16")
    (carrier / "calibration.json").write_text('{"anything": 1}')
    run_json("index", photos, "-o", tmp_path / "index", "-w", carrier)
    assert run_json("info", tmp_path / "index")["words"] == 16
    assert json.loads((tmp_path / "index" / "calibration.json").read_text()) == {"anything": 1}
    run_json("index", photos, "-o", tmp_path / "own", "-w", carrier, "--codebook", "own")
    assert run_json("info", tmp_path / "own")["words"] != 16
    assert not (tmp_path / "own" / "calibration.json").exists()  # it is for the other codebook


def test_a_box_and_a_page(photos: Path, network: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "index", tmp_path / "found.html"
    run_json("index", photos, "-o", out, "-w", network)
    whole = run_json("search", out, photos / "2.png")["results"]
    assert run_json("search", out, photos / "2.png", "--box", "0,0,84,72")["results"] == whole
    assert run_json("search", out, photos / "2.png", "--box", "0,0,1,1")["results"] == whole
    part = run_json("search", out, photos / "2.png", "--box", "0,0,60,60", "--html", page)["results"]
    assert part != whole
    text = page.read_text()
    assert text.count('class="hit"') == PHOTOS - 1  # without the query itself
    assert "<details open>" in text
    assert not re.search("https?:", text)  # it needs nothing else; the letters alone may stand in a photo's base64
    for outside in ("500,500,30,30", "0,72,84,72", "-60,0,60,60"):
        refused = run("search", out, photos / "2.png", f"--box={outside}")
        assert_refused(refused, f"the box {outside} lies outside of the photo, which is 84 by 72 pixels")
    for wrong in ("1,2,3", "a,b,c,d", "0,0,0,5"):
        assert run("search", out, photos / "2.png", "--box", wrong).exit_code == 2


def test_explain_draws_why(photos: Path, network: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "index", tmp_path / "match.png"
    run_json("index", photos, "-o", out, "-w", network)
    hits = run_json("search", out, photos / "2.png")["results"][0]["hits"]
    told = run_json("explain", out, photos / "2.png", hits[0]["name"], "-o", picture)
    assert told["score"] == pytest.approx(hits[0]["score"], rel=1e-9)
    with Image.open(picture) as image:
        assert image.width > 500
    assert "region 1" in run("explain", out, "2.png", hits[0]["name"], "-o", picture).stdout
    draw(photos / hits[0]["name"], 99)
    changed = run("explain", out, "2.png", hits[0]["name"], "-o", picture)
    assert changed.exit_code == 1
    assert "has changed since it was indexed" in changed.stderr


def test_delete_then_compact(index: Path, tmp_path: Path) -> None:
    assert run_json("delete", index, "1.png", "2.png") == {"index": str(index), "deleted": 2, "images": PHOTOS - 2}
    assert set(names(index, "0.png", "--all")) == {"3.png", "4.png", "5.png"}
    (tmp_path / "list.txt").write_text("3.png\n\n4.png\n")
    assert run_json("delete", index, "--list", tmp_path / "list.txt")["images"] == PHOTOS - 4
    made = run_json("compact", index)
    assert (made["images"], made["segments"]) == (2, 1)
    assert run_json("info", index)["deleted"] == 0
    assert not [path for path in index.rglob("*") if path.is_file() and b"1.png" in path.read_bytes()]


def test_what_search_and_duplicates_print_can_be_deleted(
    photos: Path, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder above, from the folder itself and from elsewhere: the same form, and delete takes it."""
    out = tmp_path / "index"
    for number in range(3):
        shutil.copy(photos / f"{number}.png", photos / f"copy{number}.png")
    run_json("index", photos, "-o", out, "-w", network)
    for number, place in enumerate((tmp_path, photos, out)):
        monkeypatch.chdir(place)
        shown = str(photos / f"copy{number}.png").removeprefix(f"{place}/")
        why = ["explain", out, "5.png", shown, "-o", tmp_path / "why.png"]
        for verb in (["search", out, "5.png", "--all"], ["duplicates", out, "--copies"], why):
            assert f" {shown}" in run(*verb).stdout
        listed = run("search", out, shown, "--top", "1").stdout.splitlines()
        original = str(photos / f"{number}.png").removeprefix(f"{place}/")
        assert listed[0] == f"{shown} (itself in the index):"
        assert listed[1].endswith(f"  {original}  (a copy of {shown})")
        (tmp_path / "only.txt").write_text(f"{original}\n3.png\n")
        assert len(names(out, "5.png", "--only", tmp_path / "only.txt")) == 2
        assert run_json("delete", out, shown)["images"] == PHOTOS + 2 - number
    assert run_json("delete", out, "0.png")["deleted"] == 1


def test_a_name_that_is_the_file_of_another_image_is_refused(
    photos: Path, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = tmp_path / "index", tmp_path / "other"
    other.mkdir()
    draw(other / "0.png", 50)
    run_json("index", photos, "-o", out, "-w", network)
    run_json("index", other, "-o", out)
    monkeypatch.chdir(other)
    assert_refused(run("delete", out, "0.png"), "0.png is the name of one image and the file of another")
    assert run_json("delete", out, other / "0.png")["images"] == PHOTOS
    assert run_json("delete", out, "0.png")["images"] == PHOTOS - 1


def test_only_and_settings(index: Path, tmp_path: Path) -> None:
    (tmp_path / "only.txt").write_text("5.png\n1.png\n")
    assert set(names(index, "0.png", "--only", tmp_path / "only.txt")) == {"1.png", "5.png"}
    plain = run_json("search", index, "0.png", "--all")["results"][0]["hits"]
    other = run_json("search", index, "0.png", "--all", "--set", "alpha=1", "--set", "idf=true")["results"][0]["hits"]
    assert [hit["score"] for hit in plain] != [hit["score"] for hit in other]


def test_merge(index: Path, features: Path, photos: Path, network: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    draw(tmp_path / "more" / "9.png", 9)
    more = ["index", tmp_path / "more", "-o", tmp_path / "other", "-w", network]
    run_json(*more, "--codebook", tmp_path / "codebook")
    assert run_json("merge", index, tmp_path / "other")["images"] == PHOTOS + 1
    assert len(names(index, "9.png", "--all")) == PHOTOS


def test_the_table_for_people(index: Path) -> None:
    result = run("search", index, "4.png", "--top", "3")
    lines = result.stdout.splitlines()
    assert lines[0] == "4.png (itself in the index):"
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3"]
    assert not [line for line in lines[1:] if line.endswith("4.png")]


def test_import_of_the_reference_files(shared: Path, tmp_path: Path) -> None:
    run_json("codebook", shared / "asmk_codebook.pkl", "-o", tmp_path / "codebook")
    words = ["--codebook", tmp_path / "codebook"]
    made = run_json("index", shared / "asmk_ivf_5images.pkl", "-o", tmp_path / "index", *words)
    assert made["images"] == 5
    assert set(names(tmp_path / "index", "3")) == {"0", "1", "2", "4"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["codebook", "{features}", "-o", "{tmp}/c", "--words", "4096"], "needs at least 4096 features"),
        (["codebook", "{features}", "-o", "{tmp}/codebook"], "exists already"),
        (["codebook", "{tmp}/nowhere", "-o", "{tmp}/c"], "not a features folder"),
        (["index", "{tmp}/nowhere", "-o", "{tmp}/i"], "no photos at"),
        (["index", "{features}", "-o", "{index}", "--kernel", "real"], "has the kernel binary"),
        (["index", "{features}", "-o", "{photos}"], "exists already and is no index; choose a new folder"),
        (["index", "{photos}", "-o", "{photos}", "-w", "{network}"], "exists already and is no index; choose a new"),
        (
            ["index", "{photos}", "-o", "{index}", "-w", "{network}", "--profile", "paper"],
            "was made with other settings",
        ),
        (["search", "{index}", "nothing"], "has no image called nothing, and none of such a file"),
        (["search", "{index}", "{photos}/0.png"], "name it (--weights)"),
        (["search", "{index}", "0.png", "--set", "alfa=3"], "did you mean 'alpha'"),
        (["search", "{photos}", "0.png"], "is not an index"),
        (["delete", "{index}", "0.png", "nothing"], "has no image called nothing, and none of such a file"),
        (["delete", "{index}"], "no names given"),
        (["compact", "{photos}"], "is not an index"),
        (["merge", "{index}", "{photos}"], "is not an index"),
        (["index", "{tmp}/bad.pkl", "-o", "{tmp}/i", "--codebook", "{tmp}/codebook"], "bad.pkl"),
    ],
)
def test_errors_are_one_line_and_lose_nothing(
    arguments: list[str], words: str, index: Path, photos: Path, features: Path, network: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.pkl").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    places = {"photos": photos, "features": features, "index": index, "tmp": tmp_path, "network": network}
    result = run(*(text.format(**places) for text in arguments))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("superfeat: ")
    assert words in result.stderr
    assert run_json("info", index)["images"] == PHOTOS
    assert not Path("hacked").exists()
    assert not list(tmp_path.glob("photos.*"))  # what would be of no use was not begun


def test_photos_of_another_network_are_refused(index: Path, photos: Path, network: Path, tmp_path: Path) -> None:
    run_json("weights", "convert", network, "-o", tmp_path / "half", "--half")
    result = run("search", index, photos / "0.png", "-w", tmp_path / "half")
    assert result.exit_code == 1
    assert "another network" in result.stderr


@pytest.mark.slow
def test_an_interrupted_run_goes_on(network: Path, tmp_path: Path) -> None:
    """Ctrl-C while photos are indexed keeps what is finished; the same command does the rest."""
    photos = tmp_path / "many"
    photos.mkdir()
    for number in range(120):
        draw(photos / f"{number:03}.png", number)
    out = tmp_path / "index"
    command = [sys.executable, "-m", "superfeat", "index", str(photos), "-o", str(out), "-w", str(network)]
    run_json("extract", photos, "-o", tmp_path / "f", "-w", network)
    run_json("codebook", tmp_path / "f", "-o", tmp_path / "codebook", "--words", "32")
    command += ["--codebook", str(tmp_path / "codebook")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c)
    journal = out / "journal-000000"
    deadline = time.monotonic() + 120
    while (not journal.exists() or journal.stat().st_size < 2000) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command to go on" in errors
    kept = len(superfeat.Index.open(out))
    assert 0 < kept < 120
    again = run_json("index", photos, "-o", out)
    assert (again["new"], again["same"], again["images"]) == (120 - kept, kept, 120)
