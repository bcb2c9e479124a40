"""The paper's numbers: every file reads, has the shape it says, is plausible, and agrees with itself and the others."""

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parents[3] / "src" / "superfeat" / "studies" / "reproduce" / "paper"
FILES = sorted(FOLDER.glob("*.toml"))
DATA: dict[str, dict[str, Any]] = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in FILES}
NAMES = {
    *("table-1", "table-1-extended", "table-2", "table-sota", "table-update", "table-templates", "table-speed"),
    *("table-pretraining", "table-local", "table-gldv2", "table-localization"),
    *("figure-attention", "figure-attention-scales", "figure-correlation", "figure-ids-trained", "figure-match-ratio"),
    *("figure-memory", "figure-redundancy", "figure-scales", "figure-single-scale"),
    *("ablation-n", "ablation-t", "ablation-negatives"),
}
WORDS = ("name", "kind", "title", "label", "protocol", "claim")
CONTENT = {"table": {"columns", "rows"}, "curves": {"series", "panel"}, "bars": {"panel"}}
ACCURACIES = ("sfm120k", "roxford", "rparis", "day", "night", "top")


def panels(paper: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a figure; a figure without panels is its own."""
    return list(paper.get("panel", [paper] if "series" in paper else []))


def all_series(paper: dict[str, Any]) -> list[dict[str, Any]]:
    return [series for panel in panels(paper) for series in panel["series"]]


def row_of(name: str, **wanted: Any) -> dict[str, Any]:
    """The one row of a table whose cells are the wanted ones."""
    rows = [dict(zip(DATA[name]["columns"], row, strict=True)) for row in DATA[name]["rows"]]
    [found] = [row for row in rows if wanted.items() <= row.items()]
    return found


def series_of(name: str, series: str, panel: int = 0) -> dict[str, Any]:
    [found] = [one for one in panels(DATA[name])[panel]["series"] if one["name"] == series]
    return dict(found)


def point(name: str, series: str, x: float, panel: int = 0) -> float:
    found = series_of(name, series, panel)
    return float(found["y"][found["x"].index(x)])


def test_all_are_there() -> None:
    assert set(DATA) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_says_what_it_is(name: str) -> None:
    paper = DATA[name]
    assert paper["name"] == name
    for word in WORDS:
        assert isinstance(paper[word], str)
        assert paper[word].strip()
        assert "\n" not in paper[word]
    assert paper["label"].split(":")[0] in {"tab", "fig", "app"}
    assert all(isinstance(note, str) for note in paper.get("notes", []))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_has_what_its_kind_has(name: str) -> None:
    paper = DATA[name]
    content = {"columns", "rows", "series", "panel"} & paper.keys()
    if paper["kind"] in {"pictures", "text"}:
        assert not content
    elif paper["kind"] == "table":
        assert content == {"columns", "rows"}
    else:
        assert len(content) == 1
        assert content <= CONTENT[paper["kind"]]


@pytest.mark.parametrize("name", sorted(name for name in NAMES if DATA.get(name, {}).get("kind") == "table"))
def test_rows_fit_their_columns(name: str) -> None:
    paper = DATA[name]
    columns = paper["columns"]
    assert len(set(columns)) == len(columns)
    assert paper["rows"]
    assert all(len(row) == len(columns) for row in paper["rows"])
    assert len({tuple(row) for row in paper["rows"]}) == len(paper["rows"])
    for i, column in enumerate(columns):
        cells = [row[i] for row in paper["rows"]]
        assert len({type(cell) for cell in cells}) == 1, column
        if column.startswith(ACCURACIES):
            assert all(isinstance(cell, float) and 0 < cell < 100 for cell in cells), column


@pytest.mark.parametrize("name", sorted(name for name in NAMES if DATA.get(name, {}).get("kind") in {"curves", "bars"}))
def test_points_are_whole(name: str) -> None:
    for panel in panels(DATA[name]):
        assert panel["x_label"]
        assert panel["y_label"]
        series_names = [series["name"] for series in panel["series"]]
        assert len(set(series_names)) == len(series_names)
    for series in all_series(DATA[name]):
        lists = [series[key] for key in ("x", "y", "std", "min", "features") if key in series]
        assert len(lists[0]) > 1
        assert {len(values) for values in lists} == {len(lists[0])}
        assert all(math.isfinite(value) for values in lists for value in values)
        assert all(value > 0 for values in lists for value in values)
        steps = [right - left for left, right in itertools.pairwise(series["x"])]
        # Rising, but for the bars, which the paper lists from the largest scale, and FIRe's last point, said twice.
        assert all(step >= 0 for step in steps) or all(step < 0 for step in steps)
        assert set(series.get("marked", [])) <= set(series.get("features", []))


def test_spreads_are_plausible() -> None:
    fire = row_of("table-sota", method="FIRe")
    how = row_of("table-sota", method="HOW")
    std, gain = DATA["table-sota"]["std"], DATA["table-sota"]["gain"]
    scores = [column for column in DATA["table-sota"]["columns"] if column.startswith(ACCURACIES)]
    assert len(scores) == 8
    for column in scores:
        assert 0 < std[column] < 0.05 * fire[column]
        assert fire[column] - how[column] == pytest.approx(gain[column], abs=0.01)
        assert gain[column] > 2 * std[column]
    ids = series_of("figure-ids-trained", "matches per ID")
    for mean, deviation, least in zip(ids["y"], ids["std"], ids["min"], strict=True):
        assert 0 < least < mean < DATA["figure-ids-trained"]["y_divisor"]
        # The smallest of 256 is below the mean, and not by more than a deviation times the root of all the others.
        assert deviation < mean - least < deviation * math.sqrt(255)


@pytest.mark.parametrize("name", ["ablation-n", "ablation-t", "ablation-negatives"])
@pytest.mark.parametrize("dataset", ["roxford", "rparis"])
def test_averages_are_of_medium_and_hard(name: str, dataset: str) -> None:
    average, medium, hard = (series_of(name, f"{dataset}_{level}")["y"] for level in ("average", "medium", "hard"))
    assert average == pytest.approx([(m + h) / 2 for m, h in zip(medium, hard, strict=True)], abs=0.11)


def test_files_agree() -> None:
    """The same network in several places; table-2 differs from the others in the paper too."""
    full = row_of("table-1", reciprocal=True, ratio_test=True, same_id=True)
    extended = DATA["table-1-extended"]
    assert DATA["table-1"]["columns"] == extended["columns"]
    assert all(row in extended["rows"] for row in DATA["table-1"]["rows"])
    assert {tuple(row[:3]) for row in extended["rows"]} == set(itertools.product([False, True], repeat=3))
    tuned = row_of("table-templates", templates="fine-tuned")
    best = row_of("table-sota", method="FIRe")
    early = row_of("table-update", update="residual")
    for column in ("roxford_medium", "roxford_hard", "rparis_medium", "rparis_hard"):
        assert full[column] == tuned[column] == best[column]
        assert full[column] == point("ablation-n", column, 256)
        assert full[column] == point("ablation-t", column, 6)
        assert full[column] == point("ablation-negatives", column, 5)
        assert early[column] == point("ablation-t", column, 3)


def test_selected_features_add_up() -> None:
    for method in ("HOW", "FIRe"):
        assert sum(series_of("figure-scales", method)["y"]) == pytest.approx(1)
    shares, selected, totals = (series_of("figure-scales", "FIRe", panel)["y"] for panel in range(3))
    for share, ratio, total in zip(shares, selected, totals, strict=True):
        assert share * 1000 == pytest.approx(ratio * total)


def test_numbers_of_points() -> None:
    counts = {name: [len(series["x"]) for series in all_series(DATA[name])] for name in NAMES}
    assert {name: count for name, count in counts.items() if count} == {
        "figure-match-ratio": [72, 72],
        "figure-memory": [16, 10] * 3,
        "figure-single-scale": [9, 6] * 3,
        "figure-scales": [7] * 6,
        "figure-redundancy": [12, 10],
        "figure-ids-trained": [200],
        "ablation-n": [5] * 7,
        "ablation-t": [7] * 7,
        "ablation-negatives": [8] * 7,
    }


def test_some_values_by_hand() -> None:
    assert row_of("table-1", reciprocal=True, ratio_test=True, same_id=False)["rparis_hard"] == 61.9
    assert row_of("table-1-extended", reciprocal=False, ratio_test=True, same_id=True)["roxford_hard"] == 49.8
    assert row_of("table-2", global_loss=False, attention_loss=False, super_loss=True)["sfm120k_val"] == 61.7
    assert row_of("table-2", global_loss=False, attention_loss=True, super_loss=True)["roxford_hard"] == 61.5
    assert row_of("table-sota", method="DELF-R-ASMK")["memory_gb"] == 27.4
    assert row_of("table-sota", method="DELG", backbone="R101")["rparis_r1m_hard"] == 37.0
    assert DATA["table-sota"]["clusters_per_image"] == {"HOW": 469, "FIRe": 383}
    assert row_of("table-update", update="gru")["rparis_medium"] == 77.2
    assert row_of("table-templates", templates="frozen")["rparis_hard"] == 70.2
    assert row_of("table-speed", method="FIRe")["seconds"] == 172
    assert row_of("table-pretraining", network="R50- + LIT")["top5"] == 91.54
    assert row_of("table-localization", method="FIRe")["night_025m_2deg"] == 74.3
    assert point("figure-match-ratio", "with same-ID", 200) == 0.7334242640838836
    assert point("figure-match-ratio", "without same-ID", 1) == 0.2715170740516815
    assert point("figure-memory", "FIRe", 364.8590026) == 72.41
    assert point("figure-memory", "HOW", 765.219709, panel=1) == 72.235
    assert point("figure-single-scale", "HOW", 111.6732047, panel=1) == 47.745
    assert point("figure-scales", "HOW", 2.0, panel=2) == 4682.042857142857
    assert point("figure-redundancy", "FIRe", 256) == 0.0813
    assert point("figure-ids-trained", "matches per ID", 1) == 440.0234375
    assert series_of("figure-ids-trained", "matches per ID")["min"][:3] == [203, 256, 277]
    assert point("ablation-negatives", "roxford_average", 15) == 73.7
    assert DATA["figure-attention-scales"]["scales"] == [0.25, 0.353, 0.5, 0.707, 1.0, 1.414, 2.0]
