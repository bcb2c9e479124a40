"""superfeat reproduce in very small: every table and figure, and whether its numbers are right."""

import collections
import csv
import math
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from fixtures_reproduce import TINY, Links, Made, evaluation_of, last_epoch, run, score, strictly, trained_with
from superfeat.cli import main
from superfeat.config import Recipe
from superfeat.evaluation.metrics import average_precision
from superfeat.extraction.extract import extract
from superfeat.images import normalise, read_image
from superfeat.index.index import Index
from superfeat.settings import overlay
from superfeat.storage.store import as_json, read_json
from superfeat.studies.reproduce.catalogue import NAMES
from superfeat.studies.reproduce.outcome import published
from superfeat.studies.reproduce.table_sota import OTHERS
from superfeat.training.train import train
from superfeat.weights import load_network

pytest.importorskip("matplotlib")


def numbers_in(row: list[Any]) -> list[float]:
    return [value for value in row if isinstance(value, int | float) and not isinstance(value, bool)]


# --- every table and figure -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_every_name_gives(made: Made, name: str) -> None:
    outcome = made.outcomes[name]
    assert outcome.rows
    for row in outcome.rows:
        assert len(row) == len(outcome.columns)
        missing = name == "table-sota" and str(row[-1]).endswith("in the work folder")  # weights of others
        assert bool(numbers_in(list(row))) != missing
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
    every = {row[0]: row[1:] for row in made.outcomes["table-sota"].rows}
    rows = dict(list(every.items())[:4])
    assert list(rows) == ["HOW, pooled", "HOW, asmk", "FIRe, pooled", "FIRe, asmk"]
    assert every["FIRe, asmk"][2:] == ["81.8/61.2, 85.3/70.0", "-"], "the paper's number beside ours"
    others = {name: row for name, row in every.items() if name not in rows}
    assert set(others) == {f"{name} {trunk}" for name, trunk in OTHERS}
    assert others["AP-GeM R101"][2] == "67.1/42.3, 80.3/60.9"
    assert all(row[0] == row[1] == "-" and "published/" in row[3] for row in others.values())
    for name, (memory, points, *_) in rows.items():
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


# --- made again -------------------------------------------------------------------------------------------------------


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
