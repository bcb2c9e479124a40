"""superfeat pretrain and superfeat draw as a user meets them."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from fixtures_cli import assert_refused, run, run_json
from fixtures_cli_train import log, train_words, tree_of, weights
from superfeat.weights import load_network

# -- pretrain


def test_pretrain_then_train(data: Path, tmp_path: Path) -> None:
    words = ["pretrain", data / "tiny.toml", "--images", data / "photos", "-o", tmp_path / "pre"]
    made = run_json(*words)
    assert {"run", "top1", "epochs"} <= made.keys()
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
    changes = [f"data.{name}" for name in ("kind=drawn", "things=6", "views=2", "side=48", "hold_out=0.34")]
    words = ["train", data / "tiny.toml", "-o", tmp_path / "run", "--set", "validation.every=2"]
    words += [word for change in changes for word in ("--set", change)]
    made = run_json(*words)
    assert made["best"] is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run-drawn"]
    assert len(list((tmp_path / "run-drawn").rglob("*.jpg"))) == 12
    assert run_json(*words, "--resume") == made
