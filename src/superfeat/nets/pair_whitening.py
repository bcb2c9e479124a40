"""Whitenings at the end of a global vector: learned from pairs that show the same thing (Lw), and given as a PCA."""

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from superfeat.nets.whitening import Whitening

FIRST_DIAGONAL = 1e-10  # added where the scatter of the pairs has no Cholesky factor, ten times more each time


def whiten_pairs(
    vectors: Float[Tensor, "n dim"], queries: Int64[Tensor, " pairs"], positives: Int64[Tensor, " pairs"], outputs: int
) -> Whitening:
    """The map after which pairs differ equally in all directions, and all vectors vary most along the first.

    m = mean of the queries; A = inverse of the Cholesky factor of the mean of (q - p)(q - p)^T; the rows are the
    eigenvectors of the scatter of A (x - m), largest first, times A.
    """
    x = vectors.double()
    if len(queries) == 0 or not 1 <= outputs <= x.shape[1]:
        raise ValueError(f"cannot whiten {x.shape[1]} dimensions to {outputs} from {len(queries)} pairs")
    mean = x[queries].mean(dim=0)
    differences = x[queries] - x[positives]
    inverse = _inverse_factor(differences.T @ differences / len(differences))
    spread = (x - mean) @ inverse.T
    _, directions = torch.linalg.eigh(spread.T @ spread)  # ascending
    return affine(directions.flip(1).T[:outputs] @ inverse, mean)


def _inverse_factor(scatter: Float64[Tensor, "dim dim"]) -> Float64[Tensor, "dim dim"]:
    identity = torch.eye(len(scatter), dtype=scatter.dtype)
    added = 0.0
    while True:
        factor, failed = torch.linalg.cholesky_ex(scatter + added * identity)
        if not int(failed):
            inverse: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
            return inverse
        added = FIRST_DIAGONAL if added == 0 else 10 * added


def pca_whitening(
    mean: Float[Tensor, " dim"],
    components: Float[Tensor, "rows dim"],
    variances: Float[Tensor, " rows"],
    *,
    outputs: int | None = None,
    power: float = 0.25,
    divisor: float = 1.0,
) -> Whitening:
    """(x - mean) C^T / (divisor * variance^power), the first `outputs` rows: what AP-GeM ends with."""
    rows = components.double()[:outputs] / (divisor * variances.double()[:outputs] ** power).unsqueeze(1)
    return affine(rows, mean.double())


def affine(rows: Float64[Tensor, "outputs dim"], mean: Float64[Tensor, " dim"]) -> Whitening:
    """rows (x - mean) as one map."""
    whitening = Whitening(rows.shape[1], len(rows))
    whitening.weight.copy_(rows)
    whitening.bias.copy_(-rows @ mean)
    return whitening
