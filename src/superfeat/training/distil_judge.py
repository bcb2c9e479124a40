"""How alike a student and its teacher are on photos that the student has not learned from."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from superfeat.config import DEFAULT_WEIGHTS, ExtractConfig
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.nets.distillation import look
from superfeat.nets.fire import Fire
from superfeat.nets.points import APART, how_many
from superfeat.threads import in_order
from superfeat.training.inputs import PhotoInputs, Showing, one_thread
from superfeat.training.records import LogFacts
from superfeat.weights import Network
from superfeat.weights.files import carried_codebook

KEPT = ExtractConfig.profile("fast").features_per_scale


def judge(
    student: Network, teacher: Network, name: str | None, photos: Sequence[Photo], side: int, workers: int
) -> LogFacts:
    """Mean cosines and shares of equal words, of the features that the teacher would keep at one scale.

    Words are the nearest of the codebook that the teacher brings; without one there are cosines alone.
    """
    if not photos:
        return {}
    folder = carried_codebook(name or DEFAULT_WEIGHTS)
    codebook = None if folder is None else Codebook.open(folder)
    inputs = [PhotoInputs(photos, side, network.normalisation) for network in (student, teacher)]

    def compare(number: int) -> list[list[float]]:
        pairs = _kept_pairs(student, teacher, [read(number, Showing(side=side))[None] for read in inputs])
        return [_alike(*pair, apart, codebook) for pair, apart in zip(pairs, (0.0, APART), strict=False)]

    every = np.asarray(list(in_order(compare, range(len(photos)), workers, one_thread))).mean(axis=0)
    facts: LogFacts = {"cosine": _rounded(every[0, 0]), "held_out": len(photos)}
    if codebook is not None:
        facts["equal_words"] = _rounded(every[0, 1])
    if len(every) > 1:
        facts["point_cosine"] = _rounded(every[1, 0])
        if codebook is not None:
            facts["equal_point_words"] = _rounded(every[1, 1])
    return facts


@torch.no_grad()
def _kept_pairs(student: Network, teacher: Network, images: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Super-features, and points if there are some: student's and teacher's, of what the teacher keeps."""
    ours, theirs = (
        look(_fire(network), network.fast.trunk(image))  # type: ignore[attr-defined]
        for network, image in zip((student, teacher), images, strict=True)
    )
    best = theirs.strengths[0].topk(min(KEPT or theirs.strengths.shape[1], theirs.strengths.shape[1])).indices
    pairs = [(ours.vectors[0, best], theirs.vectors[0, best])]
    if theirs.points is not None and ours.points is not None and theirs.point_strengths is not None:
        per_side = _fire(teacher).points.per_side  # type: ignore[union-attr]
        best = theirs.point_strengths[0].topk(how_many(per_side, theirs.points.shape[1])).indices
        pairs.append((ours.points[0, best], theirs.points[0, best]))
    return pairs


def _alike(ours: Tensor, theirs: Tensor, apart: float, codebook: Codebook | None) -> list[float]:
    """The mean cosine, and the share of equal words; `apart` is added where words are looked for."""
    cosine = float(F.cosine_similarity(ours, theirs, dim=-1).mean())
    if codebook is None:
        return [cosine, 0.0]
    mine, taught = (codebook.assign((vectors + apart).numpy(), workers=1)[:, 0] for vectors in (ours, theirs))
    return [cosine, float((mine == taught).mean())]


def _fire(network: Network) -> Fire:
    assert isinstance(network.module, Fire)
    return network.module


def _rounded(value: float) -> float:
    return round(float(value), 4)
