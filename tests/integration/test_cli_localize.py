"""superfeat map and localize as a user meets them: a painted wall, photographed from known places."""

import json
import shutil
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("pycolmap")

from fixtures_cli import assert_refused, run
from fixtures_mapping import CAMERA, looking, paint, photograph, write_aachen
from fixtures_recipe import save_random_network
from superfeat.mapping.build_map import MapBuilt, MapProgress
from superfeat.mapping.cameras import pose_error, pose_of
from superfeat.mapping.pose_files import pose_line
from superfeat.work import Work

PLACES = (-0.9, -0.5, -0.1, 0.3, 0.7)
QUERY = looking((0.1, 0.1, -3.0))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kapture dataset with poses, a list of queries, and a map that was made of them."""
    folder = tmp_path_factory.mktemp("wall")
    sensors = folder / "dataset" / "sensors"
    (sensors / "records_data").mkdir(parents=True)
    (folder / "queries").mkdir()
    wall = paint(3)
    records, poses = [], []
    for number, x in enumerate(PLACES):
        pose = looking((x, 0.1 * (number % 2), -3.2), (0.4 * x, 0, 0))
        photograph(wall, pose).save(sensors / "records_data" / f"{number}.png")
        records.append(f"{number}, cam, {number}.png")
        poses.append(", ".join(str(value) for value in (number, "cam", *pose.qvec, *pose.tvec)))
    words = [CAMERA.model, CAMERA.width, CAMERA.height, *CAMERA.params]
    (sensors / "sensors.txt").write_text("cam, cam, camera, " + ", ".join(map(str, words)) + "\n")
    (sensors / "records_camera.txt").write_text("\n".join(records) + "\n")
    (sensors / "trajectories.txt").write_text("\n".join(poses) + "\n")
    photograph(wall, QUERY).save(folder / "queries" / "here.png")
    photograph(paint(4), QUERY).save(folder / "queries" / "elsewhere.png")
    (folder / "queries" / "broken.png").write_bytes(b"no photo")
    camera = " ".join(map(str, words))
    (folder / "queries.txt").write_text(f"here.png {camera}\nelsewhere.png {camera}\nbroken.png {camera}\n")
    network = save_random_network(folder / "tiny", templates=24, whitened_dim=16)
    made = run("map", folder / "dataset", "-o", folder / "map", "-w", network)
    assert made.exit_code == 0, (made.stdout, made.stderr)
    assert "5 of 5 photos" in made.stdout
    assert "with the poses given" in made.stdout
    return folder


def test_where_photos_were_taken(place: Path, tmp_path: Path) -> None:
    asked = ["localize", place / "map", place / "queries.txt", "--images", place / "queries"]
    result = run(*asked, "-o", tmp_path / "out", "--html", tmp_path / "page.html", "--json")
    assert result.exit_code == 1  # two have no pose
    told = json.loads(result.stdout)
    here, elsewhere, broken = told["results"]
    assert told["located"] == 1
    np.testing.assert_allclose(here["centre"], QUERY.centre(), atol=0.05)
    assert here["trust"] == "good"
    assert here["deviation"] < 0.1
    assert elsewhere["pose"] is broken["pose"] is None
    assert "agree on a place" in elsewhere["reason"]
    assert "cannot be used" in broken["reason"]
    assert (tmp_path / "out" / "poses.txt").read_text().startswith("here.png ")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<section>") == 3
    assert "1 of 3 photos have a place" in page
    plain = run(*asked)
    assert "here.png: at " in plain.stdout
    assert "elsewhere.png: no place: " in plain.stdout


def test_photos_that_little_is_known_of(place: Path, tmp_path: Path) -> None:
    """No camera, nothing to see, a camera of another size: each is told by itself, and the exit code tells of all."""
    (tmp_path / "here").mkdir()
    shutil.copy(place / "queries" / "here.png", tmp_path / "here" / "here.png")
    known = run("localize", place / "map", tmp_path / "here")
    assert known.exit_code == 0
    assert "its camera is not known, a focal length of " in known.stdout
    Image.new("RGB", (CAMERA.width, CAMERA.height), "gray").save(tmp_path / "here" / "gray.png")
    paint(3, 64).save(tmp_path / "here" / "small.png")
    camera = " ".join(map(str, [CAMERA.model, CAMERA.width, CAMERA.height, *CAMERA.params]))
    (tmp_path / "list.txt").write_text(f"gray.png {camera}\nsmall.png {camera}\nhere.png {camera}\n")
    result = run("localize", place / "map", tmp_path / "list.txt", "--images", tmp_path / "here")
    assert result.exit_code == 1
    assert "1 of 3 photos have a place" in result.stdout
    assert "gray.png: no place: only 0 matches agree on a place, and 12 are needed" in result.stdout
    assert "is 64 x 64 pixels, and its camera is for 320 x 240; give the camera of this size" in result.stdout
    assert_refused(run("map", tmp_path / "list.txt", "--images", place, "-o", tmp_path / "map"), "0 of 3 photos can be")


@pytest.mark.parametrize("models", [[3, 2], [4], [5]])
def test_the_exit_code_of_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[int]) -> None:
    alone = ["4.png"] * (5 - sum(models))
    built = MapBuilt(5, models, 90, 10, 6, False, [], alone, [])
    monkeypatch.setattr("superfeat.mapping.build_map.build_map", lambda *given: Work(iter_to(built)))
    paint(1, 64).save(tmp_path / "0.png")
    made = run("map", tmp_path, "-o", tmp_path / "map")
    assert made.exit_code == (0 if models == [5] else 1)
    assert ("the map is in 2 parts (3, 2 photos) that share no coordinates" in made.stdout) == (len(models) == 2)
    assert ("without a place 1" in made.stdout) == (models == [4])


def iter_to(result: MapBuilt) -> Generator[MapProgress, None, MapBuilt]:
    yield MapProgress("mapping", 0, 1)
    return result


def test_a_map_that_is_there_is_not_made_again(place: Path) -> None:
    files = sorted((place / "map" / "local").glob("*.npz"))
    before = [file.stat().st_mtime_ns for file in files]
    assert run("map", place / "dataset", "-o", place / "map").exit_code == 0
    assert [file.stat().st_mtime_ns for file in files] == before


def test_what_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    paint(1, 64).save(tmp_path / "one" / "alone.png")
    assert_refused(run("map", tmp_path / "one", "-o", tmp_path / "map"), "two photos at least")
    assert_refused(run("localize", tmp_path, tmp_path / "one"), "not a finished map")
    (tmp_path / "bad.txt").write_text("here.png PINHOLE 3\n")
    assert_refused(run("localize", place / "map", tmp_path / "bad.txt"), "bad.txt, line 1")


def test_percent_localized(place: Path, tmp_path: Path) -> None:
    """The wall as a scene of one's own: retrieval, exhaustive, and going on with what is there."""
    scene = tmp_path / "scenes" / "wall"
    (scene / "images").mkdir(parents=True)
    wall, entries = paint(3), {}
    camera = {"model": CAMERA.model, "width": CAMERA.width, "height": CAMERA.height, "params": list(CAMERA.params)}
    for number, x in enumerate((*PLACES, 0.1)):
        pose = looking((x, 0.1 * (number % 2), -3.2), (0.4 * x, 0, 0))
        photograph(wall, pose).save(scene / "images" / f"{number}.png")
        split = "query" if number == len(PLACES) else "db"
        entries[f"{number}.png"] = {"camera": camera, "qvec": pose.qvec, "tvec": pose.tvec, "split": split}
    (scene / "poses.json").write_text(json.dumps({"scale": "metric", "images": entries}))
    asked = ["evaluate", scene.parent, "--localization", "-w", place / "tiny", "-o", tmp_path / "out"]
    told = json.loads(run(*asked, "--exhaustive", "--json").stdout)
    assert (told["photos"], told["queries"]) == (5, 1)
    found = {(one["method"], one["top"]): one["percent"] for one in told["scores"]}
    assert found["exhaustive", 5] == [100.0, 100.0, 100.0]
    assert found["asmk", 5] == found["pooled", 5] == [100.0, 100.0, 100.0]
    written = next((tmp_path / "out").rglob("poses.jsonl"))
    written.write_text(written.read_text() * 2)  # as two runs at once would have left it
    again = run(*asked, "--json")
    assert {one["queries"] for one in json.loads(again.stdout)["scores"]} == {1}
    assert "1 queries, 5 photos of the map" in run(*asked).stdout
    assert_refused(run("evaluate", scene / "images", "--localization", "-o", tmp_path / "no"), "has no scene")


def test_aachen_as_it_is_published(place: Path, tmp_path: Path) -> None:
    """Its layout in small: without true poses the file that the server takes, with them percent by day and by night."""
    true = write_aachen(tmp_path / "aachen")
    asked = ["evaluate", "aachen-v1.1", "--images", tmp_path / "aachen", "-w", place / "tiny", "-o", tmp_path / "out"]
    made = run(*asked, "--localization")
    assert made.exit_code == 0, made.stderr
    assert "2 queries, 5 photos of the map\n" in made.stdout
    assert "asmk         top   50  night 1 of 1 have a pose" in made.stdout
    assert "no percentages: the true poses of these queries are not published, and the server measures" in made.stdout
    answer = (tmp_path / "out" / "poses" / "asmk-top50.txt").read_text()
    assert [line.split()[0] for line in answer.splitlines()] == ["noon.png", "dark.png"]
    for line, pose in zip(answer.splitlines(), true.values(), strict=True):
        found = pose_of(line.split()[1:], "here")
        assert pose_error(found, pose).distance < 0.05
        assert pose_error(found, pose).degrees < 1
    (noon, sure), dark = next(iter(true.items())), "dark.png 1 0 0 0 5 5 5"
    given = tmp_path / "true.txt"
    given.write_text(f"{pose_line(noon, sure)}\n")
    told = json.loads(run(*asked, "--poses", given, "--json").stdout)  # the name says that it is localization
    shares = {(one["method"], one["top"], one["group"]): one["percent"] for one in told["scores"]}
    assert shares["asmk", 50, "day"] == shares["pooled", 50, "day"] == [100.0, 100.0, 100.0]
    assert shares["asmk", 50, "night"] == []
    assert "the true poses of 1 queries are known: percent of these" in run(*asked, "--poses", given).stdout
    (tmp_path / "aachen" / "queries" / "poses.txt").write_text(f"{pose_line(noon, sure)}\n{dark}\n")
    told = json.loads(run(*asked, "--json").stdout)
    by_light = {(one["top"], one["group"]): one["percent"] for one in told["scores"] if one["method"] == "asmk"}
    assert (by_light[50, "day"], by_light[50, "night"]) == ([100.0] * 3, [0.0] * 3)
    assert told["poses"][0].endswith("asmk-top1.txt")


def test_aachen_is_refused(place: Path, tmp_path: Path) -> None:
    asked = ["evaluate", "aachen-v1.1", "-w", place / "tiny", "-o", tmp_path / "out"]
    assert_refused(run(*asked), "aachen-v1.1 needs the folder of its files: give one with images/images_upright")
    assert_refused(run(*asked, "--images", tmp_path), "has no images/images_upright")
    wrong = run("evaluate", tmp_path, "--poses", tmp_path / "x", "-o", tmp_path / "out")
    assert_refused(wrong, "poses are given for aachen-v1.1 alone: scenes have their own")
