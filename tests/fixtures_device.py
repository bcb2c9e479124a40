"""A device that is not there: tensors that say they lie elsewhere and whose values are computed on the CPU.

A graphics card is played by torch's device `meta`. What is moved there becomes an `Elsewhere`, which has its values
inside, so that real code runs and its results can be compared. An operation of a tensor that was moved and one that was
not fails, as it does with CUDA: numbers (tensors without dimensions), indices and copies from one to the other may mix.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "meta"
aten = torch.ops.aten
BETWEEN = {aten.copy_.default, aten._to_copy.default}  # from one device to another
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


class Elsewhere(Tensor):
    """A tensor of the device that is not there."""

    values_here: Tensor

    @staticmethod
    def __new__(cls: type["Elsewhere"], inner: Tensor) -> "Elsewhere":
        made: Elsewhere = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=torch.device(DEVICE),
        )
        made.values_here = inner
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Elsewhere({self.values_here!r})"

    def __getitem__(self, index: Any) -> Tensor:
        """Torch puts a list of numbers where the tensor says it is, and there its values would be lost."""
        return super().__getitem__(torch.tensor(index) if isinstance(index, list) else index)

    def tolist(self) -> Any:
        """As tensors of other devices have it; torch has none for a class of ours."""
        return self.values_here.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return run(func, args, kwargs or {})


class MixedError(RuntimeError):
    """What CUDA says of tensors on two devices."""


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the values, its result where the operands are, or where `device` says."""
    if torch.is_inference_mode_enabled():  # made of others, which torch has not taken apart yet, and of views
        with torch.inference_mode(False), torch.no_grad(), StandIn():
            found = func.decompose(*args, **kwargs)
            return run(func, args, kwargs) if found is NotImplemented else found
    tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
    moved = [one for one in tensors if isinstance(one, Elsewhere)]
    _check(func, args, tensors, moved)
    target = kwargs.get("device")
    there = bool(moved) if target is None else torch.device(target).type == DEVICE
    if func is aten.copy_.default:
        there = isinstance(args[0], Elsewhere)
    if func is aten._local_scalar_dense.default:
        there = False
    inside = {id(one.values_here): one for one in moved}
    bare = tree_map(lambda one: one.values_here if isinstance(one, Elsewhere) else one, (args, kwargs))
    if target is not None:
        bare[1]["device"] = torch.device("cpu")
    found = func(*bare[0], **bare[1])

    def wrapped(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        return inside[id(one)] if id(one) in inside else Elsewhere(one) if there else one

    return tree_map(wrapped, found)


def _check(func: Any, args: Any, tensors: list[Tensor], moved: list[Elsewhere]) -> None:
    if any(type(one) is Tensor and one.device.type == DEVICE for one in tensors):
        raise MixedError(f"{func}: a tensor was made there unseen; does a thread run without the stand-in?")
    if not moved or func in BETWEEN:
        return
    if func.namespace != "aten":
        raise MixedError(f"{func} is for the CPU alone, and a tensor lies elsewhere")
    counted = [args[0], *args[2:]] if func in INDEXED else tensors
    left = [one for one in counted if isinstance(one, Tensor) and not isinstance(one, Elsewhere) and one.dim()]
    if left:
        shapes = [tuple(one.shape) for one in left]
        raise MixedError(f"{func}: tensors on two devices; on the CPU are {shapes}, elsewhere {len(moved)}")


class StandIn(TorchDispatchMode):
    """While it is on, moving a tensor to `meta` or making one there gives an `Elsewhere`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@contextlib.contextmanager
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the device; threads that are started use it too."""
    submit = ThreadPoolExecutor.submit

    def with_mode(self: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        def inside() -> Any:
            with StandIn():
                return work(*args, **kwargs)

        return submit(self, inside)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", with_mode)
    with StandIn():
        yield DEVICE
    monkeypatch.undo()
