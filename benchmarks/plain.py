"""FIRe written straight from METHOD.md with plain torch calls: what a careful reader would write first.

One image at a time, NCHW, batch-norms as they are, keys and values formed once per scale. Independent of superfeat.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

SCALES = (2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25)
BLOCKS = {1: 3, 2: 4, 3: 6}
ROUNDS = 6


class PlainFire:
    """ResNet-50 without its last block, LIT, whitening; parameters by superfeat's names."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state

    def norm(self, x: Tensor, name: str) -> Tensor:
        s = self.state
        mean, var = s[f"{name}.running_mean"], s[f"{name}.running_var"]
        return F.batch_norm(x, mean, var, s[f"{name}.weight"], s[f"{name}.bias"], False, 0.0, 1e-5)

    def trunk(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(F.conv2d(x, self.state["trunk.conv1.weight"], stride=2, padding=3), "trunk.bn1"))
        x = F.max_pool2d(x, 3, 2, 1)
        for stage, count in BLOCKS.items():
            for number in range(count):
                stride = 2 if stage > 1 and number == 0 else 1
                x = self.block(x, f"trunk.layer{stage}.{number}", stride)
        return x

    def block(self, x: Tensor, name: str, stride: int) -> Tensor:
        s = self.state
        y = F.relu(self.norm(F.conv2d(x, s[f"{name}.conv1.weight"]), f"{name}.bn1"))
        y = F.relu(self.norm(F.conv2d(y, s[f"{name}.conv2.weight"], stride=stride, padding=1), f"{name}.bn2"))
        y = self.norm(F.conv2d(y, s[f"{name}.conv3.weight"]), f"{name}.bn3")
        if f"{name}.downsample.0.weight" in s:
            x = self.norm(F.conv2d(x, s[f"{name}.downsample.0.weight"], stride=stride), f"{name}.downsample.1")
        return F.relu(x + y)

    def layer_norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.state[f"lit.{name}.weight"], self.state[f"lit.{name}.bias"])

    def lit(self, x: Tensor) -> tuple[Tensor, Tensor]:
        s = self.state
        places = self.layer_norm(x.flatten(2).transpose(1, 2)[0], "norm_inputs")
        keys, values = F.linear(places, s["lit.key.weight"]), F.linear(places, s["lit.value.weight"])
        q = s["lit.templates"]
        for _ in range(ROUNDS):
            query = F.linear(self.layer_norm(q, "norm_templates"), s["lit.query.weight"])
            attention = torch.softmax(keys @ query.T / q.shape[1] ** 0.5, dim=1) + 1e-8
            attention = attention / attention.sum(dim=0, keepdim=True)
            q = q + attention.T @ values
            hidden = F.relu(F.linear(self.layer_norm(q, "norm_mlp"), s["lit.mlp.0.weight"], s["lit.mlp.0.bias"]))
            q = q + F.linear(hidden, s["lit.mlp.2.weight"], s["lit.mlp.2.bias"])
        return q, attention.T

    def scale(self, image: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Whitened features and strengths of one scale of a normalised (1, 3, height, width) image."""
        x = F.interpolate(image, scale_factor=scale, mode="bilinear", align_corners=False)
        raw, _ = self.lit(self.trunk(x))
        return F.linear(raw, self.state["whitening.weight"], self.state["whitening.bias"]), (
            raw.square().sum(1) + 1e-10
        ).sqrt()

    def __call__(self, image: Tensor, count: int = 1000) -> tuple[Tensor, Tensor]:
        """The strongest features over all scales, strongest first, and their strengths."""
        vectors, strengths = zip(*(self.scale(image, scale) for scale in SCALES), strict=True)
        all_strengths = torch.cat(strengths)
        order = torch.argsort(all_strengths, descending=True, stable=True)[:count]
        return torch.cat(vectors)[order], all_strengths[order]
