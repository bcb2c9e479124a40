"""superfeat pairs as a user meets it."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixtures_cli import assert_refused, run, run_json
from fixtures_recipe import save_random_network
from superfeat.mapping.pair_files import read_pairs_file


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of three things in two views each, and other views of them as queries."""
    folder = tmp_path_factory.mktemp("pairs")
    network = save_random_network(folder / "tiny", templates=24, whitened_dim=16)
    for thing in range(3):
        pixels = np.random.default_rng(thing).integers(0, 256, (12, 14, 3), np.uint8)
        for view, kept in enumerate(("photos", "photos", "queries")):
            (folder / kept).mkdir(exist_ok=True)
            whole = Image.fromarray(pixels).resize((168 + 8 * view, 144), Image.Resampling.NEAREST)
            whole.save(folder / kept / f"thing{thing}_{view}.png")
    result = run("index", folder / "photos", "-o", folder / "index", "-w", network)
    assert result.exit_code == 0, result.stderr
    return folder


def test_photos_of_an_index_among_themselves(place: Path, tmp_path: Path) -> None:
    told = run_json("pairs", place / "index", "-o", tmp_path / "pairs.txt", "--top", 1, "--connected")
    assert (told["photos"], told["parts"], told["alone"]) == (6, 1, [])
    found = list(read_pairs_file(tmp_path / "pairs.txt"))
    assert len(found) == told["pairs"]
    for thing in range(3):
        assert (f"thing{thing}_0.png", f"thing{thing}_1.png") in found
    result = run("pairs", place / "index", "-o", tmp_path / "again.txt", "--sequence", "times")
    assert "all hang together" in result.stdout
    assert "6 photos do not say when they were taken" in result.stdout


def test_queries_of_a_folder_and_of_a_list(place: Path, tmp_path: Path) -> None:
    told = run_json(
        "pairs", place / "index", place / "queries", "-o", tmp_path / "a.csv", "--format", "csv", "--top", 2
    )
    assert (told["photos"], told["parts"], told["skipped"]) == (3, None, [])
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    best = {row["first"]: row["second"] for row in reversed(rows)}
    assert all(second.startswith(first.split("_")[0]) for first, second in best.items())
    assert all(int(row["matches"]) > 0 for row in rows)
    (tmp_path / "list.txt").write_text("thing1_2.png PINHOLE 184 144 200 200 92 72\nmissing.png\n")
    listed = ["pairs", place / "index", tmp_path / "list.txt", "--images", place / "queries"]
    result = run(*listed, "-o", tmp_path / "b.txt", "--format", "kapture")
    assert result.exit_code == 1
    assert "1 of 2 queries could not be read" in result.stderr
    assert "skipped missing.png" in result.stdout
    assert {first for first, _ in read_pairs_file(tmp_path / "b.txt")} == {"thing1_2.png"}


def test_what_is_refused(place: Path, tmp_path: Path) -> None:
    output = tmp_path / "pairs.txt"
    assert_refused(run("pairs", place / "index", place / "queries", "-o", output, "--connected"), "not for queries")
    (tmp_path / "empty").mkdir()
    assert_refused(run("pairs", place / "index", tmp_path / "empty", "-o", output), "no photos in")
    assert run("pairs", place / "index", "-o", output, "--format", "bundler").exit_code == 2
