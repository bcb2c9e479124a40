"""Several processes that train one network (torchrun). One process alone is the same with nothing to exchange.

Sums are made of values that only one rank has (all others add zero), or in float64: so the result does not depend on
how many ranks there are.
"""

import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from superfeat.errors import SuperfeatError

TIMEOUT = datetime.timedelta(days=1)  # the first rank validates while the others wait


class Ranks:
    """This process's number among `count`."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def share(self, number: int) -> range:
        """Which of `number` tasks are this rank's."""
        return range(self.rank, number, self.count)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Adds up each tensor over all ranks, in place."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.flatten().cpu() for tensor in tensors])  # they may lie on several devices
        with _lost_processes_explained():
            torch.distributed.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Whether any rank raises the flag."""
        total = torch.tensor(float(flag))
        self.sum([total])
        return bool(total.item() > 0)

    def wait(self) -> None:
        """Until all ranks are here."""
        self.any(False)


@contextlib.contextmanager
def join_ranks() -> Iterator[Ranks]:
    """The ranks that torchrun started, or this process alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks()
        return
    with _lost_processes_explained():
        torch.distributed.init_process_group("gloo", timeout=TIMEOUT)
    try:
        yield Ranks(torch.distributed.get_rank(), count)
    finally:
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _lost_processes_explained() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise SuperfeatError(
            f"another process of this training was lost ({reason}); start them all again, to resume the run",
            arguments=["resume"],
        ) from error
