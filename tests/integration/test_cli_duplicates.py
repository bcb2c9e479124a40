"""duplicates, doctor and completion as a user meets them; completion by a real bash."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from PIL import Image

import superfeat
from fixtures_cli import assert_refused, run, run_json
from fixtures_recipe import save_random_network
from superfeat.cli import main
from superfeat.cli.completion import complete_weights, weights_names
from superfeat.doctor import Check
from superfeat.weights.named import NAMED, shipped_names

THINGS = 5


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_network(tmp_path_factory.mktemp("network") / "tiny", templates=24, whitened_dim=16)


@pytest.fixture(scope="module")
def index(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of five things; of 0 and 1 there is a copy each, of 0 also a smaller one."""
    folder = tmp_path_factory.mktemp("collection")
    photos = folder / "photos"
    photos.mkdir()
    for number in range(THINGS):
        pixels = np.random.default_rng(number).integers(0, 256, (12, 14, 3), np.uint8)
        photo = Image.fromarray(pixels).resize((168, 144), Image.Resampling.NEAREST)
        photo.save(photos / f"{number}.png")
        if number < 2:
            photo.save(photos / f"{number}-copy.jpg", quality=95)
    shutil.copyfile(photos / "0.png", photos / "0-again.png")
    result = run("index", photos, "-o", folder / "index", "-w", network)
    assert result.exit_code == 0, result.stderr
    return folder / "index"


# -- duplicates


def test_copies_are_found(index: Path) -> None:
    found = run_json("duplicates", index, "--least", "0.3")
    assert found["images"] == THINGS + 3
    assert found["likeness"] == "similarity"
    kinds = {tuple(sorted(one["name"] for one in group["images"])): group["kind"] for group in found["groups"]}
    assert kinds[("0-again.png", "0-copy.jpg", "0.png")] == "copies"
    assert kinds[("1-copy.jpg", "1.png")] == "copies"
    sizes = [len(group["images"]) for group in found["groups"]]
    assert sizes == sorted(sizes, reverse=True)


def test_the_table_of_groups(index: Path) -> None:
    lines = run("duplicates", index, "--least", "0.3").stdout.splitlines()
    assert lines[0].startswith(f"{index}: ")
    assert "1. copies: 3 photos" in "\n".join(lines)
    assert any(line.endswith("0-again.png") for line in lines)


def test_copies_alone(index: Path) -> None:
    """The same bytes first, as likely as can be; then what was saved again."""
    found = run_json("duplicates", index, "--copies", "--least", "0.9999")
    assert [[one["name"] for one in group["images"]] for group in found["groups"]] == [["0-again.png", "0.png"]]
    groups = run_json("duplicates", index, "--copies")["groups"]
    assert {group["kind"] for group in groups} == {"copies"}
    assert [len(group["images"]) for group in groups] == [3, 2]


def test_what_to_do_with_copies(index: Path, tmp_path: Path) -> None:
    """A page, a script that says what it would do, a table; the photos are as they were."""
    photos = index.parent / "photos"
    before = {path: path.read_bytes() for path in photos.iterdir()}
    places = [f"--{what}={tmp_path / name}" for what, name in (("html", "look.html"), ("script", "tidy.sh"))]
    result = run("duplicates", index, "--copies", *places, "--export", tmp_path / "list.csv")
    assert result.exit_code == 0, result.stderr
    assert "3 copies can go" in result.stdout
    assert [line.split(",")[0] for line in result.stderr.splitlines()] == [
        f"look at {tmp_path / 'look.html'}",
        f"read {tmp_path / 'tidy.sh'}",
        f"{tmp_path / 'list.csv'}: 5 photos",
    ]
    assert (tmp_path / "look.html").read_text().count('class="hit"') == 5
    said = subprocess.run(["sh", tmp_path / "tidy.sh"], capture_output=True, text=True, check=True).stdout
    assert f"would move: {photos / '0-again.png'}" in said
    assert "3 would be moved, 0 left alone" in said
    assert f"trash={tmp_path / 'superfeat-trash'}" in (tmp_path / "tidy.sh").read_text()
    rows = (tmp_path / "list.csv").read_text().splitlines()
    assert rows[0].startswith("set,name,path,kind,likeness,copies,advice,reason,kept,bytes,width,height,taken,changed")
    assert sum(",keep," in row for row in rows) == 2
    assert {path: path.read_bytes() for path in photos.iterdir()} == before


def test_groups_as_folders_of_links(index: Path, tmp_path: Path) -> None:
    result = run("duplicates", index, "--copies", "--export", tmp_path / "links")
    assert result.stderr.endswith(f"{tmp_path / 'links'}: 5 links\n")
    inner = {path.name: sorted(one.resolve().name for one in path.iterdir()) for path in (tmp_path / "links").iterdir()}
    assert inner == {"1 group 1": ["0-again.png", "0-copy.jpg", "0.png"], "2 group 2": ["1-copy.jpg", "1.png"]}


def test_the_group_of_one_photo_with_keywords(index: Path, tmp_path: Path) -> None:
    photos = index.parent / "photos"
    found = run_json("duplicates", index, "--copies", "--with", photos / "1.png", "--keyword", "my thing")
    assert [[one["name"] for one in group["images"]] for group in found["groups"]] == [["1-copy.jpg", "1.png"]]
    sidecars = sorted(photos.glob("*.xmp"))
    try:
        assert [path.name for path in sidecars] == ["1-copy.jpg.xmp", "1.png.xmp"]
        assert all(b"<rdf:li>my thing</rdf:li>" in path.read_bytes() for path in sidecars)
        result = run("duplicates", index, "--copies", "--keyword", "my thing")
        assert "3 new, 2 added to, 0 had it already" in result.stderr
        assert b">my thing 1<" in (photos / "0.png.xmp").read_bytes()
        sidecars[0].write_bytes(sidecars[0].read_bytes().replace(b"superfeat", b"somebody"))
        refused = run("duplicates", index, "--copies", "--with", "1.png", "--keyword", "else")
        assert_refused(refused, "of another program", "(--merge-sidecars)")
    finally:
        for path in photos.glob("*.xmp"):
            path.unlink()


def test_the_group_of_a_photo_that_is_not_there(index: Path) -> None:
    assert_refused(run("duplicates", index, "--with", "nobody.png"), "has no image called nobody.png")


def test_what_a_search_found_is_exported(index: Path, tmp_path: Path) -> None:
    result = run("search", index, "0.png", "--least", "0.9", "--export", tmp_path / "found")
    assert result.exit_code == 0, result.stderr
    assert f"{tmp_path / 'found'}: " in result.stderr
    linked = {path.resolve().name for path in (tmp_path / "found").iterdir()}
    assert {"0.png", "0-again.png"} <= linked
    assert not linked & {"1.png", "2.png", "3.png", "4.png"}
    run("search", index, "0.png", "1.png", "--top", "2", "--export", tmp_path / "found.json")
    rows = json.loads((tmp_path / "found.json").read_text())
    assert [(row["set"], row["rank"]) for row in rows] == [
        (name, rank) for name in ("0.png", "1.png") for rank in range(3)
    ]
    assert [row["name"] for row in rows if row["rank"] == 0] == [
        "0.png",
        "1.png",
    ]  # the queries, which are in the index
    assert all(Path(row["path"]).is_file() for row in rows)


def test_nothing_is_alike(index: Path) -> None:
    found = run_json("duplicates", index, "--least", "1")
    assert [len(group["images"]) for group in found["groups"]] == [2]  # the same bytes twice


@pytest.mark.parametrize("least", ["0", "1.5", "much"])
def test_a_likeness_that_cannot_be(index: Path, least: str) -> None:
    assert run("duplicates", index, "--least", least).exit_code == 2


def test_what_is_no_index(tmp_path: Path) -> None:
    result = run("duplicates", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is not an index" in result.stderr


# -- doctor


def test_the_doctor_of_this_machine(index: Path) -> None:
    found = run_json("doctor", index)
    assert found["usable"] is True
    checks = {check["name"]: check for check in found["checks"]}
    assert {"superfeat", "python", "torch", "numba", "cores", "memory", "speed", "index"} <= set(checks)
    assert checks["index photos"]["state"] == "ok"
    assert checks["index network"]["state"] == "ok"
    assert {check["state"] for check in found["checks"]} <= {"ok", "note"}


def test_a_broken_part_is_one_line_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(_: Path | None) -> Iterator[Check]:
        yield Check("numpy", "ok", "2.0")
        yield Check("torch", "problem", "ImportError: no libgomp", "torch cannot be imported; install it again")
        yield Check("load", "note", "9.0", "something else is running", 3.0)

    monkeypatch.setattr("superfeat.doctor.examine", examine)
    result = run("doctor")
    assert result.exit_code == 1
    assert result.stderr == "superfeat: torch cannot be imported; install it again\n"
    assert result.stdout.splitlines()[-3:] == [
        "What to do, the most important first:",
        "  1. torch cannot be imported; install it again",
        "  2. something else is running",
    ]
    assert json.loads(run("doctor", "--json").stdout)["usable"] is False


def test_nothing_to_complain_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.doctor.examine", lambda _: [Check("numpy", "ok", "2.0")])
    result = run("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Nothing here makes superfeat slow." in result.stdout


def test_the_doctor_looks_at_what_is_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.doctor.software.run_probe", lambda: {})
    result = run("doctor", tmp_path)
    assert result.exit_code == 1
    assert "is not an index" in result.stderr


def test_the_doctor_does_not_import_torch() -> None:
    script = (
        "import sys\nfrom superfeat.doctor import software, examine\nsoftware.run_probe = lambda: {}\n"
        "list(examine())\nassert 'torch' not in sys.modules and 'numba' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_SUPERFEAT_COMPLETE={shell}_complete" in result.stdout


def test_the_shell_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run("completion").stdout == run("completion", "fish").stdout
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    result = run("completion")
    assert result.exit_code == 1
    assert "'tcsh' is not one of bash, zsh, fish" in result.stderr


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `superfeat` in it, and the script that bash would read."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "superfeat"
    code = 'from superfeat.cli import main; main(prog_name="superfeat")'
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
    program.chmod(0o755)
    (folder / "script").write_text(run("completion", "bash").stdout)
    return folder


def complete(shell: Path, folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last of these words, typed in this folder."""
    typed = " ".join(f"'{word}'" for word in ("superfeat", *words))
    script = (
        f"source '{shell / 'script'}'\nCOMP_WORDS=({typed})\nCOMP_CWORD={len(words)}\n"
        '_superfeat_completion superfeat 2>/dev/null\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{shell}{os.pathsep}{os.environ['PATH']}"}
    home = str(Path(superfeat.__file__).parent.parent)  # PYTHONPATH may be relative, and bash runs elsewhere
    environment["PYTHONPATH"] = os.pathsep.join((home, os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_bash_completes_verbs_and_options(shell: Path, tmp_path: Path) -> None:
    assert complete(shell, tmp_path, "dup") == ["duplicates"]
    assert set(complete(shell, tmp_path, "co")) >= {"codebook", "compact", "completion"}
    assert complete(shell, tmp_path, "duplicates", "--le") == ["--least"]
    assert complete(shell, tmp_path, "completion", "z") == ["zsh"]


def test_bash_completes_folders_that_hold_an_index(shell: Path, index: Path, tmp_path: Path) -> None:
    for name in ("one", "below/two", ".hidden", "codes/deep/three"):
        shutil.copytree(index, tmp_path / name)
    (tmp_path / "other").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    assert complete(shell, tmp_path, "duplicates", "") == ["below/two", "one"]
    assert complete(shell, tmp_path, "duplicates", "o") == ["one"]
    assert complete(shell, tmp_path, "duplicates", ".h") == [".hidden"]
    assert complete(shell, tmp_path, "doctor", "./on") == ["./one"]
    assert complete(shell, tmp_path, "doctor", f"{tmp_path}/codes/") == [f"{tmp_path}/codes/deep/three"]
    assert complete(shell, tmp_path, "doctor", "d") == []  # left to the shell: folders to go on from


def test_names_of_weights_are_all_known() -> None:
    assert set(weights_names()) == {*NAMED, *shipped_names()}
    context, parameter = click.Context(main), click.Option(["--weights"])
    (found,) = complete_weights(context, parameter, "imagenet-res")
    assert (found.value, found.type) == ("imagenet-resnet50", "plain")
    (found,) = complete_weights(context, parameter, "my/netw")
    assert (found.value, found.type) == ("my/netw", "file")


def test_completing_does_not_import_torch() -> None:
    script = (
        "import sys\nfrom superfeat.cli.completion import _index_folders, weights_names\nweights_names()\n"
        "list(_index_folders(''))\nassert not {'torch', 'numpy', 'numba'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
