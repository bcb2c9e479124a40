"""Probabilities in words, sections of results that agree with them, names by the end that tells them apart."""

from pathlib import Path

import pytest

from superfeat.engine import FoundPhoto
from superfeat.found import verdicts
from superfeat.found.verdicts import (
    FEWEST_PARTS,
    SECTIONS,
    VERDICTS,
    headline,
    percent,
    short_names,
    sort_hits,
    verdict,
)


def found(*chances: float | None) -> list[FoundPhoto]:
    return [FoundPhoto(f"{place}.jpg", place, 1 / (place + 1), one, None, None) for place, one in enumerate(chances)]


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (1.0, ("very likely the same, 100 %", "yes")),
        (0.999, ("very likely the same, over 99 %", "yes")),
        (0.75, ("likely the same, 75 %", "yes")),
        (0.4, ("perhaps the same, 40 %", "maybe")),
        (0.39, ("unlikely to be the same, 39 %", "no")),
        (0.001, ("very unlikely to be the same, under 1 %", "no")),
        (0.0, ("very unlikely to be the same, 0 %", "no")),
    ],
)
def test_probabilities_in_words(probability: float, words: tuple[str, str]) -> None:
    assert verdict(probability) == words


@pytest.mark.parametrize("chance", [0.0, 0.05, 0.1, 0.39, 0.4, 0.74, 0.75, 1.0])
def test_a_section_says_what_the_verdict_says(chance: float) -> None:
    """A better result stands in front, so that the rule for "nothing is alike" does not apply."""
    section = sort_hits(found(1.0, chance))[-1]
    kinds = {"The same thing": "yes", "Perhaps the same thing": "maybe"}
    assert kinds.get(section.title, "no") == verdict(chance)[1]
    assert section.folded == verdict(chance)[0].startswith("very unlikely")


@pytest.mark.parametrize(
    ("chances", "title", "sections"),
    [
        ((), "Nothing alike was found", []),
        ((0.9,), "1 photo of the same thing", [("The same thing", 1, False)]),
        (
            (0.9, 0.8, 0.5, 0.2, 0.01),
            "2 photos of the same thing, 1 more perhaps",
            [
                ("The same thing", 2, False),
                ("Perhaps the same thing", 1, False),
                ("Less alike", 1, False),
                ("Very unlikely to be the same", 1, True),
            ],
        ),
        ((0.5, 0.5), "2 photos that may show the same thing", [("Perhaps the same thing", 2, False)]),
        (
            (0.2,) + 3 * (0.01,),
            "No photo of the same thing was found",
            [("Less alike", 1, False), ("Very unlikely to be the same", 3, True)],
        ),
        (
            50 * (0.01,),
            "No photo of the same thing was found",
            [("Most alike", 4, False), ("Very unlikely to be the same", 46, True)],
        ),
        (14 * (None,), "14 photos, most alike first", [("Most alike first", 12, False), ("Less alike", 2, True)]),
    ],
)
def test_results_are_sorted(
    chances: tuple[float | None, ...], title: str, sections: list[tuple[str, int, bool]]
) -> None:
    hits = found(*chances)
    assert headline(hits) == title
    assert [(one.title, len(one.hits), one.folded) for one in sort_hits(hits)] == sections
    assert [hit for one in sort_hits(hits) for hit in one.hits] == hits


def test_a_score_of_nothing_is_no_result() -> None:
    nothing = [hit._replace(score=0.0) for hit in found(0.9)]
    assert sort_hits(nothing) == []
    assert headline(nothing) == "Nothing alike was found"


def test_percents_do_not_claim_certainty() -> None:
    assert [percent(value) for value in (0, 0.004, 0.006, 0.5, 0.996, 1)] == [
        "0 %",
        "under 1 %",
        "1 %",
        "50 %",
        "over 99 %",
        "100 %",
    ]


def test_names_are_shown_by_the_end_that_tells_them_apart() -> None:
    names = ["cam/2019/05/IMG_1.jpg", "cam/2020/05/IMG_1.jpg", "cam/2020/05/IMG_2.jpg", "IMG_1.jpg", "05/IMG_1.jpg"]
    assert short_names(names) == {
        "cam/2019/05/IMG_1.jpg": "2019/05/IMG_1.jpg",
        "cam/2020/05/IMG_1.jpg": "2020/05/IMG_1.jpg",
        "cam/2020/05/IMG_2.jpg": "05/IMG_2.jpg",
        "IMG_1.jpg": "IMG_1.jpg",
        "05/IMG_1.jpg": "05/IMG_1.jpg",
    }


def test_the_web_page_says_the_same() -> None:
    script = (Path(verdicts.__file__).parents[1] / "service" / "page" / "cards.js").read_text()
    for least, words, _ in VERDICTS:
        assert f'[{least:g}, "{words.capitalize()}"' in script
    for least, title in SECTIONS:
        assert f'[{least:g}, "{title}"' in script
    for name in ("MOST_ALIKE", "UNJUDGED", "FEWEST_PARTS"):
        assert f"{name} = {getattr(verdicts, name)};" in script
    assert FEWEST_PARTS == 2
