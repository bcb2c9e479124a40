"""What a student is to learn of its teacher: not names of things, but what the teacher sees in the same pixels.

Both have LIT, a whitening and points of the same shapes behind trunks of their own, whose maps have the same places.
The student's super-features are to be the teacher's, each of the same ID: then they fall into the teacher's words.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional as F

from superfeat.nets.fire import Fire
from superfeat.nets.lit import ATTENTION_FLOOR
from superfeat.nets.local import strength
from superfeat.nets.points import APART

LENGTH_FLOOR = 1e-6
RIDGE = 1e-3  # as a share of the inputs' mean square


class Insight(NamedTuple):
    """All that one network makes of the map of one image."""

    keys: Float[Tensor, "batch places dim"]  # what LIT's templates are compared with
    values: Float[Tensor, "batch places dim"]  # what they gather
    vectors: Float[Tensor, "batch templates whitened"]
    strengths: Float[Tensor, "batch templates"]
    points: Float[Tensor, "batch places whitened"] | None  # of all places, not of the strongest alone
    point_strengths: Float[Tensor, "batch places"] | None


class DistilLosses(NamedTuple):
    """How far a student is from its teacher; each is 0 where they agree."""

    places: Float[Tensor, ""]
    superfeatures: Float[Tensor, ""]
    points: Float[Tensor, ""]


def look(network: Fire, x: Float[Tensor, "batch channels h w"]) -> Insight:
    """What the network makes of its trunk's map: LIT with its query projection applied to the places, as FoldedLit."""
    lit = network.lit
    places = lit.norm_inputs(x.flatten(2).transpose(1, 2))
    keys = lit.key(places) @ lit.query.weight / lit.templates.shape[-1] ** 0.5
    values = lit.value(places)
    state = lit.templates.expand(len(x), -1, -1)
    for _ in range(lit.rounds):
        alpha = (keys @ lit.norm_templates(state).transpose(1, 2)).softmax(dim=-1) + ATTENTION_FLOOR
        state = lit.update(state, alpha.transpose(1, 2) @ values / alpha.sum(dim=1).unsqueeze(-1))
    vectors = state if network.whitening is None else network.whitening(state)
    if network.points is None:
        return Insight(keys, values, vectors, strength(state), None, None)
    strengths, points = network.points.everywhere(x)
    return Insight(keys, values, vectors, strength(state), points - APART, strengths)


def compare(student: Insight, teacher: Insight) -> DistilLosses:
    """The losses of a step. Directions and lengths count by themselves, so that nothing shrinks towards the mean."""
    places = unexplained(student.keys, teacher.keys) + unexplained(student.values, teacher.values)
    vectors = disagreement(student.vectors, teacher.vectors, teacher.strengths)
    superfeatures = vectors + strength_error(student.strengths, teacher.strengths)
    if teacher.points is None or student.points is None:
        return DistilLosses(places, superfeatures, places.new_zeros(()))
    assert teacher.point_strengths is not None
    assert student.point_strengths is not None
    points = disagreement(student.points, teacher.points, teacher.point_strengths)
    return DistilLosses(
        places, superfeatures, points + strength_error(student.point_strengths, teacher.point_strengths)
    )


def unexplained(student: Float[Tensor, "batch n dim"], teacher: Float[Tensor, "batch n dim"]) -> Float[Tensor, ""]:
    """The share of the teacher's variance over the places that the student does not explain."""
    spread = (teacher - teacher.mean(dim=1, keepdim=True)).square().sum()
    return (student - teacher).square().sum() / spread.clamp(min=LENGTH_FLOOR)


def disagreement(
    student: Float[Tensor, "batch n dim"], teacher: Float[Tensor, "batch n dim"], weights: Float[Tensor, "batch n"]
) -> Float[Tensor, ""]:
    """1 - cosine, plus the square of the logarithm of the ratio of lengths: a mean by the teacher's strengths."""
    lengths = (_length(student) / _length(teacher)).log()
    each = 1 - F.cosine_similarity(student, teacher, dim=-1) + lengths.square()
    return (weights * each).sum() / weights.sum().clamp(min=LENGTH_FLOOR)


def strength_error(student: Float[Tensor, "batch n"], teacher: Float[Tensor, "batch n"]) -> Float[Tensor, ""]:
    """The mean square of the logarithm of the ratio: strengths decide what is kept."""
    return (student.clamp(min=LENGTH_FLOOR) / teacher.clamp(min=LENGTH_FLOOR)).log().square().mean()


def _length(x: Float[Tensor, "batch n dim"]) -> Float[Tensor, "batch n"]:
    return (x.square().sum(dim=-1) + LENGTH_FLOOR**2).sqrt()


class Squares:
    """Least squares over a stream of rows, in memory of two matrices: outputs = matrix @ inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.count = 0
        self.gram: Float64[Tensor, "inputs inputs"] = torch.zeros(inputs, inputs, dtype=torch.float64)
        self.both: Float64[Tensor, "inputs outputs"] = torch.zeros(inputs, outputs, dtype=torch.float64)

    def add(self, inputs: Float[Tensor, "n inputs"], outputs: Float[Tensor, "n outputs"]) -> None:
        """Takes in n more rows."""
        self.count += len(inputs)
        self.gram += inputs.T @ inputs
        self.both += inputs.T @ outputs

    def solve(self) -> Float64[Tensor, "outputs inputs"]:
        """The matrix that brings the inputs nearest to the outputs."""
        ridge = RIDGE * self.gram.diagonal().mean()
        damped = self.gram + torch.eye(len(self.gram), dtype=torch.float64) * ridge
        found: Tensor = torch.linalg.solve(damped, self.both).T
        return found

    def reduced(self, rank: int) -> Float64[Tensor, "rank inputs"]:
        """So many directions of the inputs, of which the outputs can be told best (reduced-rank regression)."""
        whole = self.solve()
        _, directions = torch.linalg.eigh(whole @ self.gram @ whole.T)  # ascending
        kept: Tensor = directions.flip(1)[:, :rank].T @ whole
        return kept
