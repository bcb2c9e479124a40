"""A protocol run as a library call: resumed from anywhere, refused in other folders, from features that are there."""

import collections
import dataclasses
import itertools
import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures_evaluate import (
    GREY,
    PALETTE_CONFIG,
    POOLED,
    WHITE,
    Case,
    assert_same,
    finish,
    kept_rankings,
    of_disk,
    other_network,
    paint,
    paint_random,
    palette_network,
    steps,
)
from superfeat.config import EvaluateConfig, ExtractConfig, IndexConfig, SearchConfig
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.errors import DatasetError, StoreError
from superfeat.evaluation.run import open_run
from superfeat.extraction.extract import extract_to
from superfeat.extraction.folder import FeatureStore
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.storage.store import writer_lock

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
