"""superfeat evaluate as a user meets it: published layouts by slow loops, refusals, Ctrl-C, full disks, compare."""

import dataclasses
import hashlib
import html
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superfeat
import superfeat.evaluation.run
from fixtures_cli import assert_refused, run
from fixtures_disk import Disk
from fixtures_evaluate import (
    CONFIG,
    GRADES,
    SETTINGS,
    assert_scores,
    draw,
    draw_many,
    draw_roxford,
    draw_things,
    grade_scores,
    kept_rankings,
    rank,
    revisited_truths,
    roxford_photos,
    roxford_queries,
    tiny_network,
    without_seconds,
    write_gnd,
)
from oracles_datasets import average_precision
from superfeat.config import ExtractConfig
from superfeat.errors import MissingExtraError
from superfeat.evaluation.run import open_run
from superfeat.extraction.folder import FeatureStore, FeatureWriter
from superfeat.features import Features
from superfeat.weights import load_network, save_network

pytest.importorskip("matplotlib")
POOLED = dataclasses.replace(CONFIG, method="pooled")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUPERFEAT_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """network/, ox/ (ROxford5k), words/ (photos of other things), more/ (distractors)."""
    folder = tmp_path_factory.mktemp("data")
    save_network(tiny_network(), folder / "network")
    draw_roxford(folder / "ox")
    draw_many(folder / "words", 8, 500)
    draw_many(folder / "more", 4, 700)
    return folder


@pytest.fixture(scope="module")
def once(data: Path) -> dict[str, Any]:
    """What the command says of ROxford5k, in data/once."""
    return measure(data, "roxford5k", data / "once", "--images", data / "ox")


def words_of(data: Path, dataset: object, output: Path, *more: object) -> list[object]:
    """The whole command; without photos for words where global vectors are asked for."""
    words: list[object] = ["evaluate", dataset, "--weights", data / "network", "-o", output, "--workers", "1"]
    if "--analyses" not in more:
        words += ["--analyses", "0"]
    if "method=pooled" not in more:
        words += ["--codebook-images", data / "words"]
    return [*words, *(word for setting in SETTINGS for word in ("--set", setting)), *more]


def measure(data: Path, dataset: object, output: Path, *more: object) -> dict[str, Any]:
    result = run(*words_of(data, dataset, output, *more), "--json")
    assert result.exit_code == 0, (result.stderr, result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the images whose features are kept from here on."""
    names: list[str] = []
    add = FeatureWriter.add

    def noted(self: FeatureWriter, features: Features, stamp: tuple[int, int]) -> None:
        add(self, features, stamp)
        names.append(features.name)

    monkeypatch.setattr(FeatureWriter, "add", noted)
    return names


def jpgs(folder: Path, names: list[str], per_thing: int) -> list[Path]:
    """Published names, each so many photos of a thing."""
    return [draw(folder / f"{name}.jpg", number // per_thing, number) for number, name in enumerate(names)]


# -- Against slow loops


@pytest.mark.parametrize("method", ["asmk", "pooled"])
def test_roxford(method: str, data: Path, tmp_path: Path) -> None:
    more = ["--set", "method=pooled"] if method == "pooled" else []
    found = measure(data, "roxford5k", tmp_path / "run", "--images", data / "ox", *more)
    config, words = (POOLED, []) if more else (CONFIG, sorted((data / "words").iterdir()))
    photos, queries = roxford_photos(data / "ox"), roxford_queries(data / "ox")
    rankings = rank(load_network(data / "network"), config, photos, queries, words)
    assert kept_rankings(tmp_path / "run") == rankings
    scores: Any = open_run(tmp_path / "run").scores
    for grade in GRADES:
        assert_scores(scores, grade, grade_scores(rankings, revisited_truths(grade)))
        assert found["grades"][grade] == {key: scores["grades"][grade][key] for key in found["grades"][grade]}
    assert [query["ap"]["easy"] is None for query in scores["queries"]] == [False, False, True]
    hits = [[hit["name"] for hit in query["hits"]] for query in scores["queries"]]
    assert hits == [[photos[number].stem for number in ranking[:10]] for ranking in rankings]
    junk = {hit["name"] for hit in scores["queries"][0]["hits"] if hit["judgement"] == "junk"}
    assert junk <= {photos[3].stem}
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
    assert found["report"] == str(tmp_path / "run" / "report.html")


def test_what_is_printed(data: Path, once: dict[str, Any]) -> None:
    result = run(*words_of(data, "roxford5k", data / "once", "--images", data / "ox"))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "roxford5k:"
    for line, grade in zip(lines[1:4], GRADES, strict=True):
        values = once["grades"][grade]
        assert line.split()[:3] == [grade, "mAP", f"{values['map']:.2f}"]
        assert f"({values['queries']} queries)" in line
    card = (data / "once" / "card.txt").read_text().splitlines()
    assert [line.strip() for line in lines[4:-2]] == card[:-1]
    assert lines[-1] == f"  report: {data / 'once' / 'report.html'}"


def test_the_card_of_a_published_set(data: Path, once: dict[str, Any]) -> None:
    card = once["card"]
    gnd = (data / "ox" / "gnd_roxford5k.pkl").read_bytes()
    assert card["dataset"]["files"] == {"gnd_roxford5k.pkl": hashlib.sha256(gnd).hexdigest()}
    assert card["dataset"]["crop"].startswith("3 of 3 queries are cropped to their boxes")
    assert card["dataset"]["exif"].endswith("as stored")
    assert (card["dataset"]["images"], card["dataset"]["missing"]) == (12, [])
    assert card["network"]["digest"] == load_network(data / "network").digest
    assert (card["network"]["ratio_test"], card["network"]["hinge"]) == ("lowe", "released")
    assert card["extract"] == {
        "features_per_image": 14,
        "max_side": 40,
        "scales": [1.0, 0.5],
        "upright": False,
        "draft": False,
        "attention": "none",
        "features_per_scale": None,
    }
    assert (card["codebook"]["words"], card["codebook"]["images"], card["codebook"]["settings"]["seed"]) == (8, 8, 0)
    assert card["asmk"]["search"]["assignments"] == 3
    assert 0 < card["memory"]["words_per_image"] <= 8
    text = (data / "once" / "card.txt").read_text()
    for words in ("3 queries of roxford5k (revisited protocol) against 12 images.", "ratio test 'lowe'", "as stored"):
        assert words in text
    assert without_seconds(card) == without_seconds(json.loads((data / "once" / "card.json").read_text()))


def test_ukbench(data: Path, tmp_path: Path) -> None:
    photos = jpgs(tmp_path / "uk" / "full", [f"ukbench{number:05}" for number in range(8)], 4)
    found = measure(data, "ukbench", tmp_path / "run", "--images", tmp_path / "uk", "--set", "extract.upright=false")
    words = sorted((data / "words").iterdir())
    rankings = rank(load_network(data / "network"), CONFIG, photos, [(path, None) for path in photos], words)
    groups = [set(range(number // 4 * 4, number // 4 * 4 + 4)) for number in range(8)]
    right = [len(group & set(ranking[:4])) for group, ranking in zip(groups, rankings, strict=True)]
    assert found["ns"] == pytest.approx(sum(right) / 8, abs=1e-4)
    assert 1 <= found["ns"] < 4
    assert_scores(open_run(tmp_path / "run").scores, "all", grade_scores(rankings, [(sorted(g), []) for g in groups]))
    again = run(
        *words_of(data, "ukbench", tmp_path / "run", "--images", tmp_path / "uk"), "--set", "extract.upright=false"
    )
    assert f"N-S score {found['ns']:.3f} of 4" in again.stdout


def test_holidays(data: Path, tmp_path: Path) -> None:
    names = ["100000", "100001", "100002", "100100", "100101", "100200", "100201"]
    things = [0, 0, 0, 1, 1, 2, 2]
    for number, (name, thing) in enumerate(zip(names, things, strict=True)):
        draw(tmp_path / "h" / "jpg" / f"{name}.jpg", thing, number)
    measure(data, "holidays", tmp_path / "run", "--images", tmp_path / "h", "--set", "extract.upright=false")
    photos = [tmp_path / "h" / "jpg" / f"{name}.jpg" for name in names]
    words = sorted((data / "words").iterdir())
    queries = [(photos[number], None) for number in (0, 3, 5)]
    rankings = rank(load_network(data / "network"), CONFIG, photos, queries, words)
    truths: Any = [((1, 2), (0,)), ((4,), (3,)), ((6,), (5,))]
    assert_scores(open_run(tmp_path / "run").scores, "all", grade_scores(rankings, truths))


@pytest.mark.parametrize("name", ["holidays", "ukbench"])
def test_published_photos_are_read_as_stored(name: str, data: Path, tmp_path: Path) -> None:
    names = [f"10000{n}" if name == "holidays" else f"ukbench0000{n}" for n in range(4)]
    jpgs(tmp_path / "photos", names, 4)
    found = measure(data, name, tmp_path / "run", "--images", tmp_path / "photos")
    assert found["card"]["extract"]["upright"] is False


def test_a_folder_of_things(data: Path, tmp_path: Path) -> None:
    """Photos of a folder are turned upright; each in turn is the query."""
    photos = [path for thing in draw_things(tmp_path / "things", 3, 2) for path in thing]
    photos.append(draw(tmp_path / "things" / "thing9" / "alone.png", 9, 0))
    found = measure(data, tmp_path / "things", tmp_path / "run")
    assert found["card"]["extract"]["upright"] is True
    words = sorted((data / "words").iterdir())
    rankings = rank(load_network(data / "network"), CONFIG, photos, [(path, None) for path in photos[:6]], words)
    truths = [((number ^ 1,), (number,)) for number in range(6)]
    assert_scores(open_run(tmp_path / "run").scores, "all", grade_scores(rankings, truths))
    assert (found["dataset"], found["card"]["dataset"]["images"]) == ("things", 7)


@pytest.mark.parametrize("graded", [False, True])
def test_a_gnd_json(graded: bool, data: Path, tmp_path: Path) -> None:
    photos = [path for thing in draw_things(tmp_path / "set" / "p", 2, 3) for path in thing]
    asked = draw(tmp_path / "set" / "asked.png", 1, 8)
    database = [str(path.relative_to(tmp_path / "set")) for path in photos]
    if graded:
        queries: list[dict[str, Any]] = [
            {"img": database[0], "self": 0, "easy": [1], "hard": [2], "junk": []},
            {"img": "asked.png", "bbox_rel": [0.1, 0.0, 0.9, 0.75], "easy": [3, 4], "hard": [5], "junk": [0]},
        ]
    else:
        queries = [
            {"img": database[0], "self": 0, "pos": [1, 2]},
            {"img": "asked.png", "bbox_rel": [0.1, 0.0, 0.9, 0.75], "pos": [3, 4, 5], "junk": [0]},
        ]
    gnd = write_gnd(tmp_path / "set", database, queries)
    found = measure(data, gnd, tmp_path / "run")
    words = sorted((data / "words").iterdir())
    cropped = [(photos[0], None), (asked, (4.0, 0.0, 36.0, 36.0))]
    rankings = rank(load_network(data / "network"), CONFIG, photos, cropped, words)
    scores = open_run(tmp_path / "run").scores
    truths: Any = {"all": [((1, 2), (0,)), ((3, 4, 5), (0,))]}
    if graded:
        truths = {
            "easy": [((1,), (0, 2)), ((3, 4), (0, 5))],
            "medium": [((1, 2), (0,)), ((3, 4, 5), (0,))],
            "hard": [((2,), (0, 1)), ((5,), (0, 3, 4))],
        }
    assert found["grades"].keys() == truths.keys()
    for grade, wanted in truths.items():
        assert_scores(scores, grade, grade_scores(rankings, wanted))


# -- Distractors


@pytest.mark.parametrize("method", ["asmk", "pooled"])
def test_distractors_are_photos_that_are_never_right(method: str, data: Path, tmp_path: Path) -> None:
    more = ["--set", f"method={method}"]
    distractors = sorted((data / "more").iterdir())
    draw_roxford(tmp_path / "ox", distractors)
    apart = measure(
        data, "roxford5k", tmp_path / "apart", "--images", data / "ox", "--distractors", data / "more", *more
    )
    among = measure(data, "roxford5k", tmp_path / "among", "--images", tmp_path / "ox", *more)
    assert apart["grades"] == among["grades"]
    for name in ("numbers.npy", "scores.npy"):
        first, second = (np.load(tmp_path / run / "rankings" / name) for run in ("apart", "among"))
        assert np.array_equal(first, second)
    config, words = (CONFIG, sorted((data / "words").iterdir())) if method == "asmk" else (POOLED, [])
    photos = [*roxford_photos(data / "ox"), *distractors]
    rankings = rank(load_network(data / "network"), config, photos, roxford_queries(data / "ox"), words)
    assert kept_rankings(tmp_path / "apart") == rankings
    assert apart["card"]["dataset"]["distractors"] == 4
    assert apart["card"]["memory"]["images"] == 16


def test_features_of_distractors_are_not_kept(data: Path, tmp_path: Path, written: list[str]) -> None:
    measure(data, "roxford5k", tmp_path / "run", "--images", data / "ox", "--distractors", data / "more")
    assert len(written) == len(FeatureStore(tmp_path / "run" / "features").names()) == 15
    kept = [path for path in (tmp_path / "run").rglob("manifest.json") if "superfeat-features" in path.read_text()]
    assert kept == [tmp_path / "run" / "features" / "manifest.json"]


def test_distractors_in_their_published_layout(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "revisitop1m"
    shutil.copytree(data / "more", folder / "jpg" / "4e")
    (folder / "revisitop1m.txt").write_text("".join(f"4e/{n:02}.png\n" for n in range(4)))
    for number, given in enumerate((folder, tmp_path)):
        out = tmp_path / f"run{number}"
        found = measure(data, "roxford5k", out, "--images", data / "ox", "--distractors", given)
        assert found["card"]["dataset"]["distractors"] == 4
    plain = measure(data, "roxford5k", tmp_path / "plain", "--images", data / "ox", "--distractors", data / "more")
    assert found["grades"] == plain["grades"]


# -- Gone on with


def test_ctrl_c_and_the_same_command(
    data: Path, once: dict[str, Any], tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = FeatureWriter.add

    def interrupted(self: FeatureWriter, *given: Any) -> None:
        if len(written) == 6:
            raise KeyboardInterrupt
        add(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(FeatureWriter, "add", interrupted)
        result = run(*words_of(data, "roxford5k", tmp_path / "run", "--images", data / "ox"))
    assert result.exit_code == 130
    assert result.stdout == ""
    assert "stopped; what is finished is kept, run the same command to go on" in result.stderr
    found = measure(data, "roxford5k", tmp_path / "run", "--images", data / "ox")
    assert len(written) == len(set(written)) == 15
    assert found["grades"] == once["grades"]
    assert without_seconds(found["card"]) == without_seconds(once["card"])


def test_features_of_another_run(data: Path, once: dict[str, Any], tmp_path: Path) -> None:
    more = ["--images", data / "ox", "--features", data / "once" / "features"]
    assert measure(data, "roxford5k", tmp_path / "run", *more)["grades"] == once["grades"]
    result = run(*words_of(data, "roxford5k", tmp_path / "other", *more, "--set", "extract.max_side=32"))
    assert_refused(result, "was made with other settings", "extract.max_side was 40, not 32")


def test_a_codebook_that_is_made(data: Path, once: dict[str, Any], tmp_path: Path) -> None:
    words = data / "once" / "index" / "codebook"
    command = words_of(data, "roxford5k", tmp_path / "run", "--images", data / "ox", "--codebook", words, "--json")
    del command[command.index("--codebook-images") : command.index("--codebook-images") + 2]
    result = run(*command)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["grades"] == once["grades"]
    assert found["card"]["codebook"]["digest"] == once["card"]["codebook"]["digest"]


def test_a_network_brings_its_codebook(data: Path, once: dict[str, Any], tmp_path: Path) -> None:
    """Nothing but the set is named: the words are those beside the weights, and the profile is the one for users."""
    shutil.copytree(data / "network", tmp_path / "network")
    shutil.copytree(data / "once" / "index" / "codebook", tmp_path / "network" / "codebook")
    where = ["evaluate", "roxford5k", "--images", data / "ox", "--workers", "1", "--analyses", "0", "--json"]
    result = run(*where, "-w", tmp_path / "network", "-o", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    card = json.loads(result.stdout)["card"]
    assert card["codebook"]["digest"] == once["card"]["codebook"]["digest"]
    assert card["extract"]["max_side"] == ExtractConfig.profile("fast").max_side


@pytest.mark.parametrize("where", ["extract_set", "build_index", "search_index", "make_card"])
def test_a_disk_that_fills_up(
    where: str, disk: Disk, data: Path, once: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line; with room again the run goes on, and ends as if nothing had been."""
    stage = getattr(superfeat.evaluation.run, where)

    def filling(*given: Any) -> Any:
        disk.fill(0)
        return stage(*given)

    command = words_of(data, "roxford5k", disk.path / "run", "--images", data / "ox")
    with monkeypatch.context() as patch:
        patch.setattr(superfeat.evaluation.run, where, filling)
        assert_refused(run(*command), "the disk is full", "nothing finished is lost")
    disk.free()
    found = measure(data, "roxford5k", disk.path / "run", "--images", data / "ox")
    assert found["grades"] == once["grades"]
    assert without_seconds(found["card"]) == without_seconds(once["card"])


def test_a_report_that_cannot_be_drawn_does_not_hide_the_scores(
    data: Path, once: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra that draws, the run is finished all the same."""

    def lacking(*_: object) -> Path:
        raise MissingExtraError("charts", "report")

    monkeypatch.setattr("superfeat.pages.report.write_report", lacking)
    found = measure(data, "roxford5k", data / "once", "--images", data / "ox")
    assert (found["grades"], found["report"]) == (once["grades"], None)


# -- What is refused


def test_refused(data: Path, once: dict[str, Any], tmp_path: Path) -> None:
    images = ["--images", data / "ox"]
    out = tmp_path / "run"
    assert_refused(run(*words_of(data, "roxford5k", out)), "roxford5k needs the folder of its files")
    assert_refused(run(*words_of(data, "roxfrd5k", out, *images)), "did you mean 'roxford5k'?")
    assert_refused(run(*words_of(data, "rparis6k", out, *images)), "there is no gnd_rparis6k.pkl")
    assert_refused(run(*words_of(data, "roxford5k", out, *images, "--set", "extract.maxside=3")), "did you mean")
    assert_refused(run(*words_of(data, "roxford5k", out, *images, "--set", "method=how")), "'asmk' or 'pooled'")
    assert_refused(run(*words_of(data, "roxford5k", out, *images, "--weights", tmp_path / "no")), "no weights at")
    assert_refused(run(*words_of(data, "roxford5k", out, *images, "--distractors", tmp_path / "no")), "no photos at")
    assert_refused(
        run("evaluate", "roxford5k", *images, "-w", data / "network", "-o", out),
        "words must be learned from photos of other things",
        "(--codebook-images, --codebook)",
    )
    assert not out.exists()
    changed = run(*words_of(data, "roxford5k", data / "once", *images, "--set", "index.search.alpha=2"))
    assert_refused(changed, "is an evaluation with other settings (settings.index.search.alpha was 3.0, not 2.0)")
    assert run("evaluate").exit_code == run("evaluate", "roxford5k").exit_code == 2


def test_missing_photos(data: Path, once: dict[str, Any], tmp_path: Path) -> None:
    """The first query's easy photo is gone: refused with its place, or not found."""
    images = shutil.copytree(data / "ox", tmp_path / "ox")
    photos, queries = roxford_photos(images), roxford_queries(images)
    words = sorted((data / "words").iterdir())
    whole = rank(load_network(data / "network"), CONFIG, photos, queries, words)
    photos[0].unlink()
    command = words_of(data, "roxford5k", tmp_path / "run", "--images", images)
    assert_refused(run(*command), "1 photos of roxford5k are not there", str(photos[0]), "--allow-missing")
    assert not (tmp_path / "run").exists()
    found = measure(data, "roxford5k", tmp_path / "run", "--images", images, "--allow-missing")
    left = [[number for number in ranking if number != 0] for ranking in whole]
    assert kept_rankings(tmp_path / "run") == left
    for grade in GRADES:
        assert_scores(open_run(tmp_path / "run").scores, grade, grade_scores(left, revisited_truths(grade)))
    assert found["grades"]["easy"]["map"] < once["grades"]["easy"]["map"]
    assert found["card"]["dataset"]["missing"] == [photos[0].stem]
    printed = run(*command, "--allow-missing").stdout
    assert f"1 could not be read: {photos[0].stem}." in printed


def test_a_truncated_query(data: Path, once: dict[str, Any], tmp_path: Path) -> None:
    images = shutil.copytree(data / "ox", tmp_path / "ox")
    query = images / "jpg" / "asked_000001.jpg"
    query.write_bytes(query.read_bytes()[:400])
    command = words_of(data, "roxford5k", tmp_path / "run", "--images", images)
    assert_refused(run(*command), "1 photos of roxford5k could not be used", "asked_000001", "--allow-missing")
    found = measure(data, "roxford5k", tmp_path / "run", "--images", images, "--allow-missing")
    assert found["card"]["dataset"]["queries"] == 2
    kept = [query["ap"] for query in open_run(data / "once").scores["queries"]]
    assert [query["ap"] for query in open_run(tmp_path / "run").scores["queries"]] == [kept[0], kept[2]]
    for path in (images / "jpg").glob("asked*"):
        path.write_bytes(b"no photo")
    result = run(*words_of(data, "roxford5k", tmp_path / "none", "--images", images, "--allow-missing"))
    assert_refused(result, "none of the 3 queries of roxford5k has a photo that can be read")


# -- Compare


@pytest.fixture(scope="module")
def pooled(data: Path) -> Path:
    measure(data, "roxford5k", data / "pooled", "--images", data / "ox", "--set", "method=pooled")
    return data / "pooled"


def test_compare(data: Path, once: dict[str, Any], pooled: Path) -> None:
    result = run("evaluate", "--compare", data / "once", pooled, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["first"], found["second"]) == (str(data / "once"), str(pooled))
    settings = {change["setting"]: (change["first"], change["second"]) for change in found["settings"]}
    assert settings["method"] == ("asmk", "pooled")
    assert {"codebook", "asmk"} <= settings.keys()
    assert not any(name.startswith(("seconds", "software", "extract")) for name in settings)
    first, second = (open_run(path).scores for path in (data / "once", pooled))
    for grade, values in found["grades"].items():
        gains = {
            a["name"]: (b["ap"][grade] or 0.0) - (a["ap"][grade] or 0.0)
            for a, b in zip(first["queries"], second["queries"], strict=True)
            if a["ap"][grade] is not None
        }
        assert [one["query"] for one in values["won"]] == sorted(
            (n for n in gains if gains[n] > 0.01), key=lambda n: -gains[n]
        )
        assert [one["query"] for one in values["lost"]] == sorted(
            (n for n in gains if gains[n] < -0.01), key=lambda n: gains[n]
        )
        assert values["bootstrap"]["difference"] == pytest.approx(sum(gains.values()) / len(gains))
        assert values["queries"] == len(gains)
    text = run("evaluate", "--compare", data / "once", pooled).stdout
    assert text.startswith(f"{data / 'once'} -> {pooled}:\n")
    assert "method: asmk -> pooled\n" in text
    for grade in GRADES:
        assert f"{grade}: mAP {once['grades'][grade]['map']:.2f} -> " in text
    assert max(map(len, text.splitlines()[1:])) < 200


def test_compare_with_itself(data: Path, once: dict[str, Any]) -> None:
    result = run("evaluate", "--compare", data / "once", data / "once", "--json")
    found = json.loads(result.stdout)
    assert found["settings"] == []
    assert all(
        grade["won"] == grade["lost"] == [] and grade["bootstrap"]["p"] == 1 for grade in found["grades"].values()
    )


def test_compare_refuses(data: Path, once: dict[str, Any], tmp_path: Path) -> None:
    draw_things(tmp_path / "things", 2, 2)
    measure(data, tmp_path / "things", tmp_path / "run")
    assert_refused(
        run("evaluate", "--compare", data / "once", tmp_path / "run"),
        "the runs are of different queries (roxford5k: 3, things: 4)",
    )
    (tmp_path / "run" / "scores.json").unlink()
    for folder in (tmp_path / "run", tmp_path / "nowhere"):
        result = run("evaluate", "--compare", data / "once", folder)
        assert_refused(result, f"{folder} holds no finished evaluation; make one with: superfeat evaluate")


def test_without_torch(data: Path, once: dict[str, Any]) -> None:
    """Help needs neither torch nor numpy."""
    code = "import sys; from superfeat.cli import main\ntry: main(['evaluate', '--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'numpy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--compare" in done.stdout


def test_average_precision_is_that_of_the_kept_ranking(data: Path, once: dict[str, Any]) -> None:
    """What a reader works out from the files is what the run says."""
    scores = open_run(data / "once").scores
    for grade in GRADES:
        for ranking, query, (right, junk) in zip(
            kept_rankings(data / "once"), scores["queries"], revisited_truths(grade), strict=True
        ):
            if right:
                assert query["ap"][grade] == pytest.approx(100 * average_precision(ranking, right, junk), abs=1e-4)


def test_the_report_looks_into_the_network(data: Path, tmp_path: Path) -> None:
    """Drawn once; what is printed is the result alone."""
    words = ("roxford5k", tmp_path / "run", "--images", data / "ox", "--analyses", "2")
    found = measure(data, *words)
    kinds = {path.stem for path in (tmp_path / "run" / "analyses").glob("*.png")}
    assert {"redundancy", "scales", "words"} <= kinds
    page = Path(found["report"]).read_text(encoding="utf-8")
    for kind in kinds:
        title = json.loads((tmp_path / "run" / "analyses" / f"{kind}.json").read_text())["title"]
        assert html.escape(title) in page
    before = (tmp_path / "run" / "analyses" / "scales.json").stat().st_mtime_ns
    assert measure(data, *words)["grades"] == found["grades"]
    assert (tmp_path / "run" / "analyses" / "scales.json").stat().st_mtime_ns == before
