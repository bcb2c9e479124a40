"""Hits, answers and explanations show themselves in a line, in a notebook, and as files."""

import dataclasses
import json
from pathlib import Path

import pytest
from PIL import Image

from fixtures_found import HOSTILE
from superfeat.engine import Answer, Engine, FoundPhoto, Named
from superfeat.errors import SuperfeatError


def hit(**changes: object) -> FoundPhoto:
    whole = FoundPhoto("a/b.png", 3, 0.25, 0.9, (0.1, 0.2, 0.5, 0.5), None)
    return whole._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def answer(engine: Engine) -> Answer:
    return engine.search(Named("a.png"))


def test_an_answer_is_a_sequence_of_hits(answer: Answer) -> None:
    assert list(answer) == answer.hits
    assert len(answer) == 3
    assert answer[0] is answer.hits[0]
    assert answer[1:] == answer.hits[1:]


def test_lines_are_short(answer: Answer, engine: Engine) -> None:
    assert repr(hit()) == "<FoundPhoto 'a/b.png': 90.0%, score 0.2500>"
    assert repr(hit(probability=None, gone=True, copy_of="q.png")) == (
        "<FoundPhoto 'a/b.png': score 0.2500, its file is no longer there, a copy of q.png>"
    )
    best = answer.hits[0]
    assert repr(answer) == f"<Answer for 'a.png': 3 of 4 photos, the best {best!r}>"
    assert repr(dataclasses.replace(answer, hits=[], name="")) == "<Answer: 0 of 4 photos>"
    why = repr(engine.explain(Named("a.png"), best))
    assert why.startswith(f"<ExplainedMatch {best.name!r} for 'a.png': score {best.score:.4f}, ")


def test_names_are_text_in_a_notebook(engine: Engine) -> None:
    shown = engine.search(Named(HOSTILE))._repr_html_() + engine.search(Named("a.png"))._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") >= 2
    assert "&quot;" in hit(name='"')._repr_html_()


def test_a_notebook_shows_the_photos(answer: Answer, engine: Engine, tmp_path: Path) -> None:
    shown = answer._repr_html_()
    assert shown.count('src="data:image/jpeg;base64,') == 4  # the query, three hits
    assert "asked with; in the index" in shown
    (tmp_path / "photos" / "a.png").unlink()
    Path(answer.hits[0].path or "").unlink()
    shown = engine.search(Named("a.png"))._repr_html_()
    assert shown.count('src="data:image/jpeg;base64,') == 2
    assert "cannot read" in shown
    assert "its file is no longer there" in shown
    assert "<img" not in engine.search(engine.features(Named("b.png")))[0]._replace(path=None)._repr_html_()


def test_a_notebook_shows_the_best_of_many(answer: Answer) -> None:
    many = dataclasses.replace(answer, hits=answer.hits * 7)
    assert many._repr_html_().count("<figure") == 1 + 12
    assert "and 9 more" in many._repr_html_()


def test_names_that_are_no_text_can_be_shown() -> None:
    assert "a?.png" in hit(name="a\udcff.png")._repr_html_()


def test_hits_and_answers_are_saved(answer: Answer, tmp_path: Path) -> None:
    answer.save(tmp_path / "found.json")
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["query"] == told["itself"]["name"] == "a.png"
    assert [one["name"] for one in told["hits"]] == [one.name for one in answer]
    answer.save(str(tmp_path / "found.html"))
    assert "Photos of the same thing" in (tmp_path / "found.html").read_text()
    answer[0].save(tmp_path / "hit.json")
    assert json.loads((tmp_path / "hit.json").read_text())["score"] == answer[0].score
    answer[0].save(tmp_path / "hit.html")
    assert "data:image/jpeg" in (tmp_path / "hit.html").read_text()
    for shown in (answer, answer[0]):
        with pytest.raises(SuperfeatError, match=r"x\.gif: this is saved as \.html or \.json"):
            shown.save(tmp_path / "x.gif")


def test_an_explanation_is_shown_and_saved(answer: Answer, engine: Engine, tmp_path: Path) -> None:
    why = engine.explain(Named("a.png"), answer[0])
    assert why._repr_html_().startswith('<img alt="&lt;ExplainedMatch')
    for name in ("why.png", "why.jpg"):
        why.save(tmp_path / name)
        with Image.open(tmp_path / name) as picture:
            assert picture.width == 1200
    why.save(tmp_path / "why.json")
    told = json.loads((tmp_path / "why.json").read_text())
    assert (told["query"], told["found"], told["score"]) == ("a.png", answer[0].name, why.score)
    why.save(tmp_path / "why.html")
    assert "data:image/jpeg" in (tmp_path / "why.html").read_text()
    with pytest.raises(SuperfeatError, match=r"x\.gif: this is saved as"):
        why.save(tmp_path / "x.gif")
