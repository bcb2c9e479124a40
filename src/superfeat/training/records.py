"""What a run writes down: run.json, which says what it is a run of, and the lines of log.jsonl."""

from typing import Any, TypedDict

from superfeat.settings import Values


class TrainingFacts(TypedDict):
    """What a training must agree on to be resumed."""

    recipe: Values
    weights: str | None  # digest of what it begins with
    images: int
    training_set: str  # digest
    validation: Any  # [name, images, queries] of one set, a list of these for several, None for none


class PretrainingFacts(TypedDict):
    """The same of a pretraining."""

    pretraining: Values
    network: Values
    weights: str | None
    training_set: str
    images: int
    classes: int


class DistilFacts(TypedDict):
    """The same of a distillation."""

    distillation: Values
    trunk: Values
    weights: str | None
    teacher: str  # digest, as the former
    images: int
    photos: str  # digest of their names


class _Figures(TypedDict):
    map: float
    queries: int
    images: int
    words_per_image: float


class SetFigures(_Figures, total=False):
    """Of one validation set among several."""

    map_hard: float


class LogFacts(TypedDict, total=False):
    """What is told of a step, an epoch, a validation or the end of a run; each has a part of it."""

    learning_rate: float
    loss: float  # of training and of pretraining, as is the correlation
    correlation: float
    superfeature: float
    decorrelation: float
    pooled: float
    matches: float
    negative_matches: float
    matches_any_id: float
    negative_matches_any_id: float
    match_ratio: float
    match_ratio_any_id: float
    matches_per_id: dict[str, float]  # mean, std, min
    seconds: dict[str, float]
    tuples: int
    mining_seconds: float
    accuracy: float  # of pretraining, as are the next three
    top1: float
    top5: float
    held_out: int
    map: float  # of a validation, as are the next four
    queries: int
    images: int
    words_per_image: float
    sets: dict[str, SetFigures]
    best: float | None
    places: float  # of a distillation, as are all that follow
    superfeatures: float
    points: float
    cosine: float  # with the teacher, on photos that are held out
    equal_words: float
    point_cosine: float
    equal_point_words: float


class LogLine(LogFacts):
    """A line of log.jsonl."""

    event: str
    step: int  # of all epochs
    epoch: int
