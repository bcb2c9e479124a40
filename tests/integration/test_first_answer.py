"""The first search by a photo from a cold shell: without torch where ONNX Runtime is, with the same answer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fixtures_recipe import network_with_words, noise

SEARCH = """
import json, sys
from superfeat.cli import main
try:
    main(sys.argv[1:])
finally:
    heavy = [name for name in ("torch", "scipy", "matplotlib", "fastapi", "onnx") if name in sys.modules]
    print(json.dumps(heavy), file=sys.stderr)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "SUPERFEAT_ENGINE"}
    return {**kept, "SUPERFEAT_CACHE": str(tmp_path / "cache")}


def search(index: Path, photo: Path, environment: dict[str, str]) -> tuple[Any, list[str]]:
    """The hits, and which heavy packages were imported."""
    command = [sys.executable, "-c", SEARCH, "search", str(index), str(photo), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["results"][0]["hits"], json.loads(done.stderr.splitlines()[-1])


def test_the_second_search_needs_no_torch_and_answers_alike(tmp_path: Path, environment: dict[str, str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(4):
        Image.fromarray(noise(72, 96, number)).save(photos / f"p{number}.png")
    Image.fromarray(noise(80, 90, 9)).save(tmp_path / "query.png")
    network = network_with_words(tmp_path / "network")
    index = tmp_path / "index"
    command = [sys.executable, "-m", "superfeat", "index", str(photos), "-o", str(index), "-w", str(network)]
    subprocess.run(command, env={**environment, "SUPERFEAT_ENGINE": "torch"}, capture_output=True, check=True)
    assert not list(tmp_path.glob("cache/onnx/*"))
    first, heavy = search(index, tmp_path / "query.png", environment)
    assert "torch" in heavy, "nothing is kept yet"
    assert len(list(tmp_path.glob("cache/onnx/*.onnx"))) == 1
    second, heavy = search(index, tmp_path / "query.png", environment)
    assert heavy == []
    assert [hit["name"] for hit in second] == [hit["name"] for hit in first]
    assert [hit["score"] for hit in second] == pytest.approx([hit["score"] for hit in first], abs=1e-6)
    subprocess.run(command, env={**environment, "SUPERFEAT_CACHE": str(tmp_path / "other")}, check=True)
    assert len(list(tmp_path.glob("other/onnx/*.onnx"))) == 1, "whoever indexes keeps the network too"
