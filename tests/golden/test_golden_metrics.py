"""Average precision against the released evaluation."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from superfeat.evaluation.metrics import average_precision, mean_average_precision, revisited
from superfeat.storage.unpickle import read_pickle

TOLERANCE = 1e-12
PROTOCOLS = {
    "E": (("easy",), ("junk", "hard")),
    "M": (("easy", "hard"), ("junk",)),
    "H": (("hard",), ("junk", "easy")),
}


@pytest.fixture(scope="module")
def arrays(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "eval_map.npz") as file:
        return dict(file)


def test_precision_of_given_ranks(arrays: dict[str, np.ndarray]) -> None:
    cases = json.loads(str(arrays["ap_cases"]))
    assert len(cases) == len(arrays["ap_values"])
    for (ranks, positives), expected in zip(cases, arrays["ap_values"], strict=True):
        ranking = np.arange(1000, 1000 + max(ranks, default=0) + 5)
        unranked = range(positives - len(ranks))
        found = average_precision(ranking, [*ranking[ranks].tolist(), *unranked])
        assert abs(found - expected) < TOLERANCE, (ranks, positives)


@pytest.mark.parametrize(
    ("prefix", "ranks"), [("E", "ranks"), ("M", "ranks"), ("H", "ranks"), ("distr_M", "distr_ranks")]
)
def test_the_three_protocols(arrays: dict[str, np.ndarray], prefix: str, ranks: str) -> None:
    positive, ignored = PROTOCOLS[prefix[-1]]
    found = [
        average_precision(
            ranking,
            np.concatenate([arrays[f"gnd{query}_{kind}"] for kind in positive]).tolist(),
            np.concatenate([arrays[f"gnd{query}_{kind}"] for kind in ignored]).tolist(),
        )
        for query, ranking in enumerate(arrays[ranks].T)
    ]
    np.testing.assert_allclose(found, arrays[f"{prefix}_aps"], atol=TOLERANCE, rtol=0)
    assert abs(mean_average_precision(found) - float(arrays[f"{prefix}_map"])) < TOLERANCE
    assert any(map(math.isnan, found)), "a query without positives is among them"


def truth_of(arrays: dict[str, np.ndarray]) -> list[dict[str, list[int]]]:
    return [
        {kind: arrays[f"gnd{query}_{kind}"].tolist() for kind in ("easy", "hard", "junk")}
        for query in range(arrays["ranks"].shape[1])
    ]


def test_the_revisited_protocol(arrays: dict[str, np.ndarray]) -> None:
    found = revisited(arrays["ranks"].T, truth_of(arrays))
    for grade, prefix in (("easy", "E"), ("medium", "M"), ("hard", "H")):
        assert abs(found[grade].map - arrays[f"{prefix}_map"]) < TOLERANCE
        assert abs(found[grade].map - arrays[f"how_map_{grade}"]) < TOLERANCE
        for ours, theirs in (("mp", "mpr"), ("aps", "aps"), ("prs", "prs")):
            np.testing.assert_allclose(
                getattr(found[grade], ours), arrays[f"{prefix}_{theirs}"], atol=TOLERANCE, rtol=0
            )
    assert abs(found["medium"].map - arrays["val_map"]) < TOLERANCE
    np.testing.assert_allclose(found["medium"].mp, arrays["val_mpk"], atol=TOLERANCE, rtol=0)


def test_distractors_are_wrong_answers(arrays: dict[str, np.ndarray]) -> None:
    found = revisited(arrays["distr_ranks"].T, truth_of(arrays))["medium"]
    np.testing.assert_allclose(found.aps, arrays["distr_M_aps"], atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(found.prs, arrays["distr_M_prs"], atol=TOLERANCE, rtol=0)
    assert abs(found.map - arrays["distr_M_map"]) < TOLERANCE


def test_where_the_released_evaluation_crashes(arrays: dict[str, np.ndarray]) -> None:
    """A truncated ranking without a positive, and queries without any: a defined result."""
    truth = truth_of(arrays)
    assert "max() arg is an empty sequence" in str(arrays["trunc30_error"])
    cut = revisited(arrays["ranks"].T[:, :30], truth)
    full = revisited(arrays["ranks"].T, truth)
    assert 0 < cut["medium"].map < full["medium"].map
    empty = revisited(arrays["ranks"].T[:, :0], truth)["medium"]
    assert empty.map == float(arrays["no_positive_no_kappas"]) == 0
    assert empty.mp.tolist() == [0, 0, 0]
    assert "ZeroDivisionError" in str(arrays["all_empty_result"])
    nothing = revisited(arrays["ranks"].T, [{"easy": [], "hard": [], "junk": []}] * len(truth))["hard"]
    assert math.isnan(nothing.map)
    assert np.isnan(nothing.mp).all()
    assert np.isnan(nothing.aps).all()
    assert nothing.queries == 0


def test_the_published_layout(golden: Path, arrays: dict[str, np.ndarray]) -> None:
    contents = read_pickle(golden / "gnd_synth.pkl")
    found = revisited(arrays["ranks"].T, contents["gnd"])
    assert abs(found["hard"].map - arrays["H_map"]) < TOLERANCE
