"""superfeat reproduce: every table and figure in very small, whether its numbers are right, going on, the paper's size.

One study is shared: the command line measures everything once, and the tests look at what it left.
"""

import collections
import csv
import dataclasses
import html.parser
import json
import math
import os
import pickle
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image

from fixtures_recipe import noise
from superfeat.cli import main
from superfeat.config import Recipe
from superfeat.datasets.folders import read_folders
from superfeat.datasets.sfm120k import TRAINING_FILE, VALIDATION_FILE
from superfeat.errors import SuperfeatError
from superfeat.evaluation.metrics import average_precision
from superfeat.extraction.extract import extract
from superfeat.images import normalise, read_image
from superfeat.index.index import Index
from superfeat.pages import plots
from superfeat.pages.reproduction import write_reproduced
from superfeat.recipes import read_recipe
from superfeat.settings import as_dict, overlay
from superfeat.storage.store import as_json, read_json
from superfeat.studies.reproduce import catalogue, sizes, study
from superfeat.studies.reproduce.catalogue import NAMES, NOT_MEASURED, Reproduced
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.sizes import Size
from superfeat.studies.reproduce.study import Study
from superfeat.training.train import train
from superfeat.weights import load_network

pytest.importorskip("matplotlib")
LIT = {"templates": 6, "rounds": 2, "dim": 16}
PRETRAINING = {"epochs": 1, "side": 32, "batch": 8, "chunk": 4, "hidden": 8, "hold_out": 0.34}
TRAINING = {"epochs": 1, "queries": 4, "max_side": 48, "whitening_images": 10, "negatives": 2, "tuples_per_step": 2}
EVALUATION = {
    "extract": {"max_side": 48, "features_per_image": 8, "scales": (1.0, 0.707)},
    "codebook.words": 8,
    "codebook_images": 8,
}
ASKED: dict[str, Any] = {
    "templates": (4, 6),
    "rounds": (1, 2),
    "negatives": (1, 2),
    "feature_counts": (4, 8),
    "single_counts": (3, 6),
}
FOLDER = 'out & <b> "it\'s"'  # a name that HTML and a shell take for something else
WITHOUT_LOG = "table-pretraining"  # what cannot be measured with given weights


def tiny(name: str) -> Size:
    """The size of this name with a tiny network; its tests are kept."""
    whole = SIZES[name]
    network = {"whitened_dim": 8, "lit": LIT, "trunk": {"arch": "resnet10", "stages": 1}}
    recipe = overlay(whole.recipe, {"network": network, "pretraining": PRETRAINING, "training": TRAINING})
    recipe = overlay(recipe, {"data": {"things": 8, "views": 3, "side": 64}})
    how = {**whole.how, "training": {"flip": 0.0}}
    evaluation = overlay(whole.evaluation, EVALUATION)
    return dataclasses.replace(whole, recipe=recipe, how=how, evaluation=evaluation, neighbours=(1, 3), **ASKED)


SIZES = {name: sizes.read_size(name) for name in ("mini", "paper")}
TINY = tiny("mini")


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for all tests, where the codebooks' cache is too; both sizes are tiny.

    Pictures are coarse and nothing waits for the disk, which other tests look at: that halves the time.
    """
    folder = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUPERFEAT_CACHE", str(folder / "cache"))
        patch.setattr(catalogue, "read_size", tiny)
        patch.setattr(plots, "DPI", 40)
        patch.setattr(os, "fsync", lambda file: None)
        yield folder


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)])


def require_error(result: Result, *texts: str, code: int = 1) -> None:
    """One line that says this, and no traceback."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    for text in texts:
        assert text in result.stderr
    if code == 1:
        assert len(result.stderr.strip().splitlines()) == 1


class Made(NamedTuple):
    """What `reproduce all` made: the folder, the result that it printed, the outcomes, and the study."""

    folder: Path
    printed: dict[str, Any]
    outcomes: dict[str, Outcome]
    study: Study


@pytest.fixture(scope="module")
def made(place: Path) -> Made:
    output = place / FOLDER
    outcomes: dict[str, Outcome] = {}
    measure = catalogue.measure

    def remember(name: str, with_study: Study) -> Reproduced:
        found = measure(name, with_study)
        outcomes[name] = found.outcome
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "measure", remember)
        result = run("all", "-o", output, "--workers", "1", "--json")
    assert result.exit_code == 0, result.output
    return Made(output / "mini", json.loads(result.stdout), outcomes, Study(TINY, output / "work-mini", workers=1))


def numbers_in(row: list[Any]) -> list[float]:
    return [value for value in row if isinstance(value, int | float) and not isinstance(value, bool)]


def strictly(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


# --- every table and figure -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_every_name_gives(made: Made, name: str) -> None:
    outcome = made.outcomes[name]
    assert outcome.rows
    for row in outcome.rows:
        assert len(row) == len(outcome.columns)
        assert numbers_in(list(row))
        assert all(math.isfinite(value) for value in numbers_in(list(row)))
    assert len(set(outcome.columns)) == len(outcome.columns)
    assert re.search(r"\d", outcome.finding)
    assert "nan" not in outcome.finding
    assert not outcome.finding.endswith("."), "the page adds it"
    assert [bool(outcome.panels), bool(outcome.matrices), bool(outcome.photos)].count(True) == 1
    for panel in outcome.panels:
        assert any(one.paper for one in panel.series) or any(len(one.x) for one in panel.series)
        for one in panel.series:
            assert len(one.x) == len(one.y) > 0
            assert all(math.isfinite(value) for value in one.y)
    for row in outcome.photos:
        assert len(row) == len(outcome.photo_titles[1])
    assert len(outcome.photos) == len(outcome.photo_titles[0])


@pytest.mark.parametrize("name", NAMES)
def test_the_files_of_every_name(made: Made, name: str) -> None:
    folder = made.folder / name
    outcome, paper = made.outcomes[name], published(name)
    record = strictly((folder / "numbers.json").read_text(encoding="utf-8"))
    assert record["ours"] == {"columns": list(outcome.columns), "rows": as_json([list(row) for row in outcome.rows])}
    assert (record["name"], record["title"], record["claim"]) == (name, paper["title"], paper["claim"])
    assert (record["finding"], record["agrees"]) == (outcome.finding, outcome.agrees)
    assert record["paper"] == as_json(paper)
    with (folder / "numbers.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    ours = [["source", *outcome.columns], *(["ours", *map(str, row)] for row in outcome.rows)]
    assert lines[: len(ours)] == ours
    assert len(lines) == len(ours) + (1 + len(paper["rows"]) if "columns" in paper else 0)
    with Image.open(folder / "picture.png") as picture:
        picture.load()
        assert min(picture.size) > 100
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10, "something is drawn"


class Links(html.parser.HTMLParser):
    """Notes what a page refers to, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.tags: collections.Counter[str] = collections.Counter()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.targets += [str(value) for key, value in attrs if key in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_refers_to_nothing_outside(made: Made) -> None:
    text = (made.folder / "index.html").read_text(encoding="utf-8")
    page = Links()
    page.feed(text)
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert len(page.targets) == 3 * len(NAMES)
    for target in page.targets:
        assert (made.folder / target).is_file()
    assert page.tags["section"] == page.tags["img"] == len(NAMES)
    assert page.tags["script"] == page.tags["link"] == 0
    for record in made.printed["made"]:
        for key in ("title", "claim", "finding", "command"):
            assert record[key] in page.text


def test_the_page_escapes(made: Made) -> None:
    text = (made.folder / "index.html").read_text(encoding="utf-8")
    assert "out &amp; &lt;b&gt;" in text
    assert "<b> " not in text.replace("<b>The paper:</b> ", "").replace("<b>Here:</b> ", "")


def test_what_is_printed(made: Made) -> None:
    assert made.printed["output"] == str(made.folder)
    assert [record["name"] for record in made.printed["made"]] == list(NAMES)
    for record in made.printed["made"]:
        kept = read_json(made.folder / record["name"] / "numbers.json")
        assert {key: value for key, value in record.items() if key != "folder"} == kept
        assert record["folder"] == str(made.folder / record["name"])


# --- the numbers are right --------------------------------------------------------------------------------------------


def trained_with(made: Made, changes: Mapping[str, Any] | None = None, *, how: bool = False) -> Path:
    """The one network whose run.json has exactly the settings that these changes make."""
    base = overlay(TINY.recipe, TINY.how) if how else TINY.recipe
    wanted = as_json(as_dict(overlay(overlay(base, changes or {}), {"pretraining.first": False})))
    found = [
        file.parent
        for file in (made.study.work / "networks").glob("*/run.json")
        if (recipe := read_json(file).get("recipe")) is not None and {**recipe, "weights": None} == wanted
    ]
    assert len(found) == 1
    return found[0]


def evaluation_of(network: Path, changes: Mapping[str, Any] | None = None) -> Path:
    settings = as_json(as_dict(overlay(TINY.evaluation, changes or {})))
    [found] = [
        file.parent for file in (network / "evaluations").glob("*/run.json") if read_json(file)["settings"] == settings
    ]
    assert read_json(found / "run.json")["network"] == load_network(network / "last").digest
    return found


def score(network: Path, changes: Mapping[str, Any] | None = None) -> float:
    return float(read_json(evaluation_of(network, changes) / "scores.json")["grades"]["all"]["map"])


def last_epoch(network: Path) -> dict[str, Any]:
    lines = (network / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return next(record for record in map(json.loads, reversed(lines)) if record["event"] == "epoch")


@pytest.mark.parametrize("name", ["table-1", "table-1-extended"])
def test_the_rules_of_table_1_reach_the_training(made: Made, name: str) -> None:
    outcome = made.outcomes[name]
    ours = [tuple(row[:3]) for row in outcome.rows]
    assert sorted(ours) == sorted(tuple(row[:3]) for row in published(name)["rows"])
    assert tuple(outcome.columns[:3]) == ("reciprocal", "ratio_test", "same_id")
    matched = set()
    for reciprocal, ratio_test, same_id, value in outcome.rows:
        network = trained_with(
            made,
            {
                "losses.reciprocal": reciprocal,
                "losses.ratio_test": "lowe" if ratio_test else "off",
                "losses.same_id": same_id,
            },
        )
        assert value == score(network)
        record = last_epoch(network)
        matched.add((record["superfeature"], record["matches_per_id"]["mean"]))
    assert len(matched) > 1, "the rules change what is matched"
    assert f"{outcome.rows[-1][3] - outcome.rows[0][3]:+.1f} mAP" in outcome.finding


def test_the_weights_of_table_2_reach_the_training(made: Made) -> None:
    outcome = made.outcomes["table-2"]
    assert [row[:3] for row in outcome.rows] == [row[:3] for row in published("table-2")["rows"]]
    names = ("pooled", "decorrelation", "superfeature")
    for *chosen, value in outcome.rows:
        weights = [weight if on else 0.0 for on, weight in zip(chosen, (1.0, 0.1, 0.02), strict=True)]
        network = trained_with(made, {"losses": dict(zip(names, weights, strict=True))})
        assert value == score(network)
        record = last_epoch(network)
        assert [record[name] > 0 for name in names] == chosen
        assert record["loss"] == pytest.approx(sum(record[name] for name in names), abs=1e-5)
    assert f"{outcome.rows[4][3] - outcome.rows[3][3]:+.1f} mAP" in outcome.finding


@pytest.mark.parametrize(
    ("name", "setting", "values"),
    [
        ("ablation-n", "network.lit.templates", TINY.templates),
        ("ablation-t", "network.lit.rounds", TINY.rounds),
        ("ablation-negatives", "training.negatives", TINY.negatives),
    ],
)
def test_the_values_of_the_ablations(made: Made, name: str, setting: str, values: tuple[int, ...]) -> None:
    outcome = made.outcomes[name]
    assert [row[0] for row in outcome.rows] == list(values)
    assert list(outcome.panels[0].series[0].y) == [row[1] for row in outcome.rows]
    for value, points in outcome.rows:
        network = trained_with(made, {setting: value})
        assert points == score(network)
        config = load_network(network / "last").config.lit
        start = load_network(read_json(network / "run.json")["recipe"]["weights"]).config.lit
        assert config is not None
        assert start is not None
        assert (start.templates, start.rounds) == (config.templates, config.rounds), "pretrained with its own LIT"
    assert f"best at {max(outcome.rows, key=lambda row: float(row[1]))[0]} " in outcome.finding


def test_the_update_is_a_gru(made: Made) -> None:
    for update, points in made.outcomes["table-update"].rows:
        network = trained_with(made, {"network.lit": {"update": update, "rounds": 3}})
        assert points == score(network)
        parameters = load_network(network / "last").module.state_dict()
        start = load_network(read_json(network / "run.json")["recipe"]["weights"])
        assert any("gru" in key.lower() for key in parameters) == (update == "gru")
        assert {key for key in start.module.state_dict() if key.startswith("lit.")} == {
            key for key in parameters if key.startswith("lit.")
        }


def test_frozen_templates_are_those_of_the_pretraining(made: Made) -> None:
    for (kind, points), frozen in zip(made.outcomes["table-templates"].rows, (True, False), strict=True):
        assert kind == ("frozen" if frozen else "fine-tuned")
        network = trained_with(made, {"network.lit.frozen_templates": frozen})
        assert points == score(network)
        start = load_network(read_json(network / "run.json")["recipe"]["weights"]).module.state_dict()
        after = load_network(network / "last").module.state_dict()
        assert torch.equal(start["lit.templates"], after["lit.templates"]) == frozen
        assert not torch.equal(start["lit.query.weight"], after["lit.query.weight"]), "the rest is trained"


def test_how_begins_with_the_same_trunk(made: Made) -> None:
    fire, how = (read_json(trained_with(made, how=how) / "run.json") for how in (False, True))
    assert fire["weights"] == how["weights"]
    assert fire["recipe"]["weights"] == how["recipe"]["weights"]
    given = load_network(fire["recipe"]["weights"]).module.state_dict()
    for facts in (fire, how):
        recipe = overlay(Recipe(), {**facts["recipe"], "training": {**facts["recipe"]["training"], "epochs": 0}})
        folder = made.study.work / f"untrained {recipe.network.method}"
        list(train(recipe, made.study.training_set, folder, workers=1))
        state = load_network(folder / "last").module.state_dict()
        trunk = [key for key in state if key.startswith("trunk.")]
        assert len(trunk) > 10
        assert all(torch.equal(state[key], given[key]) for key in trunk)


def test_the_rows_of_table_sota(made: Made) -> None:
    rows = {row[0]: row[1:] for row in made.outcomes["table-sota"].rows}
    assert list(rows) == ["HOW, pooled", "HOW, asmk", "FIRe, pooled", "FIRe, asmk"]
    for name, (memory, points) in rows.items():
        method, search = name.split(", ")
        folder = evaluation_of(trained_with(made, how=method == "HOW"), {"method": search})
        assert points == read_json(folder / "scores.json")["grades"]["all"]["map"]
        if search == "pooled":
            assert memory == 4 * 8, "one vector of 8 floats"
        else:
            info = Index.open(folder / "index").info()
            assert memory == pytest.approx(info.postings * (8 + 2) / info.images, abs=0.1)


def test_map_is_that_of_the_rankings(made: Made) -> None:
    """From the rankings alone, by the definition of mAP."""
    network = trained_with(made)
    rankings = np.load(evaluation_of(network) / "rankings" / "numbers.npy")
    [test] = made.study.tests
    precisions = [
        average_precision(ranking[ranking >= 0], query.positives, query.junk)
        for ranking, query in zip(rankings, test.queries, strict=True)
    ]
    assert score(network) == pytest.approx(100 * float(np.mean(precisions)))
    things = {photo.name.split("/")[0] for photo in test.photos}
    assert not things & {photo.name.split("/")[0] for photo in made.study.training_set.photos}, "they are held out"
    assert made.study.columns == ["held_out"]


@pytest.mark.parametrize(
    ("name", "counts", "scales"),
    [
        ("figure-memory", TINY.feature_counts, TINY.evaluation.extract.scales),
        ("figure-single-scale", TINY.single_counts, (1.0,)),
    ],
)
def test_words_per_image_are_those_of_the_index(
    made: Made, name: str, counts: tuple[int, ...], scales: tuple[float, ...]
) -> None:
    outcome = made.outcomes[name]
    assert [(row[0], row[1]) for row in outcome.rows] == [(method, n) for method in ("HOW", "FIRe") for n in counts]
    for method, count, words, points in outcome.rows:
        changes = {"extract.features_per_image": count, "extract.scales": scales}
        folder = evaluation_of(trained_with(made, how=method == "HOW"), changes)
        assert words == Index.open(folder / "index").info().words_per_image
        assert 1 <= words <= count
        assert points == read_json(folder / "scores.json")["grades"]["all"]["map"]
    for method, series in zip(("HOW", "FIRe"), outcome.panels[0].series, strict=True):
        assert [*zip(series.x, series.y, strict=True)] == [tuple(row[2:]) for row in outcome.rows if row[0] == method]


def test_the_match_ratio_is_the_logs(made: Made) -> None:
    network = trained_with(made, {"losses.ratio_test": "released", **TINY.match_ratio})
    record = last_epoch(network)
    assert made.outcomes["figure-match-ratio"].rows == [[1, record["match_ratio"], record["match_ratio_any_id"]]]
    for rule in ("", "_any_id"):
        positive, negative = record[f"matches{rule}"], record[f"negative_matches{rule}"]
        assert record[f"match_ratio{rule}"] == pytest.approx(positive / (positive + negative), abs=1e-6)


def test_ids_trained_are_the_logs_over_the_tuples(made: Made) -> None:
    record = last_epoch(trained_with(made))
    assert record["tuples"] == 4
    counts = record["matches_per_id"]
    assert made.outcomes["figure-ids-trained"].rows == [[1, *(counts[kind] / 4 for kind in ("mean", "std", "min"))]]


def test_correlation_by_plain_loops(made: Made) -> None:
    outcome = made.outcomes["figure-correlation"]
    for (kind, mean), (title, matrix), weight in zip(outcome.rows, outcome.matrices, (0.1, 0.0), strict=True):
        assert title == f"{kind} decorrelation"
        network = load_network(trained_with(made, {"losses.decorrelation": weight}) / "last")
        expected = np.zeros((6, 6))
        for photo in made.study.queries:
            pixels = read_image(photo.path, max_side=48)
            with torch.inference_mode():
                local = network.module(torch.from_numpy(normalise(pixels, *network.normalisation))[None])
            maps = [one.flatten().double().tolist() for one in local.maps[0]]
            for i, first in enumerate(maps):
                for j, second in enumerate(maps):
                    product = sum(a * b for a, b in zip(first, second, strict=True))
                    expected[i, j] += product / math.hypot(*first) / math.hypot(*second)
        expected /= len(made.study.queries)
        assert abs(matrix - expected).max() < 1e-4
        others = [expected[i, j] for i in range(6) for j in range(6) if i != j]
        assert mean == pytest.approx(sum(others) / len(others), abs=1e-4)


def test_redundancy_and_scales_by_plain_loops(made: Made) -> None:
    every = overlay(TINY.evaluation.extract, {"features_per_image": 100000})
    nearest = {row[0]: row[1:] for row in made.outcomes["figure-redundancy"].rows}
    scales = {(row[0], row[1]): row[2:] for row in made.outcomes["figure-scales"].rows}
    for column, method in enumerate(("HOW", "FIRe")):
        network = load_network(trained_with(made, how=method == "HOW") / "last")
        features = list(extract(network, made.study.queries, every, workers=1))
        for scale in every.scales:
            here = [one.scales == np.float32(scale) for one in features]
            assert scales[method, scale] == pytest.approx(
                [
                    np.mean([own[:8].sum() / min(8, len(own)) for own in here]),
                    np.mean([own[:8].sum() / own.sum() for own in here]),
                    np.mean([own.sum() for own in here]),
                ]
            )
        for count, found in nearest.items():
            means = []
            for one in features:
                unit = one.vectors[one.scales == 1.0].astype(np.float64)
                unit /= np.linalg.norm(unit, axis=1, keepdims=True)
                cosines = unit @ unit.T
                np.fill_diagonal(cosines, -2)
                means.append(np.sort(cosines, axis=1)[:, -count:].mean())
            assert found[column] == pytest.approx(np.mean(means), abs=1e-4)


def test_pretraining_is_the_logs(made: Made) -> None:
    start = Path(read_json(trained_with(made) / "run.json")["recipe"]["weights"])
    record = last_epoch(start.parent)
    assert made.outcomes["table-pretraining"].rows == [[1, record["top1"], record["top5"]]]


def test_attention_is_of_the_photos_shown(made: Made) -> None:
    outcome = made.outcomes["figure-attention"]
    names = list(dict.fromkeys(row[0] for row in outcome.rows))
    things = [name.split("/")[0] for name in names]
    assert things[0] == things[1] != things[2]
    ids = [int(title.removeprefix("ID ")) for title in outcome.photo_titles[1][1:]]
    assert [(row[0], row[1]) for row in outcome.rows] == [(name, id) for name in names for id in ids]
    over_scales = made.outcomes["figure-attention-scales"]
    assert list(over_scales.photo_titles[1]) == ["scale 0.707", "scale 1"]
    assert [(row[0], row[2]) for row in over_scales.rows] == [(name, scale) for name in names for scale in (0.707, 1.0)]
    for row in (*outcome.rows, *over_scales.rows):
        assert all(0 <= value <= 1 for value in row[-2:])


# --- sharing and going on ---------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """How often something is trained, pretrained or drawn, and what evaluations do."""
    counts: collections.Counter[str] = collections.Counter()

    def counted(name: str) -> None:
        original = getattr(study, name)

        def call(*arguments: Any, **options: Any) -> Iterator[Any]:
            counts[name] += 1
            for step in original(*arguments, **options):
                counts[f"{name}: {getattr(step, 'stage', 'end')}"] += 1
                yield step

        monkeypatch.setattr(study, name, call)

    for name in ("train", "pretrain", "run_protocol"):
        counted(name)
    return counts


AGAIN = (
    "table-1",
    "table-sota",
    "table-update",
    "table-pretraining",
    "figure-match-ratio",
    "figure-correlation",
    "figure-memory",
    "ablation-n",
)


def test_nothing_is_made_again(made: Made, calls: collections.Counter[str]) -> None:
    again = Study(TINY, made.study.work, workers=1)
    for name in AGAIN:
        assert as_json(catalogue.measure(name, again).outcome.rows) == as_json(made.outcomes[name].rows)
    assert calls["train"] == calls["pretrain"] == 0
    assert set(calls) <= {"run_protocol", "run_protocol: search", "run_protocol: end", "train", "pretrain"}


def test_tables_share_what_they_have_in_common(made: Made) -> None:
    folders = collections.Counter(folder.name.split("-")[0] for folder in (made.study.work / "networks").iterdir())
    # The plain one; N = 4; T = 1; T = 3 by two updates; smaller templates.
    assert folders["pretrained"] == 6
    assert folders["how"] == 1


class Stopped(Exception):  # noqa: N818 - it is no error
    """Somebody pressed Ctrl-C."""


STAGES = ("pretraining", ": mining", ": step", ": epoch", ": features", ": codebook features", ": search")


def test_interrupted_everywhere_it_gives_the_same(made: Made, place: Path) -> None:
    left = list(STAGES)

    def interrupt(what: str, done: int, total: int) -> None:
        for stage in left:
            if stage in what and (stage == "pretraining" or what.endswith(stage)):
                left.remove(stage)
                raise Stopped

    shutil.rmtree(place / "cache")  # or the codebooks would be there
    rows, stops = None, 0
    while rows is None:
        stopped = Study(TINY, place / "stopped", images=made.study.work / "drawn", workers=1, on_progress=interrupt)
        try:
            rows = [stopped.maps(stopped.train(changes)) for changes in ({}, {"losses.decorrelation": 0.0})]
        except Stopped:
            stops += 1
    assert left == []
    assert stops == len(STAGES)
    names: tuple[dict[str, float], ...] = ({}, {"losses.decorrelation": 0.0})
    assert rows == [[score(trained_with(made, changes))] for changes in names]
    for changes in names:
        before, after = load_network(trained_with(made, changes) / "last"), stopped.train(changes).network
        assert before.digest == after.digest, "the same weights, to the bit"
        ours, theirs = last_epoch(trained_with(made, changes)), dict(stopped.train(changes).log[-1])
        timed = {"mining_seconds"}
        assert {key: ours[key] for key in ours.keys() - timed} == {key: theirs[key] for key in theirs.keys() - timed}


def test_marks_of_what_is_done_are_put_back(made: Made, place: Path, calls: collections.Counter[str]) -> None:
    work = place / "repaired"
    shutil.copytree(made.study.work / "drawn", work / "drawn")
    study = Study(TINY, work, workers=1)
    trained = study.train()
    marks = sorted((work / "networks").glob("*/done.json"))
    assert len(marks) == 2
    before = {mark: mark.read_bytes() for mark in marks}
    digest, log, steps = trained.network.digest, trained.log, calls["train: step"]
    for mark in marks:
        mark.unlink()
    again = study.train()
    assert {mark: mark.read_bytes() for mark in marks} == before
    assert (again.path, again.network.digest, again.log) == (trained.path, digest, log)
    assert calls["train: step"] == steps, "no step is taken again"


def test_drawing_goes_on(place: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        assert (what, total) == ("drawing landmarks", 8)
        if done == 3:
            raise Stopped

    few = dataclasses.replace(TINY, recipe=overlay(TINY.recipe, {"data": {"things": 4, "views": 2}}))
    with pytest.raises(Stopped):
        Study(few, place / "drawing", on_progress=interrupt)
    files = sorted((place / "drawing" / "drawn").glob("*/*.jpg"))
    assert len(files) == 3
    times = [file.stat().st_mtime_ns for file in files]
    assert len(Study(few, place / "drawing").training_set.photos) == 6, "of the eight, two are held out"
    assert [file.stat().st_mtime_ns for file in files] == times


def test_a_study_may_be_named_by_another_path(
    made: Made, place: Path, monkeypatch: pytest.MonkeyPatch, calls: collections.Counter[str]
) -> None:
    study = Study(TINY, place / "named", images=made.study.work / "drawn", workers=1)
    study.train()
    monkeypatch.chdir(place)
    Study(TINY, Path("named"), images=made.study.work / "drawn", workers=1).train()
    assert calls["train"] == calls["pretrain"] == 1


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("superfeat.studies.reproduce.study", "figure-scales"),
        ("superfeat.studies.reproduce.study", "figure-redundancy"),
        ("superfeat.studies.reproduce.study", "table-speed"),
        ("superfeat.studies.analyses", "figure-correlation"),
        ("superfeat.studies.analyses", "figure-attention"),
        ("superfeat.studies.analyses", "figure-attention-scales"),
    ],
)
def test_the_device_is_used(made: Made, module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    def note(*arguments: Any, device: str = "cpu", **options: Any) -> None:
        devices.append(device)
        raise Stopped

    monkeypatch.setattr(f"{module}.extract", note)
    with pytest.raises(Stopped):
        catalogue.measure(name, Study(TINY, made.study.work, workers=1, device="cuda"))
    assert devices == ["cuda"]


def test_what_has_no_value_is_still_json(made: Made, place: Path) -> None:
    size = dataclasses.replace(TINY, neighbours=(1, 99))
    found = catalogue.measure("figure-redundancy", Study(size, made.study.work, workers=1))
    write_reproduced(found, place / "nan", "superfeat")
    strictly((place / "nan" / "numbers.json").read_text(encoding="utf-8"))


# --- the paper's size -------------------------------------------------------------------------------------------------

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
    assert sota["columns"] == ["method", "bytes per image", *COLUMNS]
    assert [row[0] for row in sota["rows"]] == ["HOW, pooled", "HOW, asmk", "FIRe, pooled", "FIRe, asmk"]
    for row in (*ours["rows"], *sota["rows"]):
        assert all(0 <= value <= 100 for value in row[-5:])
    assert ours["rows"][4][3:] == sota["rows"][3][2:], "the same network in both tables"


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


def test_given_weights_that_do_not_fit(place: Path, made: Made) -> None:
    other = trained_with(made, {"network.lit.templates": 4}) / "last"
    require_error(run("table-2", "--weights", other, "-o", place / "unfit"), "does not fit", "templates is 6", "have 4")
    require_error(run("table-2", "--weights", place / "nowhere", "-o", place / "unfit"), "no weights at", "nowhere")


@pytest.fixture(scope="module")
def alone(made: Made, place: Path) -> Path:
    """A pretrained network of which nothing else is known."""
    start = Path(read_json(trained_with(made) / "run.json")["recipe"]["weights"])
    shutil.copytree(start, place / "alone" / "network")
    return place / "alone" / "network"


def test_weights_without_a_log_of_pretraining(alone: Path, place: Path, made: Made) -> None:
    result = run(WITHOUT_LOG, "--images", made.study.work / "drawn", "--weights", alone, "-o", place / "log")
    require_error(result, "no log of their pretraining", "leave them out (--weights)")


def test_one_that_fails_does_not_cost_the_page(alone: Path, place: Path, made: Made) -> None:
    names = ("figure-ids-trained", WITHOUT_LOG)
    run(*names, "--images", made.study.work / "drawn", "--weights", alone, "-o", place / "log", "--workers", "1")
    assert (place / "log" / "mini" / "figure-ids-trained" / "numbers.json").is_file()
    assert (place / "log" / "mini" / "index.html").is_file()


def test_the_log_beside_the_weights_is_of_a_training(made: Made) -> None:
    weights = str(trained_with(made) / "last")
    with pytest.raises(SuperfeatError, match="pretraining"):
        catalogue.measure(WITHOUT_LOG, Study(TINY, made.study.work, workers=1, weights=weights))


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


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"), [("table-3", "table-"), ("figure-corelation", "'figure-correlation'"), ("al", "'all'")]
)
def test_unknown_names(name: str, nearest: str, place: Path) -> None:
    require_error(run(name, "-o", place / "unknown"), f"the paper has no '{name}' here; did you mean", nearest)
    require_error(run("table-2", "nothing at all", "-o", place / "unknown"), "known are", *NAMES)
    assert not (place / "unknown").exists()


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_names_that_cannot_be_measured_say_why(name: str, place: Path) -> None:
    require_error(run(name, "-o", place / "unknown"), f"{name} cannot be reproduced: {NOT_MEASURED[name]}")
    assert published(name)["title"], "but the paper's own values are kept"


def test_all_is_every_name_once() -> None:
    assert catalogue.choose(["table-2", "all", "table-2"]) == ["table-2", *(n for n in NAMES if n != "table-2")]
    assert catalogue.choose([]) == []
    files = {file.stem for file in (Path(catalogue.__file__).parent / "paper").glob("*.toml")}
    assert files == {*NAMES, *NOT_MEASURED}


def test_the_list() -> None:
    text = run("--list")
    assert text.exit_code == 0
    lines = text.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*NAMES, *NOT_MEASURED]
    assert all(published(name)["title"] in line for name, line in zip(NAMES, lines, strict=False))
    listed = json.loads(run("--list", "--json").stdout)
    assert listed == {"measured": {name: published(name)["title"] for name in NAMES}, "not measured": NOT_MEASURED}


def test_usage(place: Path) -> None:
    require_error(run("-o", place / "none"), "give NAMES", "--list", code=2)
    require_error(run("table-2"), "--output", code=2)
    require_error(run(), "give NAMES", code=2)
    require_error(run("table-2", "--size", "large", "-o", place / "none"), "'mini', 'paper'", code=2)
    require_error(run("table-2", "-o", place / "none", "--workers", "0"), "--workers", code=2)
    assert not (place / "none").exists()


def test_the_command_that_is_written_runs_again(made: Made, calls: collections.Counter[str]) -> None:
    folder = made.folder / "table-templates"
    before = read_json(folder / "numbers.json")
    shutil.rmtree(folder)
    program, *arguments = shlex.split(before["command"])
    assert program == "superfeat"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    after = read_json(folder / "numbers.json")
    assert {**after, "seconds": 0} == {**before, "seconds": 0}
    assert calls["train"] == calls["pretrain"] == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"table-templates: {before['title']}"
    assert lines[1].endswith(before["claim"])
    assert before["finding"] in lines[2]
    assert Path(lines[3].strip()).is_file()
    assert lines[4].endswith("/index.html")
    assert result.stderr == ""


def test_the_page_keeps_what_earlier_calls_made(made: Made) -> None:
    assert run("figure-ids-trained", "-o", made.folder.parent, "--workers", "1").exit_code == 0
    page = Links()
    page.feed((made.folder / "index.html").read_text(encoding="utf-8"))
    assert page.tags["section"] == len(NAMES)


@pytest.fixture(scope="module")
def things(made: Made, place: Path) -> Path:
    """Own photos: one sub-folder per thing."""
    for number in range(8):
        shutil.copytree(made.study.work / "drawn" / f"landmark_{number:04}", place / "my things" / f"thing {number}")
    return place / "my things"


def test_own_photos(place: Path, things: Path) -> None:
    names = ("table-templates", "figure-attention")
    result = run(*names, "--images", things, "-o", place / "own", "--workers", "1", "--json")
    assert result.exit_code == 0, result.output
    whole = read_folders(things)
    networks = place / "own" / "work-mini" / "networks"
    facts = [read_json(file) for file in networks.glob("fire-*/run.json")]
    assert [one["images"] for one in facts] == [18, 18], "a quarter of the eight things is held out"
    assert len(whole.photos) == 24
    assert not (place / "own" / "work-mini" / "drawn").exists()
    for record in json.loads(result.stdout)["made"]:
        words = shlex.split(record["command"])
        assert words[words.index("--images") + 1] == str(things)


def test_photos_that_are_no_things(place: Path, things: Path) -> None:
    require_error(run("table-2", "--images", things / "thing 0", "-o", place / "bad"), "in no sub-folder")
    require_error(run("table-2", "--images", place / "nowhere", "-o", place / "bad"), "there is no folder")


def test_few_things(place: Path, things: Path) -> None:
    for number in range(4):
        shutil.copytree(things / f"thing {number}", place / "few" / f"thing {number}")
    result = run("figure-attention", "--images", place / "few", "-o", place / "own", "--workers", "1")
    assert isinstance(result.exception, SystemExit | None)
