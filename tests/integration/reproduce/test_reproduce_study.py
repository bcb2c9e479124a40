"""superfeat reproduce: what is shared and gone on with, given weights, own photos, the command line."""

import collections
import dataclasses
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures_reproduce import TINY, Made, last_epoch, require_error, run, score, strictly, trained_with
from superfeat.datasets.folders import read_folders
from superfeat.errors import SuperfeatError
from superfeat.pages.reproduction import write_reproduced
from superfeat.settings import overlay
from superfeat.storage.store import as_json, read_json
from superfeat.studies.reproduce import catalogue
from superfeat.studies.reproduce.catalogue import BY_NAME, NAMES, NOT_MEASURED
from superfeat.studies.reproduce.outcome import published
from superfeat.studies.reproduce.study import Study
from superfeat.weights import load_network

pytest.importorskip("matplotlib")
WITHOUT_LOG = "table-pretraining"  # what cannot be measured with given weights


# --- sharing and going on ---------------------------------------------------------------------------------------------


AGAIN = (
    "table-1",
    "table-sota",
    "table-update",
    "table-pretraining",
    "figure-match-ratio",
    "figure-correlation",
    "figure-memory",
    "ablation-n",
)


def test_nothing_is_made_again(made: Made, calls: collections.Counter[str]) -> None:
    again = Study(TINY, made.study.work, workers=1)
    for name in AGAIN:
        assert as_json(catalogue.measure(name, again).outcome.rows) == as_json(made.outcomes[name].rows)
    assert calls["train"] == calls["pretrain"] == 0
    assert set(calls) <= {"run_protocol", "run_protocol: search", "run_protocol: end", "train", "pretrain"}


def test_tables_share_what_they_have_in_common(made: Made) -> None:
    folders = collections.Counter(folder.name.split("-")[0] for folder in (made.study.work / "networks").iterdir())
    # The plain one; N = 4; T = 1; T = 3 by two updates; smaller templates.
    assert folders["pretrained"] == 6
    assert folders["how"] == 1


class Stopped(Exception):  # noqa: N818 - it is no error
    """Somebody pressed Ctrl-C."""


STAGES = ("pretraining", ": mining", ": step", ": epoch", ": features", ": codebook features", ": search")


def test_interrupted_everywhere_it_gives_the_same(made: Made, place: Path) -> None:
    left = list(STAGES)

    def interrupt(what: str, done: int, total: int) -> None:
        for stage in left:
            if stage in what and (stage == "pretraining" or what.endswith(stage)):
                left.remove(stage)
                raise Stopped

    shutil.rmtree(place / "cache")  # or the codebooks would be there
    rows, stops = None, 0
    while rows is None:
        stopped = Study(TINY, place / "stopped", images=made.study.work / "drawn", workers=1, on_progress=interrupt)
        try:
            rows = [stopped.maps(stopped.train(changes)) for changes in ({}, {"losses.decorrelation": 0.0})]
        except Stopped:
            stops += 1
    assert left == []
    assert stops == len(STAGES)
    names: tuple[dict[str, float], ...] = ({}, {"losses.decorrelation": 0.0})
    assert rows == [[score(trained_with(made, changes))] for changes in names]
    for changes in names:
        before, after = load_network(trained_with(made, changes) / "last"), stopped.train(changes).network
        assert before.digest == after.digest, "the same weights, to the bit"
        ours, theirs = last_epoch(trained_with(made, changes)), dict(stopped.train(changes).log[-1])
        timed = {"mining_seconds"}
        assert {key: ours[key] for key in ours.keys() - timed} == {key: theirs[key] for key in theirs.keys() - timed}


def test_marks_of_what_is_done_are_put_back(made: Made, place: Path, calls: collections.Counter[str]) -> None:
    work = place / "repaired"
    shutil.copytree(made.study.work / "drawn", work / "drawn")
    study = Study(TINY, work, workers=1)
    trained = study.train()
    marks = sorted((work / "networks").glob("*/done.json"))
    assert len(marks) == 2
    before = {mark: mark.read_bytes() for mark in marks}
    digest, log, steps = trained.network.digest, trained.log, calls["train: step"]
    for mark in marks:
        mark.unlink()
    again = study.train()
    assert {mark: mark.read_bytes() for mark in marks} == before
    assert (again.path, again.network.digest, again.log) == (trained.path, digest, log)
    assert calls["train: step"] == steps, "no step is taken again"


def test_drawing_goes_on(place: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        assert (what, total) == ("drawing landmarks", 8)
        if done == 3:
            raise Stopped

    few = dataclasses.replace(TINY, recipe=overlay(TINY.recipe, {"data": {"things": 4, "views": 2}}))
    with pytest.raises(Stopped):
        Study(few, place / "drawing", on_progress=interrupt)
    files = sorted((place / "drawing" / "drawn").glob("*/*.jpg"))
    assert len(files) == 3
    times = [file.stat().st_mtime_ns for file in files]
    assert len(Study(few, place / "drawing").training_set.photos) == 6, "of the eight, two are held out"
    assert [file.stat().st_mtime_ns for file in files] == times


def test_a_study_may_be_named_by_another_path(
    made: Made, place: Path, monkeypatch: pytest.MonkeyPatch, calls: collections.Counter[str]
) -> None:
    study = Study(TINY, place / "named", images=made.study.work / "drawn", workers=1)
    study.train()
    monkeypatch.chdir(place)
    Study(TINY, Path("named"), images=made.study.work / "drawn", workers=1).train()
    assert calls["train"] == calls["pretrain"] == 1


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("superfeat.studies.reproduce.study", "figure-scales"),
        ("superfeat.studies.reproduce.study", "figure-redundancy"),
        ("superfeat.studies.reproduce.study", "table-speed"),
        ("superfeat.studies.analyses", "figure-correlation"),
        ("superfeat.studies.analyses", "figure-attention"),
        ("superfeat.studies.analyses", "figure-attention-scales"),
    ],
)
def test_the_device_is_used(made: Made, module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    def note(*arguments: Any, device: str = "cpu", **options: Any) -> None:
        devices.append(device)
        raise Stopped

    monkeypatch.setattr(f"{module}.extract", note)
    with pytest.raises(Stopped):
        catalogue.measure(name, Study(TINY, made.study.work, workers=1, device="cuda"))
    assert devices == ["cuda"]


def test_what_has_no_value_is_still_json(made: Made, place: Path) -> None:
    size = dataclasses.replace(TINY, neighbours=(1, 99))
    found = catalogue.measure("figure-redundancy", Study(size, made.study.work, workers=1))
    write_reproduced(found, place / "nan", "superfeat")
    strictly((place / "nan" / "numbers.json").read_text(encoding="utf-8"))


# --- given weights ----------------------------------------------------------------------------------------------------


def test_given_weights_that_do_not_fit(place: Path, made: Made) -> None:
    other = trained_with(made, {"network.lit.templates": 4}) / "last"
    require_error(run("table-2", "--weights", other, "-o", place / "unfit"), "does not fit", "templates is 6", "have 4")
    require_error(run("table-2", "--weights", place / "nowhere", "-o", place / "unfit"), "no weights at", "nowhere")


@pytest.fixture(scope="module")
def alone(made: Made, place: Path) -> Path:
    """A pretrained network of which nothing else is known."""
    start = Path(read_json(trained_with(made) / "run.json")["recipe"]["weights"])
    shutil.copytree(start, place / "alone" / "network")
    return place / "alone" / "network"


def test_weights_without_a_log_of_pretraining(alone: Path, place: Path, made: Made) -> None:
    result = run(WITHOUT_LOG, "--images", made.study.work / "drawn", "--weights", alone, "-o", place / "log")
    require_error(result, "no log of their pretraining", "leave them out (--weights)")


def test_one_that_fails_does_not_cost_the_page(alone: Path, place: Path, made: Made) -> None:
    names = ("figure-ids-trained", WITHOUT_LOG)
    run(*names, "--images", made.study.work / "drawn", "--weights", alone, "-o", place / "log", "--workers", "1")
    assert (place / "log" / "mini" / "figure-ids-trained" / "numbers.json").is_file()
    assert (place / "log" / "mini" / "index.html").is_file()


def test_the_log_beside_the_weights_is_of_a_training(made: Made) -> None:
    weights = str(trained_with(made) / "last")
    with pytest.raises(SuperfeatError, match="pretraining"):
        catalogue.measure(WITHOUT_LOG, Study(TINY, made.study.work, workers=1, weights=weights))


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"), [("table-3", "table-"), ("figure-corelation", "'figure-correlation'"), ("al", "'all'")]
)
def test_unknown_names(name: str, nearest: str, place: Path) -> None:
    require_error(run(name, "-o", place / "unknown"), f"the paper has no '{name}' here; did you mean", nearest)
    require_error(run("table-2", "nothing at all", "-o", place / "unknown"), "known are", *NAMES)
    assert not (place / "unknown").exists()


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_names_that_cannot_be_measured_say_why(name: str, place: Path) -> None:
    require_error(run(name, "-o", place / "unknown"), f"{name} cannot be reproduced: {NOT_MEASURED[name]}")
    assert published(name)["title"], "but the paper's own values are kept"


def test_all_is_every_name_once() -> None:
    assert catalogue.choose(["table-2", "all", "table-2"]) == ["table-2", *(n for n in NAMES if n != "table-2")]
    assert catalogue.choose([]) == []
    files = {file.stem for file in (Path(catalogue.__file__).parent / "paper").glob("*.toml")}
    assert files == {*NAMES, *BY_NAME, *NOT_MEASURED}


def test_the_list() -> None:
    text = run("--list")
    assert text.exit_code == 0
    lines = text.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*NAMES, *BY_NAME, *NOT_MEASURED]
    assert all(published(name)["title"] in line for name, line in zip(NAMES, lines, strict=False))
    listed = json.loads(run("--list", "--json").stdout)
    measured = {name: published(name)["title"] for name in (*NAMES, *BY_NAME)}
    assert listed == {"measured": measured, "not measured": NOT_MEASURED}


def test_usage(place: Path) -> None:
    require_error(run("-o", place / "none"), "give NAMES", "--list", code=2)
    require_error(run("table-2"), "--output", code=2)
    require_error(run(), "give NAMES", code=2)
    require_error(run("table-2", "--size", "large", "-o", place / "none"), "'mini', 'paper'", code=2)
    require_error(run("table-2", "-o", place / "none", "--workers", "0"), "--workers", code=2)
    assert not (place / "none").exists()


@pytest.fixture(scope="module")
def things(made: Made, place: Path) -> Path:
    """Own photos: one sub-folder per thing."""
    for number in range(8):
        shutil.copytree(made.study.work / "drawn" / f"landmark_{number:04}", place / "my things" / f"thing {number}")
    return place / "my things"


def test_own_photos(place: Path, things: Path) -> None:
    names = ("table-templates", "figure-attention")
    result = run(*names, "--images", things, "-o", place / "own", "--workers", "1", "--json")
    assert result.exit_code == 0, result.output
    whole = read_folders(things)
    networks = place / "own" / "work-mini" / "networks"
    facts = [read_json(file) for file in networks.glob("fire-*/run.json")]
    assert [one["images"] for one in facts] == [18, 18], "a quarter of the eight things is held out"
    assert len(whole.photos) == 24
    assert not (place / "own" / "work-mini" / "drawn").exists()
    for record in json.loads(result.stdout)["made"]:
        words = shlex.split(record["command"])
        assert words[words.index("--images") + 1] == str(things)


def test_photos_that_are_no_things(place: Path, things: Path) -> None:
    require_error(run("table-2", "--images", things / "thing 0", "-o", place / "bad"), "in no sub-folder")
    require_error(run("table-2", "--images", place / "nowhere", "-o", place / "bad"), "there is no folder")


def test_few_things(place: Path, things: Path) -> None:
    for number in range(4):
        shutil.copytree(things / f"thing {number}", place / "few" / f"thing {number}")
    result = run("figure-attention", "--images", place / "few", "-o", place / "own", "--workers", "1")
    assert isinstance(result.exception, SystemExit | None)
