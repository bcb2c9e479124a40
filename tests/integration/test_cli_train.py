"""superfeat train, pretrain and draw as a user meets them: whole runs, refusals in one line, Ctrl-C, full disks."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import superfeat
from fixtures_disk import Disk
from fixtures_recipe import listen_to_ctrl_c, noise
from superfeat.cli import main
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.recipes import recipe_names
from superfeat.storage.store import writer_lock
from superfeat.training.trainer import Trainer
from superfeat.weights import Network, build_module, load_network, save_network

RECIPE = """
[network]
whitened_dim = 6
trunk = { arch = "resnet10", stages = 1 }
lit = { templates = 8, rounds = 2, dim = 16 }

[training]
epochs = 2
queries = 6
tuples_per_step = 2
negatives = 2
pool = 12
learning_rate = 1e-3
max_side = 40
whitening_images = 12

[losses]
ratio_test = "off"

[validation]
every = 0
codebook = { words = 16, rounds = 2 }
codebook_images = 6
extract = { max_side = 40, scales = [1.0], features_per_image = 8 }

[pretraining]
epochs = 2
batch = 4
optimiser = "adam"
learning_rate = 1e-3
hidden = 8
side = 32
hold_out = 0.34
"""
STEPS = 6
LIT = LitConfig(templates=8, rounds=2, dim=16)


def draw_things(folder: Path, things: int, views: int, seed: int = 0) -> Path:
    """Noise, and under it one pattern for each thing."""
    for thing in range(things):
        (folder / f"thing{thing}").mkdir(parents=True)
        for view in range(views):
            mixed = 0.6 * noise(40, 32, seed + thing) + 0.4 * noise(40, 32, seed + 100 + 10 * thing + view)
            Image.fromarray(mixed.astype(np.uint8)).save(folder / f"thing{thing}" / f"{view}.png")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny.toml, photos/, others/."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "tiny.toml").write_text(RECIPE)
    draw_things(folder / "photos", things=6, views=3)
    draw_things(folder / "others", things=3, views=2, seed=500)
    return folder


@pytest.fixture(scope="module")
def once(data: Path) -> Path:
    """A run that nothing disturbed."""
    done = run("train", data / "tiny.toml", "--images", data / "photos", "-o", data / "once")
    assert done.exit_code == 0, done.stderr
    return data / "once"


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=environment)


def run_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def train_words(data: Path, output: Path, *more: object) -> list[object]:
    return ["train", data / "tiny.toml", "--images", data / "photos", "--workers", "1", "-o", output, *more]


def weights(folder: Path, name: str = "last") -> bytes:
    return (folder / name / "model.safetensors").read_bytes()


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def steps(folder: Path) -> list[int]:
    return [record["step"] for record in log(folder) if record["event"] == "step"]


def tree_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder: when it was written, and its bytes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def assert_refused(result: Result, *words: str) -> None:
    """Exit 1, one line on stderr, nothing on stdout."""
    assert result.exit_code == 1, (result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("superfeat: ")
    assert result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


# -- Whole runs


def test_train_then_extract(data: Path, tmp_path: Path) -> None:
    made = run_json(
        *train_words(data, tmp_path / "run", "--validation", data / "others", "--set", "validation.every=1")
    )
    assert made.keys() == {"run", "best", "epochs"}
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


# -- What is refused

Spoil = Callable[[Path], None]


def one_thing(folder: Path) -> None:
    for number in range(1, 6):
        shutil.rmtree(folder / "photos" / f"thing{number}")


def one_photo_each(folder: Path) -> None:
    for number in range(6):
        for view in (1, 2):
            (folder / "photos" / f"thing{number}" / f"{view}.png").unlink()


def loose_photo(folder: Path) -> None:
    shutil.copy(folder / "photos" / "thing0" / "0.png", folder / "photos" / "loose.png")


def hostile_weights(folder: Path) -> None:
    import pickle

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(folder / "run"),)

    (folder / "weights.pth").write_bytes(pickle.dumps(Hostile()))


def bad_weights(folder: Path) -> None:
    (folder / "weights.pth").write_bytes(b"no weights")


def nothing(folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("spoil", "more", "words"),
    [
        (one_thing, [], ["has only one thing (thing0)", "add photos of other things"]),
        (one_photo_each, [], ["no thing with two images", "add a second photo"]),
        (loose_photo, [], ["in no sub-folder", "loose.png"]),
        (
            nothing,
            ["--set", "training.negatives=6"],
            ["6 negatives of 6 different other things", "training.negatives=5"],
        ),
        (nothing, ["--set", "training.pool=2"], ["raise training.pool"]),
        (nothing, ["--set", "training.negativs=6"], ["unknown setting 'training.negativs'; did you mean '"]),
        (nothing, ["--set", "training.parts=trunk"], ["'all' or 'lit'"]),
        (nothing, ["--set", "network.method=how"], ["method 'how' takes no [lit] settings"]),
        (nothing, ["--images", "{folder}/nowhere"], ["there is no folder", "one sub-folder of photos per thing"]),
        (nothing, ["--labels", "{folder}/nowhere.csv"], ["cannot read", "nowhere.csv"]),
        (nothing, ["--pairs", "{folder}/nowhere.csv"], ["cannot read", "nowhere.csv"]),
        (nothing, ["--validation", "{folder}/no", "--set", "validation.every=1"], ["there is no folder"]),
        (nothing, ["--validation", "{folder}/no.json", "--set", "validation.every=1"], ["cannot read", "no.json"]),
        (nothing, ["--weights", "{folder}/nowhere"], ["no weights at"]),
        (bad_weights, ["--weights", "{folder}/weights.pth"], ["weights.pth"]),
        (hostile_weights, ["--weights", "{folder}/weights.pth"], ["weights.pth"]),
        (nothing, ["--weights", "{folder}/other-arch"], ["network.trunk.arch is resnet10, the weights have resnet18"]),
        (nothing, ["--weights", "{folder}/other-n"], ["network.lit.templates is 8, the weights have 4"]),
        (nothing, ["--weights", "{folder}/other-dim"], ["network.whitened_dim is 6, the weights have 5"]),
        (nothing, ["--device", "abacus"], ["device 'abacus' cannot be used here"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else " ".join(value)[:40],
)
def test_refused(spoil: Spoil, more: list[str], words: list[str], data: Path, networks: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "photos", tmp_path / "photos")
    for network in networks.iterdir():
        (tmp_path / network.name).symlink_to(network)
    spoil(tmp_path)
    before = tree_of(tmp_path / "photos")
    base = ["train", data / "tiny.toml", "--images", tmp_path / "photos", "-o", tmp_path / "run"]
    result = run(*base, *(word.format(folder=tmp_path) for word in more))
    assert_refused(result, *words)
    assert tree_of(tmp_path / "photos") == before
    if "training.pool=2" not in more:  # which shows only when negatives are looked for
        assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks that do not fit the recipe."""
    folder = tmp_path_factory.mktemp("networks")
    trunk = TrunkConfig("resnet10", 1)
    configs = {
        "other-arch": NetworkConfig("fire", TrunkConfig("resnet18", 1), LIT, 6),
        "other-n": NetworkConfig("fire", trunk, LitConfig(templates=4, rounds=2, dim=16), 6),
        "other-dim": NetworkConfig("fire", trunk, LIT, 5),
    }
    for name, config in configs.items():
        save_network(Network(build_module(config), config), folder / name)
    return folder


@pytest.mark.slow
def test_an_exported_network_cannot_be_trained(data: Path, once: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    run_json("weights", "convert", once / "last", "-o", tmp_path / "net.onnx")
    result = run(*train_words(data, tmp_path / "run", "--weights", tmp_path / "net.onnx"))
    assert_refused(result, "is an exported network, which cannot be trained")
    assert not (tmp_path / "run").exists()


def test_unknown_recipes(data: Path, tmp_path: Path) -> None:
    result = run("train", "drawn-mimi", "--images", data / "photos", "-o", tmp_path / "run")
    assert_refused(result, "no recipe 'drawn-mimi'", "did you mean 'drawn-mini'?")
    (tmp_path / "bad.toml").write_text("[training\n")
    assert_refused(run("train", tmp_path / "bad.toml", "-o", tmp_path / "run"), "cannot read the settings in")
    assert_refused(run("train", data / "tiny.toml", "-o", tmp_path / "run"), "(--images)")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["train", "pretrain"])
def test_recipes_that_the_help_names_are_there(verb: str) -> None:
    text = run(verb, "--help").stdout
    named = {word.strip("().,;:") for word in text.split() if word.startswith(("fire-", "how-", "(fire-", "drawn-"))}
    assert named
    assert named <= set(recipe_names())


def test_usage_errors_exit_2(data: Path, tmp_path: Path) -> None:
    assert run("train").exit_code == 2
    assert run("train", data / "tiny.toml").exit_code == 2
    assert run(*train_words(data, tmp_path / "run", "--workers", "0")).exit_code == 2
    assert run("draw").exit_code == 2


def test_a_folder_with_a_run_is_not_begun_again(data: Path, once: Path) -> None:
    before = tree_of(once)
    assert_refused(run(*train_words(data, once)), "holds a run already", "(--resume)")
    assert tree_of(once) == before


@pytest.mark.parametrize("more", [[], ["--resume"]], ids=["begun", "resumed"])
def test_a_folder_with_other_files_is_left_alone(more: list[str], data: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(data / "photos", tmp_path / "photos")
    before = tree_of(photos)
    assert_refused(run(*train_words(data, photos, *more)), str(photos))
    assert tree_of(photos) == before


def test_an_output_that_is_a_file(data: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("notes")
    assert_refused(run(*train_words(data, tmp_path / "run")), str(tmp_path / "run"))
    assert (tmp_path / "run").read_text() == "notes"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--set", "training.negatives=3"], ["recipe.training.negatives was 2, not 3"]),
        (["--set", "training.epochs=3"], ["recipe.training.epochs was 2, not 3"]),
        (["--validation", "{data}/others", "--set", "validation.every=1"], ["recipe.validation.every was 0, not 1"]),
        (["--images", "{data}/fewer"], ["images was 18, not 17"]),
        (["--images", "{data}/renamed"], ["training_set was"]),
        (["--weights", "{data}/once/best"], ["weights was None, not"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_another_run_is_not_resumed(more: list[str], words: list[str], data: Path, once: Path) -> None:
    for name in ("fewer", "renamed"):
        if not (data / name).exists():
            shutil.copytree(data / "photos", data / name)
    (data / "fewer" / "thing0" / "2.png").unlink(missing_ok=True)
    if (old := data / "renamed" / "thing0" / "0.png").exists():
        old.rename(old.with_name("other.png"))
    before = tree_of(once)
    result = run(*train_words(data, once, "--resume", *(word.format(data=data) for word in more)))
    assert_refused(result, "is a run with other settings", "resume it with its own", *words)
    assert tree_of(once) == before


def test_pretraining_and_training_are_not_each_other(data: Path, once: Path, tmp_path: Path) -> None:
    run_json("pretrain", data / "tiny.toml", "--images", data / "photos", "-o", tmp_path / "pre")
    assert_refused(run(*train_words(data, tmp_path / "pre", "--resume")), "is a run with other settings")
    result = run("pretrain", data / "tiny.toml", "--images", data / "photos", "-o", once, "--resume")
    assert_refused(result, "is a run with other settings")


def test_a_folder_in_use(data: Path, once: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(once, tmp_path / "run")
    before = tree_of(folder)
    with writer_lock(folder):
        assert_refused(run(*train_words(data, folder, "--resume")), "is being written by another process")
        assert tree_of(folder) == before
    assert run(*train_words(data, folder, "--resume")).exit_code == 0


@pytest.mark.parametrize(
    ("file", "contents", "words"),
    [
        ("checkpoint.safetensors", b"", ["checkpoint.safetensors is damaged", "remove it to begin again"]),
        ("checkpoint.safetensors", b"\xff" * 5000, ["checkpoint.safetensors is damaged", "remove it to begin again"]),
        ("run.json", b"{", ["run.json is damaged"]),
        ("run.json", b"[1]", ["does not describe a training run"]),
        ("run.json", b'{"format": "superfeat-index"}', ["does not describe a training run"]),
    ],
)
def test_a_damaged_run(file: str, contents: bytes, words: list[str], data: Path, once: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(once, tmp_path / "run")
    (folder / file).write_bytes(contents)
    before = tree_of(folder)
    assert_refused(run(*train_words(data, folder, "--resume")), *words)
    assert tree_of(folder) == before


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


# -- pretrain


def test_pretrain_then_train(data: Path, tmp_path: Path) -> None:
    words = ["pretrain", data / "tiny.toml", "--images", data / "photos", "-o", tmp_path / "pre"]
    made = run_json(*words)
    assert made.keys() == {"run", "top1", "epochs"}
    assert made["epochs"] == 2
    assert_refused(run(*words), "holds a run already")
    assert run_json(*words, "--resume") == made
    changed = run(*words, "--resume", "--set", "pretraining.dropout=0.1")
    assert_refused(changed, "pretraining.dropout was 0.5, not 0.1")
    result = run(*train_words(data, tmp_path / "run", "--weights", tmp_path / "pre" / "best"))
    assert result.exit_code == 0, result.stderr
    assert load_network(tmp_path / "run" / "last").provenance["pretraining"] == f"{best_epoch(tmp_path / 'pre')} epochs"


def best_epoch(folder: Path) -> int:
    """The last of those with the most right."""
    right = [record["top1"] for record in log(folder) if record["event"] == "epoch"]
    return max(range(len(right)), key=lambda epoch: (right[epoch], epoch)) + 1


def test_pretrain_refuses(data: Path, once: Path, tmp_path: Path) -> None:
    base = ["pretrain", data / "tiny.toml", "-o", tmp_path / "run"]
    images = ["--images", data / "photos"]
    (tmp_path / "how.toml").write_text('[network]\nmethod = "how"\n')
    how = run("pretrain", tmp_path / "how.toml", *images, "-o", tmp_path / "run")
    assert_refused(how, "HOW has no LIT to pretrain")
    assert_refused(run(*base), "(--images)")
    assert_refused(run(*base, *images, "--set", "pretraining.side=8"), "it must be 32 or more")
    assert_refused(
        run(*base, *images, "--set", "network.lit.templates=4", "--weights", once / "best"), "templates is 4"
    )
    assert_refused(run(*base, *images, "--device", "abacus"), "cannot be used here")
    assert not (tmp_path / "run").exists()


def test_pretrain_skips_what_cannot_be_read(data: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(data / "photos", tmp_path / "photos")
    (photos / "thing1" / "bad.png").write_bytes(b"no photo")
    words = ["pretrain", data / "tiny.toml", "--images", photos, "-o", tmp_path / "run"]
    assert_refused(run(*words), "thing1/bad.png", "--skip-unreadable")
    run_json(*words, "--skip-unreadable")
    run_json("pretrain", data / "tiny.toml", "--images", data / "photos", "-o", tmp_path / "clean")
    assert weights(tmp_path / "run") == weights(tmp_path / "clean")


# -- draw


def test_draw(tmp_path: Path) -> None:
    words = ["draw", "-o", tmp_path / "drawn", "--things", "2", "--views", "2", "--side", "48"]
    made = run_json(*words)
    assert made == {"images": str(tmp_path / "drawn"), "things": 2, "views": 2}
    before = tree_of(tmp_path / "drawn")
    assert list(before) == [f"landmark_000{thing}/view_0{view}.jpg" for thing in range(2) for view in range(2)]
    with Image.open(tmp_path / "drawn" / "landmark_0001" / "view_01.jpg") as image:
        assert max(image.size) == 48
    (tmp_path / "drawn" / "landmark_0001" / "view_00.jpg").unlink()
    assert run(*words).exit_code == 0
    after = tree_of(tmp_path / "drawn")
    assert {name: data for name, (_, data) in after.items()} == {name: data for name, (_, data) in before.items()}
    assert [name for name in after if after[name][0] != before[name][0]] == ["landmark_0001/view_00.jpg"]
    run_json("draw", "-o", tmp_path / "other", "--things", "2", "--views", "2", "--side", "48", "--seed", "1")
    assert tree_of(tmp_path / "other")["landmark_0000/view_00.jpg"][1] != before["landmark_0000/view_00.jpg"][1]


def test_draw_refuses(tmp_path: Path) -> None:
    assert run("draw", "-o", tmp_path / "drawn", "--things", "0").exit_code == 2
    assert run("draw", "-o", tmp_path / "drawn", "--side", "8").exit_code == 2
    result = run("draw", "-o", tmp_path / "drawn", "--things", "1", "--views", "1", "--side", "16")
    assert result.exit_code in (1, 2)
    assert result.stderr.splitlines()[-1].startswith(("superfeat: ", "Error: "))
    (tmp_path / "file").touch()
    drawn = run("draw", "-o", tmp_path / "file", "--things", "1", "--views", "1", "--side", "48")
    assert_refused(drawn, str(tmp_path / "file"))


@pytest.mark.slow
def test_a_drawn_recipe_needs_no_photos(data: Path, tmp_path: Path) -> None:
    changes = [f"data.{name}" for name in ("kind=drawn", "things=4", "views=2", "side=48", "hold_out=0.25")]
    words = ["train", data / "tiny.toml", "-o", tmp_path / "run", "--set", "validation.every=2"]
    words += [word for change in changes for word in ("--set", change)]
    made = run_json(*words)
    assert made["best"] is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run-drawn"]
    assert len(list((tmp_path / "run-drawn").rglob("*.jpg"))) == 8
    assert run_json(*words, "--resume") == made


def test_help_does_not_import_torch() -> None:
    code = "import sys, superfeat.cli as c\ntry: c.main(['train', '--help'])\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert superfeat.__version__
