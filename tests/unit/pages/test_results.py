"""The page of results: names are text, what is gone is said, odd queries leave out what cannot be shown."""

from pathlib import Path

import pytest
from PIL import Image

from fixtures_recipe import noise
from superfeat.config import ExtractConfig
from superfeat.engine import Engine
from superfeat.extraction.extract import extract
from superfeat.images import list_photos
from superfeat.index.build import add_photos
from superfeat.index.codebook import train_codebook
from superfeat.index.index import Index
from superfeat.pages import results as results_page
from superfeat.pages.results import VERDICTS, AnsweredQuery, verdict, write_results_page
from superfeat.settings import as_dict
from superfeat.storage.store import as_json
from superfeat.weights import Network, save_network

CONFIG = ExtractConfig(max_side=96, scales=(1.0, 0.5), attention="regions")
HOSTILE = "<script>alert(1)<.png"


@pytest.fixture
def engine(tmp_path: Path, tiny_network: Network) -> Engine:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(("a.png", "b.png", "c.png", HOSTILE)):
        Image.fromarray(noise(72, 96, number)).save(folder / name)
    save_network(tiny_network, tmp_path / "network")
    features = list(extract(tiny_network, folder, CONFIG, workers=1))
    facts = as_json({"extract": as_dict(CONFIG), "weights": str(tmp_path / "network")})
    index = Index.create(tmp_path / "index", train_codebook(features, words=8), facts=facts)
    list(add_photos(index, tiny_network, list_photos([folder]).photos, CONFIG, workers=1))
    return Engine(index, workers=1)


def page_of(engine: Engine, asked: list[AnsweredQuery], path: Path) -> str:
    write_results_page(path, engine, asked)
    return path.read_text()


def test_names_are_text(engine: Engine, tmp_path: Path) -> None:
    text = page_of(engine, [AnsweredQuery(HOSTILE, HOSTILE, None, engine.search(HOSTILE))], tmp_path / "page.html")
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 2
    assert "default-src 'none'" in text


def test_what_is_gone_is_said_and_the_rest_is_shown(engine: Engine, tmp_path: Path) -> None:
    answer = engine.search("a.png")
    (tmp_path / "photos" / answer.hits[1].name).unlink()
    text = page_of(engine, [AnsweredQuery("a.png", "a.png", None, answer)], tmp_path / "page.html")
    assert "cannot read" in text
    assert text.count('class="hit"') == 3
    assert text.count("data:image/jpeg") >= 3  # the query, two hits


def test_the_query_itself_is_not_explained(engine: Engine, tmp_path: Path) -> None:
    answer = engine.search("b.png")
    text = page_of(engine, [AnsweredQuery("b.png", "b.png", None, answer)], tmp_path / "page.html")
    assert "Why b.png" not in text
    assert text.count("<details") == min(2, sum(hit.score > 0 for hit in answer.hits[1:]))


def test_features_have_no_photo(engine: Engine, tmp_path: Path) -> None:
    features = engine.features("c.png")
    text = page_of(engine, [AnsweredQuery("c", features, None, engine.search(features))], tmp_path / "page.html")
    assert "<details" not in text
    assert text.count("<img") == 4


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (1.0, ("very likely the same, 100%", "yes")),
        (0.75, ("likely the same, 75%", "yes")),
        (0.4, ("perhaps the same, 40%", "maybe")),
        (0.39, ("unlikely to be the same, 39%", "no")),
        (0.0, ("very unlikely to be the same, 0%", "no")),
    ],
)
def test_probabilities_in_words(probability: float, words: tuple[str, str]) -> None:
    assert verdict(probability) == words


def test_the_web_page_says_the_same() -> None:
    script = (Path(results_page.__file__).parents[1] / "service" / "page" / "cards.js").read_text()
    for least, words, _ in VERDICTS:
        assert f'[{least:g}, "{words.capitalize()}"' in script
