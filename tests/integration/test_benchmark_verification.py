"""The benchmarks of verification, probabilities and networks still run, on two small sets that are made up."""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from benchmarks import calibration, labelled_sets, networks, places, verification
from PIL import Image

from fixtures_recipe import noise, save_random_network
from superfeat.extraction.folder import feature_writer
from superfeat.features import Features
from superfeat.index.codebook import Codebook
from superfeat.probability.model import Calibration, Origin
from superfeat.rerank.strangers import Null

THINGS, VIEWS, COUNT, DIM = 12, 3, 30, 64
KINDS = ("drawn", "whole", "among others")
CODEBOOK = Codebook(5 * np.random.default_rng(0).standard_normal((300, DIM)).astype(np.float32))


def view(name: str, thing: int, number: int) -> Features:
    """Most words of a thing where they belong, shifted a little, and some that are anybody's."""
    rng, own = np.random.default_rng((thing, number)), np.random.default_rng(thing)
    words, places = own.choice(300, COUNT, replace=False), own.random((COUNT, 2))
    strange = rng.random(COUNT) < 0.3 + 0.1 * number
    words = np.where(strange, rng.integers(0, 300, COUNT), words)
    places = np.where(strange[:, None], rng.random((COUNT, 2)), 0.9 * places + 0.02 * number)
    vectors = (CODEBOOK.centroids[words] + own.standard_normal((COUNT, DIM))).astype(np.float32)
    regions = np.concatenate((places, np.full((COUNT, 2), 0.05)), axis=1).astype(np.float32)
    ones = np.ones(COUNT, np.float32)
    return Features(name, vectors, ones, ones, np.arange(COUNT, dtype=np.int32), regions, image_size=(640, 480))


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    """Two sets with features, and a codebook."""
    CODEBOOK.save(tmp_path / "codebook")
    (tmp_path / "gnd").mkdir()
    for part, name in enumerate(("one", "other")):
        names = [f"{name}/{thing}/{number}.jpg" for thing in range(THINGS) for number in range(VIEWS)]
        queries = [
            {"img": photo, "self": row, "pos": [first + n for n in range(VIEWS) if first + n != row]}
            for row, photo in enumerate(names)
            for first in [row - row % VIEWS]
        ]
        (tmp_path / "gnd" / f"{name}.json").write_text(json.dumps({"name": name, "db": names, "queries": queries}))
        facts = {"network": {"digest": "network"}, "extract": {"attention": "regions"}}
        with feature_writer(tmp_path / "features" / name, facts, DIM, regions=True) as writer:  # type: ignore[arg-type]
            for row, photo in enumerate(names):
                writer.add(view(photo, 100 * part + row // VIEWS, row % VIEWS), (1, 1))
            writer.finish()
    sets = ["--sets", "one", "other", "--codebook", str(tmp_path / "codebook")]
    return [*sets, "--data", str(tmp_path), "--features", str(tmp_path / "features"), "--json", str(tmp_path / "out")]


def alike(folder: Path, name: str = "cartons", first: int = 300) -> Path:
    """A folder with photos of things, and their features."""
    photos = folder / name
    names = [f"{thing}/{number}.png" for thing in range(THINGS) for number in range(VIEWS)]
    facts = {"network": {"digest": "network"}, "extract": {"attention": "regions"}}
    with feature_writer(folder / "features" / name, facts, DIM, regions=True) as writer:  # type: ignore[arg-type]
        for row, photo in enumerate(names):
            (photos / photo).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noise(16, 16, seed=row)).save(photos / photo)
            writer.add(view(photo, first + row // VIEWS, row % VIEWS), (1, 1))
        writer.finish()
    return photos


def test_features_that_are_not_there_are_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of drawn landmarks, and of a part of a set; a second time nothing is, and no network is needed."""
    for name, value in (("THINGS", 3), ("VIEWS", 2), ("SIDE", 64)):
        monkeypatch.setattr(labelled_sets, name, value)
    folder, features = tmp_path / "features", ["--data", str(tmp_path), "--features", str(tmp_path / "features")]
    network = save_random_network(tmp_path / "tiny", templates=8, whitened_dim=6)
    parser = argparse.ArgumentParser()
    labelled_sets.add_set_arguments(parser, ())
    asked = [*features, "--codebook", "none", "--set", "max_side=64"]
    drawn = labelled_sets.read_set("drawn", parser.parse_args([*asked, "--weights", str(network)]))
    assert len(drawn.images()) == 6
    before = (folder / "drawn" / "vectors.npy").stat().st_mtime_ns
    again = labelled_sets.read_set("drawn", parser.parse_args(asked))
    assert again.images() == drawn.images()
    assert (folder / "drawn" / "vectors.npy").stat().st_mtime_ns == before
    with pytest.raises(SystemExit, match="--weights"):
        labelled_sets.read_set(str(folder / "drawn photos"), parser.parse_args(asked))
    things = [photo.name.split("/")[0] for photo in drawn.test.photos]
    (tmp_path / "gnd").mkdir()
    known = {"db": [f"features/drawn photos/{drawn.test.photos[0].name}"], "queries": [{"img": "none", "pos": [0]}]}
    (tmp_path / "gnd" / "known.json").write_text(json.dumps(known))
    for part in (
        labelled_sets.take_part(drawn.test, "the last", lambda photo: photo.name.startswith(f"{things[-1]}/")),
        labelled_sets.read_others("features/drawn photos", "known", parser.parse_args(asked)),
    ):
        assert {query.photo.name for query in part.queries} == {photo.name for photo in part.photos}
        assert {photo.name.split("/")[0] for photo in part.photos} in ({things[-1]}, set(things) - {things[0]})


def test_orders_are_measured_against_none(given: list[str], tmp_path: Path) -> None:
    origin = Origin("network", CODEBOOK.digest, "binary", 3.0, 0.0)
    known = Calibration(-1.0, 1.0, -0.1, Null(-4.0, 1.0, 20), origin)
    (tmp_path / "calibration.json").write_text(json.dumps(known.to_dict()))
    verification.main(["rerank", *given])
    found = json.loads((tmp_path / "out").read_text())
    assert set(found["one"]) == set(verification.METHODS)
    assert found["one"]["off"]["gain"]["difference"] == 0
    assert all(0 < one["map"] <= 100 for one in found["other"].values())


def test_a_calibration_with_clues_is_fitted_judged_and_used(given: list[str], tmp_path: Path) -> None:
    written = tmp_path / "calibration.json"
    photos = str(alike(tmp_path))
    asked = [
        *given,
        "--sets",
        "one",
        "--ship",
        "one",
        "--alike",
        photos,
        "--mixed",
        str(alike(tmp_path, "others", 600)),
    ]
    (tmp_path / "kept").mkdir()
    asked += ["--tests", "other", "--kept", str(tmp_path / "kept"), "--write", str(written)]
    asked += ["--plot", str(tmp_path / "out.png")]
    calibration.main(asked)
    found = json.loads((tmp_path / "out").read_text())
    judged = {f"{kind}: {name} by others" for kind in KINDS for name in ("one", "cartons")}
    assert set(found) == judged | {"drawn: other by shipped", "whole: other by shipped"}
    assert found["whole: other by shipped"]["clues"]["middle"] <= found["whole: other by shipped"]["results"]
    with Image.open(tmp_path / "out.png") as picture:
        assert min(picture.size) > 200
    first = Calibration.from_dict(json.loads(written.read_text()))
    calibration.main(asked)
    assert json.loads((tmp_path / "out").read_text()) == found, "what is kept is what was found"
    assert found["whole: one by others"]["clues"]["log_loss"] < found["whole: one by others"]["always"]
    fitted = Calibration.from_dict(json.loads(written.read_text()))
    assert fitted == first
    assert fitted.weights is not None
    more = ["--own-labels", "--strangers", str(tmp_path / "features" / "one")]
    calibration.main([*given, "--sets", "other", "--calibration", str(written), *more])
    again = json.loads((tmp_path / "out").read_text())
    own = again.pop("own labels: other")
    for kind in ("among others", "mixed", "large"):
        among = again.pop(f"{kind}: other by shipped")
        assert among["others"] == THINGS * VIEWS
        assert among["clues"]["log_loss"] < among["always"]
    assert own["after"]["log_loss"] < 1.1 * own["before"]["log_loss"]
    assert again == {name: found[name] for name in ("drawn: other by shipped", "whole: other by shipped")}
    verification.main(["duplicates", *given, "--calibration", str(written)])
    groups = json.loads((tmp_path / "out").read_text())
    assert groups["one"]["precision"] > 0.9
    assert groups["one"]["recall"] > 0.3


def test_places_of_several_kinds_are_compared(given: list[str], tmp_path: Path) -> None:
    """Those of parts are given here: anywhere, so that less is told apart by them."""
    with pytest.raises(SystemExit, match="--weights"):
        places.main(given)
    rng = np.random.default_rng(0)
    for name in ("one", "other"):
        photos = [f"{name}/{thing}/{number}.jpg" for thing in range(THINGS) for number in range(VIEWS)]
        anywhere = {photo: rng.random((COUNT, 4)).astype(np.float32) for photo in photos}
        np.savez(tmp_path / "features" / f"{name} parts.npz", allow_pickle=False, **anywhere)
    places.main(given)
    found = json.loads((tmp_path / "out").read_text())
    assert set(found["one"]) == {"stored", "exact", "scale", "part"}
    assert found["one"]["stored"]["told apart"] > 1.02 * found["one"]["part"]["told apart"]
    assert all(0 < kind["map"] <= 100 for kind in found["other"].values())


def test_the_largest_connected_part_of_attention() -> None:
    attention = np.zeros((5, 8), np.float32)
    attention[0, 0], attention[3:, 5:7], attention[1, 2] = 4.0, 3.0, 1.0
    centre_x, centre_y, spread_x, spread_y = places.part_of(attention).tolist()
    assert (centre_x, centre_y) == pytest.approx((6 / 8, 4 / 5))
    assert (spread_x, spread_y) == pytest.approx((2 / 8 / 12**0.5, 2 / 5 / 12**0.5))


def test_how_often_right_ones_are_larger() -> None:
    assert places.told_apart([3, 1], [2, 1]) == pytest.approx((1 + 1 + 0 + 0.5) / 4)


def test_time_is_measured_without_and_with(tmp_path: Path) -> None:
    small = ["--images", "300", "--words", "256", "--words-per-image", "20", "--rounds", "1"]
    verification.main(["time", *small, "--json", str(tmp_path / "out.json")])
    assert set(json.loads((tmp_path / "out.json").read_text())["milliseconds"]) == {"without", "with", "diffuse"}


@pytest.mark.parametrize("together", [False, True])
def test_networks_are_compared_set_by_set_and_on_the_mean(given: list[str], tmp_path: Path, together: bool) -> None:
    """Words of a network that has half of the codebook find less."""
    Codebook(CODEBOOK.centroids[:10]).save(tmp_path / "few")
    features = str(tmp_path / "features")
    copied = shutil.copytree(features, tmp_path / "same")
    asked = [f"{copied}={tmp_path / 'few'}", f"{features}={tmp_path / 'codebook'}", "--data", str(tmp_path)]
    flag = ["--together"] if together else []
    networks.main(["compare", *asked, "--sets", "one", "other", *flag, "--json", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out").read_text())
    few, all_ = found["networks"]
    assert few["mean"] < all_["mean"]
    assert few["words"] <= 10 < all_["words"]
    (one,) = found["differences"]
    assert one["mean"]["low"] <= one["mean"]["difference"] <= one["mean"]["high"]
    assert one["mean"]["difference"] == pytest.approx(all_["mean"] - few["mean"], abs=0.02)
    assert {"one", "other"} < set(one)


def test_one_network_asks_the_photos_of_another(given: list[str], tmp_path: Path) -> None:
    """Features of another network are taken for the same: here they are, and so are the results."""
    features, words = str(tmp_path / "features"), str(tmp_path / "codebook")
    copied = shutil.copytree(features, tmp_path / "same")
    for manifest in copied.glob("*/manifest.json"):
        facts = json.loads(manifest.read_text())
        facts.setdefault("network", {})["digest"] = "another"
        manifest.write_text(json.dumps(facts))
    asked = [f"{copied}+{features}={words}", f"{features}={words}", "--data", str(tmp_path)]
    networks.main(["compare", *asked, "--sets", "one", "other", "--json", str(tmp_path / "out")])
    both, alone = json.loads((tmp_path / "out").read_text())["networks"]
    assert (both.pop("network"), alone.pop("network")) == ("same+features", "features")
    assert both == alone


def test_every_second_photo_may_have_the_features_of_another_folder(given: list[str], tmp_path: Path) -> None:
    """With the same features nothing changes; with features of nothing half of the photos are not found."""
    features, words = str(tmp_path / "features"), str(tmp_path / "codebook")
    same, spoiled = (shutil.copytree(features, tmp_path / name) for name in ("same", "spoiled"))
    for values in spoiled.glob("*/vectors.npy"):
        rows = np.load(values, mmap_mode="r+")
        rows[:] = np.random.default_rng(0).standard_normal(rows.shape)
        rows.flush()
    folders = [f"{features}+{features}//{same}", f"{features}+{features}//{spoiled}", features]
    asked = [f"{folder}={words}" for folder in folders]
    networks.main(["compare", *asked, "--data", str(tmp_path), "--sets", "one", "--json", str(tmp_path / "out")])
    mixed, bad, alone = json.loads((tmp_path / "out").read_text())["networks"]
    assert (mixed.pop("network"), alone.pop("network")) == ("features+features//same", "features")
    assert mixed == alone
    assert bad["mean"] < alone["mean"] - 10


def test_fewer_features_of_each_scale_may_be_kept(given: list[str], tmp_path: Path) -> None:
    features, words = str(tmp_path / "features"), str(tmp_path / "codebook")
    asked = [f"{folder}={words}" for folder in (f"{features}@2,0", f"{features}@1000,1", features)]
    networks.main(["compare", *asked, "--data", str(tmp_path), "--sets", "one", "--json", str(tmp_path / "out")])
    few, every, alone = json.loads((tmp_path / "out").read_text())["networks"]
    assert (few.pop("network"), every.pop("network")) == ("features@2,0", "features@1000,1")
    assert few["words"] < alone["words"]
    assert every == {key: value for key, value in alone.items() if key != "network"}


def test_the_same_features_may_be_searched_in_several_ways(given: list[str], tmp_path: Path) -> None:
    """Among features that are mostly noise the order of the results depends on it."""
    for values in (tmp_path / "features").glob("*/vectors.npy"):
        rows = np.load(values, mmap_mode="r+")
        rows += 3 * np.random.default_rng(0).standard_normal(rows.shape, np.float32)
        rows.flush()
    asked = f"{tmp_path / 'features'}={tmp_path / 'codebook'}"
    ways = [f"{asked}:assignments=1,alpha=0.0", asked]
    networks.main(["compare", *ways, "--data", str(tmp_path), "--sets", "one", "--json", str(tmp_path / "out")])
    blunt, plain = json.loads((tmp_path / "out").read_text())["networks"]
    assert (blunt["network"], plain["network"]) == ("features:assignments=1,alpha=0.0", "features")
    assert blunt["mean"] != plain["mean"]


def test_the_strongest_super_features_and_a_share_of_the_points_of_each_scale() -> None:
    strengths = np.array([9, 8, 7, 6, 5, 4, 3, 2], np.float32)
    scales = np.array([1, 0.5, 1, 1, 0.5, 1, 1, 1], np.float32)
    ids = np.array([0, 7, 256, 3, 8, 5, 300, 257], np.int32)
    features = Features("a", np.arange(8, dtype=np.float32)[:, None], strengths, scales, ids)
    kept = networks.strongest_of_scales(features, 2, 2 / 3)
    assert kept.vectors[:, 0].tolist() == [0, 1, 2, 3, 4, 6]  # of scale 1: 0 and 3, and two of three points


def test_networks_take_turns_with_each_photo(tmp_path: Path) -> None:
    for number in range(3):
        Image.fromarray(noise(48, 64, number)).save(tmp_path / f"{number}.png")
    tiny = str(save_random_network(tmp_path / "tiny", templates=8, whitened_dim=6))
    asked = [tiny, f"{tiny}:max_side=32,scales=[1.0,0.5]", "--photos", str(tmp_path)]
    networks.main(["time", *asked, "--json", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["photos"] == 3
    assert [one["cpu_seconds"] > 0 for one in found["networks"].values()] == [True, True]
