"""superfeat.evaluate: a benchmark, a network and words by their names, and what comes out of the run."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import superfeat
from fixtures_evaluate import CONFIG, draw_many, draw_roxford, draw_things, tiny_network
from superfeat.config import ExtractConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.errors import ConfigError, DatasetError
from superfeat.evaluation.run import Evaluated, open_run, run_protocol
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.studies.queries import analyse_queries, query_kinds

SETTINGS: dict[str, Any] = {
    "extract": {"features_per_image": 14, "max_side": 40, "scales": (1.0, 0.5)},
    "codebook": {"words": 8, "rounds": 3},
    "index.search.assignments": 3,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """network/, ox/ (ROxford5k), things/, words/ (photos of other things), more/ (distractors)."""
    folder = tmp_path_factory.mktemp("place")
    superfeat.save_network(tiny_network(), folder / "network")
    draw_roxford(folder / "ox")
    draw_things(folder / "things", 3, 2)
    draw_many(folder / "words", 6, 500)
    draw_many(folder / "more", 2, 700)
    return folder


@pytest.fixture(autouse=True)
def _cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(place / "cache"))


def run(place: Path, dataset: Any, output: Path, **more: Any) -> Any:
    given = {"weights": place / "network", "settings": SETTINGS, "workers": 1, **more}
    return superfeat.evaluate(dataset, output, **given)


def test_a_benchmark_by_its_name(place: Path, tmp_path: Path) -> None:
    """What the run by hand comes to, with the settings of a published set."""
    words = place / "words"
    work = run(place, "roxford5k", tmp_path / "run", images=place / "ox", codebook_images=words)
    assert not (tmp_path / "run").exists(), "nothing is done before it is asked for"
    stages = list(dict.fromkeys(step.stage for step in work))
    assert stages == ["features", "codebook features", "index", "search"]
    found = work.result()
    photos = [Photo(path, path.name) for path in sorted(words.iterdir())]
    test = read_benchmark("roxford5k", place / "ox")
    *_, plain = run_protocol(tiny_network(), test, tmp_path / "plain", CONFIG, codebook=photos, workers=1)
    assert isinstance(plain, Evaluated)
    assert found.scores == plain.scores
    assert found.config == CONFIG, "as stored: the boxes are"
    assert found.card["network"]["digest"] == found.network.digest == tiny_network().digest
    assert (found.run, found.test.name) == (tmp_path / "run", "roxford5k")
    assert open_run(tmp_path / "run").scores == found.scores


def test_a_folder_and_a_set_are_the_same(place: Path, tmp_path: Path) -> None:
    words = [place / "words"]
    found = run(place, place / "things", tmp_path / "run", codebook_images=words).result()
    assert found.config.extract.upright
    again = run(place, read_benchmark(str(place / "things")), tmp_path / "again", codebook_images=words).result()
    assert again.scores == found.scores


def test_words_that_the_network_brings(place: Path, tmp_path: Path) -> None:
    """Then the profile is the one for users; a codebook that is named leaves the paper's."""
    book = Codebook.open(_codebook(place, tmp_path))
    shutil.copytree(place / "network", tmp_path / "network")
    shutil.copytree(_codebook(place, tmp_path), tmp_path / "network" / "codebook")
    few = {"extract.scales": (1.0,), "extract.max_side": 40}
    brought = run(place, place / "things", tmp_path / "a", weights=tmp_path / "network", settings=few).result()
    named = run(place, place / "things", tmp_path / "b", codebook=book, settings=few).result()
    assert brought.card["codebook"]["digest"] == named.card["codebook"]["digest"] == book.digest
    fast, paper = (ExtractConfig.profile(name).features_per_image for name in ("fast", "paper"))
    assert brought.config.extract.features_per_image == fast
    assert named.config.extract.features_per_image == paper
    asked = run(place, place / "things", tmp_path / "c", codebook=book, profile="fast", settings=few).result()
    assert asked.scores == brought.scores


def _codebook(place: Path, folder: Path) -> Path:
    """One of the words/."""
    if not (folder / "first").exists():
        run(place, place / "things", folder / "first", codebook_images=place / "words").result()
    return folder / "first" / "index" / "codebook"


def test_no_words(place: Path, tmp_path: Path) -> None:
    work = run(place, place / "things", tmp_path / "run")
    with pytest.raises(DatasetError, match="bring no codebook, and words must be learned from photos") as refused:
        work.result()
    assert refused.value.arguments == ("codebook_images", "codebook")
    assert not (tmp_path / "run").exists()
    pooled = run(place, place / "things", tmp_path / "pooled", settings={**SETTINGS, "method": "pooled"}).result()
    assert pooled.card["codebook"] is None


def test_distractors_and_features_that_are_there(place: Path, tmp_path: Path) -> None:
    words = place / "words"
    first = run(place, place / "things", tmp_path / "first", codebook_images=words).result()
    features = str(tmp_path / "first" / "features")
    more = run(
        place, place / "things", tmp_path / "more", codebook_images=words, features=features, distractors=place / "more"
    ).result()
    assert more.card["dataset"]["distractors"] == 2
    assert not (tmp_path / "more" / "features").exists()
    assert more.scores["grades"]["all"]["map"] <= first.scores["grades"]["all"]["map"]


def test_settings_that_do_not_exist(place: Path, tmp_path: Path) -> None:
    for more in ({"settings": {"extract.maxside": 3}}, {"profile": "fst"}):
        with pytest.raises(ConfigError, match="did you mean"):
            run(place, place / "things", tmp_path / "run", codebook_images=place / "words", **more).result()
    assert not (tmp_path / "run").exists()


def test_analyses_of_the_queries(place: Path, tmp_path: Path) -> None:
    """With the settings and the words of the run, on the photos it asked with."""
    found = run(place, place / "things", tmp_path / "run", codebook_images=place / "words").result()
    assert query_kinds(found) == ["redundancy", "scales", "words", "attention", "correlation"]
    words = analyse_queries("words", found, 4, workers=1).result()
    assert (words.images, words.found.numbers.codebook_words) == (4, 8)  # type: ignore[union-attr]
    scales = analyse_queries("scales", found, 4, workers=1).result()
    assert scales.extract["max_side"] == 40
    assert scales.found.numbers.scales == [0.5, 1.0]  # type: ignore[union-attr]
    pooled = run(place, place / "things", tmp_path / "pooled", settings={**SETTINGS, "method": "pooled"}).result()
    assert "words" not in query_kinds(pooled)
