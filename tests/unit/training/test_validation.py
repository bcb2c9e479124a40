"""Several validation sets: what decides, what the log keeps of each, and what TensorBoard is told."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fixtures_recipe import noise, save_random_network
from superfeat.config import CodebookConfig, ExtractConfig, ValidationConfig
from superfeat.datasets.retrieval_set import Protocol, Query, RetrievalSet
from superfeat.errors import DatasetError
from superfeat.images import Photo
from superfeat.training.data import one_or_all, validation_sets
from superfeat.training.run import RunFolder
from superfeat.training.validation import Score, decisive, facts_of, validate
from superfeat.weights import load_network

PLAIN, GRADED = Score(60.0, 10, 100, 20.0), Score(70.1234, 5, 300, 40.0, hard=30.5678)
CONFIG = ValidationConfig(
    codebook=CodebookConfig(words=8, rounds=2), extract=ExtractConfig(max_side=48, scales=(1.0,), features_per_image=8)
)


def empty(name: str) -> RetrievalSet:
    return RetrievalSet(name, (), ())


def test_one_set_is_judged_as_it_always_was() -> None:
    """By all its positives, graded or not: runs that began before go on as they were."""
    for score in (PLAIN, GRADED):
        assert decisive([score]) == score.map
        facts = facts_of([empty("one")], [score])
        assert facts == {
            "map": round(score.map, 3),
            "queries": score.queries,
            "images": score.images,
            "words_per_image": score.words_per_image,
        }
        assert list(facts) == ["map", "queries", "images", "words_per_image"]


def test_of_several_the_mean_decides_hard_where_there_is_hard() -> None:
    assert decisive([PLAIN, GRADED]) == pytest.approx((60.0 + 30.5678) / 2)
    assert decisive([PLAIN, PLAIN, GRADED]) == pytest.approx((60.0 + 60.0 + 30.5678) / 3)


def test_the_log_keeps_each_set() -> None:
    facts = facts_of([empty("plain"), empty("graded")], [PLAIN, GRADED])
    assert facts["sets"] == {
        "plain": {"map": 60.0, "queries": 10, "images": 100, "words_per_image": 20.0},
        "graded": {"map": 70.123, "map_hard": 30.568, "queries": 5, "images": 300, "words_per_image": 40.0},
    }
    assert (facts["map"], facts["queries"], facts["images"]) == (45.284, 15, 400)
    assert facts["words_per_image"] == 35.0


def test_tensorboard_is_told_of_each_set(tmp_path: Path) -> None:
    told: dict[str, tuple[float, int]] = {}
    folder = RunFolder(tmp_path)
    folder._tensorboard = SimpleNamespace(add_scalar=lambda name, value, step: told.update({name: (value, step)}))
    facts = facts_of([empty("plain"), empty("graded")], [PLAIN, GRADED])
    folder.log({"event": "validation", "step": 7, "epoch": 2, **facts})
    assert told["validation/map"] == (45.284, 7)
    assert told["validation/sets/plain/map"] == (60.0, 7)
    assert told["validation/sets/graded/map_hard"] == (30.568, 7)
    assert not any("step" in name or "epoch" in name or "event" in name for name in told)


def test_sets_are_none_one_or_several_of_different_names() -> None:
    one, other = empty("one"), empty("other")
    assert validation_sets(None) == validation_sets([]) == ()
    assert validation_sets(one) == validation_sets((one,)) == (one,)
    assert validation_sets([one, other]) == (one, other)
    with pytest.raises(DatasetError, match="two validation sets are called 'one': rename"):
        validation_sets([one, other, empty("one")])
    assert (one_or_all([]), one_or_all([1]), one_or_all([1, 2])) == (None, 1, [1, 2])


def noise_photos(folder: Path, count: int) -> tuple[Photo, ...]:
    for number in range(count):
        Image.fromarray(noise(48, 40, number)).save(folder / f"{number}.png")
    return tuple(Photo(folder / f"{number}.png", f"{number}.png") for number in range(count))


def test_each_set_has_the_score_that_it_has_alone(tmp_path: Path) -> None:
    """With one codebook for all; Hard passes the easy ones over, and is told of graded sets only."""
    photos = noise_photos(tmp_path, 8)
    network = load_network(save_random_network(tmp_path / "network", templates=6, whitened_dim=4))

    def asked(name: str, protocol: Protocol) -> RetrievalSet:
        queries = [Query(photos[n], (n, (n + 3) % 8), (), hard=((n + 3) % 8,)) for n in range(4)]
        return RetrievalSet(name, photos, tuple(queries), protocol)

    def scores(*tests: RetrievalSet) -> list[Score]:
        found = list(validate(network, tests, photos, CONFIG, tmp_path, workers=1))
        counts = [one for one in found if not isinstance(one, Score)]
        assert counts == list(range(1, len(counts) + 1))
        assert len(counts) == 8 + 8 * len(tests)
        return [one for one in found if isinstance(one, Score)]

    plain, graded = asked("plain", "plain"), asked("graded", "revisited")
    first, second = scores(plain, graded)
    assert [first] == scores(plain)
    assert [second] == scores(graded)
    assert first.hard is None
    assert second.hard is not None
    assert second.hard < second.map == first.map
    assert np.isfinite(second.hard)
    assert not list(tmp_path.glob(".validation.*"))
