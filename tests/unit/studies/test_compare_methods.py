"""Several methods on the same photos: the table, the picture, the advice."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures_recipe import noise, save_random_network
from superfeat.config import NetworkConfig, PoolingConfig, TrunkConfig
from superfeat.errors import SuperfeatError
from superfeat.studies.methods import (
    Contender,
    Standing,
    advise,
    compare_methods,
    default_contenders,
    interval,
    read_contender,
    table_lines,
)
from superfeat.weights import Network, build_module, save_network


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for thing in range(3):
        (tmp_path / "things" / f"t{thing}").mkdir(parents=True)
        for view in range(3):
            mixed = 0.8 * noise(64, 48, thing) + 0.2 * noise(64, 48, 90 + 3 * thing + view)
            Image.fromarray(mixed.astype(np.uint8)).save(tmp_path / "things" / f"t{thing}" / f"{view}.png")
    return tmp_path / "things"


def trunk_file(path: Path) -> Path:
    torch.manual_seed(0)
    module = build_module(NetworkConfig("gem", TrunkConfig("resnet10", stages=4), None, None, PoolingConfig()))
    state = {name.removeprefix("trunk."): value for name, value in module.state_dict().items() if "trunk." in name}
    torch.save(state, path)
    return path


def test_a_table_of_three_methods(tmp_path: Path, photos: Path) -> None:
    trunk = trunk_file(tmp_path / "trunk.pth")
    config = NetworkConfig("mac", TrunkConfig("resnet10", stages=2), None, None, PoolingConfig("mac"))
    save_network(Network(build_module(config), config), tmp_path / "mac")
    chosen = [
        read_contender(f"gem={trunk}"),
        Contender("my own", str(tmp_path / "mac")),
        read_contender(f"rmac={trunk}"),
    ]
    settings = {"extract.max_side": 48}
    work = compare_methods(photos, tmp_path / "out", chosen, settings=settings, workers=1)
    stages = {(step.label, step.stage) for step in work}
    assert ("my own", "features") in stages
    found = work.result()
    assert [row.map for row in found.rows] == sorted((row.map for row in found.rows), reverse=True)
    by_label = {row.label: row for row in found.rows}
    assert by_label["GeM (trunk.pth)"].bytes_per_photo == pytest.approx(512 * 4 + 2)
    for row in found.rows:
        assert row.low <= row.map <= row.high
        assert row.cpu_seconds > 0
    assert found.advice.startswith("Take ")
    assert any("my own" in line for line in table_lines(found))
    assert [len(panel.series) for panel in found.panels()] == [3, 3]
    again = compare_methods(photos, tmp_path / "out", chosen, settings=settings, workers=1).result()
    assert [row.map for row in again.rows] == [row.map for row in found.rows]


def test_local_features_that_bring_no_words_need_photos(tmp_path: Path, photos: Path) -> None:
    weights = save_random_network(tmp_path / "fire", 8, 6)
    with pytest.raises(SuperfeatError, match="words must be learned"):
        compare_methods(photos, tmp_path / "out", [Contender("fire", str(weights))], workers=1).result()


def test_names_of_methods() -> None:
    assert read_contender("gem=a/trunk.pth") == Contender("GeM (trunk.pth)", "a/trunk.pth", "gem")
    assert read_contender("mine=a/b") == Contender("mine", "a/b")
    assert read_contender("a/b") == Contender("b", "a/b")
    assert next(one.label for one in default_contenders()) == "FIRe"
    with pytest.raises(SuperfeatError, match="same name"):
        compare_methods("x", "y", [Contender("a", "b"), Contender("a", "c")])


def standing(label: str, value: float, cpu: float) -> Standing:
    return Standing(label, label, value, value, value, "all", 1000 * cpu, cpu, 100.0, "")


def test_the_cheapest_of_those_that_are_not_surely_worse() -> None:
    rng = np.random.default_rng(0)
    same = rng.random(200) * 100
    precisions = {"good": same, "close": same + rng.standard_normal(200), "bad": same - 30}
    rows = [standing("good", 50, 3.0), standing("close", 49.9, 1.0), standing("bad", 20, 0.1)]
    assert advise(rows, precisions).startswith("Take close: good, close do not surely differ")
    rows = [standing("good", 50, 1.0), standing("close", 49.9, 3.0), standing("bad", 20, 0.1)]
    assert advise(rows, precisions).startswith("Take good: it is the quickest")
    assert "finds most here" in advise([rows[0], rows[2]], precisions)
    mean, low, high = interval(same)
    assert low < mean < high
    assert mean == pytest.approx(same.mean())
    assert np.isnan(interval(np.asarray([np.nan]))[0])
