"""Messy folders as people have them: what the command line says of every file, and what it never loses."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import superfeat.sources.listing as listing_module
from fixtures_cli import assert_refused, run, run_json
from fixtures_recipe import network_with_words, noise
from superfeat import Index
from superfeat.images import NEEDS_HEIF, image_endings
from superfeat.sources.reasons import HEIF_ENDINGS

SMALL = ("--set", "max_side=64", "--set", "scales=[1.0]")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network_with_words(tmp_path_factory.mktemp("network"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def index(network: Path, here: Path) -> Callable[..., Any]:
    """Runs `superfeat index ... -o i --json`."""
    return lambda *arguments: run_json("index", *arguments, "-o", "i", *_new(network))


def _new(network: Path) -> tuple[object, ...]:
    return () if Path("i").exists() else ("-w", network, *SMALL)


def draw(path: str | Path, seed: int) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(48, 64, seed)).save(path)
    return Path(path)


def entries() -> dict[str, int]:
    """Ids by name."""
    return {image.name: number for number, image in Index.open("i").snapshot().images()}


def test_photos_of_two_folders_with_one_name_are_both_kept(index: Callable[..., Any]) -> None:
    draw("cam/2019/IMG_0001.png", 1)
    draw("cam/2020/IMG_0001.png", 2)
    assert index("cam/2019")["new"] == 1
    second = index("cam/2020")
    assert (second["new"], second["replaced"], second["images"]) == (1, 0, 2)
    assert sorted(entries()) == ["2020/IMG_0001.png", "IMG_0001.png"]
    assert index("cam")["same"] == 2


def test_a_folder_inside_one_that_is_indexed_brings_nothing_new(index: Callable[..., Any]) -> None:
    draw("life/a/1.png", 1)
    draw("life/b/2.png", 2)
    index("life")
    again = index("life/a")
    assert (again["new"], again["same"], again["images"], again["gone"]) == (0, 1, 2, [])
    assert index("life/a", "life")["images"] == 2
    assert index("life/a", "--sync")["dropped"] == []


def test_photos_stay_the_same_when_their_folder_moves(index: Callable[..., Any]) -> None:
    for number in range(3):
        draw(f"old/{number}.png", number)
    index("old")
    before = entries()
    Path("old").rename("new")
    moved = index("new")
    assert (moved["moved"], moved["new"], moved["images"]) == (3, 0, 3)
    assert entries() == before
    assert {hit["path"] for hit in run_json("search", "i", "1.png")["results"][0]["hits"]} == {
        str(Path(f"new/{number}.png").resolve()) for number in (0, 2)
    }


def test_a_copy_is_a_photo_of_its_own_and_results_say_so(index: Callable[..., Any]) -> None:
    draw("life/a.png", 1)
    draw("life/b.png", 2)
    index("life")
    shutil.copy("life/a.png", "life/z.png")
    assert (copied := index("life"))["copied"] == 1
    assert (copied["new"], copied["images"]) == (0, 3)
    hits = {hit["name"]: hit["copy_of"] for hit in run_json("search", "i", "a.png")["results"][0]["hits"]}
    assert hits == {"z.png": "a.png", "b.png": None}
    assert "life/z.png  (a copy of life/a.png)" in run("search", "i", "a.png").stdout


def test_results_whose_file_is_gone_say_so_and_index_hints(index: Callable[..., Any]) -> None:
    draw("life/a.png", 1)
    draw("life/b.png", 2)
    index("life")
    Path("life/b.png").unlink()
    hits = {hit["name"]: hit["gone"] for hit in run_json("search", "i", "a.png")["results"][0]["hits"]}
    assert hits == {"b.png": True}
    assert "life/b.png  (no longer there)" in run("search", "i", "a.png").stdout
    assert "1 photo of the index is no longer there (--sync drops it)" in run("index", "life", "-o", "i").stdout
    assert index("life", "--sync")["dropped"] == ["b.png"]


# -- Every file is accounted for


@pytest.fixture
def messy(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two things, each with photos; and what else lies in people's folders. HEIC cannot be read here."""
    monkeypatch.setattr(listing_module, "image_endings", lambda: image_endings() - HEIF_ENDINGS)
    for number in range(6):
        draw(f"life/{'ab'[number % 2]}/{number}.png", number)
    for name in LEFT_OUT:
        (here / "life" / name).write_bytes(b"x")
    return here / "life"


LEFT_OUT = {
    "a/clip.mp4": "a video",
    "a/IMG_1.HEIC": NEEDS_HEIF,
    "a/IMG_2.heic": NEEDS_HEIF,
    "b/DSC.NEF": "a raw file: export it as a JPEG",
    "b/notes.docx": "not a photo by its ending",
    "b/.hidden.jpg": "hidden",
}
READERS = {
    "index": "index life -o i -w {network} --set max_side=64 --set scales=[1.0]",
    "extract": "extract life -o f -w {network} --max-side 64 --set scales=[1.0]",
    "search": "search i life",
    "train": "train fire-folder --images life -o run --weights fire-landmarks-3 --set pretraining.first=false --dry-run"
    " --set training.negatives=1 --set validation.every=0",
    "pairs": "pairs-from-labels life -o pairs.csv",
    "whiten": "weights whiten {network} life -o white --dim 4 --max-side 64",
    "analyze": "analyze scales life -o looked -w {network} --set max_side=64 --set scales=[1.0]",
    "evaluate": "evaluate life -o measured -w {network} --analyses 0 --set extract.max_side=64",
}


def command(verb: str, network: Path) -> list[str]:
    return READERS[verb].format(network=network).split()


@pytest.mark.parametrize("verb", READERS)
def test_every_verb_that_reads_a_folder_accounts_for_every_file(verb: str, messy: Path, network: Path) -> None:
    if verb == "search":
        run_json(*command("index", network))
    left_out = run_json(*command(verb, network))["left_out"]
    assert {one["name"]: one["reason"] for one in left_out} == LEFT_OUT


def test_files_that_are_left_out_are_counted_and_named(messy: Path, network: Path) -> None:
    shown = run(*command("index", network)).stdout
    assert f"left out 2 ({NEEDS_HEIF}): a/IMG_1.HEIC, a/IMG_2.heic" in shown
    assert "left out 1 (a video): a/clip.mp4" in shown
    for number in range(7):
        (messy / "b" / f"{number}.mov").touch()
    shown = run(*command("index", network)).stdout
    assert "left out 8 (a video): a/clip.mp4, b/0.mov, b/1.mov, b/2.mov, b/3.mov, …" in shown
    assert "b/6.mov" in run(*command("index", network), "--verbose").stdout


def test_a_folder_of_heic_alone_says_what_to_install(messy: Path, network: Path) -> None:
    shutil.rmtree(messy / "b")
    for photo in messy.rglob("*.png"):
        photo.unlink()
    for verb in ("index", "extract", "whiten", "analyze", "train", "pairs"):
        assert_refused(run(*command(verb, network)), "2 HEIC needs one more package: pip install")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Closes a folder to whoever wants to look into it, root included."""
    scandir = os.scandir

    def close(folder: Path) -> None:
        def refuse(path: str | Path) -> object:
            if Path(path).resolve() == folder.resolve():
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refuse)

    return close


def test_a_folder_that_cannot_be_listed_is_an_error_for_its_part(
    messy: Path, network: Path, closed: Callable[[Path], None]
) -> None:
    run_json(*command("index", network))
    (messy / "a" / "0.png").unlink()
    (messy / "b" / "1.png").unlink()
    closed(messy / "b")
    synced = run(*command("index", network), "--sync", "--json")
    assert synced.exit_code == 1
    result = json.loads(synced.stdout)
    assert result["unlisted"] == [{"name": "b", "reason": "cannot be listed: Permission denied"}]
    assert result["dropped"] == ["a/0.png"], "and nothing of what cannot be seen"
    assert [one["name"] for one in result["unsure"]] == ["b/1.png"]
    assert len(entries()) == 5
    assert "1 folder or archive could not be listed" in synced.stderr
    shown = run(*command("extract", network))
    assert shown.exit_code == 1
    assert "not looked into: b cannot be listed: Permission denied" in shown.stdout


def test_queries_that_cannot_be_read_are_listed(messy: Path, network: Path) -> None:
    run_json(*command("index", network))
    (messy / "a" / "broken.png").write_bytes(b"nothing")
    some = run("search", "i", "life/a", "--json")
    assert some.exit_code == 1
    reason = {"name": "broken.png", "reason": "not an image, or a format that Pillow cannot read"}
    assert json.loads(some.stdout)["skipped"] == [reason]
    assert len(json.loads(some.stdout)["results"]) == 3
    none = run("search", "i", "life/a/broken.png", "--json")
    assert none.exit_code == 1
    assert [one["reason"] for one in json.loads(none.stdout)["skipped"]] == [reason["reason"]]
    assert_refused(run("search", "i", "life/a/broken.png"), "not an image")
    known = json.loads(some.stdout)["results"][0]["itself"]["name"]
    for others in (["nowhere.jpg"], [known, "nowhere.jpg"]):
        missing = run("search", "i", *others, "--json")
        assert missing.exit_code == 1
        told = json.loads(missing.stdout)
        assert [one["query"] for one in told["results"]] == others[:-1], "the others are answered"
        assert [one["name"] for one in told["skipped"]] == ["nowhere.jpg"]
        assert "has no image called nowhere.jpg" in told["skipped"][0]["reason"]
    assert "skipped nowhere.jpg: i has no image called" in run("search", "i", known, "nowhere.jpg").stdout
    Path("empty").mkdir()
    Path("empty/clip.mp4").touch()
    assert_refused(run("search", "i", "empty"), "no photos in empty (left out: 1 a video)")


def test_a_large_scan_is_indexed_and_a_torn_photo_is_noted(
    index: Callable[..., Any], network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)  # two of these are called an attack
    draw("life/a.png", 1)
    Image.fromarray(noise(600, 800, 2)).save("life/scan.jpg")
    Image.fromarray(noise(600, 800, 3)).save("life/bomb.png")
    Image.fromarray(noise(96, 128, 4)).save("life/torn.jpg")
    data = Path("life/torn.jpg").read_bytes()
    Path("life/torn.jpg").write_bytes(data[:-2])
    made = index("life")
    assert (made["new"], [one["name"] for one in made["skipped"]]) == (3, ["bomb.png"])
    note = {"name": "torn.jpg", "reason": "its last bytes are missing; it was read as far as it goes"}
    assert made["noted"] == [note]
    extracted = run("extract", "life", "-o", "f", "-w", network, "--profile", "fast", *SMALL)
    assert f"noted torn.jpg: {note['reason']}" in extracted.stdout
    assert "skipped bomb.png: too many pixels: 0 million; if that is right, allow more" in extracted.stdout
    assert "--max-pixels" in extracted.stdout
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)
    assert index("life", "--max-pixels", "1000000")["new"] == 1


def test_exclude(index: Callable[..., Any]) -> None:
    for name in ("a.png", "drafts/b.png", "c_small.png", "@eaDir/d.png", ".thumbnails/e.png", "#recycle/f.png"):
        draw(Path("life") / name, len(name))
    made = index("life", "--exclude", "drafts", "--exclude", "*_small.*")
    assert list(entries()) == ["a.png"]
    reasons = {one["name"]: one["reason"] for one in made["left_out"]}
    hidden, excluded = "hidden", "excluded"
    assert reasons == {
        "drafts": excluded,
        "c_small.png": excluded,
        "@eaDir": excluded,
        "#recycle": excluded,
        ".thumbnails": hidden,
    }


# -- Nothing is begun that cannot be done


def test_a_damaged_calibration_is_found(index: Callable[..., Any], network: Path) -> None:
    draw("life/a.png", 1)
    index("life")
    assert run_json("verify", "i")["whole"] is True
    Path("i/calibration.json").write_text('{"format": "superfeat-calibration", "vers')
    assert_refused(run("verify", "i"), "calibration.json is damaged")


def test_all_indexes_are_merged_or_none(index: Callable[..., Any], network: Path) -> None:
    draw("2019/1.png", 1)
    draw("2020/1.png", 2)
    index("2019")
    run_json("index", "2020", "-o", "j", "-w", network, *SMALL)
    assert_refused(run("merge", "i", "j", "nowhere"), "nowhere")
    assert list(entries()) == ["1.png"]
    assert run_json("merge", "i", "j")["images"] == 2
    assert sorted(entries()) == ["1.png", "2020/1.png"]


@pytest.mark.parametrize(
    "wrong", [["--device", "cuda:77"], ["--set", "max_sid=3"], ["-w", "nothing.pth"], ["--codebook", "nowhere"]]
)
@pytest.mark.parametrize("words", [[], ["--codebook", "own"]])
def test_what_fails_at_the_start_leaves_nothing_behind(
    wrong: list[str], words: list[str], here: Path, network: Path
) -> None:
    draw("life/a.png", 1)
    chosen = [] if "--codebook" in wrong else words
    assert_refused(run("index", "life", "-o", "i", "-w", network, *chosen, *wrong))
    assert [path.name for path in here.iterdir()] == ["life"]


@pytest.mark.parametrize("words", [[], ["--codebook", "own"]])
def test_photos_none_of_which_can_be_read_leave_nothing_behind(words: list[str], here: Path, network: Path) -> None:
    (here / "life").mkdir()
    (here / "life" / "a.jpg").write_bytes(b"nothing")
    assert_refused(run("index", "life", "-o", "i", "-w", network, *words), "none of the 1 photos could be read")
    assert [path.name for path in here.iterdir()] == ["life"]


def test_nothing_is_drawn_among_photos(here: Path) -> None:
    drawing = ("draw", "-o", "life", "--things", "1", "--views", "1", "--side", "32")
    run_json(*drawing)
    Path("life/pairs.csv").touch()
    run_json(*drawing, "--seed", "1")
    draw("life/deep/holiday.png", 1)
    assert_refused(run(*drawing), "life holds other photos, such as deep/holiday.png")
