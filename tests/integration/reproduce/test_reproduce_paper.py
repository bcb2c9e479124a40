"""superfeat reproduce at the paper's size, with a tiny network and made-up benchmarks."""

import collections
import dataclasses
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fixtures_recipe import noise
from fixtures_reproduce import SIZES, require_error, run, tiny
from superfeat.datasets.sfm120k import TRAINING_FILE, VALIDATION_FILE
from superfeat.errors import SuperfeatError
from superfeat.recipes import read_recipe
from superfeat.settings import overlay
from superfeat.storage.store import read_json
from superfeat.studies.reproduce import catalogue
from superfeat.studies.reproduce.outcome import published
from superfeat.studies.reproduce.study import Study
from superfeat.weights import load_network

pytest.importorskip("matplotlib")

COLUMNS = ["sfm120k_val", "roxford_medium", "roxford_hard", "rparis_medium", "rparis_hard"]


def save_photos(folder: Path, names: list[str], first: int = 0) -> None:
    for seed, name in enumerate(names, first):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(48, 64, seed)).save(folder / name, "JPEG")


@pytest.fixture(scope="module")
def tree(place: Path) -> Path:
    """SfM-120k with both its lists, ROxford5k and RParis6k, as they are published, in one data folder."""
    folder = place / "data"
    sfm = folder / "train" / "retrieval-SfM-120k"
    cids = [f"{number * 7919:032x}" for number in range(24)]
    save_photos(sfm / "ims", [f"{cid[-2:]}/{cid[-4:-2]}/{cid[-6:-4]}/{cid}" for cid in cids])
    clusters = [number // 4 for number in range(16)]
    pairs = {"qidxs": list(range(16)), "pidxs": [n // 4 * 4 + (n + 1) % 4 for n in range(16)]}
    part = {"cids": cids[:16], "cluster": clusters, **pairs}
    (sfm / TRAINING_FILE).write_bytes(pickle.dumps({"train": part, "val": part}))
    truths = [{"ok": [1, 2], "junk": [0]}, {"ok": [5], "junk": []}]
    validation = {"cids": cids[16:], "qidx": [0, 4], "gnd": truths}
    (sfm / VALIDATION_FILE).write_bytes(pickle.dumps(validation))
    for first, name in ((100, "roxford5k"), (200, "rparis6k")):
        images, queries = [f"{name}_{number:06}" for number in range(8)], [f"{name}_query_{n}" for n in range(2)]
        save_photos(folder / "test" / name / "jpg", [f"{image}.jpg" for image in [*images, *queries]], first)
        truth = [
            {"bbx": [4.0, 4.0, 60.0, 44.0], "easy": [1], "hard": [2], "junk": [0]},
            {"bbx": [0.0, 0.0, 64.0, 48.0], "easy": [3], "hard": [5, 6], "junk": []},
        ]
        contents = {"imlist": images, "qimlist": queries, "gnd": truth}
        (folder / "test" / name / f"gnd_{name}.pkl").write_bytes(pickle.dumps(contents))
    return folder


@pytest.fixture(scope="module")
def imagenet(place: Path) -> Path:
    for number in range(3):
        save_photos(place / "imagenet", [f"n{number:08}/{photo}.jpg" for photo in range(4)], 300 + 10 * number)
    return place / "imagenet"


def test_the_papers_size_is_the_papers() -> None:
    whole, how = SIZES["paper"], read_recipe("how-sfm120k")
    assert whole.tests == ("sfm120k-val", "roxford5k", "rparis6k")
    plain = overlay(whole.recipe, {"validation.every": 5})
    assert plain == read_recipe("fire-sfm120k")
    other = overlay(plain, whole.how)
    assert (other.network, other.training, other.data) == (how.network, how.training, how.data)
    assert other.losses == how.losses
    for name, values in (("ablation-n", whole.templates), ("ablation-t", whole.rounds)):
        assert [list(values)] * 7 == [series["x"] for series in published(name)["series"]]
    assert not whole.evaluation.extract.upright, "benchmarks read images as stored"
    assert overlay(whole.evaluation, {"extract.upright": True}) == type(whole.evaluation)()


def test_the_papers_numbers_of_negatives() -> None:
    [x, *_] = (series["x"] for series in published("ablation-negatives")["series"])
    assert list(SIZES["paper"].negatives) == x


@pytest.fixture(scope="module")
def paper(place: Path, tree: Path, imagenet: Path) -> dict[str, Any]:
    """table-2 and table-sota at the paper's size."""
    output = place / "paper"
    options = ("--size", "paper", "--images", tree, "--imagenet", imagenet, "-o", output, "--workers", "1")
    result = run("table-2", "table-sota", *options, "--json")
    assert result.exit_code == 0, result.output
    return {record["name"]: record for record in json.loads(result.stdout)["made"]}


def test_the_columns_of_the_papers_tables(paper: dict[str, Any]) -> None:
    ours, theirs = paper["table-2"]["ours"], paper["table-2"]["paper"]
    assert ours["columns"] == theirs["columns"] == ["global_loss", "attention_loss", "super_loss", *COLUMNS]
    assert [row[:3] for row in ours["rows"]] == [row[:3] for row in theirs["rows"]]
    sota = paper["table-sota"]["ours"]
    assert sota["columns"] == ["method", "bytes per image", *COLUMNS, "paper", "what is missing"]
    assert [row[0] for row in sota["rows"][:4]] == ["HOW, pooled", "HOW, asmk", "FIRe, pooled", "FIRe, asmk"]
    for row in (*ours["rows"], *(row[:-2] for row in sota["rows"][:4])):
        assert all(0 <= value <= 100 for value in row[-5:])
    assert all(row[1:-2] == ["-"] * 6 for row in sota["rows"][4:]), "weights that are not there are not measured"
    assert ours["rows"][4][3:] == sota["rows"][3][2:-2], "the same network in both tables"


def test_the_papers_columns_are_the_benchmarks_grades(paper: dict[str, Any], place: Path) -> None:
    rows = [row[-5:] for row in paper["table-2"]["ours"]["rows"]]
    found = []
    for scores in (place / "paper" / "work-paper" / "networks").glob("fire-*/evaluations/*/scores.json"):
        settings = read_json(scores.parent / "run.json")
        if settings["settings"]["method"] == "asmk":
            grades = read_json(scores)["grades"]
            found.append((settings["dataset"], {grade: values["map"] for grade, values in grades.items()}))
    for name, columns in (("roxford5k", (1, 2)), ("rparis6k", (3, 4))):
        pairs = {(grades["medium"], grades["hard"]) for dataset, grades in found if dataset == name}
        assert pairs == {tuple(row[column] for column in columns) for row in rows}
    values = {grades["all"] for dataset, grades in found if dataset == "retrieval-SfM-120k-val-eccv2020"}
    assert values == {row[0] for row in rows}


def test_how_and_fire_differ_as_the_paper_says(paper: dict[str, Any], place: Path) -> None:
    networks = place / "paper" / "work-paper" / "networks"
    [how] = [read_json(file)["recipe"] for file in networks.glob("how-*/run.json")]
    assert (how["training"]["flip"], how["losses"]["pooled"], how["losses"]["superfeature"]) == (0.0, 1.0, 0.0)
    assert len(list(networks.glob("fire-*"))) == 5
    [pretrained] = networks.glob("pretrained-*")
    assert read_json(pretrained / "run.json")["classes"] == 3, "on ImageNet's classes"


def test_no_images(place: Path, tree: Path) -> None:
    require_error(
        run("table-2", "--size", "paper", "-o", place / "none"), "--images", "SfM-120k", "roxford5k", "rparis6k"
    )
    require_error(run("table-2", "--size", "paper", "--images", place, "-o", place / "none"), TRAINING_FILE)
    require_error(
        run("table-2", "--size", "paper", "--images", tree, "-o", place / "none"), "--imagenet", "--weights", "class"
    )


def test_given_weights_are_used_where_they_fit(
    place: Path, tree: Path, paper: dict[str, Any], calls: collections.Counter[str]
) -> None:
    [given] = (place / "paper" / "work-paper" / "networks").glob("pretrained-*/best")
    study = Study(tiny("paper"), place / "given", images=tree, weights=str(given), workers=1)
    for how in (False, True):
        facts = read_json(study.train(how=how).path / "run.json")
        assert facts["weights"] == load_network(given).digest
    for changes in ({"network.lit.templates": 4}, {"network.lit.rounds": 1}, {"network.lit.update": "gru"}):
        with pytest.raises(SuperfeatError, match="begins with its own pretraining on ImageNet: give its folder"):
            study.train(changes)
    assert calls["pretrain"] == 0


def test_another_imagenet_is_another_pretraining(place: Path, tree: Path, imagenet: Path) -> None:
    shutil.copytree(imagenet, place / "fewer")
    shutil.rmtree(place / "fewer" / "n00000002")
    classes = [
        read_json(
            Study(tiny("paper"), place / "paper" / "work-paper", images=tree, imagenet=photos, workers=1)
            ._start(tiny("paper").recipe, how=False)
            .parent
            / "run.json"
        )["classes"]
        for photos in (imagenet, place / "fewer")
    ]
    assert classes == [3, 2]


def test_the_memory_figure_compares_the_same(paper: dict[str, Any], place: Path, tree: Path, imagenet: Path) -> None:
    size = dataclasses.replace(tiny("paper"), feature_counts=(8,))
    work = place / "paper" / "work-paper"
    outcome = catalogue.measure("figure-memory", Study(size, work, images=tree, imagenet=imagenet, workers=1)).outcome
    ours, theirs = outcome.panels
    assert theirs.title == "the paper's, ROxford (average)"
    assert "roxford" in ours.title.lower()
    medium, hard = paper["table-sota"]["ours"]["rows"][3][3:5]
    assert outcome.rows[-1][3] == pytest.approx((medium + hard) / 2)


def test_panels_compare_the_same_column(place: Path, tree: Path, imagenet: Path, paper: dict[str, Any]) -> None:
    work = place / "paper" / "work-paper"
    study = Study(tiny("paper"), work, images=tree, imagenet=imagenet, workers=1)
    for panel in catalogue.measure("table-sota", study).outcome.panels:
        column = panel.y_label.removeprefix("mAP (%), ")
        assert all(column in one.name for one in panel.series if one.paper)
