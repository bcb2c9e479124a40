"""What superfeat train refuses, in one line and without a change."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures_cli import assert_refused, run, run_json
from fixtures_cli_train import LIT, train_words, tree_of
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.recipes import recipe_names
from superfeat.storage.store import writer_lock
from superfeat.weights import Network, build_module, save_network

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
