"""Networks as they are trained: batch-norm statistics frozen, whitening frozen, whatever is cheap done cheaply."""

from collections.abc import Callable

import torch
from torch import Tensor

from superfeat.nets.fire import Fire
from superfeat.nets.how import How
from superfeat.nets.local import Local


def for_training(network: Fire | How, *, maps: bool = False, precision: str = "float32") -> Callable[[Tensor], Local]:
    """The network as a function of a batch of images, or of the trunk's maps of them."""

    def describe(x: Tensor) -> Local:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            return network.describe(x) if maps else network(x)

    return describe
