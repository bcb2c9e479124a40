"""The page of results: names are text, what is gone is said, odd queries leave out what cannot be shown."""

import base64
import dataclasses
import hashlib
import re
from html import escape
from pathlib import Path

from fixtures_found import HOSTILE
from superfeat.engine import Answer, Engine, Named
from superfeat.found.results import write_results_page


def page_of(answers: list[Answer], path: Path) -> str:
    write_results_page(path, answers)
    return path.read_text()


def test_names_are_text(engine: Engine, tmp_path: Path) -> None:
    asked = [engine.search(Named(HOSTILE)), engine.search(Named("a.png"))]
    text = page_of(asked, tmp_path / "page.html")
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;") >= 2
    assert "default-src 'none'" in text


def test_what_is_gone_is_said_and_the_rest_is_shown(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "photos" / engine.search(Named("a.png")).hits[0].name).unlink()
    answer = engine.search(Named("a.png"))
    text = page_of([answer], tmp_path / "page.html")
    assert "cannot read" in text
    assert text.count("its file is no longer there") == 1
    found = [hit for hit in answer.hits if hit.name != "a.png" and hit.score > 0]
    assert text.count('class="hit"') == len(found) >= 2
    assert text.count("data:image/jpeg") >= len(found)  # the query, and all hits but one


def test_the_query_itself_is_not_explained(engine: Engine, tmp_path: Path) -> None:
    answer = engine.search(Named("b.png"))
    text = page_of([answer], tmp_path / "page.html")
    assert "Why b.png" not in text
    assert text.count("<details") == min(2, sum(hit.score > 0 for hit in answer.hits))


def test_features_have_no_photo(engine: Engine, tmp_path: Path) -> None:
    features = engine.features(Named("c.png"))
    text = page_of([engine.search(features)], tmp_path / "page.html")
    assert "<details" not in text
    assert text.count("<img") == 4


def test_what_to_do_with_a_result(engine: Engine, tmp_path: Path) -> None:
    """Its file, its folder and its path; of a file that is gone nothing is offered. One script may run, no other."""
    found = engine.search(Named("a.png"))
    gone, *there = [hit._replace(score=1.0) for hit in found]
    answer = dataclasses.replace(found, hits=[gone._replace(gone=True), *there])
    text = page_of([answer], tmp_path / "page.html")
    for hit in there:
        path = Path(hit.path or "")
        assert f'href="{path.as_uri()}"' in text
        assert f'data-path="{escape(str(path))}"' in text
    assert f'href="{(tmp_path / "photos").as_uri()}"' in text
    assert Path(gone.path or "").as_uri() not in text
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_results_come_in_sections_that_agree_with_them(engine: Engine, tmp_path: Path) -> None:
    found = engine.search(Named("a.png"))
    judged = [hit._replace(probability=one, score=one) for hit, one in zip(found, (0.8, 0.5, 0.02), strict=True)]
    text = page_of([dataclasses.replace(found, hits=judged)], tmp_path / "page.html")
    places = [
        text.index(part)
        for part in (
            "1 photo of the same thing, 1 more perhaps",
            "<h3>The same thing <span>1</span></h3>",
            "likely the same, 80 %",
            "<h3>Perhaps the same thing <span>1</span></h3>",
            "perhaps the same, 50 %",
            '<details class="rest"><summary>Very unlikely to be the same <span>1</span></summary>',
            "very unlikely to be the same, 2 %",
        )
    ]
    assert places == sorted(places)
    assert f"Why {escape(judged[0].name)}: likely the same, 80 %" in text
