"""The picture of an explanation: whole, the same each time, coloured where it should be, whatever the photos are."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor

from fixtures_explain import looking, some_vectors
from fixtures_recipe import noise
from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.explain.explain import Explanation, explain
from superfeat.found.colours import COLOURS
from superfeat.found.explanation import PHOTOS_TOP, Captions, _owners, draw_explanation, save_picture, whole_percents
from superfeat.found.sheet import UNITS
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index

GREY = np.full((60, 80, 3), 128, np.uint8)
TALL = np.full((90, 60, 3), 128, np.uint8)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "index", Codebook(some_vectors(99, 6)))


def explained(
    index: Index,
    vectors: np.ndarray | None = None,
    *,
    name: str = "photo",
    other: str = "query",
    one_place: bool = False,
    config: SearchConfig | None = None,
) -> Explanation:
    """A photo with these vectors against a query with vectors like them."""
    rows = some_vectors(0, 30) if vectors is None else vectors
    found = looking(name, rows, 1, one_place=one_place)
    index.add(name, found)
    query = looking(other, rows + np.float32(0.2) * some_vectors(5, len(rows)), 2, one_place=one_place)
    return explain(index, query, name, found, config=config)


def near(picture: Image.Image, colour: str) -> int:
    """How many pixels have this colour."""
    wanted = np.asarray(ImageColor.getrgb(colour), np.int16)
    return int((np.abs(np.asarray(picture, np.int16) - wanted).max(axis=2) <= 6).sum())


@pytest.mark.parametrize("width", [300, 640, 1200])
def test_a_picture_is_as_wide_as_asked(index: Index, width: int) -> None:
    picture = draw_explanation(explained(index), GREY, TALL, width=width)
    assert (picture.mode, picture.width) == ("RGB", width)
    assert 0.5 * width < picture.height < 2 * width
    assert np.asarray(picture)[:, [0, -1]].min() == np.asarray(picture)[[0, -1]].min() == 255  # a margin all around


def test_the_same_picture_each_time(index: Index) -> None:
    explanation = explained(index)
    first, again = (draw_explanation(explanation, GREY, TALL, width=400) for _ in range(2))
    assert first.tobytes() == again.tobytes()


def test_each_region_has_its_colour_in_both_photos_and_in_the_bar(index: Index) -> None:
    explanation = explained(index)
    picture = draw_explanation(explanation, GREY, GREY)
    middle = picture.width // 2
    halves = [picture.crop((0, 0, middle, picture.height)), picture.crop((middle, 0, *picture.size))]
    assert len(explanation.regions) >= 2
    for number, colour in enumerate(COLOURS):
        for half in halves:
            assert (near(half, colour) > 100) == (number < len(explanation.regions))


def test_the_photos_keep_their_light_where_they_match(index: Index) -> None:
    """White noise: what is faded is lighter than the photo was."""
    explanation = explained(index)
    black = np.zeros((60, 80, 3), np.uint8)
    shown = np.asarray(draw_explanation(explanation, black, black).convert("L"))
    assert (shown[130:500, 40:560] > 90).any()
    assert (shown[130:500, 40:560] < 60).any()


@pytest.mark.parametrize(
    "shapes",
    [((1, 1), (1, 1)), ((1, 400), (400, 1)), ((300, 2), (300, 2)), ((2, 900), (3, 900)), ((90, 60), (60, 90))],
    ids=str,
)
def test_photos_of_any_shape(index: Index, shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    query, found = (noise(height, width) for height, width in shapes)
    picture = draw_explanation(explained(index), query, found, width=600)
    assert picture.width == 600
    assert 150 < picture.height < 1200


@pytest.mark.parametrize("name", ["", "x" * 5000, "ünï 名前 🏛", "caf\udce9\n\0.jpg", "a/../b"])
def test_names_of_any_kind(index: Index, name: str) -> None:
    plain = draw_explanation(explained(index), GREY, GREY, width=300)
    picture = draw_explanation(explained(index, other=name), GREY, GREY, width=300)
    assert picture.size == plain.size
    assert np.asarray(picture)[:, [0, -1]].min() == 255


def test_names_and_the_probability_are_written(index: Index) -> None:
    explanation = explained(index, name="", other="")
    plain = draw_explanation(explanation, GREY, GREY)
    told = draw_explanation(explanation, GREY, GREY, captions=Captions("mine.jpg", "yours.jpg", 0.8))
    assert told.size == plain.size
    different = np.asarray(told, np.int16) != np.asarray(plain, np.int16)
    rows, columns = np.nonzero(different.any(axis=2))
    assert rows.max() < PHOTOS_TOP  # the photos and all below are the same
    assert {bool(column > UNITS / 2) for column in columns} == {False, True}  # a name on each side


def test_one_shared_word(index: Index) -> None:
    explanation = explained(index, some_vectors(3, 1), config=SearchConfig(assignments=1))
    assert (len(explanation.words.words), len(explanation.regions)) == (1, 1)
    picture = draw_explanation(explanation, GREY, TALL)
    assert near(picture, COLOURS[0]) > 1000
    assert near(picture, COLOURS[1]) == 0


def test_features_that_are_places(index: Index) -> None:
    assert draw_explanation(explained(index, one_place=True), GREY, TALL, width=400).width == 400


def test_nothing_shared_is_said(index: Index) -> None:
    """No colours, no strip of pairs; words in their place."""
    nothing = explained(index, some_vectors(0, 0))
    picture, full = draw_explanation(nothing, GREY, GREY), draw_explanation(explained(index), GREY, GREY)
    assert picture.height < full.height - 100
    assert not any(near(picture, colour) for colour in COLOURS)
    assert near(picture, "#808080") > 100_000  # both photos as they are


def test_codes_that_do_not_agree_are_said(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", Codebook(np.zeros((1, 16), np.float32)))
    vectors = some_vectors(3, 1)
    index.add("a", -vectors)
    parts = looking("query", vectors), "a", looking("a", -vectors)
    pictures = [
        draw_explanation(explain(index, *parts, config=SearchConfig(threshold=threshold)), GREY, GREY)
        for threshold in (0.0, -1.0)
    ]
    assert pictures[0].size == pictures[1].size
    assert pictures[0].tobytes() != pictures[1].tobytes()  # one says 0, the other -1


def test_a_width_that_nobody_can_read(index: Index) -> None:
    with pytest.raises(SuperfeatError, match="a picture of 100 pixels cannot be read; give a width of 300 or more"):
        draw_explanation(explained(index), GREY, GREY, width=100)


@pytest.mark.parametrize(("name", "kind"), [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.jpeg", "JPEG")])
def test_a_picture_is_saved_by_its_ending(name: str, kind: str, tmp_path: Path) -> None:
    picture = Image.fromarray(noise(30, 40))
    save_picture(picture, tmp_path / name)
    with Image.open(tmp_path / name) as saved:
        assert (saved.format, saved.size) == (kind, (40, 30))
        assert kind == "JPEG" or saved.tobytes() == picture.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.gif", "a", ".png.txt"])
def test_other_endings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"this picture ends in \.png or \.jpg"):
        save_picture(Image.fromarray(noise(3, 4)), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_whole_percents_add_up() -> None:
    assert whole_percents([1 / 3, 1 / 3, 1 / 3]) == [34, 33, 33]
    assert whole_percents([0.305, 0.305, 0.39]) == [31, 30, 39]
    assert whole_percents([0.996, 0.004]) == [100, 0]
    assert whole_percents([1.2, -0.2]) == [120, -20]
    assert whole_percents([]) == []
    for seed in range(50):
        shares = np.random.default_rng(seed).dirichlet(np.ones(7))
        assert sum(whole_percents(shares.tolist())) == 100


def bump(x: float, y: float, spread: float) -> np.ndarray:
    rows, columns = np.mgrid[0:60, 0:90]
    return np.asarray(np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * spread**2)))


def test_no_region_is_hidden_by_others() -> None:
    """A region that looks at two towers, each of which another one looks at more sharply."""
    wide = bump(20, 30, 8) + bump(70, 30, 8)
    sharp = [bump(20, 30, 6) + 0.1 * wide, bump(70, 30, 6) + 0.1 * wide]
    owners = _owners([wide, *sharp], (360, 240))
    shares = [np.mean(owners == region) for region in range(-1, 3)]
    assert min(shares) > 0.005
    alone = [np.mean(_owners([heat], (360, 240)) == 0) for heat in (wide, *sharp)]
    assert all(share >= 0.15 * whole for share, whole in zip(shares[1:], alone, strict=True))
    assert np.array_equal(owners >= 0, np.any([_owners([heat], (360, 240)) >= 0 for heat in (wide, *sharp)], axis=0))
