"""One training tuple: query, positive and negatives -> losses, what to watch, and the gradient."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from superfeat.config import LossConfig
from superfeat.nets.listwise import bin_average_precision, distance_average_precision, tie_average_precision
from superfeat.nets.local import Local, pool
from superfeat.nets.losses import (
    attention_correlation,
    distances_between,
    global_loss,
    loss_of_pairs,
    match,
)

Describe = Callable[[Tensor], Local]  # a batch of images of one size (or of their maps) -> local features
# What is measured of each tuple, in this order; after them one number per super-feature ID: whether it was matched.
MEASURES = (
    "loss",
    "superfeature",
    "decorrelation",
    "pooled",
    "correlation",
    "matches",
    "negative_matches",
    "matches_any_id",
    "negative_matches_any_id",
)


LISTWISE: dict[str | None, Callable[[Tensor, Tensor, int], Tensor]] = {
    None: bin_average_precision,
    "ties": tie_average_precision,
    "simple-ties": functools.partial(tie_average_precision, simplified=True),
    "distances": distance_average_precision,
}
WATCHED = 5  # negatives whose matches are counted: as many as a tuple of the paper has


class TupleResult(NamedTuple):
    """The gradient of one tuple, in the order of the parameters, and its measures."""

    gradient: list[Float[Tensor, "..."]]
    measures: Float64[Tensor, "measures"]


def differentiate(
    describe: Describe, images: Sequence[Tensor], parameters: Sequence[Tensor], config: LossConfig, recompute: bool
) -> TupleResult:
    """Losses and gradient of one tuple. `images` are query, positive, negatives; sizes may differ.

    The losses are differentiated by the features first. An image of which they say nothing, as the hinge does of a
    negative that is far enough, has no part in the gradient: it is not gone back through. `recompute` keeps the graph
    of a single image at a time: features first without any graph, then each image that has a part again.
    """
    with torch.set_grad_enabled(not recompute):
        found = _describe_tuple(describe, images, config, recompute)
    leaves = [[part.detach().requires_grad_() for part in _parts(local)] for local in found]
    locals_ = [_assemble(local, parts) for local, parts in zip(found, leaves, strict=True)]
    loss, measures = tuple_loss(locals_, config)
    flat = [part for parts in leaves for part in parts]
    by_feature = iter(torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True))
    directions = [[next(by_feature) for _ in parts] for parts in leaves]
    heard = [number for number, some in enumerate(directions) if any(bool(one.any()) for one in some)]
    if not recompute:
        outputs = [part for number in heard for part in _parts(found[number])]
        wanted = [one for number in heard for one in directions[number]]
        return TupleResult(list(_backward(outputs, wanted, parameters)), measures)
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for number in heard:
        outputs = _parts(describe(images[number].unsqueeze(0)))
        torch._foreach_add_(total, list(_backward(outputs, directions[number], parameters)))
    return TupleResult(total, measures)


def _describe_tuple(describe: Describe, images: Sequence[Tensor], config: LossConfig, recompute: bool) -> list[Local]:
    """Images of one size together; negatives by themselves where the losses may be silent of them."""
    if recompute:
        return [describe(image.unsqueeze(0)) for image in images]
    pair = describe_all(describe, images[:2])
    if pair[0].maps is not None and config.decorrelation and config.decorrelated is None:
        return [*pair, *describe_all(describe, images[2:])]
    return [*pair, *(describe(image.unsqueeze(0)) for image in images[2:])]


def _backward(
    outputs: Sequence[Tensor], directions: Sequence[Tensor], parameters: Sequence[Tensor]
) -> Sequence[Float[Tensor, "..."]]:
    """The gradient of the parameters along directions of some outputs; zeros where there is none."""
    kept = [(value, by) for value, by in zip(outputs, directions, strict=True) if value.requires_grad]
    if not kept:
        return [torch.zeros_like(parameter) for parameter in parameters]
    values, by = zip(*kept, strict=True)
    return torch.autograd.grad(values, parameters, by, allow_unused=True, materialize_grads=True)


class Shared(NamedTuple):
    """What the images of a step need of each other: (images, ...) tensors, None where no loss uses them."""

    vectors: Float[Tensor, "images n dim"] | None  # super-features
    pooled: Float[Tensor, "images dim"] | None

    def parts(self) -> list[Tensor]:
        """Those that there are."""
        return [part for part in self if part is not None]


class OneImage(NamedTuple):
    """One image of a step, with its graph: what others need of it, and the loss that it has alone."""

    shared: Shared  # of one image
    own: Float[Tensor, ""]
    correlation: float


def describe_one(describe: Describe, image: Tensor, config: LossConfig) -> OneImage:
    """The forward pass of one image of a step."""
    local = describe(image.unsqueeze(0))
    full = _in_full(local)
    own, correlation = full.vectors.new_zeros(()), 0.0
    if local.maps is not None:
        found = attention_correlation(local.maps).sum()
        own, correlation = config.decorrelation * found, found.item()
    vectors = full.vectors if local.maps is not None and config.superfeature else None
    return OneImage(Shared(vectors, _pooled(full) if config.pooled else None), own, correlation)


def differentiate_one(
    image: OneImage, directions: Sequence[Tensor], parameters: Sequence[Tensor]
) -> Sequence[Float[Tensor, "..."]]:
    """The gradient that one image has in a step: of its own loss, and along `directions` of what others need of it."""
    wanted, given = [image.own, *image.shared.parts()], [torch.ones_like(image.own), *directions]
    return _backward(wanted, given, parameters)


def step_loss(
    shared: Shared, things: Int64[np.ndarray, "images"], config: LossConfig
) -> tuple[Float[Tensor, ""], Float64[Tensor, "pairs measures"]]:
    """The losses of a step whose images 2i and 2i + 1 are pairs, and what to watch of each pair.

    Each image is a query in turn, the other of its pair the positive, and all images of other things the negatives;
    the two directions of a pair count half each.
    """
    if config.listwise is not None and shared.pooled is not None:
        return _listwise_loss(shared.pooled, things, config)
    total = torch.zeros(())
    rows = []
    for first in range(0, len(things), 2):
        others = np.flatnonzero(things != things[first]).tolist()
        measures = dict.fromkeys(MEASURES, 0.0)
        matched = torch.zeros(0, dtype=torch.float64)
        parts: dict[str, Tensor] = {}
        for query, positive in ((first, first + 1), (first + 1, first)):
            if shared.vectors is not None:
                described = [shared.vectors[number] for number in (query, positive, *others)]
                loss, found = _superfeature_part(described, config, measures)
                parts["superfeature"] = parts.get("superfeature", 0) + loss / 2
                matched = found / 2 if query == first else matched + found / 2
            if shared.pooled is not None:
                loss = global_loss(
                    shared.pooled[query],
                    shared.pooled[positive],
                    shared.pooled[others],
                    margin=config.pooled_margin,
                    weight=config.pooled,
                    hinge=config.hinge,
                )
                parts["pooled"] = parts.get("pooled", 0) + loss / 2
        loss = sum(parts.values(), torch.zeros(()))  # none where each image has its loss alone
        measures = {name: value / 2 for name, value in measures.items()}  # matches of two directions
        measures |= {name: part.item() for name, part in parts.items()} | {"loss": loss.item()}
        rows.append(torch.cat((torch.tensor(list(measures.values()), dtype=torch.float64), matched)))
        total = total + loss
    return total, torch.stack(rows)


def _listwise_loss(
    vectors: Float[Tensor, "images dim"], things: Int64[np.ndarray, "images"], config: LossConfig
) -> tuple[Float[Tensor, ""], Float64[Tensor, "pairs measures"]]:
    """1 - AP of each image among all of the step, itself included as the released code has it; AP-GeM's loss."""
    assert config.listwise is not None
    own = torch.from_numpy(things).to(vectors.device)
    right = (own[:, None] == own[None]).to(vectors.dtype)
    each = config.pooled * (1 - LISTWISE[config.listwise_form](vectors @ vectors.T, right, config.listwise))
    pairs = each.reshape(-1, 2).mean(dim=1)  # a pair counts once, as it does with the other losses
    rows = torch.zeros(len(pairs), len(MEASURES), dtype=torch.float64)
    for name in ("loss", "pooled"):
        rows[:, MEASURES.index(name)] = pairs.detach().double()
    return pairs.sum(), rows


def describe_all(describe: Describe, images: Sequence[Tensor]) -> list[Local]:
    """Local features of each image; images of one size go through the network together."""
    sizes: dict[tuple[int, ...], list[int]] = {}
    for number, image in enumerate(images):
        sizes.setdefault(tuple(image.shape), []).append(number)
    found: dict[int, Local] = {}
    for numbers in sizes.values():
        batch = describe(torch.stack([images[number] for number in numbers]))
        for row, number in enumerate(numbers):
            found[number] = _assemble(batch, [part[row : row + 1] for part in _parts(batch)])
    return [found[number] for number in range(len(images))]


def _parts(local: Local) -> list[Tensor]:
    return [part for part in local if isinstance(part, Tensor)]


def _assemble(local: Local, parts: Sequence[Tensor]) -> Local:
    names = [name for name, part in local._asdict().items() if isinstance(part, Tensor)]
    return local._replace(**dict(zip(names, parts, strict=True)))  # type: ignore[arg-type]


def _in_full(local: Local) -> Local:
    """Half precision ends with the network: losses are sums of small differences."""
    kind = torch.promote_types(local.vectors.dtype, torch.float32)
    return local._replace(vectors=local.vectors.to(kind), strengths=local.strengths.to(kind))


def _pooled(local: Local) -> Float[Tensor, "batch dim"]:
    """The global vector that is trained: of the points, where a network has some, else of all features."""
    return pool([local]) if local.pooled is None else local.pooled


def tuple_loss(images: Sequence[Local], config: LossConfig) -> tuple[Float[Tensor, ""], Float64[Tensor, "measures"]]:
    """The weighted sum of the losses of one tuple (query, positive, negatives), and what to watch of it."""
    measures = dict.fromkeys(MEASURES, 0.0)
    parts: dict[str, Tensor] = {}
    matched = torch.zeros(0, dtype=torch.float64)
    if images[0].maps is not None:
        described = [_in_full(local).vectors[0] for local in images]
        parts["superfeature"], matched = _superfeature_part(described, config, measures)
        correlations = torch.cat([attention_correlation(local.maps) for local in images if local.maps is not None])
        counted = correlations if config.decorrelated is None else correlations[:2]
        parts["decorrelation"] = config.decorrelation * counted.sum()
        measures["correlation"] = correlations.mean().item()
    if config.pooled:
        vectors = torch.cat([_pooled(_in_full(local)) for local in images])
        parts["pooled"] = global_loss(
            vectors[0],
            vectors[1],
            vectors[2:],
            margin=config.pooled_margin,
            weight=config.pooled,
            hinge=config.hinge,
        )
    loss = torch.stack(list(parts.values())).sum()
    measures |= {name: part.item() for name, part in parts.items()} | {"loss": loss.item()}
    return loss, torch.cat((torch.tensor(list(measures.values()), dtype=torch.float64), matched))


def _superfeature_part(
    images: Sequence[Float[Tensor, "n dim"]], config: LossConfig, measures: dict[str, float]
) -> tuple[Float[Tensor, ""], Float64[Tensor, "ids"]]:
    """The super-feature loss; notes matches with the positive and with the negatives, with and without the ID rule."""
    query, positive, *negatives = images
    rules = {"ratio_test": config.ratio_test, "ratio": config.ratio, "reciprocal": config.reciprocal}
    chosen = match(distances_between(positive, query), **rules, same_id=config.same_id)  # type: ignore[arg-type]
    for number, other in enumerate([positive, *negatives[:WATCHED]]):
        distances = distances_between(other, query)
        whose = "negative_matches" if number else "matches"
        measures[whose] += len(match(distances, ratio_test=config.ratio_test, ratio=config.ratio).query)
        any_id = match(distances, ratio_test=config.ratio_test, ratio=config.ratio, same_id=False)
        measures[f"{whose}_any_id"] += len(any_id.query)
    others = torch.stack(negatives) if negatives else query.new_zeros((0, *query.shape))
    loss = loss_of_pairs(chosen, query, positive, others, margin=config.margin, hinge=config.hinge)
    matched = torch.zeros(len(query), dtype=torch.float64)
    matched[chosen.query.cpu()] = 1
    return config.superfeature * loss, matched
