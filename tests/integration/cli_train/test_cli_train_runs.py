"""superfeat train as a user meets it: whole runs, dry runs, full disks, Ctrl-C."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import superfeat
from fixtures_cli import assert_refused, run, run_json
from fixtures_cli_train import LIT, STEPS, log, steps, train_words, tree_of, weights
from fixtures_disk import Disk
from fixtures_recipe import listen_to_ctrl_c
from superfeat.training.trainer import Trainer
from superfeat.weights import load_network

# -- Whole runs


def test_train_then_extract(data: Path, tmp_path: Path) -> None:
    made = run_json(
        *train_words(data, tmp_path / "run", "--validation", data / "others", "--set", "validation.every=1")
    )
    assert {"run", "best", "epochs"} <= made.keys()
    assert made["run"] == str(tmp_path / "run")
    assert 0 <= made["best"] <= 100
    assert made["epochs"] == 2
    maps = [record["map"] for record in log(tmp_path / "run") if record["event"] == "validation"]
    assert made["best"] == pytest.approx(max(maps), abs=0.001)
    extracted = run_json("extract", data / "others", "-o", tmp_path / "f", "-w", tmp_path / "run" / "best")
    assert (extracted["images"], extracted["dim"]) == (6, 6)
    shown = run_json("weights", "show", tmp_path / "run" / "best")
    assert shown["provenance"]["ratio_test"] == "off"


def test_what_a_run_prints(data: Path, tmp_path: Path) -> None:
    """The result on stdout; a line for each epoch and validation on stderr."""
    words = train_words(data, tmp_path / "run", "--validation", data / "others", "--set", "validation.every=1")
    result = run(*words)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tmp_path / 'run'}: 2 epochs, best mAP ")
    assert f"superfeat index PHOTOS -o INDEX --weights {tmp_path / 'run'}/best" in result.stdout
    lines = result.stderr.splitlines()
    assert sum(line.startswith("epoch 1 of 2: loss ") for line in lines) == 1
    assert sum(": mAP " in line for line in lines) == 3


def test_settings_on_the_command_line(data: Path, tmp_path: Path) -> None:
    changes = ("--set", "training.negatives=3", "--set", "training.epochs=1", "--set", "losses.hinge=paper")
    run_json(*train_words(data, tmp_path / "run", *changes))
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]
    assert (settings["training"]["negatives"], settings["losses"]["hinge"]) == (3, "paper")
    assert steps(tmp_path / "run") == [1, 2, 3]


def test_a_new_network_can_be_asked_for(data: Path, once: Path, tmp_path: Path) -> None:
    assert run(*train_words(data, tmp_path / "run", "--weights", "new")).exit_code == 0
    assert weights(tmp_path / "run") == weights(once)


@pytest.mark.parametrize("name", ["net", "a net", 'a "net"', "a\\net"])
def test_weights_of_any_name(name: str, data: Path, once: Path, tmp_path: Path) -> None:
    shutil.copytree(once / "last", tmp_path / name)
    words = train_words(data, tmp_path / "run", "--weights", tmp_path / name, "--set", "training.epochs=0")
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert weights(tmp_path / "run") == weights(once)


def test_resume_after_an_interruption(data: Path, once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, left = Trainer._step, iter(range(4))

    def interrupted(*given: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return step(*given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupted)
        assert run(*train_words(data, tmp_path / "run")).exit_code == 130
    assert run(*train_words(data, tmp_path / "run", "--resume")).exit_code == 0
    assert weights(tmp_path / "run") == weights(once)
    assert steps(tmp_path / "run") == list(range(1, STEPS + 1))


def test_resume_begins_where_there_is_nothing(data: Path, once: Path, tmp_path: Path) -> None:
    assert run(*train_words(data, tmp_path / "run", "--resume")).exit_code == 0
    assert weights(tmp_path / "run") == weights(once)


def test_labels_and_pairs(data: Path, once: Path, tmp_path: Path) -> None:
    """Photos in one folder; the table says what they show. Same photos, same order, so the same weights."""
    (tmp_path / "flat").mkdir()
    names = []
    for photo in sorted((data / "photos").rglob("*.png")):
        names.append((f"{photo.parent.name}_{photo.name}", photo.parent.name))
        shutil.copy(photo, tmp_path / "flat" / names[-1][0])
    write_csv(tmp_path / "labels.csv", ("image", "thing"), names)
    base = ["train", data / "tiny.toml", "--images", tmp_path / "flat", "--labels", tmp_path / "labels.csv"]
    assert run(*base, "-o", tmp_path / "run").exit_code == 0
    assert weights(tmp_path / "run") == weights(once)
    write_csv(tmp_path / "pairs.csv", ("query", "positive"), [(names[0][0], names[1][0]), (names[4][0], names[3][0])])
    run_json(*base, "--pairs", tmp_path / "pairs.csv", "-o", tmp_path / "paired")
    assert steps(tmp_path / "paired") == [1, 2]  # two pairs are one step an epoch


def test_pairs_beside_the_photos_are_found(data: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(data / "photos", tmp_path / "photos")
    write_csv(photos / "pairs.csv", ("query", "positive"), [("thing0/0.png", "thing0/1.png")])
    plan = run_json("train", data / "tiny.toml", "--images", photos, "-o", tmp_path / "run", "--dry-run")
    assert (plan["pairs"], plan["tuples_per_epoch"]) == (1, 1)


def write_csv(path: Path, header: tuple[str, ...], rows: list[tuple[str, str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_validation_with_a_list_of_queries(data: Path, tmp_path: Path) -> None:
    names = sorted(str(path.relative_to(data / "others")) for path in (data / "others").rglob("*.png"))
    queries = [
        {"img": names[0], "easy": [1], "hard": [], "junk": [0]},
        {"img": names[2], "pos": [3], "bbox_rel": [0.1, 0.1, 0.9, 0.8]},
    ]
    (tmp_path / "queries.json").write_text(json.dumps({"db": names, "queries": queries}))
    words = ("--validation", tmp_path / "queries.json", "--validation-images", data / "others")
    run_json(*train_words(data, tmp_path / "run", *words, "--set", "validation.every=1"))
    records = [record for record in log(tmp_path / "run") if record["event"] == "validation"]
    assert [(record["queries"], record["images"]) for record in records] == [(2, 6)] * 3


def write_queries(file: Path, name: str) -> Path:
    """Three graded queries below others/: the photo itself is easy, the other of its thing is hard."""
    names = [f"thing{thing}/{view}.png" for thing in range(3) for view in range(2)]
    queries = [{"img": names[n], "easy": [n], "hard": [n + 1], "junk": []} for n in (0, 2, 4)]
    file.write_text(json.dumps({"name": name, "db": names, "queries": queries}))
    return file


def test_several_validation_sets(data: Path, tmp_path: Path) -> None:
    """The mean over them decides: Hard where a set has grades. Each has its figures in the log and on the line."""
    graded = write_queries(tmp_path / "graded.json", "graded")
    sets = ["--validation", graded, "--validation", data / "others", "--validation-images", data / "others"]
    words = train_words(data, tmp_path / "run", *sets, "--set", "validation.every=1", "--set", "training.epochs=1")
    plan = run_json(*words, "--dry-run")
    assert [(one["name"], one["queries"], one["times"]) for one in plan["validation"]] == [
        ("graded", 3, 2),
        ("others", 6, 2),
    ]
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    found = [record for record in log(tmp_path / "run") if record["event"] == "validation"]
    lines = [line for line in done.stderr.splitlines() if "mAP" in line]
    assert len(found) == len(lines) == 2
    for record, line in zip(found, lines, strict=True):
        first, second = record["sets"]["graded"], record["sets"]["others"]
        assert record["map"] == pytest.approx((first["map_hard"] + second["map"]) / 2, abs=0.01)
        assert first["map_hard"] < first["map"]
        assert "map_hard" not in second
        assert (record["queries"], first["queries"], second["queries"]) == (9, 3, 6)
        assert (record["images"], first["images"], second["images"]) == (12, 6, 6)
        assert f"mAP {record['map']:.2f} (9 queries, 12 images)" in line
        assert f"graded {first['map']:.2f} (Hard {first['map_hard']:.2f}); others {second['map']:.2f}" in line
    assert f"best mAP {max(record['map'] for record in found):.2f}" in done.stdout
    again = run(*train_words(data, tmp_path / "run", *sets[:2], *sets[4:], "--set", "validation.every=1"), "--resume")
    assert again.exit_code == 1
    assert "other settings" in again.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--validation", "others"], "two validation sets are called 'others'"),
        (
            ["--validation", "photos", "--validation", "tiny.json", *["--validation-images", "others"] * 2],
            "there are 2 folders of validation images for 3 validation sets: give one for all, or one for each",
        ),
    ],
)
def test_validation_sets_that_cannot_be_told_apart(
    more: list[str], words: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    given = ["--validation", "others", *more, "--set", "validation.every=1"]
    result = run(*train_words(data, tmp_path / "run", *given))
    assert result.exit_code == 1
    assert words in result.stderr
    assert len(result.stderr.splitlines()) < 20
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_things_are_held_out_where_no_validation_is_given(data: Path, tmp_path: Path) -> None:
    changes = ("--set", "data.hold_out=0.34", "--set", "validation.every=2")
    plan = run_json(*train_words(data, tmp_path / "run", *changes, "--dry-run"))
    assert (plan["things"], plan["images"]) == (4, 12)
    assert plan["validation"] == {"name": "held-out things", "images": 6, "queries": 6, "times": 2}
    run_json(*train_words(data, tmp_path / "run", *changes))
    records = [record for record in log(tmp_path / "run") if record["event"] == "validation"]
    assert [(record["epoch"], record["images"]) for record in records] == [(0, 6), (2, 6)]


def test_unreadable_photos_are_left_out_when_asked(data: Path, once: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(data / "photos", tmp_path / "photos")
    (photos / "thing1" / "bad.png").write_bytes(b"no photo")
    (photos / "thing2" / "empty.jpg").touch()
    words = ["train", data / "tiny.toml", "--images", photos, "-o", tmp_path / "run"]
    assert_refused(run(*words), "2 photos cannot be read", "thing1/bad.png", "--skip-unreadable")
    assert not (tmp_path / "run").exists()
    result = run(*words, "--skip-unreadable")
    assert result.exit_code == 0
    assert "note: 2 photos that cannot be read are left out" in result.stderr
    assert weights(tmp_path / "run") == weights(once)


def test_an_unreadable_photo_among_those_that_validate(data: Path, tmp_path: Path) -> None:
    """Refused before the run begins, as one among those that train."""
    others = shutil.copytree(data / "others", tmp_path / "others")
    (others / "thing1" / "0.png").write_bytes(b"no photo")
    result = run(*train_words(data, tmp_path / "run", "--validation", others, "--set", "validation.every=1"))
    assert_refused(result, "thing1/0.png")
    assert not (tmp_path / "run").exists()


# -- A dry run


def test_a_dry_run_tells_and_changes_nothing(data: Path, once: Path, tmp_path: Path) -> None:
    before = tree_of(data)
    words = train_words(data, tmp_path / "run", "--validation", data / "others", "--set", "validation.every=1")
    plan = run_json(*words, "--dry-run")
    assert list(tmp_path.iterdir()) == []
    assert tree_of(data) == before
    counts = {"images": 18, "things": 6, "pairs": 18, "epochs": 2, "steps_per_epoch": 3, "tuples_per_epoch": 6}
    counts |= {"images_per_tuple": 4, "mining_pool": 12, "pretraining_epochs": 0}
    assert {name: plan[name] for name in counts} == counts
    assert plan["validation"] == {"name": "others", "images": 6, "queries": 6, "times": 3}
    assert (plan["start"], plan["ratio_test"], plan["hinge"]) == ("a new network", "off", "released")
    module = load_network(once / "last").module
    learned = sum(value.numel() for name, value in module.named_parameters() if not name.startswith("whitening."))
    assert plan["parameters_trained"] == learned
    assert 0 < plan["memory_gb"] < 16
    assert 0 <= plan["disk_gb"] < 1
    assert 0 <= plan["hours_without_validation"] < 1
    told = run(*words, "--dry-run")
    assert told.exit_code == 0
    assert "steps_per_epoch: 3" in told.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        *("training.parts=lit", "training.frozen_stages=1"),
        *("network.lit.frozen_templates=true", "training.recompute=true"),
    ],
)
def test_a_dry_run_counts_what_is_trained(change: str, data: Path, once: Path, tmp_path: Path) -> None:
    plan = run_json(*train_words(data, tmp_path / "run", "--set", change, "--dry-run"))
    parameters = dict(load_network(once / "last").module.named_parameters())
    parts = ("lit.",) if "parts" in change or "stages" in change else ("lit.", "trunk.")
    learned = sum(value.numel() for name, value in parameters.items() if name.startswith(parts))
    templates = LIT.templates * LIT.dim if "templates" in change else 0
    assert plan["parameters_trained"] == learned - templates


def test_a_dry_run_of_shared_negatives_and_views(data: Path, tmp_path: Path) -> None:
    """A pair costs two photos and no pool is mined; 18 queries are 60 % of an epoch."""
    changes = [
        "training.negatives_from=step",
        "training.negatives=9",
        "training.queries=100",
        "data.synthetic_views=0.4",
    ]
    words = [word for change in changes for word in ("--set", change)]
    plan = run_json(*train_words(data, tmp_path / "run", *words, "--dry-run"))
    counts = {"pairs": 18, "steps_per_epoch": 15, "tuples_per_epoch": 30, "images_per_tuple": 2, "mining_pool": 0}
    assert {name: plan[name] for name in counts} == counts


def test_a_dry_run_with_given_weights(data: Path, once: Path, tmp_path: Path) -> None:
    plan = run_json(*train_words(data, tmp_path / "run", "--weights", once / "best", "--dry-run"))
    assert plan["start"] == str(once / "best")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_draws_nothing(data: Path, tmp_path: Path) -> None:
    changes = [f"data.{name}" for name in ("kind=drawn", "things=3", "views=2", "side=64")]
    words = [word for change in changes for word in ("--set", change)]
    result = run("train", data / "tiny.toml", "-o", tmp_path / "run", *words, "--dry-run")
    assert list(tmp_path.iterdir()) == []
    assert result.exit_code == 0, result.stderr


# -- Disks


def test_a_disk_without_room_for_a_run(disk: Disk, data: Path) -> None:
    disk.fill(100)
    result = run(*train_words(data, disk.path / "run"))
    assert_refused(result, "a run needs about 2 MB for its checkpoints", "has 0 MB left", "free space")
    assert not (disk.path / "run").exists()


@pytest.mark.parametrize(
    ("where", "pages"), [("_validate", 0), ("_validate", 100), ("_mine", 0), ("_step", 30), ("_end_epoch", 100)]
)
def test_a_disk_that_fills_up(
    where: str, pages: int, disk: Disk, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line; with room again the run goes on, and ends as if nothing had been."""
    words = ("--validation", data / "others", "--set", "validation.every=1")
    if not (data / "validated").exists():
        run_json(*train_words(data, data / "validated", *words))
    method, calls = getattr(Trainer, where), iter(range(1))

    def filling(*given: Any) -> Any:
        if next(calls, None) is None:
            disk.fill(pages)
        return method(*given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, where, filling)
        result = run(*train_words(data, disk.path / "run", *words, "--json"))
    assert_refused(result, "the disk is full", "nothing finished is lost")
    disk.free()
    run_json(*train_words(data, disk.path / "run", *words, "--resume"))
    for name in ("best", "last"):
        assert weights(disk.path / "run", name) == weights(data / "validated", name)
    assert steps(disk.path / "run") == list(range(1, STEPS + 1))


# -- Ctrl-C


# The command line with steps that take long enough to be interrupted.
SLOW_STEPS = """
import sys, time
from superfeat.training.trainer import Trainer
step, naps = Trainer._step, {naps}

def slow(*given):
    record = step(*given)
    time.sleep(naps.pop(0) if naps else 0)
    return record

Trainer._step = slow
from superfeat.cli import main
main()
"""


def start(words: list[object], naps: list[float]) -> "subprocess.Popen[str]":
    code = SLOW_STEPS.replace("{naps}", repr(naps))
    return subprocess.Popen(
        [sys.executable, "-c", code, *(str(word) for word in words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,
    )


def wait_for_steps(process: "subprocess.Popen[str]", folder: Path, number: int) -> None:
    while process.poll() is None:
        if (folder / "log.jsonl").exists() and (folder / "log.jsonl").read_text().count('"step", ') >= number:
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate())


@pytest.mark.slow
def test_ctrl_c_saves_and_the_run_goes_on(data: Path, once: Path, tmp_path: Path) -> None:
    process = start(train_words(data, tmp_path / "run"), [0, 0, 2, 2])
    wait_for_steps(process, tmp_path / "run", 2)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert told == ""
    assert "stopping after this step; Ctrl-C again stops at once" in errors
    assert "Traceback" not in errors
    done = steps(tmp_path / "run")
    assert done == list(range(1, len(done) + 1))
    assert 2 <= len(done) < STEPS
    assert run(*train_words(data, tmp_path / "run", "--resume")).exit_code == 0
    assert weights(tmp_path / "run") == weights(once)
    assert steps(tmp_path / "run") == list(range(1, STEPS + 1))


@pytest.mark.slow
def test_ctrl_c_twice_stops_at_once(data: Path, once: Path, tmp_path: Path) -> None:
    process = start(train_words(data, tmp_path / "run"), [0, 0, 600])
    wait_for_steps(process, tmp_path / "run", 2)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    while "stopping after this step" not in (line := process.stderr.readline()):
        assert line, "it ended"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert run(*train_words(data, tmp_path / "run", "--resume")).exit_code == 0
    assert weights(tmp_path / "run") == weights(once)
    assert steps(tmp_path / "run") == list(range(1, STEPS + 1))


@pytest.mark.parametrize("verb", ["train", "pretrain"])
def test_what_is_said_after_ctrl_c_is_what_to_do(
    verb: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command alone would be refused: the folder holds a run."""
    from superfeat.training.pretrain import Pretrainer

    trainer: Any = Trainer if verb == "train" else Pretrainer
    step = trainer._step

    def interrupted(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return step(*given)

    monkeypatch.setattr(trainer, "_step", interrupted)
    result = run(verb, data / "tiny.toml", "--images", data / "photos", "-o", tmp_path / "run")
    assert result.exit_code == 130
    assert "stopping after this step" in result.stderr
    assert "--resume" in result.stderr


# -- Help


def test_help_does_not_import_torch() -> None:
    code = "import sys, superfeat.cli as c\ntry: c.main(['train', '--help'])\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert superfeat.__version__
