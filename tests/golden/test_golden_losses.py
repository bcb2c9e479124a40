"""The losses against the released implementations, with their gradients, and against the oracles."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles_losses as oracles
from fixtures_recipe import relative_error
from superfeat.nets.losses import RatioTest, decorrelation_loss, eligible_pairs, global_loss, superfeature_loss

LOSS_TOLERANCE = 1e-6  # relative
GRADIENT_TOLERANCE = 1e-6  # relative to the largest of its tensor
CASES = range(5)
RULES: dict[str, RatioTest] = {
    "match_official": "released",
    "match_distance_ratio": "lowe",
    "match_no_ratio": "off",
}
PARTS = ("query", "pos", "neg")
MAPS = {0: 3, 1: 1, 2: 2}  # case of decorrelation -> how many images it has
MARGINS = ("0.7", "0.8", "1.1")


@pytest.fixture(scope="module")
def arrays(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "losses.npz") as file:
        return dict(file)


def leaf(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array).requires_grad_()


def gradient_error(leaf: Tensor, expected: np.ndarray) -> float:
    """Relative to the largest; where all is zero, the gradient must be exactly that."""
    assert leaf.grad is not None
    step = leaf.grad.shape[-1] // expected.shape[-1]  # of the largest case one dimension in so many is stored
    if not expected.any():
        return float(leaf.grad.abs().max())
    return relative_error(leaf.grad[..., ::step], expected)


@pytest.mark.parametrize("key", RULES)
@pytest.mark.parametrize("case", CASES)
def test_matches(arrays: dict[str, np.ndarray], case: int, key: str) -> None:
    query, positive = (torch.from_numpy(arrays[f"c{case}_{part}"]) for part in PARTS[:2])
    found = eligible_pairs(query, positive, ratio_test=RULES[key])
    assert found.tolist() == arrays[f"c{case}_{key}"].tolist()


@pytest.mark.parametrize("case", CASES)
def test_superfeature_loss_and_gradients(arrays: dict[str, np.ndarray], case: int) -> None:
    leaves = {part: leaf(arrays[f"c{case}_{part}"]) for part in PARTS}
    loss = superfeature_loss(*leaves.values(), margin=1.1, weight=0.02, ratio_test="released")
    loss.backward()
    assert loss.item() == pytest.approx(float(arrays[f"c{case}_loss_super_w0.02_m1.1"]), rel=LOSS_TOLERANCE, abs=0)
    for part, tensor in leaves.items():
        assert gradient_error(tensor, arrays[f"c{case}_grad_{part}"]) <= GRADIENT_TOLERANCE, part


@pytest.mark.parametrize("case", [0, 1, 3, 4])
def test_the_oracle_agrees_on_pairs_and_loss(arrays: dict[str, np.ndarray], case: int) -> None:
    """Case 2 is left to the fast form: 256 x 256 features take ten seconds by loops."""
    query, positive, negatives = (arrays[f"c{case}_{part}"] for part in PARTS)
    table = oracles.distances(positive, query)
    for key, rule in RULES.items():
        found = oracles.match(table, rule, oracles.RATIO, reciprocal=True, same_id=True)
        assert [here for here, _ in found] == arrays[f"c{case}_{key}"].tolist()
    pairs = oracles.match(table, "released", oracles.RATIO, reciprocal=True, same_id=True)
    loss = 0.02 * oracles.superfeature_loss(pairs, query, positive, negatives, 1.1, "released")
    assert loss == pytest.approx(float(arrays[f"c{case}_loss_super_w0.02_m1.1"]), rel=LOSS_TOLERANCE, abs=0)


def test_no_eligible_pair(arrays: dict[str, np.ndarray]) -> None:
    query, positive = leaf(arrays["empty_query"]), leaf(arrays["empty_pos"])
    negatives = torch.ones(2, *query.shape, requires_grad=True)
    assert eligible_pairs(query, positive, ratio_test="released").tolist() == arrays["empty_match"].tolist() == []
    loss = superfeature_loss(query, positive, negatives, ratio_test="released")
    loss.backward()
    assert loss.item() == float(arrays["empty_loss"]) == 0
    for tensor in (query, positive, negatives):
        assert tensor.grad is not None
        assert not tensor.grad.any()


@pytest.mark.parametrize("case", MAPS)
def test_decorrelation_and_gradients(arrays: dict[str, np.ndarray], case: int) -> None:
    images = [leaf(arrays[f"attn{case}_{number}"]) for number in range(MAPS[case])]
    loss = torch.stack([decorrelation_loss(image, weight=0.1) for image in images]).sum()
    loss.backward()
    expected = float(arrays[f"attn{case}_loss_w0.1"])
    assert loss.item() == pytest.approx(expected, rel=LOSS_TOLERANCE, abs=0)
    for number, image in enumerate(images):
        assert gradient_error(image, arrays[f"attn{case}_{number}_grad"]) <= GRADIENT_TOLERANCE
    batch = decorrelation_loss(torch.stack(images), weight=0.1)
    assert batch.item() == pytest.approx(expected, rel=LOSS_TOLERANCE, abs=0)


@pytest.mark.parametrize("case", [0, 2])
def test_the_oracle_agrees_on_decorrelation(arrays: dict[str, np.ndarray], case: int) -> None:
    total = sum(oracles.decorrelation(arrays[f"attn{case}_{number}"]) for number in range(MAPS[case]))
    assert 0.1 * total == pytest.approx(float(arrays[f"attn{case}_loss_w0.1"]), rel=LOSS_TOLERANCE, abs=0)


@pytest.mark.parametrize("margin", MARGINS)
def test_global_loss_and_gradient(arrays: dict[str, np.ndarray], margin: str) -> None:
    """21 unit vectors are 3 tuples: -1 marks a query, 1 its positive, 0 a negative."""
    labels = arrays["contrastive_label"].reshape(3, 7).tolist()
    assert labels == [[-1, 1, 0, 0, 0, 0, 0]] * 3
    x = leaf(arrays["contrastive_x"])
    tuples = x.T.reshape(3, 7, -1)
    loss = torch.stack([global_loss(one[0], one[1], one[2:], margin=float(margin)) for one in tuples]).sum()
    loss.backward()
    expected = float(arrays[f"contrastive_m{margin}"])
    assert loss.item() == pytest.approx(expected, rel=LOSS_TOLERANCE, abs=0)
    assert gradient_error(x, arrays[f"contrastive_m{margin}_grad"]) <= GRADIENT_TOLERANCE
    plain = tuples.tolist()
    slow = sum(oracles.contrastive(one[0], one[1], one[2:], float(margin), "released") for one in plain)
    assert slow == pytest.approx(expected, rel=LOSS_TOLERANCE, abs=0)


def test_every_array_is_compared(arrays: dict[str, np.ndarray]) -> None:
    names = (*PARTS, *RULES, *(f"grad_{part}" for part in PARTS), "loss_super_w0.02_m1.1")
    used = {f"c{case}_{name}" for case in CASES for name in names}
    used |= {f"empty_{name}" for name in ("query", "pos", "loss", "match")}
    for case, count in MAPS.items():
        used |= {f"attn{case}_loss_w0.1"} | {f"attn{case}_{i}{end}" for i in range(count) for end in ("", "_grad")}
    used |= {"contrastive_x", "contrastive_label"}
    used |= {f"contrastive_m{margin}{end}" for margin in MARGINS for end in ("", "_grad")}
    assert set(arrays) == used
