"""The training set of the shipped network: who has pairs, who only views, who is left out."""

import csv
import sys
from pathlib import Path

import pytest
from PIL import Image
from tools import landmarks_training_set

from fixtures_recipe import noise
from superfeat.images import upright_size


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["landmarks_training_set.py", *map(str, arguments)])
    landmarks_training_set.main()


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Landmarks of four roles and a carton, two photos each, and roles.csv."""
    roles = ["thing,role,why"]
    for role in ("train", "split", "distractor", "val"):
        roles.append(f"{role} thing,{role},because")
        save(tmp_path / "photos" / "gldv2" / f"{role} thing")
    save(tmp_path / "photos" / "grocery" / "carton")
    (tmp_path / "roles.csv").write_text("\n".join(roles) + "\n")
    return tmp_path / "photos"


def save(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(2):
        Image.fromarray(noise(320, 240, seed=number)).save(folder / f"{number}.jpg")


def test_what_is_to_be_paired(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "labels", photos, tmp_path / "roles.csv", "-o", tmp_path / "to-pair.csv")
    things = [row["thing"] for row in table(tmp_path / "to-pair.csv")]
    assert things == ["gldv2/split thing"] * 2 + ["gldv2/train thing"] * 2 + ["grocery/carton"] * 2


def test_pairs_and_views(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, double = [f"gldv2/train thing/{n}.jpg" for n in (0, 1)], [f"grocery/carton/{n}.jpg" for n in (0, 1)]
    given = [tuple(pair), tuple(reversed(pair))] * 4
    rows = ["query,positive,inliers", *(",".join([*one, "40"]) for one in given), ",".join([*double, "900"])]
    (tmp_path / "found.csv").write_text("\n".join(rows) + "\n")
    made = []
    for output in (tmp_path / "a", tmp_path / "b"):
        run(
            monkeypatch,
            "views",
            photos,
            tmp_path / "roles.csv",
            "--pairs",
            tmp_path / "found.csv",
            "--views",
            5,
            "--small",
            0.5,
            "-o",
            output,
        )
        made.append({path.name: path.read_bytes() for path in [*output.iterdir(), *(photos / "views").iterdir()]})
    assert made[0] == made[1]  # the same on every machine
    pairs = [(row["query"], row["positive"]) for row in table(tmp_path / "a" / "pairs.csv")]
    assert tuple(double) not in pairs  # the same photo twice
    found, views = pairs[: len(given)], pairs[len(given) :]
    small = {name: f"small/{name.replace('/', '__')}" for name in pair}
    assert [query for query, _ in found] == [query for query, _ in given]
    assert all(shown in (name, small[name]) for (_, name), (_, shown) in zip(given, found, strict=True))
    assert 0 < sum(shown.startswith("small/") for _, shown in found) < len(found)
    assert all(max(upright_size(photos / shown)) < 320 for _, shown in found if shown.startswith("small/"))
    assert len(views) == 5
    assert all(view == f"views/{photo.replace('/', '__')}" and (photos / view).is_file() for photo, view in views)
    labels = {row["image"]: row["thing"] for row in table(tmp_path / "a" / "labels.csv")}
    assert set(labels) == {name for named in pairs for name in named}
    assert all(labels[view] == labels[photo] == photo.rpartition("/")[0] for photo, view in views)
    assert all(labels[shown] == "gldv2/train thing" for _, shown in found)
    assert not any("val thing" in name for name in labels)


def test_pairs_that_others_vouch_for(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 and 3 both agree with 1 and 2, and not with each other."""
    folder = "gldv2/train thing"
    for number in (2, 3):
        Image.fromarray(noise(320, 240, seed=number)).save(photos / folder / f"{number}.jpg")
    agreed = [(0, 1), (0, 2), (1, 3), (2, 3), (1, 2)]
    rows = ["query,positive,inliers", *(f"{folder}/{a}.jpg,{folder}/{b}.jpg,40" for a, b in agreed)]
    (tmp_path / "found.csv").write_text("\n".join(rows) + "\n")
    given = ["landmarks", photos, tmp_path / "roles.csv", "--pairs", tmp_path / "found.csv"]
    run(monkeypatch, *given, "-o", tmp_path / "plain")
    run(monkeypatch, *given, "--vouchers", 2, "-o", tmp_path / "more")
    plain, more = table(tmp_path / "plain" / "pairs.csv"), table(tmp_path / "more" / "pairs.csv")
    assert len(plain) == len(agreed)
    assert more == [*plain, {"query": f"{folder}/0.jpg", "positive": f"{folder}/3.jpg"}]


def test_every_second_photo(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "sample", photos, tmp_path / "roles.csv", "--every", 2, "-o", tmp_path / "licensed.txt")
    listed = [Path(line) for line in (tmp_path / "licensed.txt").read_text().splitlines()]
    assert [path.parent.name for path in listed] == ["distractor thing", "split thing", "train thing", "carton"]
    assert all(path.is_file() and path.name == "0.jpg" for path in listed)


def test_evenly_spread_groceries(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2, 5):
        Image.fromarray(noise(32, 24, seed=number)).save(photos / "grocery" / "carton" / f"{number}.jpg")
    run(monkeypatch, "alike", photos, tmp_path / "roles.csv", "--each", 3, "-o", tmp_path / "cartons")
    copied = sorted((tmp_path / "cartons").rglob("*.*"))
    assert [path.relative_to(tmp_path / "cartons").as_posix() for path in copied] == [
        f"carton/{n}.jpg" for n in (0, 2, 4)
    ]
    assert all(path.read_bytes() == (photos / "grocery" / "carton" / path.name).read_bytes() for path in copied)


def test_some_photos_of_landmarks(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "others", photos, tmp_path / "roles.csv", "--every", 2, "-o", tmp_path / "others")
    copied = sorted(path.relative_to(tmp_path / "others").as_posix() for path in (tmp_path / "others").rglob("*.*"))
    assert copied == [f"{role} thing/0.jpg" for role in ("distractor", "split", "train")]
