"""Yes and no: what counts, what is missing, and which searches are for one thing."""

from pathlib import Path

import numpy as np
import pytest

from fixtures_explain import some_vectors
from superfeat.errors import DatasetError
from superfeat.features import ImageWords
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.labels import Label, Searched, write_labels
from superfeat.probability.answers import LEAST_ANSWERS, Judged, JudgedResult, calibrate_answers, read_judged

NOTHING = ImageWords(np.empty(0, np.int32), np.empty((0, 16), np.uint8), "")


def judged(*answers: tuple[int, bool]) -> Judged:
    return Judged([JudgedResult(NOTHING, 0, same, thing) for thing, same in answers], 0)


@pytest.mark.parametrize(
    ("answers", "needed"),
    [
        ([], "needed are 10 more yes and 10 more no"),
        ([(0, True)] * 10, "needed are a yes in a search for another thing and 10 more no"),
        ([(thing, True) for thing in range(10)] + [(0, False)] * 9, "needed are 1 more no"),
        ([(thing, True) for thing in range(10)] + [(0, False)] * 10, "needed are a no in a search for another thing"),
        ([(thing, same) for thing in range(10) for same in (True, False)], ""),
    ],
)
def test_what_is_missing_is_said(answers: list[tuple[int, bool]], needed: str) -> None:
    assert LEAST_ANSWERS == 10
    assert judged(*answers).needed() == needed


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = Index.create(tmp_path / "index", Codebook(some_vectors(99, 6)))
    for number, name in enumerate("abcd"):
        made.add(name, some_vectors(number, 5), {"digest": f"bytes of {name}"})
    made.add("e", some_vectors(9, 5))
    return made


def test_photos_that_a_yes_joins_are_one_thing(index: Index) -> None:
    def say(query: str, found: str, same: bool) -> Label:
        marks = [f"name {name}" if name == "e" else f"bytes of {name}" for name in (query, found)]
        return Label(Searched(marks[0]), marks[1], same)

    pairs = [say("a", "b", True), say("b", "c", False), say("d", "e", True), say("e", "a", False), say("a", "x", True)]
    write_labels(index.path, pairs)
    found = read_judged(index)
    assert (found.yes, found.no, found.gone) == (2, 2, 1)  # nobody knows x
    assert [one.found for one in found.results] == [index.id(name) for name in ("b", "c", "e", "a")]
    things = [one.thing for one in found.results]
    assert things[0] == things[1] != things[2] == things[3]
    with pytest.raises(DatasetError, match=r"has 2 yes and 2 no to results, on 2 things: needed are 8 more yes"):
        calibrate_answers(index)


def test_words_of_another_codebook_do_not_count(index: Index) -> None:
    words = index.words_of("a")
    elsewhere = ImageWords(words.words, words.codes, "another")
    for photo, kept in (("mine", words), ("yours", elsewhere)):
        write_labels(index.path, [Label(Searched(photo), "bytes of b", True)], kept)
    found = read_judged(index)
    assert (found.yes, found.gone) == (1, 1)
