"""The command line as a user meets it: exit codes, one-line errors, --json, interruption."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import superfeat
from fixtures_cli import run, run_json
from fixtures_recipe import listen_to_ctrl_c, save_random_network
from superfeat.cli import lines


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_network(tmp_path_factory.mktemp("network") / "tiny", templates=8, whitened_dim=8)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(4):
        pixels = random.integers(0, 256, (40 + number, 50, 3), np.uint8)
        Image.fromarray(pixels).save(folder / ("below" if number % 2 else "") / f"{number}.png")
    return folder


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys, superfeat.cli as c; c.main(['--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "extract" in result.stdout


def test_extract_then_info_then_verify(photos: Path, network: Path, tmp_path: Path) -> None:
    (photos / "notes.txt").write_text("not a photo")
    (photos / "empty.jpg").touch()
    out = tmp_path / "features"
    made = run_json("extract", photos, "-o", out, "-w", network, "--regions")
    assert (made["images"], made["new"], made["dim"]) == (4, 4, 8)
    assert made["skipped"] == [{"name": "empty.jpg", "reason": "the file is empty"}]
    assert made["left_out"] == [{"name": "notes.txt", "reason": "not a photo by its ending"}]
    store = superfeat.FeatureStore(out)
    assert [entry.name for entry in store.entries] == ["0.png", "2.png", "below/1.png", "below/3.png"]
    assert all(features.regions is not None for features in store)
    again = run_json("extract", photos, "-o", out, "-w", network, "--regions")
    assert (again["images"], again["new"]) == (4, 0)
    assert run_json("info", out)["images"] == 4
    assert run_json("verify", out)["whole"] is True


def test_adding_photos_later_extracts_only_the_new_ones(photos: Path, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "features"
    run_json("extract", photos, "-o", out, "-w", network)
    Image.new("RGB", (60, 40), "red").save(photos / "new.png")
    assert run_json("extract", photos, "-o", out, "-w", network)["new"] == 1


@pytest.mark.parametrize("verb", ["extract", "index"])
def test_a_run_that_goes_on_counts_what_is_done(
    verb: str, photos: Path, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_json(verb, photos, "-o", tmp_path / "out", "-w", network)
    Image.new("RGB", (60, 40), "red").save(photos / "new.png")
    monkeypatch.setattr(lines, "REPORT_EVERY", 0)
    shown = run(verb, photos, "-o", tmp_path / "out", "-w", network).stderr.splitlines()
    assert [line for line in shown if line.startswith(("extracting", "indexing"))][-2:] == [
        f"{verb}ing 4 of 5  {'' if verb == 'extract' else 'below/3.png'}".rstrip(),
        f"{verb}ing 5 of 5, about 0 s left  new.png",
    ]


def test_changed_photos_are_reported(photos: Path, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "features"
    run_json("extract", photos, "-o", out, "-w", network)
    Image.new("RGB", (61, 40), "red").save(photos / "0.png")
    assert run_json("extract", photos, "-o", out, "-w", network)["changed"] == ["0.png"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["extract", "{photos}", "-o", "{tmp}/f", "-w", "{tmp}/nothing.pth"], "no weights at"),
        (["extract", "{tmp}/nowhere", "-o", "{tmp}/f", "-w", "{network}"], "no photos at"),
        (["extract", "{photos}", "-o", "{tmp}/f", "-w", "{network}", "--set", "max_sid=3"], "did you mean 'max_side'"),
        (["extract", "{photos}", "-o", "{tmp}/f", "-w", "{network}", "--max-side", "3"], "it must be 16 or more"),
        (["extract", "{photos}", "-o", "{photos}", "-w", "{network}"], "holds other files"),
        (["extract", "{photos}", "-o", "{tmp}/f", "-w", "{network}", "--device", "abacus"], "cannot be used here"),
        (
            ["info", "{tmp}/nothing"],
            "nothing; name an index, a features folder, a codebook, a network",
        ),
        (["info", "{photos}"], "is no index, no features, no codebook and no network"),
        (["verify", "{tmp}/nothing"], "nothing; name an index, a features folder or a codebook"),
        (["verify", "{photos}"], "is no index, no features folder and no codebook: it has no manifest.json"),
        (["weights", "convert", "{network}", "-o", "{network}"], "or ask to overwrite it (--overwrite)"),
        (
            ["weights", "convert", "{network}", "-o", "{photos}", "--overwrite"],
            "is something else; choose another name",
        ),
        (["weights", "get", "unknown"], "unknown weights 'unknown'"),
        (["weights", "show", "{photos}/0.png"], "0.png"),
    ],
)
def test_errors_are_one_line_and_exit_1(
    arguments: list[str], words: str, photos: Path, network: Path, tmp_path: Path
) -> None:
    filled = [text.format(photos=photos, tmp=tmp_path, network=network) for text in arguments]
    result = run(*filled)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("superfeat: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_debug_shows_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "superfeat", "--debug", "info", str(tmp_path / "nothing")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_usage_errors_exit_2() -> None:
    assert run("extract").exit_code == 2
    assert run("unknown-verb").exit_code == 2


def test_nothing_readable_exits_1(network: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_text("not a photo")
    result = run("extract", tmp_path / "bad", "-o", tmp_path / "f", "-w", network)
    assert result.exit_code == 1
    assert "none of the 1 photos could be read" in result.stderr


def test_settings_from_a_file_and_the_command_line(photos: Path, network: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("[extract]\nmax_side = 32\nscales = [1.0, 0.5]\n")
    out = tmp_path / "f"
    common = ["extract", photos, "-o", out, "-w", network, "--config", tmp_path / "settings.toml"]
    run_json(*common, "--set", "features_per_image=5")
    settings = run_json("info", out)["extract"]
    assert (settings["max_side"], settings["scales"], settings["features_per_image"]) == (32, [1.0, 0.5], 5)


def test_another_network_is_refused(photos: Path, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    run_json("extract", photos, "-o", out, "-w", network)
    half = tmp_path / "half"
    run_json("weights", "convert", network, "-o", half, "--half")
    result = run("extract", photos, "-o", out, "-w", half)
    assert result.exit_code == 1
    assert "network.digest was" in result.stderr


def test_whiten_and_show(photos: Path, network: Path, tmp_path: Path) -> None:
    made = run_json("weights", "whiten", network, photos, "-o", tmp_path / "white", "--dim", "4")
    assert made["dim"] == 4
    assert run_json("weights", "show", tmp_path / "white")["digest"] == made["digest"]
    assert run("weights", "whiten", network, photos, "-o", tmp_path / "white").exit_code == 1


def test_convert_takes_codebook_and_calibration_along(network: Path, tmp_path: Path) -> None:
    """In 16 bits the features differ a little: they go to the same words, but no probability was fitted to them."""
    source, plain, half = tmp_path / "source", tmp_path / "plain", tmp_path / "half"
    shutil.copytree(network, source)
    superfeat.Codebook(np.eye(8, dtype=np.float32)[:3]).save(source / "codebook")
    (source / "calibration.json").write_text("{}")
    assert run("weights", "convert", source, "-o", plain).stderr == ""
    told = run("weights", "convert", source, "-o", half, "--half").stderr
    assert told.startswith("note: the calibration stays behind")
    for made, carried in ((plain, ["calibration.json", "codebook"]), (half, ["codebook"])):
        assert sorted(path.name for path in made.iterdir()) == sorted(
            ["README.md", "config.json", "model.safetensors", *carried]
        )
        assert superfeat.Codebook.open(made / "codebook").words == 3
    assert run("weights", "convert", network, "-o", plain, "--overwrite").exit_code == 0
    assert not (plain / "codebook").exists()
    pytest.importorskip("onnxruntime")
    told = run("weights", "convert", source, "-o", tmp_path / "net.onnx").stderr
    assert "an .onnx file has no room for what" in told


def test_ranges_for_int8(photos: Path, network: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    own = shutil.copytree(network, tmp_path / "own")
    made = run_json("weights", "ranges", own, photos)
    assert made["written"] == str(own / "int8.json")
    assert made["photos"] == 4
    plain, small = (
        run_json("extract", photos, "-o", tmp_path / name, "-w", own, "--set", f"precision={name}")
        for name in ("float32", "int8")
    )
    assert plain["images"] == small["images"] == 4
    assert run_json("info", tmp_path / "int8")["extract"]["precision"] == "int8"
    result = run("extract", photos, "-o", tmp_path / "none", "-w", network, "--set", "precision=int8")
    assert result.exit_code == 1
    assert "superfeat weights ranges" in result.stderr


def test_convert_to_onnx(photos: Path, network: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    run_json("weights", "convert", network, "-o", tmp_path / "net.onnx")
    made = run_json("extract", photos, "-o", tmp_path / "f", "-w", tmp_path / "net.onnx")
    assert made["images"] == 4


def test_the_weights_name_without_its_file_says_what_to_run(photos: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    result = run("extract", photos, "-o", tmp_path / "f", "-w", "imagenet-resnet50", SUPERFEAT_CACHE=cache)
    assert result.exit_code == 1
    assert "superfeat weights get imagenet-resnet50" in result.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(network: Path, tmp_path: Path) -> None:
    photos = tmp_path / "many"
    photos.mkdir()
    random = np.random.default_rng(0)
    for number in range(300):
        Image.fromarray(random.integers(0, 256, (90, 120, 3), np.uint8)).save(photos / f"{number:03}.png")
    out = tmp_path / "f"
    command = [sys.executable, "-m", "superfeat", "extract", str(photos), "-o", str(out), "-w", str(network)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c)
    journal = out / "images.jsonl"
    deadline = time.monotonic() + 120
    while (not journal.exists() or journal.stat().st_size == 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command to go on" in errors
    kept = len(superfeat.FeatureStore(out))
    assert 0 < kept < 300
    assert run_json("extract", photos, "-o", out, "-w", network)["new"] == 300 - kept
