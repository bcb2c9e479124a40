"""superfeat analyze as a user meets it: each kind writes its numbers and its picture, and says what is wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image

from fixtures_recipe import save_random_network
from superfeat import ExtractConfig, extract, load_network, save_network, train_codebook
from superfeat.cli.analyze import analyze
from superfeat.cli.terminal import VerbGroup
from superfeat.config import NetworkConfig, TrunkConfig
from superfeat.drawn.drawing import draw_folder
from superfeat.studies import analyses
from superfeat.weights import Network, build_module

pytest.importorskip("matplotlib")
CONFIG = ExtractConfig(max_side=64, scales=(1.0, 0.5))
SETTINGS = ("--set", "max_side=64")
SCALES = ("--set", "scales=[1.0,0.5]")
KINDS: dict[str, tuple[str, ...]] = {
    "attention": (),
    "attention-scales": SCALES,
    "correlation": (),
    "ids": ("--top", "2"),
    "redundancy": ("--counts", "1,4,9"),
    "scales": (*SCALES, "--set", "features_per_image=10"),
    "words": (*SCALES, "--counts", "3,16"),
}


@click.group(cls=VerbGroup)
@click.option("--debug", is_flag=True)
def main(debug: bool) -> None:
    """superfeat, with this verb alone."""


main.add_command(analyze)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with two views of two landmarks, fire/ and how/ with small networks, words/ with a codebook."""
    folder = tmp_path_factory.mktemp("analyze")
    list(draw_folder(folder / "photos", things=2, views=2, max_side=72))
    save_random_network(folder / "fire", templates=8, whitened_dim=6)
    torch.manual_seed(5)
    config = NetworkConfig("how", TrunkConfig("resnet18", 2), None, whitened_dim=6)
    module = build_module(config)
    assert module.whitening is not None
    torch.nn.init.normal_(module.whitening.weight)
    save_network(Network(module, config), folder / "how")
    for method in ("fire", "how"):
        stream = extract(load_network(folder / method), folder / "photos", CONFIG)
        train_codebook(stream, words=8).save(folder / f"{method}-words")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["analyze", *(str(argument) for argument in arguments)])


def analyse(kind: str, place: Path, output: Path, *more: str, method: str = "fire") -> Any:
    """The numbers of a kind, as its file holds them."""
    options = ("--codebook", str(place / f"{method}-words")) if kind == "words" else ()
    result = run(kind, place / "photos", "-o", output, "-w", place / method, *SETTINGS, *options, *more, "--json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads((output / f"{kind}.json").read_text())
    assert json.loads(result.stdout) == {"output": str(output), **facts, "left_out": [], "unlisted": []}
    return facts


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_writes_numbers_and_a_picture(kind: str, place: Path, tmp_path: Path) -> None:
    facts = analyse(kind, place, tmp_path / "out", *KINDS[kind])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{kind}.json", f"{kind}.png"]
    assert facts["kind"] == kind
    assert facts["picture"] == f"{kind}.png"
    assert len(facts["title"]) > 10
    assert facts["caption"].endswith(".")
    assert facts["images"] == (3 if kind.startswith("attention") else 4)
    assert facts["skipped"] == []
    assert facts["network"]["method"] == "fire"
    with Image.open(tmp_path / "out" / f"{kind}.png") as picture:
        assert picture.width > 300
        assert np.asarray(picture.convert("L")).std() > 3  # something is drawn


@pytest.mark.parametrize("kind", ["redundancy", "scales", "words"])
def test_how_has_features_too(kind: str, place: Path, tmp_path: Path) -> None:
    facts = analyse(kind, place, tmp_path, *KINDS[kind], method="how")
    assert facts["network"]["method"] == "how"


@pytest.mark.parametrize(
    "kind", ["attention", "attention --ids 1", "attention-scales", "attention-scales --ids 1", "correlation", "ids"]
)
def test_how_has_no_ids(kind: str, place: Path, tmp_path: Path) -> None:
    result = run(*kind.split(), place / "photos", "-o", tmp_path / "out", "-w", place / "how")
    assert result.exit_code == 1
    assert "take the weights of a FIRe network" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_numbers_are_those_of_the_library(place: Path, tmp_path: Path) -> None:
    network, photos = load_network(place / "fire"), place / "photos"
    matrix = analyses.correlation_matrix(network, photos, CONFIG)
    found = analyse("correlation", place, tmp_path)
    assert found["mean"] == pytest.approx(analyses.off_diagonal_mean(matrix), abs=1e-5)
    first = found["most_alike"][0]
    assert first["cosine"] == pytest.approx((matrix - 2 * np.eye(8)).max(), abs=1e-5)
    assert first["cosine"] == pytest.approx(matrix[tuple(first["ids"])], abs=1e-5)

    every = analyses.every_feature(CONFIG)
    shares = analyses.scale_shares(extract(network, photos, every), [0.5, 1.0], 10)
    found = analyse("scales", place, tmp_path, *KINDS["scales"])
    assert found["scales"] == [0.5, 1.0]
    np.testing.assert_allclose(found["share_of_the_selected"], shares.of_selected, atol=1e-5)
    np.testing.assert_allclose(found["share_selected"], shares.selected, atol=1e-5)
    assert found["features"] == [8.0, 8.0]

    one = ExtractConfig(max_side=64, scales=(1.0,))
    cosines = analyses.redundancy(extract(network, photos, one), [1, 4])
    found = analyse("redundancy", place, tmp_path, *KINDS["redundancy"])
    np.testing.assert_allclose(found["cosines"][:2], cosines, atol=1e-5)
    assert found["cosines"][2] is None  # 9 of 8 features


def test_ids_may_be_chosen(place: Path, tmp_path: Path) -> None:
    found = analyse("attention", place, tmp_path, "--ids", "3,1,3", "--images", "2")
    assert found["ids"] == [3, 1]
    assert [set(photo["ids"]) for photo in found["photos"]] == [{"3", "1"}] * 2
    assert [photo["name"] for photo in found["photos"]] == ["landmark_0000/view_00.jpg", "landmark_0000/view_01.jpg"]
    look = found["photos"][0]["ids"]["3"]
    assert 0 < look["x"] < 1
    assert look["spread_y"] > 0
    network = load_network(place / "fire")
    expected = next(analyses.attention_of_ids(network, place / "photos", [3], CONFIG))
    assert look["strength"] == pytest.approx(float(expected.strengths[0]), rel=1e-5)

    found = analyse("attention-scales", place, tmp_path, "--ids", "2,0", "--images", "1", *SCALES)
    assert [(one["id"], list(one["scales"])) for one in found["photos"]] == [(2, ["0.5", "1"]), (0, ["0.5", "1"])]

    found = analyse("ids", place, tmp_path, "--ids", "6", "--top", "3")
    [only] = found["ids"]
    strengths = [photo["strength"] for photo in only["photos"]]
    assert only["id"] == 6
    assert len(strengths) == 3
    assert strengths == sorted(strengths, reverse=True)
    assert -1 <= only["cosine"] <= 1


def test_ids_are_chosen_by_their_strength(place: Path, tmp_path: Path) -> None:
    expected = analyses.strongest_ids(load_network(place / "fire"), place / "photos", 5, CONFIG)
    found = analyse("ids", place, tmp_path)
    assert [one["id"] for one in found["ids"]] == expected


def test_the_table(place: Path, tmp_path: Path) -> None:
    result = run("redundancy", place / "photos", "-o", tmp_path, "-w", place / "fire", *SETTINGS, "--counts", "1,9")
    lines = result.stdout.splitlines()
    assert lines[0] == "How alike the features of a photo are (4 photos)"
    assert lines[1].split() == ["K", "mean", "cosine"]
    assert lines[2].split()[0] == "1"
    assert lines[3].split() == ["9", "-"]
    assert lines[4] == f"  in {tmp_path}: redundancy.json, redundancy.png"


@pytest.mark.parametrize("kind", KINDS)
def test_photos_that_cannot_be_read_are_skipped(kind: str, place: Path, tmp_path: Path) -> None:
    """The first and six others; a photo of another shape is no trouble."""
    (tmp_path / "photos").mkdir()
    for number in range(7):
        (tmp_path / "photos" / f"{'a' if number == 0 else 'x'}{number}.jpg").write_bytes(b"no photo")
    Image.fromarray(np.arange(40 * 70 * 3).astype(np.uint8).reshape(70, 40, 3)).save(tmp_path / "photos" / "b.png")
    options = ("--codebook", str(place / "fire-words")) if kind == "words" else ()
    common = (kind, tmp_path / "photos", "-w", place / "fire", "--images", "99", *SETTINGS, *KINDS[kind], *options)
    result = run(*common, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "(1 photos)" in result.stdout
    assert "skipped a0.jpg: not an image" in result.stdout
    assert "… and 2 more (--verbose names them)" in result.stdout
    (tmp_path / "photos" / "b.png").unlink()
    result = run(*common, "-o", tmp_path / "none")
    assert result.exit_code == 1
    assert "none of the 7 photos could be read" in result.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["attention", "{photos}", "-w", "{fire}", "--ids", "8"], "no super-feature with the ID 8; its IDs are 0 to 7"),
        (["ids", "{photos}", "-w", "{fire}", "--ids", "3,-1"], "no super-feature with the ID -1"),
        (["attention-scales", "{photos}", "-w", "{fire}", "--ids", "99"], "its IDs are 0 to 7"),
        (["attention", "{photos}", "-w", "{fire}", "--set", "scales=[2.0]"], "decides 'scales' itself"),
        (["words", "{photos}", "-w", "{fire}", "--codebook", "{words}", "--set", "features_per_image=3"], "itself"),
        (["scales", "{photos}", "-w", "{fire}", "--set", "attention=maps"], "decides 'attention' itself"),
        (["scales", "{photos}", "-w", "{fire}", "--set", "scale=[2.0]"], "did you mean 'scales'"),
        (["words", "{photos}", "-w", "{fire}", "--codebook", "{photos}"], "is not a codebook"),
        (["words", "{photos}", "-w", "{fire}", "--codebook", "{words}"], "features of another network"),
        (["redundancy", "{photos}", "-w", "{fire}", "--counts", "0"], "give 1 or more"),
        (["correlation", "{empty}", "-w", "{fire}"], "no photos in"),
        (["correlation", "{photos}", "-w", "{empty}"], "without config.json"),
    ],
)
def test_errors_are_one_line_and_exit_1(arguments: list[str], words: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    names = {"photos": place / "photos", "fire": place / "fire", "words": place / "how-words"}
    result = run(*(text.format(**names, empty=tmp_path / "empty") for text in arguments), "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("superfeat: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["3,x", "", "3;4"])
def test_lists_of_numbers(text: str, place: Path, tmp_path: Path) -> None:
    result = run("ids", place / "photos", "-o", tmp_path, "-w", place / "fire", "--ids", text)
    assert result.exit_code == 2
    assert "is not a list of whole numbers like 3,17" in result.stderr


def test_numbers_are_kept_where_nothing_can_be_drawn(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("correlation", place / "photos", "-o", tmp_path, "-w", place / "fire", *SETTINGS)
    assert result.exit_code == 1
    assert "pip install 'superfeat[report]'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["correlation.json"]


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from superfeat.cli.analyze import analyze as a; a(['--help'], standalone_mode=False); "
        "a(['ids', '--help'], standalone_mode=False); assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "attention-scales" in result.stdout
