"""A protocol run as a library call: resumed from anywhere, its card, missing photos, odd sets, two runs compared."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import superfeat.evaluation.stages
from fixtures_evaluate import (
    CONFIG,
    PALETTE_CONFIG,
    Palette,
    draw,
    draw_many,
    kept_rankings,
    paint,
    paint_random,
    painted_set,
    palette_network,
    rank,
    tiny_network,
    without_seconds,
    write_gnd,
)
from oracles_datasets import average_precision
from superfeat.config import EvaluateConfig, ExtractConfig, IndexConfig, SearchConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.errors import DatasetError, StoreError, SuperfeatError
from superfeat.evaluation.compare import compare, comparison_in_words
from superfeat.evaluation.metrics import paired_bootstrap
from superfeat.evaluation.run import Evaluated, open_run, run_protocol
from superfeat.extraction.extract import extract_to
from superfeat.extraction.folder import FeatureStore, FeatureWriter
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, train_codebook
from superfeat.index.index import Index
from superfeat.storage.store import writer_lock
from superfeat.weights import Network

POOLED = dataclasses.replace(PALETTE_CONFIG, method="pooled")
GREY, WHITE = (100, 100, 100), (255, 255, 255)


@dataclasses.dataclass(frozen=True)
class Case:
    """A set, photos to learn words from, distractors, and a run that nothing disturbed."""

    test: RetrievalSet
    others: list[Photo]
    distractors: list[Photo]
    once: Evaluated
    path: Path


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Words that one test has learned serve the others."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUPERFEAT_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("case")
    test, others = painted_set(folder)
    distractors = [Photo(paint_random(folder / "more" / f"{n}.png", 300 + n), f"{n}.png") for n in range(3)]
    once = finish(test, folder / "once", codebook=others, distractors=distractors)
    return Case(test, others, distractors, once, folder / "once")


def steps(test: RetrievalSet, run: Path, config: EvaluateConfig = PALETTE_CONFIG, **more: Any) -> Iterator[Any]:
    return run_protocol(more.pop("network", palette_network()), test, run, config, workers=1, **more)


def finish(test: RetrievalSet, run: Path, config: EvaluateConfig = PALETTE_CONFIG, **more: Any) -> Evaluated:
    *_, last = steps(test, run, config, **more)
    assert isinstance(last, Evaluated)
    return last


def of_disk(value: Any) -> Any:
    """As it is when it has been written and read."""
    return json.loads(json.dumps(value))


def assert_same(found: Evaluated, expected: Evaluated) -> None:
    assert found.scores == expected.scores
    assert without_seconds(found.card) == without_seconds(expected.card)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the images whose features are kept from here on."""
    names: list[str] = []
    add = FeatureWriter.add

    def noted(self: FeatureWriter, features: Features, stamp: tuple[int, int]) -> None:
        names.append(features.name)
        add(self, features, stamp)

    monkeypatch.setattr(FeatureWriter, "add", noted)
    return names


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each image that goes through the network from here on."""
    images: list[int] = []
    call = Palette.__call__

    def noted(self: Palette, pixels: torch.Tensor) -> Any:
        images.append(1)
        return call(self, pixels)

    monkeypatch.setattr(Palette, "__call__", noted)
    return images


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each k-means from here on."""
    calls: list[int] = []
    train = train_codebook

    def noted(*given: Any, **more: Any) -> Codebook:
        calls.append(1)
        return train(*given, **more)

    monkeypatch.setattr(superfeat.evaluation.stages, "train_codebook", noted)
    return calls


def truncated(path: Path) -> Path:
    """A photo that ends in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-900])
    return path


# -- Stopped and gone on with


def test_steps_tell_how_far_each_stage_is(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    found = list(steps(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors))[:-1]
    stages = {stage: [step[1:] for step in group] for stage, group in itertools.groupby(found, lambda step: step[0])}
    stages.pop("k-means", None)
    assert stages == {
        "features": [(n, 7) for n in range(1, 8)],
        "codebook features": [(n, 4) for n in range(1, 5)],
        "index": [(n, 8) for n in range(1, 9)],
        "search": [(1, 2), (2, 2)],
    }


@pytest.mark.parametrize("stop", range(20, 1, -3))
@pytest.mark.parametrize("how", ["close", "raise"])
def test_stopped_after_any_step(
    how: str, stop: int, case: Case, tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third step, from the last on; every features folder has each image once."""
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    stop -= how == "raise"  # so that the two ways stop at different steps
    run = steps(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors)
    for _ in itertools.islice(run, stop):
        pass
    if how == "close":
        run.close()  # type: ignore[attr-defined]
    else:
        with pytest.raises(KeyboardInterrupt):
            run.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="holds no finished evaluation"):
        open_run(tmp_path / "run")
    found = finish(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors)
    assert_same(found, case.once)
    expected = [f"{n} {photo.name}" for n, photo in enumerate(case.test.photos)]
    expected += [f"query {n} q{n}.png" for n in range(2)]
    assert written == expected + [photo.name for photo in case.others]
    assert found.card["seconds"].keys() == {"features", "codebook", "index", "search"}


def test_stopped_again_and_again(case: Case, tmp_path: Path, written: list[str]) -> None:
    """At the first new step each time, as long as that gets further."""
    for _ in range(9):
        run = steps(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors)
        next(run)
        run.close()  # type: ignore[attr-defined]
    assert_same(finish(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors), case.once)
    assert len(written) == len(set(written)) == 7


def test_distractors_are_not_extracted_again(case: Case, tmp_path: Path, seen: list[int]) -> None:
    run = steps(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors)
    for step in run:
        if step[:2] == ("index", 6):  # five photos and the first distractor
            break
    run.close()  # type: ignore[attr-defined]
    seen.clear()
    assert_same(finish(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors), case.once)
    assert len(seen) == 2


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_a_finished_run_is_not_made_again(
    config: EvaluateConfig, case: Case, tmp_path: Path, seen: list[int], trained: list[int]
) -> None:
    first = finish(case.test, tmp_path / "run", config, codebook=case.others, distractors=case.distractors)
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    seen.clear()
    again = finish(case.test, tmp_path / "run", config, codebook=case.others, distractors=case.distractors)
    assert_same(again, first)
    assert (seen, trained) == ([], [])
    changed = {path.name for path in files if path.read_bytes() != files[path]}
    assert changed <= {"seconds.json", "card.json", "card.txt"}
    assert open_run(tmp_path / "run").scores == of_disk(first.scores)


# The children come from a process that has imported everything and has no threads.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["superfeat.evaluation.run", "superfeat.training.train", "superfeat.cli"])


def run_and_die(case: Case, run: Path, where: str, number: int) -> None:
    """In a process of its own, killed after a step or before a wait for the disk."""
    left = itertools.count(number - 1, -1)

    def strike() -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if where == "sync":
        sync = os.fsync

        def deadly(handle: int) -> None:
            strike()
            sync(handle)

        os.fsync = deadly  # type: ignore[assignment]
    for _ in steps(case.test, run, codebook=case.others, distractors=case.distractors):
        if where == "step":
            strike()


@pytest.mark.slow
@pytest.mark.parametrize("die", [("sync", 1), ("sync", 23), ("step", 10), ("sync", 77), ("step", 17), ("sync", 92)])
def test_killed(
    die: tuple[str, int], case: Case, tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    process = FORKS.Process(target=_child, args=(str(tmp_path / "cache"), case, tmp_path / "run", *die))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    folder = tmp_path / "run" / "features"
    kept = FeatureStore(folder).names() if (folder / "images.jsonl").is_file() else set()
    assert_same(finish(case.test, tmp_path / "run", codebook=case.others, distractors=case.distractors), case.once)
    assert not kept & set(written[: 7 - len(kept)])
    assert len(set(written)) == len(written)


def _child(cache: str, case: Case, run: Path, where: str, number: int) -> None:
    os.environ["SUPERFEAT_CACHE"] = cache
    run_and_die(case, run, where, number)


def test_the_time_of_a_stage_adds_up(case: Case, tmp_path: Path) -> None:
    run = steps(case.test, tmp_path / "run", codebook=case.others)
    next(run)
    run.close()  # type: ignore[attr-defined]
    before = json.loads((tmp_path / "run" / "seconds.json").read_text())
    assert before.keys() == {"features"}
    finish(case.test, tmp_path / "run", codebook=case.others)
    after = json.loads((tmp_path / "run" / "seconds.json").read_text())
    assert after["features"] > before["features"] > 0


# -- Folders that are something else


def other_network() -> Network:
    network = palette_network()
    settings = dataclasses.replace(
        network.config, trunk=dataclasses.replace(network.config.trunk, mean=(0.4, 0.5, 0.5))
    )
    return Network(network.module, settings)


def with_search(**changes: Any) -> EvaluateConfig:
    return dataclasses.replace(PALETTE_CONFIG, index=IndexConfig(search=SearchConfig(**changes)))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"config": POOLED}, "settings.method was asmk, not pooled"),
        ({"config": with_search(assignments=2)}, "settings.index.search.assignments was 1, not 2"),
        ({"config": with_search(assignments=1, alpha=2.0)}, "settings.index.search.alpha was 3.0, not 2.0"),
        (
            {"config": dataclasses.replace(PALETTE_CONFIG, extract=ExtractConfig(scales=(1.0, 0.5)))},
            r"settings.extract.scales was \[1.0\], not \[1.0, 0.5\]",
        ),
        ({"network": other_network()}, "network was"),
        ({"distractors": ()}, "distractors was 3, not 0"),
    ],
    ids=["method", "assignments", "alpha", "scales", "network", "distractors"],
)
def test_other_settings_are_refused(more: dict[str, Any], words: str, case: Case, tmp_path: Path) -> None:
    folder = shutil.copytree(case.path, tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    given = {"codebook": case.others, "distractors": case.distractors, **more}
    with pytest.raises(StoreError, match=rf"is an evaluation with other settings .*{words}.*choose another folder"):
        finish(case.test, folder, given.pop("config", PALETTE_CONFIG), **given)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_another_set_is_refused(case: Case, tmp_path: Path) -> None:
    fewer = dataclasses.replace(case.test, photos=case.test.photos[:4])
    asked = dataclasses.replace(case.test, queries=case.test.queries[:1])
    folder = shutil.copytree(case.path, tmp_path / "run")
    for test, words in ((fewer, "images was 5, not 4"), (asked, "queries was 2, not 1")):
        with pytest.raises(StoreError, match=words):
            finish(test, folder, codebook=case.others, distractors=case.distractors)


@pytest.mark.parametrize("what", ["renamed", "boxed", "positives", "other distractors", "other codebook"])
def test_as_many_others_are_refused(what: str, case: Case, tmp_path: Path) -> None:
    """Counts are the same; what is measured is not."""
    folder = shutil.copytree(case.path, tmp_path / "run")
    test, distractors = case.test, case.distractors
    codebook: Any = case.others
    if what == "renamed":
        test = dataclasses.replace(
            test, photos=(*test.photos[:4], Photo(paint_random(tmp_path / "new.png", 7), "new.png"))
        )
    elif what == "boxed":
        boxed = dataclasses.replace(test.queries[0].photo, box=(0.0, 0.0, 8.0, 8.0))
        test = dataclasses.replace(test, queries=(dataclasses.replace(test.queries[0], photo=boxed), test.queries[1]))
    elif what == "positives":
        test = dataclasses.replace(
            test, queries=(dataclasses.replace(test.queries[0], positives=(4,)), test.queries[1])
        )
    elif what == "other distractors":
        distractors = [Photo(paint_random(tmp_path / f"{n}.png", 400 + n), f"other{n}.png") for n in range(3)]
    else:
        codebook = Codebook(np.asarray([[0.9, 0.9, 0.9], [-0.9, -0.9, -0.9]], np.float32), palette_network().digest)
    with pytest.raises(StoreError, match=r"is an evaluation with other settings|was made with another codebook"):
        finish(test, folder, codebook=codebook, distractors=distractors)


def test_a_folder_that_holds_something_else(case: Case, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "note.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other files; choose a new folder"):
        finish(case.test, tmp_path / "notes", codebook=case.others)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text('{"format": "superfeat-training"}')
    with pytest.raises(StoreError, match="holds something else than an evaluation"):
        finish(case.test, tmp_path / "other", codebook=case.others)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="cannot write"):
        finish(case.test, tmp_path / "file", codebook=case.others)
    assert (tmp_path / "notes" / "note.txt").read_text() == (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_use(case: Case, tmp_path: Path) -> None:
    folder = shutil.copytree(case.path, tmp_path / "run")
    with writer_lock(folder), pytest.raises(StoreError, match="is being written by another process"):
        finish(case.test, folder, codebook=case.others, distractors=case.distractors)


# -- Features that are there


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_features_of_another_run(config: EvaluateConfig, case: Case, tmp_path: Path, seen: list[int]) -> None:
    first = finish(case.test, tmp_path / "first", config, codebook=case.others)
    seen.clear()
    folder = tmp_path / "first" / ("pooled" if config is POOLED else "features")
    again = finish(case.test, tmp_path / "again", config, codebook=case.others, features=folder)
    assert seen == []
    assert again.scores == first.scores
    assert not (tmp_path / "again" / folder.name).exists()


def test_features_that_do_not_fit(case: Case, tmp_path: Path) -> None:
    features = case.path / "features"
    with pytest.raises(StoreError, match="was made by another network"):
        finish(case.test, tmp_path / "a", network=other_network(), codebook=case.others, features=features)
    other = dataclasses.replace(PALETTE_CONFIG, extract=ExtractConfig(scales=(1.0,), max_side=64))
    with pytest.raises(StoreError, match=r"was made with other settings .*extract.max_side was 1024, not 64"):
        finish(case.test, tmp_path / "b", other, codebook=case.others, features=features)
    with pytest.raises(StoreError, match=r"was made with other settings .*pooled was None, not True"):
        finish(case.test, tmp_path / "c", POOLED, features=features)
    with pytest.raises(StoreError, match="is not a features folder"):
        finish(case.test, tmp_path / "d", codebook=case.others, features=tmp_path)


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_features_that_lack_a_photo_of_the_database(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    fewer = dataclasses.replace(case.test, photos=case.test.photos[:3])
    finish(fewer, tmp_path / "fewer", config, codebook=case.others)
    folder = tmp_path / "fewer" / ("pooled" if config is POOLED else "features")
    with pytest.raises((DatasetError, StoreError), match=r"db3\.png"):
        finish(case.test, tmp_path / "run", config, codebook=case.others, features=folder)
    found = finish(case.test, tmp_path / "run", config, codebook=case.others, features=folder, allow_missing=True)
    assert found.card["dataset"]["missing"] == ["db3.png", "db4.png"]


def test_equal_scores_do_not_depend_on_the_order_of_the_features(case: Case, tmp_path: Path) -> None:
    """Four photos of one colour are in the order of the set, whatever order their features were extracted in."""
    photos = tuple(Photo(paint(tmp_path / f"{n}.png", GREY), f"{n}.png") for n in range(4))
    query = Query(Photo(paint(tmp_path / "q.png", WHITE), "q.png"), (2,))
    test = RetrievalSet("grey", photos, (query,))
    listed = [query.photo, *photos[::-1]]
    collections.deque(extract_to(tmp_path / "backwards", palette_network(), listed, PALETTE_CONFIG.extract), maxlen=0)
    finish(test, tmp_path / "run", codebook=case.others, features=tmp_path / "backwards")
    assert kept_rankings(tmp_path / "run") == [[0, 1, 2, 3]]


# -- The card


def test_the_card_says_everything(case: Case) -> None:
    card: Any = case.once.card
    network = palette_network()
    data = card["dataset"]
    assert (data["name"], data["protocol"], data["images"], data["queries"]) == ("painted", "plain", 5, 2)
    assert (data["distractors"], data["missing"], data["queries_without_positives"]) == (3, [], 0)
    assert re.fullmatch("[0-9a-f]{64}", data["listing_sha256"])
    assert re.fullmatch("[0-9a-f]{64}", data["distractors_listing_sha256"])
    assert data["crop"].startswith("0 of 2 queries are cropped")
    assert "turned upright by the EXIF tag" in data["exif"]
    assert card["network"]["digest"] == network.digest
    assert (card["network"]["ratio_test"], card["network"]["hinge"]) == ("not recorded", "not recorded")
    assert of_disk(card["extract"])["scales"] == [1.0]
    words = Index.open(case.path / "index").codebook
    assert card["codebook"]["digest"] == words.digest
    assert (card["codebook"]["words"], card["codebook"]["images"], card["codebook"]["features"]) == (2, 4, 16)
    assert card["codebook"]["settings"] == {"words": 2, "rounds": 2, "points_per_word": 256, "seed": 0}
    search = {"assignments": 1, "alpha": 3.0, "threshold": 0.0, "idf": False}
    assert card["asmk"] == {"kernel": "binary", "search": search}
    assert card["memory"]["images"] == 8
    facts = Index.open(case.path / "index").info()
    assert card["memory"]["words_per_image"] == facts.words_per_image > 0
    assert card["memory"]["bytes_per_image"] == facts.postings * (8 + 2) / 8, "a code of up to 64 bits, and an id"
    assert card["software"].keys() == {"superfeat", "python", "torch", "numpy", "numba", "pillow", "machine"}
    assert card["software"]["torch"] == torch.__version__
    assert card["seconds"].keys() == {"features", "codebook", "index", "search"}


def test_the_card_in_words(case: Case) -> None:
    text = (case.path / "card.txt").read_text()
    card: Any = case.once.card
    for words in (
        "2 queries of painted (plain protocol) against 5 images and 3 distractors.",
        "0 of 2 queries are cropped",
        "turned upright by the EXIF tag",
        "none is missing",
        f"FIRe, weights {card['network']['digest'][:12]}",
        "ratio test 'not recorded' and hinge 'not recorded'",
        "Longest side 1024, 1 scales (1), at most 1000 features per image",
        f"Codebook {card['codebook']['digest'][:12]}: 2 words, learned from 4 images, seed 0.",
        "ASMK, binary: 1 words per query feature, alpha 3.0, threshold 0.0, idf off",
        f"{card['memory']['words_per_image']} words and {card['memory']['bytes_per_image']} bytes per image",
        f"superfeat {card['software']['superfeat']}",
        f"torch {card['software']['torch']}",
        "Seconds: features ",
    ):
        assert words in text


def test_the_card_of_global_vectors(case: Case, tmp_path: Path) -> None:
    card = finish(case.test, tmp_path / "run", POOLED, distractors=case.distractors).card
    assert (card["method"], card["codebook"], card["asmk"]) == ("pooled", None, None)
    assert card["memory"] == {"bytes_per_image": 12, "images": 8}
    assert "Global vectors, 12 bytes per image, compared by cosine." in (tmp_path / "run" / "card.txt").read_text()


def test_the_card_names_the_files_that_ask(case: Case, tmp_path: Path) -> None:
    for photo in (*case.test.photos, case.test.queries[0].photo):
        shutil.copy(photo.path, tmp_path / photo.name)
    queries: list[dict[str, Any]] = [
        {"img": "q0.png", "pos": [1], "bbox_rel": [0, 0, 0.5, 1]},
        {"img": "q0.png", "pos": []},
    ]
    gnd = write_gnd(tmp_path, [photo.name for photo in case.test.photos], queries)
    card = finish(read_benchmark(str(gnd)), tmp_path / "run", codebook=case.others).card
    assert card["dataset"]["files"] == {"gnd.json": hashlib.sha256(gnd.read_bytes()).hexdigest()}
    assert card["dataset"]["crop"].startswith("1 of 1 queries are cropped to their boxes")
    assert card["dataset"]["queries_without_positives"] == 1
    text = (tmp_path / "run" / "card.txt").read_text()
    assert "1 queries have no right answer and are left out." in text


def test_what_is_returned_is_what_is_on_disk(case: Case) -> None:
    kept = open_run(case.path)
    assert of_disk(case.once.card) == kept.card
    assert of_disk(case.once.scores) == kept.scores


def test_a_finished_run_is_opened_as_it_was_returned(case: Case) -> None:
    assert case.once.card == open_run(case.path).card


def test_equal_inputs_have_equal_cards(case: Case, tmp_path: Path) -> None:
    again = finish(case.test, tmp_path / "again", codebook=case.others, distractors=case.distractors)
    assert_same(again, case.once)
    names = ("numbers.npy", "scores.npy")
    assert [(tmp_path / "again" / "rankings" / name).read_bytes() for name in names] == [
        (case.path / "rankings" / name).read_bytes() for name in names
    ]


def test_equal_inputs_take_equal_room(case: Case, tmp_path: Path) -> None:
    """To the byte, and however many words the codebook has: its size is not an image's."""
    memory = [
        finish(case.test, tmp_path / str(words), codebook=given_words(words)).card["memory"] for words in (2, 900)
    ]
    assert memory[0] == memory[1]


def given_words(count: int) -> Codebook:
    """Two words in use, the others far from everything."""
    far = np.full((count - 2, 3), 1e3, np.float32) + np.arange(count - 2, dtype=np.float32)[:, None]
    near = np.asarray([[0.5, 0.5, 0.5], [-0.5, -0.5, -0.5]], np.float32)
    return Codebook(np.concatenate((near, far)), palette_network().digest)


def test_words_are_learned_once_for_the_same_photos(
    case: Case, tmp_path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))

    def learn(folder: Path, number: int) -> str:
        photos = [Photo(folder / photo.path.name, photo.name) for photo in case.others]
        words = finish(case.test, tmp_path / f"run{number}", codebook=photos).card["codebook"]
        assert words is not None
        return words["digest"]

    source = case.others[0].path.parent
    first = learn(source, 0)
    assert learn(shutil.copytree(source, tmp_path / "elsewhere"), 1) == first
    assert trained == [1]
    changed = shutil.copytree(source, tmp_path / "changed") / case.others[2].path.name
    with changed.open("ab") as file:
        file.write(b"x")
    learn(changed.parent, 2)
    assert trained == [1, 1]
    (folder, _) = sorted((tmp_path / "cache" / "codebooks").iterdir())
    assert [path.name for path in folder.iterdir()] == ["codebook"]  # what it was made from is not kept


def test_what_words_were_made_from_is_swept_away(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the process ended before it could."""
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))

    save = Codebook.save

    def killed(self: Codebook, path: Path) -> None:
        save(self, path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Codebook, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            finish(case.test, tmp_path / "run", codebook=case.others)
    finish(case.test, tmp_path / "run", codebook=case.others)
    (folder,) = (tmp_path / "cache" / "codebooks").iterdir()
    assert [path.name for path in folder.iterdir()] == ["codebook"]


@pytest.mark.parametrize("change", ["network", "max_side", "words", "seed", "images"])
def test_other_words_for_other_settings(
    change: str, case: Case, tmp_path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    finish(case.test, tmp_path / "first", codebook=case.others)
    config, codebook = PALETTE_CONFIG, PALETTE_CONFIG.codebook
    if change == "max_side":
        config = dataclasses.replace(config, extract=ExtractConfig(scales=(1.0,), max_side=16))
    elif change == "words":
        config = dataclasses.replace(config, codebook=dataclasses.replace(codebook, words=3))
    elif change == "seed":
        config = dataclasses.replace(config, codebook=dataclasses.replace(codebook, seed=1))
    elif change == "images":
        config = dataclasses.replace(config, codebook_images=3)
    network = other_network() if change == "network" else palette_network()
    card: Any = finish(case.test, tmp_path / "second", config, network=network, codebook=case.others).card
    assert trained == [1, 1]
    assert card["codebook"]["images"] == (3 if change == "images" else 4)
    assert card["codebook"]["settings"]["seed"] == config.codebook.seed


def test_scales_of_the_search_do_not_change_the_words(case: Case, tmp_path: Path, trained: list[int]) -> None:
    config = dataclasses.replace(PALETTE_CONFIG, extract=ExtractConfig(scales=(1.0, 0.5)))
    finish(case.test, tmp_path / "run", config, codebook=case.others)
    assert trained == []


def test_a_given_codebook(case: Case, tmp_path: Path, trained: list[int]) -> None:
    words = given_words(2)
    card: Any = finish(case.test, tmp_path / "run", codebook=words).card
    assert (card["codebook"]["digest"], trained) == (words.digest, [])
    assert f"Codebook {words.digest[:12]}: 2 words, given." in (tmp_path / "run" / "card.txt").read_text()
    other = Codebook(words.centroids, "f" * 64)
    with pytest.raises(SuperfeatError, match="another network"):
        finish(case.test, tmp_path / "other", codebook=other)


def test_words_need_photos(case: Case, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="words must be learned from photos of other things"):
        finish(case.test, tmp_path / "run")
    with pytest.raises(SuperfeatError, match="none of the 1 photos could be read"):
        finish(case.test, tmp_path / "run", codebook=[Photo(truncated(tmp_path / "bad.png"), "bad.png")])
    assert_same(
        finish(case.test, tmp_path / "run", codebook=case.others),
        finish(case.test, tmp_path / "b", codebook=case.others),
    )


# -- Missing and unreadable


def lacking(case: Case, tmp_path: Path, photos: Sequence[int] = (), queries: Sequence[int] = ()) -> RetrievalSet:
    """The set with some of its files elsewhere, where there is nothing."""
    gone = tmp_path / "gone"
    return dataclasses.replace(
        case.test,
        photos=tuple(
            dataclasses.replace(photo, path=gone / photo.name) if number in photos else photo
            for number, photo in enumerate(case.test.photos)
        ),
        queries=tuple(
            dataclasses.replace(query, photo=Photo(gone / query.photo.name, query.photo.name))
            if number in queries
            else query
            for number, query in enumerate(case.test.queries)
        ),
    )


def spoilt(case: Case, tmp_path: Path, photos: Sequence[int] = (), queries: Sequence[int] = ()) -> RetrievalSet:
    """The same with files that end in the middle."""
    test = lacking(case, tmp_path, photos, queries)
    for photo in (*test.photos, *(query.photo for query in test.queries)):
        if photo.path.parent == tmp_path / "gone":
            truncated(photo.path)
    return test


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
@pytest.mark.parametrize("what", ["missing", "unreadable"])
def test_a_photo_that_is_not_found(what: str, config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    """It is in no ranking but is still wanted; the others stand as they stood."""
    whole = finish(case.test, tmp_path / "whole", config, codebook=case.others)
    rankings = kept_rankings(tmp_path / "whole")
    test = (lacking if what == "missing" else spoilt)(case, tmp_path, photos=[1])
    found = finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=True)
    left = [[number for number in ranking if number != 1] for ranking in rankings]
    assert kept_rankings(tmp_path / "run") == left
    aps = [query["ap"]["all"] for query in found.scores["queries"]]
    expected = [
        100 * average_precision(ranking, query.positives) for ranking, query in zip(left, test.queries, strict=True)
    ]
    assert aps == pytest.approx(expected, abs=1e-4)
    maps: Any = [run.scores["grades"]["all"]["map"] for run in (found, whole)]
    assert maps[0] < maps[1]
    assert found.card["dataset"]["missing"] == ["db1.png"]
    assert "1 could not be read: db1.png." in (tmp_path / "run" / "card.txt").read_text()


def test_missing_photos_are_refused_with_their_places(case: Case, tmp_path: Path) -> None:
    test = lacking(case, tmp_path, photos=[3], queries=[1])
    with pytest.raises(DatasetError, match=r"2 photos of painted are not there \(db3\.png, q1\.png") as refused:
        finish(test, tmp_path / "run", codebook=case.others)
    assert str(tmp_path / "gone" / "db3.png") in str(refused.value)
    assert "allow that they are missing" in str(refused.value)
    assert refused.value.arguments == ("allow_missing",)
    assert not (tmp_path / "run").exists()
    distractors = [*case.distractors, Photo(tmp_path / "gone" / "far.png", "far.png")]
    with pytest.raises(DatasetError, match=r"1 photos of painted are not there \(far\.png"):
        finish(case.test, tmp_path / "run", codebook=case.others, distractors=distractors)


def test_many_missing_photos_are_all_counted(case: Case, tmp_path: Path) -> None:
    more = tuple(Photo(tmp_path / "gone" / f"{n}.png", f"{n}.png") for n in range(15))
    test = dataclasses.replace(case.test, photos=case.test.photos + more)
    found = finish(test, tmp_path / "allowed", codebook=case.others, allow_missing=True)
    assert found.card["dataset"]["missing"] == [photo.name for photo in more]
    assert "15 could not be read: 0.png, 1.png, 2.png, 3.png, 4.png, …" in (tmp_path / "allowed/card.txt").read_text()
    with pytest.raises(DatasetError, match=r"15 photos of painted are not there \(0\.png, 1\.png, 2\.png, \.\.\."):
        finish(test, tmp_path / "run", codebook=case.others)


def test_an_unreadable_photo_is_refused_unless_allowed(case: Case, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"db1\.png"):
        finish(spoilt(case, tmp_path, photos=[1]), tmp_path / "run", codebook=case.others)


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_an_unreadable_query(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    whole = finish(case.test, tmp_path / "whole", config, codebook=case.others)
    test = spoilt(case, tmp_path, queries=[0])
    with pytest.raises(DatasetError, match=r"1 photos of painted could not be used .*q0\.png.*allow that they"):
        finish(test, tmp_path / "run", config, codebook=case.others)
    found = finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=True)
    assert found.scores["queries"] == whole.scores["queries"][1:]
    assert found.scores["grades"]["all"]["queries"] == found.card["dataset"]["queries"] == 1
    (name,) = found.card["dataset"]["missing"]
    assert "q0.png" in name


def test_a_missing_query_is_named_once(case: Case, tmp_path: Path) -> None:
    test = lacking(case, tmp_path, queries=[0])
    found = finish(test, tmp_path / "run", codebook=case.others, allow_missing=True)
    assert len(found.card["dataset"]["missing"]) == 1


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_no_query_can_be_read(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    test = spoilt(case, tmp_path, queries=[0, 1])
    for allowed in (False, True):
        with pytest.raises(
            DatasetError,
            match=r"2 photos of painted could not be|none of the 2 queries of painted has a photo",
        ):
            finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=allowed)


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_no_photo_of_the_database_can_be_read(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    test = spoilt(case, tmp_path, photos=range(5))
    found = finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=True)
    assert found.scores["grades"]["all"]["map"] == 0
    assert found.card["dataset"]["missing"] == [f"db{n}.png" for n in range(5)]


@pytest.mark.parametrize(
    ("what", "config"),
    [
        pytest.param("missing", PALETTE_CONFIG),
        ("missing", POOLED),
        ("unreadable", PALETTE_CONFIG),
        pytest.param("unreadable", POOLED),
    ],
    ids=["missing-asmk", "missing-pooled", "unreadable-asmk", "unreadable-pooled"],
)
def test_distractors_that_cannot_be_read_are_named_once(
    what: str, config: EvaluateConfig, case: Case, tmp_path: Path
) -> None:
    path = tmp_path / "far.png"
    if what == "unreadable":
        truncated(path)
    distractors = [*case.distractors, Photo(path, "far.png")]
    for _ in range(2):  # a run that is called again says the same
        found = finish(
            case.test, tmp_path / "run", config, codebook=case.others, distractors=distractors, allow_missing=True
        )
        (name,) = found.card["dataset"]["missing"]
        assert name.endswith("far.png")


def test_a_photo_that_is_brought_later(case: Case, tmp_path: Path) -> None:
    test = lacking(case, tmp_path, photos=[1])
    finish(test, tmp_path / "run", codebook=case.others, allow_missing=True)
    test.photos[1].path.parent.mkdir()
    shutil.copy(case.test.photos[1].path, test.photos[1].path)
    found = finish(test, tmp_path / "run", codebook=case.others, allow_missing=True)
    fresh = finish(test, tmp_path / "fresh", codebook=case.others)
    assert found.card["dataset"] == fresh.card["dataset"]
    assert found.scores["grades"] == fresh.scores["grades"]


def test_a_photo_that_has_changed_since(tmp_path: Path) -> None:
    """The same command after a photo was replaced says what the photo is now, or refuses."""
    test, others = painted_set(tmp_path / "set")
    finish(test, tmp_path / "run", codebook=others)
    paint_random(test.photos[1].path, 999)
    fresh = finish(test, tmp_path / "fresh", codebook=others)
    found = fresh
    with contextlib.suppress(StoreError):
        found = finish(test, tmp_path / "run", codebook=others)
    assert found.scores["grades"] == fresh.scores["grades"]


# -- Odd sets


def asked(path: Path, positives: Sequence[int], junk: Sequence[int] = (), box: Any = None) -> Query:
    return Query(Photo(path, path.name, box), tuple(positives), tuple(junk))


def test_names_that_stand_twice(case: Case, tmp_path: Path) -> None:
    """Two photos of one name (folders of the same content) are two photos; one path that stands twice is two too."""
    first, second, third = (photo.path for photo in case.test.photos[:3])
    photos = (Photo(first, "a"), Photo(second, "a"), Photo(third, "b"), Photo(third, "b"))
    query = case.test.queries[0].photo
    test = RetrievalSet("twice", photos, (Query(query, (1,)), Query(photos[3], (2,), (3,))))
    found = finish(test, tmp_path / "run", codebook=case.others)
    rankings = kept_rankings(tmp_path / "run")
    assert [sorted(ranking) for ranking in rankings] == [[0, 1, 2, 3]] * 2
    plain = dataclasses.replace(
        test, photos=tuple(dataclasses.replace(photo, name=str(number)) for number, photo in enumerate(photos))
    )
    finish(plain, tmp_path / "plain", codebook=case.others)
    assert kept_rankings(tmp_path / "plain") == rankings
    assert rankings[1][:2] == [2, 3]
    assert [hit["name"] for hit in found.scores["queries"][1]["hits"]][:2] == ["b", "b"]


@pytest.mark.parametrize("names", [("a", "a", "a#1"), ("query 0: q0.png", "b", "c"), ("distractor/0.png", "b", "c")])
def test_names_like_those_that_we_give(names: tuple[str, ...], case: Case, tmp_path: Path) -> None:
    photos = tuple(Photo(photo.path, name) for photo, name in zip(case.test.photos, names, strict=False))
    test = RetrievalSet("names", photos, (Query(case.test.queries[0].photo, (1,)),))
    plain = dataclasses.replace(test, photos=case.test.photos[:3])
    for one, run in ((test, "run"), (plain, "plain")):
        finish(one, tmp_path / run, codebook=case.others, distractors=case.distractors)
    assert kept_rankings(tmp_path / "run") == kept_rankings(tmp_path / "plain")


def test_a_query_that_is_in_the_database(case: Case, tmp_path: Path, written: list[str]) -> None:
    """It is extracted once, and with a box once more."""
    photos = case.test.photos[:3]
    whole = Query(photos[0], (1,), (0,))
    part = Query(dataclasses.replace(photos[0], box=(0.0, 0.0, 8.0, 8.0)), (1,), (0,))
    test = RetrievalSet("own", photos, (whole, part, Query(photos[1], (1, 2))))
    found = finish(test, tmp_path / "run", codebook=case.others)
    assert written == ["0 db0.png", "1 db1.png", "2 db2.png", "query 1 db0.png"]
    rankings = kept_rankings(tmp_path / "run")
    assert (rankings[0][0], rankings[2][0]) == (0, 1)  # each finds itself first
    hits = found.scores["queries"][0]["hits"]
    assert hits[0]["judgement"] == "junk"
    scores = np.load(tmp_path / "run" / "rankings" / "scores.npy")
    assert scores[0, 0] == pytest.approx(1)
    features = FeatureStore(tmp_path / "run" / "features")
    assert np.ptp(features["query 1 db0.png"].vectors, axis=0).max() == 0  # a quarter of the photo, of one colour
    assert np.ptp(features["0 db0.png"].vectors, axis=0).max() > 0
    assert found.scores["queries"][0]["positives"] == 1
    assert found.card["dataset"]["crop"].startswith("1 of 3 queries")


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_equal_scores_stand_in_the_order_of_the_database(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    photos = tuple(Photo(paint(tmp_path / f"{n}.png", GREY), f"{n}.png") for n in (3, 1, 2, 0))
    test = RetrievalSet("grey", photos, (asked(paint(tmp_path / "q.png", GREY), [3]),))
    found = finish(test, tmp_path / "run", config, codebook=case.others)
    assert kept_rankings(tmp_path / "run") == [[0, 1, 2, 3]]
    assert found.scores["grades"]["all"]["map"] == pytest.approx(100 * average_precision([0, 1, 2, 3], [3]), abs=1e-4)


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_a_database_of_one_image(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    test = RetrievalSet("one", case.test.photos[:1], (Query(case.test.queries[0].photo, (0,)),))
    found = finish(test, tmp_path / "run", config, codebook=case.others)
    assert found.scores["grades"]["all"]["map"] == 100
    assert kept_rankings(tmp_path / "run") == [[0]]
    alone = RetrievalSet("itself", case.test.photos[:1], (Query(case.test.photos[0], (0,)),))
    assert finish(alone, tmp_path / "alone", config, codebook=case.others).scores["grades"]["all"]["map"] == 100


def test_a_query_that_shares_no_word(tmp_path: Path) -> None:
    """All scores are 0, so that the order is that of the database."""
    words = Codebook(np.asarray([[1, 1, 1], [-1, -1, -1]], np.float32), palette_network().digest)
    photos = tuple(Photo(paint(tmp_path / f"{n}.png", (n, n, n)), f"{n}.png") for n in (40, 20, 30))
    test = RetrievalSet("dark", photos, (asked(paint(tmp_path / "q.png", (250, 250, 250)), [2]),))
    found = finish(test, tmp_path / "run", codebook=words)
    assert kept_rankings(tmp_path / "run") == [[0, 1, 2]]
    assert [hit["score"] for hit in found.scores["queries"][0]["hits"]] == [0, 0, 0]
    assert found.scores["grades"]["all"]["map"] == pytest.approx(100 * average_precision([0, 1, 2], [2]), abs=1e-4)


def test_a_photo_too_small_for_a_feature(case: Case, tmp_path: Path) -> None:
    """At scale 0.5 a photo of one pixel has none: it is found last, and a query without features finds nothing."""
    config = dataclasses.replace(PALETTE_CONFIG, extract=ExtractConfig(scales=(0.5,)))
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    dot = Photo(tmp_path / "dot.png", "dot.png")
    test = RetrievalSet("dots", (dot, *case.test.photos[:2]), (Query(case.test.photos[0], (1,)), Query(dot, (2,))))
    found = finish(test, tmp_path / "run", config, codebook=case.others)
    rankings = kept_rankings(tmp_path / "run")
    assert rankings[0][0] == 1
    assert rankings[1] == [0, 1, 2]
    assert found.scores["queries"][1]["ap"]["all"] == pytest.approx(100 * average_precision([0, 1, 2], [2]), abs=1e-4)


def test_a_real_network_by_slow_loops(tmp_path: Path) -> None:
    """The kernel with other settings than those of the command line's test, pooled vectors beside it."""
    network = tiny_network()
    database = draw_many(tmp_path / "db", 6, 0)
    others = draw_many(tmp_path / "others", 6, 500)
    query = draw(tmp_path / "q.png", 2, 5)
    test = RetrievalSet("real", tuple(Photo(path, path.name) for path in database), (asked(query, [2, 4]),))
    search = SearchConfig(assignments=2, alpha=2.5, threshold=-0.2)
    asmk = dataclasses.replace(CONFIG, index=IndexConfig(search=search))
    pooled = dataclasses.replace(CONFIG, method="pooled")
    for config, words in ((asmk, others), (pooled, [])):
        run = tmp_path / config.method
        photos = [Photo(path, path.name) for path in words]
        found = finish(test, run, config, network=network, codebook=photos)
        (ranking,) = rank(network, config, database, [(query, None)], words)
        assert kept_rankings(run) == [ranking]
        assert found.scores["grades"]["all"]["map"] == pytest.approx(100 * average_precision(ranking, [2, 4]), abs=1e-4)


# -- Two runs


def test_a_run_is_the_same_as_itself(case: Case) -> None:
    kept = open_run(case.path)
    found = compare(kept.scores, kept.scores, (kept.card, kept.card))
    assert found["settings"] == []
    grade = found["grades"]["all"]
    assert (grade["won"], grade["lost"], grade["queries"]) == ([], [], 2)
    assert grade["first"] == grade["second"] == pytest.approx(kept.scores["grades"]["all"]["map"], abs=1e-3)
    assert grade["bootstrap"] == {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
    lines = list(comparison_in_words(found))
    assert lines[0] == "the cards are the same"
    assert "p = 1.0000: not significant over 2 queries" in lines[1]
    assert lines[2:] == ["  won 0", "  lost 0"]


def test_won_and_lost(case: Case) -> None:
    """From made-up scores of seven queries: won by most first, lost by most first; one has no value."""
    before = [10.0, 50.0, 50.0, 70.0, None, 20.0, 30.0]
    after = [40.0, 20.0, 50.005, 65.0, 80.0, 90.0, 30.0]

    def scores(values: Sequence[float | None]) -> Any:
        queries = [{"name": f"q{n}", "positives": 1, "box": None, "ap": {"all": ap}} for n, ap in enumerate(values)]
        return {"dataset": "made up", "grades": {"all": {}}, "queries": queries}

    card = of_disk(case.once.card)
    other: Any = {**card, "extract": {**card["extract"], "max_side": 480}, "codebook": None, "seconds": {}}
    found = compare(scores(before), scores(after), (card, other))
    assert [change["setting"] for change in found["settings"]] == ["extract.max_side", "codebook"]
    assert (found["settings"][0]["first"], found["settings"][0]["second"]) == (1024, 480)
    grade = found["grades"]["all"]
    assert [one["query"] for one in grade["won"]] == ["q5", "q0"]
    assert [one["query"] for one in grade["lost"]] == ["q1", "q3"]
    assert grade["won"][0] == {"query": "q5", "first": 20.0, "second": 90.0}
    assert grade["queries"] == 6
    nan = [[np.nan if value is None else value for value in values] for values in (before, after)]
    assert grade["bootstrap"] == paired_bootstrap(np.asarray(nan[0]), np.asarray(nan[1]))
    text = "\n".join(comparison_in_words(found))
    assert "extract.max_side: 1024 -> 480" in text
    assert "won 2: q5 20.0 -> 90.0, q0 10.0 -> 40.0" in text
    assert "lost 2: q1 50.0 -> 20.0, q3 70.0 -> 65.0" in text


def test_runs_of_different_sets_are_not_compared(case: Case, tmp_path: Path) -> None:
    other = dataclasses.replace(case.test, name="other", queries=case.test.queries[:1])
    found = finish(other, tmp_path / "other", codebook=case.others)
    with pytest.raises(
        SuperfeatError, match=r"different queries \(painted: 2, other: 1\); compare runs of the same set"
    ):
        compare(case.once.scores, found.scores, (case.once.card, found.card))
    boxed = dataclasses.replace(case.test.queries[0].photo, box=(0.0, 0.0, 8.0, 8.0))
    cropped = dataclasses.replace(
        case.test, queries=(dataclasses.replace(case.test.queries[0], photo=boxed), case.test.queries[1])
    )
    found = finish(cropped, tmp_path / "cropped", codebook=case.others)
    with pytest.raises(SuperfeatError, match="different queries"):
        compare(case.once.scores, found.scores, (case.once.card, found.card))


def test_the_same_queries_of_other_photos_are_told(case: Case, tmp_path: Path) -> None:
    """Two sets of the same names can be compared, and the first thing that is said is that the photos differ."""
    test, others = painted_set(tmp_path / "other")
    paint(test.photos[0].path, WHITE)
    found = finish(test, tmp_path / "run", codebook=others, distractors=case.distractors)
    kept = compare(case.once.scores, found.scores, (case.once.card, found.card))
    assert kept["settings"][0]["setting"] == "dataset.listing_sha256"
