"""What a network is trained on: photos, the thing that each shows, and which photos are positives of each other."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Int64

from superfeat.errors import DatasetError
from superfeat.images import Photo

NAMES_SHOWN = 3  # names that a message lists before it says "..."
MISSING_SHOWN = 10


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingSet:
    """Photos, the thing that each one shows, and which of them are positives of each other.

    Pairs of a photo with itself and pairs given twice are dropped, with a note; pairs of two things are refused.
    """

    photos: tuple[Photo, ...]
    things: Int64[np.ndarray, "images"]  # images of one thing are never negatives of each other
    pairs: Int64[np.ndarray, "pairs 2"] | None  # (query, positive); None: any other image of the query's thing
    notes: tuple[str, ...] = ()  # what was left out on reading, in words

    def __post_init__(self) -> None:
        things = whole_numbers(self.things, "the things")
        if len(things) != len(self.photos):
            raise DatasetError(
                f"there are {len(self.photos)} photos, but things for {len(things)}: give each photo one"
            )
        object.__setattr__(self, "things", things)
        if self.pairs is not None:
            pairs, notes = _checked_pairs(self.photos, things, self.pairs)
            object.__setattr__(self, "pairs", pairs)
            object.__setattr__(self, "notes", (*self.notes, *notes))

    def digest(self) -> str:
        """SHA-256 of names, things and pairs: the same set has the same digest wherever its files are."""
        total = hashlib.sha256("\n".join(photo.name for photo in self.photos).encode("utf-8", "surrogatepass"))
        for numbers in (self.things, self.pairs):
            total.update(b"" if numbers is None else np.ascontiguousarray(numbers).tobytes())
        return total.hexdigest()

    def query_count(self) -> int:
        """How many queries an epoch can draw without repeats."""
        return len(self.pairs) if self.pairs is not None else int(self._has_mate().sum())

    def draw_pairs(
        self, count: int, random: np.random.Generator, balance: float = 0.0
    ) -> Int64[np.ndarray, "queries 2"]:
        """At most `count` random rows (query, positive), none twice.

        Without given pairs no query is drawn twice, and its positive is a random other image of its thing. With
        `balance` pairs, or queries, of things that have many are less likely: with 1, every thing is as likely as any
        other.
        """
        count = min(count, self.query_count())
        asked = self._queries()
        likely = None
        if balance and count:
            _, number, sizes = np.unique(self.things[asked], return_inverse=True, return_counts=True)
            weights = sizes[number] ** -balance
            likely = weights / weights.sum()
        chosen = random.choice(len(asked), count, replace=False, p=likely)
        if self.pairs is not None:
            return self.pairs[chosen]
        queries = asked[chosen]
        by_thing = np.argsort(self.things, kind="stable")
        _, number, sizes = np.unique(self.things, return_inverse=True, return_counts=True)
        starts = np.cumsum(sizes) - sizes
        place = np.empty_like(by_thing)  # of each image among those of its thing
        place[by_thing] = np.arange(len(by_thing)) - starts[number[by_thing]]
        size = sizes[number[queries]]
        positives = by_thing[starts[number[queries]] + (place[queries] + random.integers(1, size)) % size]
        return np.stack((queries, positives), axis=1)

    def subset(self, things: Collection[int]) -> "TrainingSet":
        """Only the images and pairs of these things; images and things are numbered afresh, in the same order."""
        wanted = np.unique(np.asarray(list(things), np.int64))
        unknown = np.setdiff1d(wanted, self.things)
        if len(unknown):
            raise DatasetError(
                f"there is no thing {unknown[0]}: choose among the {len(np.unique(self.things))} there are"
            )
        kept = np.isin(self.things, wanted)
        renumbered = np.cumsum(kept) - 1
        pairs = self.pairs
        if pairs is not None:
            pairs = renumbered[pairs[kept[pairs[:, 0]]]].reshape(-1, 2)
        photos = tuple(self.photos[image] for image in np.flatnonzero(kept))
        return TrainingSet(photos, np.searchsorted(wanted, self.things[kept]), pairs, self.notes)

    def hold_out(self, fraction: float, seed: int) -> tuple["TrainingSet", "TrainingSet"]:
        """(the rest, a fraction of the things that can be queried), chosen by photo names and seed, not by order."""
        if not 0 <= fraction < 1:
            raise DatasetError(f"cannot hold out {fraction} of the things: give a fraction from 0 to below 1")
        if fraction == 0:
            return self, self.subset(())
        eligible = self.things_to_query()
        if len(eligible) < 2:
            raise DatasetError(
                f"cannot hold out things for validation: {_counted(len(eligible), 'thing')} can be queried, "
                "and one must remain for training; add things, or hold out 0"
            )
        count = min(max(1, round(fraction * len(eligible))), len(eligible) - 1)
        held = sorted(eligible, key=self._order_by(seed))[:count]
        return self.subset(np.setdiff1d(self.things, held).tolist()), self.subset(held)

    def require_pairs(self) -> None:
        """Raises DatasetError, with the next step, where no query has a positive."""
        if not self.photos:
            raise DatasetError("there are no photos to train on: give a folder with one sub-folder of photos per thing")
        if self.query_count() == 0 and self.pairs is not None:
            raise DatasetError("there is no pair of query and positive to train on: give pairs, or leave them out")
        if self.query_count() == 0:
            raise DatasetError(
                f"no thing has two images, so no query has a positive ({_counted(len(self.photos), 'photo')}): "
                "add a second photo of each thing"
            )

    def require_negatives(self, negatives: int) -> None:
        """Raises DatasetError, with the next step, where there are too few things for a query's negatives."""
        count = len(np.unique(self.things))
        if count < negatives + 1:
            lower = f", or set training.negatives to {count - 1}" if count > 1 else ""
            wanted = "a negative of another thing"
            if negatives > 1:
                wanted = f"{negatives} negatives of {negatives} different other things"
            there = "is only 1 thing" if count == 1 else f"are only {count} things"
            raise DatasetError(
                f"each query needs {wanted}, but there {there}: add things{lower}",
                arguments=[f"training.negatives={count - 1}"] if lower else [],
            )

    def _has_mate(self) -> np.ndarray:
        """For each image, whether there is another one of its thing."""
        _, number, sizes = np.unique(self.things, return_inverse=True, return_counts=True)
        mates: np.ndarray = sizes[number] > 1
        return mates

    def _queries(self) -> np.ndarray:
        """The image of each query: of each given pair, or each that has a mate."""
        return np.flatnonzero(self._has_mate()) if self.pairs is None else self.pairs[:, 0]

    def things_to_query(self) -> list[int]:
        """The things that a query can show: those with a positive."""
        things: list[int] = np.unique(self.things[self._queries()]).tolist()
        return things

    def _order_by(self, seed: int) -> Callable[[int], tuple[bytes, tuple[str, str]]]:
        """A random order of the things that depends on nothing but the seed and the first name of each."""
        first: dict[int, tuple[str, str]] = {}
        for thing, photo in zip(self.things.tolist(), self.photos, strict=True):
            key = (photo.name, str(photo.path))
            first[thing] = min(first.get(thing, key), key)

        def order(thing: int) -> tuple[bytes, tuple[str, str]]:
            text = f"{seed}\0{first[thing][0]}".encode("utf-8", "surrogatepass")
            return hashlib.sha256(text).digest(), first[thing]

        return order


def from_labels(
    photos: Sequence[Photo],
    labels: Sequence[str],
    pairs: Int64[np.ndarray, "pairs 2"] | None,
    source: str,
    notes: Sequence[str] = (),
) -> TrainingSet:
    """A training set of photos with the name of the thing of each. Refuses what has no positives or no negatives."""
    names, things, sizes = np.unique(np.asarray(labels, object), return_inverse=True, return_counts=True)
    single = [str(name) for name in names[sizes == 1]]
    if len(names) == 1:
        raise DatasetError(
            f"{source} has only one thing ({names[0]}), so that no query has a negative: add photos of other things"
        )
    if len(single) == len(names):
        raise DatasetError(
            f"{source} has no thing with two images, so that no query has a positive "
            f"(one image each: {listed(single)}): add a second photo of each thing"
        )
    if single:
        verb = "has one image and serves" if len(single) == 1 else "have one image each and serve"
        notes = (*notes, f"{_counted(len(single), 'thing')} {verb} as negatives only: {listed(single)}")
    made = TrainingSet(tuple(photos), things, pairs, tuple(notes))
    if made.query_count() == 0:
        raise DatasetError(f"{source} has no pair of two different photos: give pairs, or leave the list of pairs out")
    return made


def missing_images(training_set: TrainingSet, limit: int = MISSING_SHOWN) -> list[str]:
    """Names of photos whose file is not there, at most `limit`: what to ask before a run of days."""
    return missing_photos(training_set.photos, limit)


def missing_photos(photos: Iterable[Photo], limit: int = MISSING_SHOWN) -> list[str]:
    """Names of the photos whose file is not there, at most `limit`."""
    missing: list[str] = []
    for photo in photos:
        if len(missing) >= limit:
            break
        if not is_file(photo.path):
            missing.append(photo.name)
    return missing


def is_file(path: Path) -> bool:
    """Whether a file is there and can be seen; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, a folder that may not be entered
        return False


def below(name: Any, what: str) -> str:
    """A name that stays inside the folder that it is relative to; DatasetError for any other."""
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise DatasetError(f"{what} holds {name!r}, which is no path of a photo")
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or Path(name).is_absolute() or ".." in path.parts:
        raise DatasetError(f"{what} holds {name!r}: paths must be relative to the folder of images and stay inside it")
    return name


def listed(names: Collection[str]) -> str:
    """The first few names, for a message of one line."""
    return ", ".join(list(names)[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")


def whole_numbers(values: Any, what: str, shape: tuple[int, ...] = (-1,)) -> Int64[np.ndarray, "..."]:
    """A read-only copy as 64-bit integers of this shape (-1: any length); DatasetError for anything else."""
    try:
        if not _nests_as(values, shape):
            raise ValueError("lists in lists")
        given = np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise DatasetError(f"{what} must be a list of whole numbers; the file is damaged or of another kind") from error
    if given.size == 0:
        given = np.zeros([max(0, length) for length in shape], np.int64)
    fits = given.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, given.shape, strict=True))
    if given.dtype.kind not in "iu" or not fits or (given.dtype == np.uint64 and given.max(initial=0) >> np.uint64(63)):
        raise DatasetError(
            f"{what} must be whole numbers of shape {_written(shape)}, not {given.dtype} of shape "
            f"{_written(given.shape)}; the file is damaged or of another kind"
        )
    numbers = given.astype(np.int64)
    numbers.setflags(write=False)
    return numbers


def require_entries(contents: Any, keys: tuple[str, ...], what: str) -> Mapping[str, Any]:
    """A dict of a published file that has these keys; DatasetError for anything else."""
    if not isinstance(contents, dict):
        raise DatasetError(f"{what} must be a dict with {', '.join(keys)}, not {type(contents).__name__}")
    if missing := [key for key in keys if key not in contents]:
        raise DatasetError(f"{what} has no {', '.join(missing)}; it is damaged or another file: fetch it again")
    return contents


def require_inside(numbers: Int64[np.ndarray, "..."], size: int, what: str) -> None:
    """DatasetError where a number is not one of so many images."""
    outside = numbers[(numbers < 0) | (numbers >= size)]
    if len(outside):
        raise DatasetError(f"{what} holds {outside[0]}, but there are {size} images: fetch the file again")


def _nests_as(values: Any, shape: tuple[int, ...]) -> bool:
    """Whether lists have this shape: a small file can hold lists in lists that numpy would unfold without end."""
    if not isinstance(values, (list, tuple)) or not values:
        return not isinstance(values, bool)
    return bool(shape) and shape[0] in (-1, len(values)) and all(_nests_as(value, shape[1:]) for value in values)


def _written(shape: tuple[int, ...]) -> str:
    return " x ".join("n" if length < 0 else str(length) for length in shape) or "one number"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _checked_pairs(
    photos: Sequence[Photo], things: Int64[np.ndarray, "images"], given: Any
) -> tuple[Int64[np.ndarray, "kept 2"], list[str]]:
    """The pairs without those of a photo with itself and those given before, and what was dropped."""
    pairs = whole_numbers(given, "the pairs", (-1, 2))
    outside = (pairs < 0) | (pairs >= len(photos))
    if outside.any():
        raise DatasetError(f"a pair names image {pairs[outside][0]}, but the {len(photos)} images are numbered from 0")
    across = np.flatnonzero(things[pairs[:, 0]] != things[pairs[:, 1]])
    if len(across):
        query, positive = (photos[image].name for image in pairs[across[0]])
        raise DatasetError(
            f"{query} and {positive} are given as a pair but belong to different things "
            f"({_counted(len(across), 'such pair')}): make them one thing, or take the pair out"
        )
    different = pairs[pairs[:, 0] != pairs[:, 1]]
    kept = different[np.sort(np.unique(different, axis=0, return_index=True)[1])]
    kept.setflags(write=False)
    notes = []
    if alone := len(pairs) - len(different):
        notes.append(
            f"{_counted(alone, 'pair')} whose query is {'its' if alone == 1 else 'their'} positive {_were(alone)}"
        )
    if again := len(different) - len(kept):
        notes.append(f"{_counted(again, 'pair')} given before {_were(again)}")
    return kept, notes


def _were(count: int) -> str:
    return "was dropped" if count == 1 else "were dropped"
