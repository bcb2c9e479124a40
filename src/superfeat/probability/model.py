"""From scores to probabilities: how far a result stands above strangers, a prior, a logistic.

docs/calibration.md has the reasons. Scores are compared by their logarithms, so that a constant factor changes nothing.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.errors import SuperfeatError
from superfeat.probability.clues import CLUES, NEAREST, Clues, shape_clues
from superfeat.probability.logistic import fit_signed, sigmoid
from superfeat.probability.together import TOP, Together, around_one
from superfeat.rerank.strangers import Null

FORMAT = "superfeat-calibration"
PLAIN = ("intercept", "slope", "size_slope")
# The first knows scores alone. No release wrote the next three: of these only what they say of scores is taken.
SCORES, PASSED_OVER, CLUED = 1, (2, 3, 4), 5
USUAL, USUAL_RESULTS = 0.1, 20  # share of right ones among them, and what it is worth beside what a collection shows
LARGEST_SET = 1000  # images: labelled sets are no larger, and what a logistic says far beyond its data is no knowledge


def match_prior(linked: float, sample: int, images: int) -> float:
    """How much likelier than usual a match is, in log-odds, among so many images, if this share of the pairs of a
    sample of them is linked. The larger the collection, the less a sample tells.
    """
    images = max(images, 1)
    first = min(images, TOP)
    share = min(linked * images / first, 1.0)
    seen = first * min(sample / images, 1.0)
    found = (seen * share + USUAL_RESULTS * USUAL) / (seen + USUAL_RESULTS)
    return math.log(found / (1 - found)) - math.log(USUAL / (1 - USUAL))


# -- Probabilities


class Origin(NamedTuple):
    """What a calibration was fitted with, as far as it decides what scores are like. Digests may be unknown."""

    network: str | None
    codebook: str | None
    kernel: str
    alpha: float
    threshold: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Log-odds of being the same thing: intercept + slope * evidence + size_slope * log(images), and the clues besides
    the score, each times its weight. One that has no weights knows scores alone; then a prior of the collection counts.
    One that has them may judge the first results of a search together.
    """

    intercept: float
    slope: float
    size_slope: float
    background: Null
    origin: Origin
    weights: tuple[float, ...] | None = None  # of the clues, in their order
    largest: int = LARGEST_SET  # more images than these count as so many
    plain: tuple[float, float, float] | None = None  # the first three where no clues are known: of scores alone
    together: Together | None = None

    def __post_init__(self) -> None:
        numbers = (self.intercept, self.slope, self.size_slope, *self.background, *(self.weights or ()))
        numbers += tuple(self.together or ())
        if not all(math.isfinite(number) for number in numbers):
            raise SuperfeatError(f"a calibration must hold finite numbers, not {numbers}")
        if self.slope < 0 or self.size_slope > 0 or not any((self.slope, *(self.weights or ()))):
            raise SuperfeatError(
                f"a calibration's slope is {self.slope} and its size_slope {self.size_slope}: a higher score must make "
                "a match likelier, and a larger collection must not; fit it again"
            )
        if self.weights is not None and (len(self.weights) != len(CLUES) or min(self.weights) < 0):
            raise SuperfeatError(f"a calibration needs {len(CLUES)} weights of 0 or more, not {self.weights}")
        if (self.weights is None) != (self.plain is None):
            raise SuperfeatError("a calibration with weights for clues also says what holds without clues")
        if self.together is not None and not (self.weights and self.together.keeps_order):
            raise SuperfeatError(
                f"results are judged together by {self.together}: that needs weights for clues, and a slope above 0 "
                "that no level takes off, so that their order stays; fit it again"
            )
        if self.largest < 1:
            raise SuperfeatError(f"a calibration's largest collection has {self.largest} images; it must be 1 or more")
        if self.background.scale <= 0 or self.background.images <= 0:
            raise SuperfeatError(f"{self.background} is no background: its scale and its images must be above 0")

    def without_clues(self) -> "Calibration":
        """For an index that says nothing of where words lie."""
        if self.plain is None:
            return self
        return Calibration(*self.plain, self.background, self.origin)

    def probability(
        self,
        evidence: Float64[np.ndarray, "n"],
        images: int,
        prior: float = 0.0,
        clues: Clues | None = None,
        first: Int64[np.ndarray, "first"] | None = None,
    ) -> Float64[np.ndarray, "n"]:
        """That each result of one search shows the same thing, in a collection of so many images with this prior;
        and, where it has weights for them, with these clues. `first` are the places of those results that speak for the
        others too, of which 20 count [all].
        """
        own = self.odds(evidence, images, prior, clues)
        if self.together is None:
            return sigmoid(own)
        return sigmoid(self.together.odds(own, around_one(own if first is None else own[first], prior)))

    def odds(
        self,
        evidence: Float64[np.ndarray, "n"],
        images: int,
        prior: float | Float64[np.ndarray, "n"] = 0.0,
        clues: Clues | None = None,
    ) -> Float64[np.ndarray, "n"]:
        """The log-odds of results, each by itself."""
        odds = self.intercept + self.slope * np.asarray(evidence, np.float64)
        odds = odds + self.size_slope * math.log(min(max(images, 1), self.largest))
        if self.weights is None:
            return np.asarray(odds + prior)
        if clues is None:
            raise SuperfeatError("this calibration needs the clues of each result, besides its evidence")
        return np.asarray(odds + shape_clues(clues) @ np.asarray(self.weights))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, to be written as JSON."""
        facts = {**dataclasses.asdict(self), "background": self.background._asdict(), "origin": self.origin._asdict()}
        weights, largest, plain = facts.pop("weights"), facts.pop("largest"), facts.pop("plain")
        del facts["together"]
        if weights is None:
            return {"format": FORMAT, "version": SCORES, **facts}
        named = dict(zip(CLUES, weights, strict=True))
        without = dict(zip(PLAIN, plain, strict=True))
        together = None if self.together is None else self.together._asdict()
        more = {"weights": named, "largest": largest, "plain": without, "together": together}
        return {"format": FORMAT, "version": CLUED, **facts, **more}

    @classmethod
    def from_dict(cls, values: Any) -> "Calibration":
        """The same back; SuperfeatError for anything else."""
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise SuperfeatError(f"this is no calibration: it must be an object with the format '{FORMAT}'")
        version = values.get("version")
        if version not in (SCORES, *PASSED_OVER, CLUED) or isinstance(version, bool):
            raise SuperfeatError(
                f"the calibration has version {version!r}; this superfeat reads {SCORES} to {CLUED}: upgrade it"
            )
        if version in PASSED_OVER:
            values = _scores_of(values)
        more = ("weights", "largest", "plain", "together") if version == CLUED else ()
        names = (*PLAIN, "background", "origin", *more)
        parts = _require_keys({key: values[key] for key in values if key not in ("format", "version")}, names, "")
        background = _require_keys(parts["background"], Null._fields, "background.")
        origin = _require_keys(parts["origin"], Origin._fields, "origin.")
        texts = (_require_text(origin[name], f"origin.{name}", name != "kernel") for name in Origin._fields[:3])
        numbers = (_require_number(origin[name], f"origin.{name}") for name in Origin._fields[3:])
        intercept, slope, size_slope = (_require_number(parts[name], name) for name in names[:3])
        return cls(
            intercept,
            slope,
            size_slope,
            background=Null(*(_require_number(background[name], f"background.{name}") for name in Null._fields)),
            origin=Origin(*texts, *numbers),
            weights=_read_weights(parts["weights"]) if more else None,
            plain=_read_plain(parts["plain"]) if more else None,
            largest=round(_require_number(parts["largest"], "largest")) if more else LARGEST_SET,
            together=_read_together(parts["together"]) if more else None,
        )


def _scores_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a calibration whose clues are not measured any more says of scores alone."""
    missing = [name for name in ("plain", "background", "origin") if name not in values]
    if missing:
        raise SuperfeatError(f"a calibration needs {missing[0]}, and has {sorted(map(str, values))}")
    plain = _require_keys(values["plain"], PLAIN, "plain.")
    return {**plain, "background": values["background"], "origin": values["origin"]}


def _read_plain(values: Any) -> tuple[float, float, float]:
    found = _require_keys(values, PLAIN, "plain.")
    intercept, slope, size_slope = (_require_number(found[name], f"plain.{name}") for name in PLAIN)
    Calibration(intercept, slope, size_slope, Null(0.0, 1.0, 1), Origin(None, None, "binary", 1.0, 0.0))  # or an error
    return intercept, slope, size_slope


def _read_together(values: Any) -> Together | None:
    """How results are judged together, if they are."""
    if values is None:
        return None
    found = _require_keys(values, Together._fields, "together.")
    return Together(*(_require_number(found[name], f"together.{name}") for name in Together._fields))


def _read_weights(values: Any) -> tuple[float, ...]:
    """The weights of the clues, by their names."""
    weights = _require_keys(values, CLUES, "weights.")
    return tuple(_require_number(weights[name], f"weights.{name}") for name in CLUES)


def _require_keys(values: Any, names: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping) or set(values) != set(names):
        found = sorted(map(str, values)) if isinstance(values, Mapping) else repr(values)
        raise SuperfeatError(f"a calibration needs {', '.join(where + name for name in names)}, and has {found}")
    return values


def _require_number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SuperfeatError(f"'{where}' of a calibration is {value!r}; it must be a finite number")
    return float(value)


def _require_text(value: Any, where: str, optional: bool) -> Any:
    if not isinstance(value, str) and not (optional and value is None):
        raise SuperfeatError(f"'{where}' of a calibration is {value!r}; it must be text")
    return value


# -- Fitting


def fit_calibration(
    evidence: Float64[np.ndarray, "n"],
    images: Int64[np.ndarray, "n"],
    labels: Bool[np.ndarray, "n"],
    background: Null,
    origin: Origin,
    start: Calibration | None = None,
    prior: Float64[np.ndarray, "n"] | None = None,
    clues: Clues | None = None,
) -> Calibration:
    """The logistic of results: how far each stood above strangers, among how many images, whether it was right, and
    the prior of its collection; or, in place of the first and the last, the clues of each.

    With few results, slopes stay near those of `start`, a calibration of other photos.
    """
    truth, largest = np.asarray(labels, np.bool_), LARGEST_SET if clues is None else NEAREST
    columns = np.column_stack([np.asarray(evidence, np.float64), np.log(np.clip(images, 1, largest))])
    known = np.zeros(len(truth)) if prior is None else np.asarray(prior, np.float64)
    if columns.shape != (len(truth), 2) or known.shape != truth.shape or not np.isfinite([*columns.T, known]).all():
        raise SuperfeatError("each result needs a finite evidence, a number of images, a label and a finite prior")
    if not truth.any() or truth.all():
        raise SuperfeatError(f"all {len(truth)} results are {'right' if truth.any() else 'wrong'}: both are needed")
    if clues is None:
        intercept, slopes = fit_signed(columns, truth, _centre(start, 0), known)
        weights = None
    else:
        known_clues = require_clues(clues, len(truth))
        centre = _centre(start, len(CLUES))
        # How far a score stands above strangers says less in a collection of many other things: it does not count.
        columns[:, 0] = centre[0] = 0.0
        columns = np.column_stack([columns, shape_clues(known_clues)])
        intercept, slopes = fit_signed(columns, truth, centre, np.zeros(len(truth)))
        weights = tuple(slopes[2:].tolist())
    if not (slopes[[0, *range(2, len(slopes))]] > 0).any():
        raise SuperfeatError("right results do not score higher than wrong ones: are the labels those of these photos?")
    three = intercept, float(slopes[0]), float(slopes[1])
    without = None if weights is None else three
    return Calibration(*three, background, origin, weights, largest, without)


def require_clues(clues: Clues, count: int) -> Clues:
    """Clues of so many results, finite; SuperfeatError if not."""
    values = np.asarray(clues, np.float64)
    if values.shape != (count, len(CLUES)) or not np.isfinite(values).all():
        raise SuperfeatError(f"each result needs {len(CLUES)} finite clues, not {values.shape}")
    return values


def _centre(start: Calibration | None, clues: int) -> Float64[np.ndarray, "d"]:
    if start is None:
        return np.zeros(2 + clues)
    weights = (start.weights or (0.0,) * clues)[:clues]
    return np.asarray((start.slope, start.size_slope, *weights), np.float64)
