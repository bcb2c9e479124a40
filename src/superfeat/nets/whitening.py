"""PCA-whitening: an affine map learned once from raw features, then kept fixed."""

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

EIGENVALUE_FLOOR = 1e-14


class Whitening(nn.Module):
    """x -> W x + b, with fixed W and b."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(outputs), requires_grad=False)

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return nn.functional.linear(x, self.weight, self.bias)


class WhiteningFit:
    """Mean and covariance of a stream of vectors, in memory of one (dim, dim) matrix of float64.

    Each batch is centred on its own mean before it is merged (Chan et al.), so that a large mean costs no digits.
    """

    def __init__(self, inputs: int) -> None:
        self.count = 0
        self.mean: Float64[Tensor, inputs] = torch.zeros(inputs, dtype=torch.float64)
        self.scatter: Float64[Tensor, "inputs inputs"] = torch.zeros(inputs, inputs, dtype=torch.float64)

    def add(self, x: Float[Tensor, "n inputs"]) -> None:
        """Takes in n more vectors."""
        if len(x) == 0:
            return
        batch = x.detach().to("cpu", torch.float64)
        mean = batch.mean(dim=0)
        centred = batch - mean
        shift = mean - self.mean
        total = self.count + len(batch)
        self.scatter += centred.T @ centred + torch.outer(shift, shift) * (self.count * len(batch) / total)
        self.mean += shift * (len(batch) / total)
        self.count = total

    def finish(self, outputs: int, strength: float = 1.0) -> Whitening:
        """The map onto the `outputs` strongest components: P = diag(lambda^(-strength/2)) E^T (METHOD: section 5)."""
        inputs = len(self.mean)
        if self.count < 2:
            raise ValueError(f"whitening needs at least 2 vectors, got {self.count}")
        if not 1 <= outputs <= inputs:
            raise ValueError(f"cannot whiten {inputs} dimensions to {outputs}")
        values, vectors = torch.linalg.eigh(self.scatter / self.count)  # ascending
        values = values.flip(0).clamp(min=EIGENVALUE_FLOOR)
        projection = (vectors.flip(1) * values ** (-strength / 2)).T[:outputs]
        whitening = Whitening(inputs, outputs)
        whitening.weight.copy_(projection)
        whitening.bias.copy_(-projection @ self.mean)
        return whitening
