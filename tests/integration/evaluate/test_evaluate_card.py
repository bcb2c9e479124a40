"""The card of a protocol run, the words it is made with, and two runs compared."""

import dataclasses
import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fixtures_evaluate import (
    PALETTE_CONFIG,
    POOLED,
    WHITE,
    Case,
    assert_same,
    finish,
    of_disk,
    other_network,
    paint,
    painted_set,
    palette_network,
    truncated,
    write_gnd,
)
from superfeat.config import ExtractConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.errors import DatasetError, SuperfeatError
from superfeat.evaluation.compare import compare, comparison_in_words
from superfeat.evaluation.metrics import paired_bootstrap
from superfeat.evaluation.run import open_run
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index

# -- The card


def test_the_card_says_everything(case: Case) -> None:
    card: Any = case.once.card
    network = palette_network()
    data = card["dataset"]
    assert (data["name"], data["protocol"], data["images"], data["queries"]) == ("painted", "plain", 5, 2)
    assert (data["distractors"], data["missing"], data["queries_without_positives"]) == (3, [], 0)
    assert re.fullmatch("[0-9a-f]{64}", data["listing_sha256"])
    assert re.fullmatch("[0-9a-f]{64}", data["distractors_listing_sha256"])
    assert data["crop"].startswith("0 of 2 queries are cropped")
    assert "turned upright by the EXIF tag" in data["exif"]
    assert card["network"]["digest"] == network.digest
    assert (card["network"]["ratio_test"], card["network"]["hinge"]) == ("not recorded", "not recorded")
    assert of_disk(card["extract"])["scales"] == [1.0]
    words = Index.open(case.path / "index").codebook
    assert card["codebook"]["digest"] == words.digest
    assert (card["codebook"]["words"], card["codebook"]["images"], card["codebook"]["features"]) == (2, 4, 16)
    assert card["codebook"]["settings"] == {"words": 2, "rounds": 2, "points_per_word": 256, "seed": 0}
    search = {"assignments": 1, "alpha": 3.0, "threshold": 0.0, "idf": False}
    assert card["asmk"] == {"kernel": "binary", "search": search}
    assert card["memory"]["images"] == 8
    facts = Index.open(case.path / "index").info()
    assert card["memory"]["words_per_image"] == facts.words_per_image > 0
    assert card["memory"]["bytes_per_image"] == facts.postings * (8 + 2) / 8, "a code of up to 64 bits, and an id"
    assert card["software"].keys() == {"superfeat", "python", "torch", "numpy", "numba", "pillow", "machine"}
    assert card["software"]["torch"] == torch.__version__
    assert card["seconds"].keys() == {"features", "codebook", "index", "search"}


def test_the_card_in_words(case: Case) -> None:
    text = (case.path / "card.txt").read_text()
    card: Any = case.once.card
    for words in (
        "2 queries of painted (plain protocol) against 5 images and 3 distractors.",
        "0 of 2 queries are cropped",
        "turned upright by the EXIF tag",
        "none is missing",
        f"FIRe, weights {card['network']['digest'][:12]}",
        "ratio test 'not recorded' and hinge 'not recorded'",
        "Longest side 1024, 1 scales (1), at most 1000 features per image",
        f"Codebook {card['codebook']['digest'][:12]}: 2 words, learned from 4 images, seed 0.",
        "ASMK, binary: 1 words per query feature, alpha 3.0, threshold 0.0, idf off",
        f"{card['memory']['words_per_image']} words and {card['memory']['bytes_per_image']} bytes per image",
        f"superfeat {card['software']['superfeat']}",
        f"torch {card['software']['torch']}",
        "Seconds: features ",
    ):
        assert words in text


def test_the_card_of_global_vectors(case: Case, tmp_path: Path) -> None:
    card = finish(case.test, tmp_path / "run", POOLED, distractors=case.distractors).card
    assert (card["method"], card["codebook"], card["asmk"]) == ("pooled", None, None)
    assert card["memory"] == {"bytes_per_image": 12, "images": 8}
    assert "Global vectors, 12 bytes per image, compared by cosine." in (tmp_path / "run" / "card.txt").read_text()


def test_the_card_names_the_files_that_ask(case: Case, tmp_path: Path) -> None:
    for photo in (*case.test.photos, case.test.queries[0].photo):
        shutil.copy(photo.path, tmp_path / photo.name)
    queries: list[dict[str, Any]] = [
        {"img": "q0.png", "pos": [1], "bbox_rel": [0, 0, 0.5, 1]},
        {"img": "q0.png", "pos": []},
    ]
    gnd = write_gnd(tmp_path, [photo.name for photo in case.test.photos], queries)
    card = finish(read_benchmark(str(gnd)), tmp_path / "run", codebook=case.others).card
    assert card["dataset"]["files"] == {"gnd.json": hashlib.sha256(gnd.read_bytes()).hexdigest()}
    assert card["dataset"]["crop"].startswith("1 of 1 queries are cropped to their boxes")
    assert card["dataset"]["queries_without_positives"] == 1
    text = (tmp_path / "run" / "card.txt").read_text()
    assert "1 queries have no right answer and are left out." in text


def test_what_is_returned_is_what_is_on_disk(case: Case) -> None:
    kept = open_run(case.path)
    assert of_disk(case.once.card) == kept.card
    assert of_disk(case.once.scores) == kept.scores


def test_a_finished_run_is_opened_as_it_was_returned(case: Case) -> None:
    assert case.once.card == open_run(case.path).card


def test_equal_inputs_have_equal_cards(case: Case, tmp_path: Path) -> None:
    again = finish(case.test, tmp_path / "again", codebook=case.others, distractors=case.distractors)
    assert_same(again, case.once)
    names = ("numbers.npy", "scores.npy")
    assert [(tmp_path / "again" / "rankings" / name).read_bytes() for name in names] == [
        (case.path / "rankings" / name).read_bytes() for name in names
    ]


def test_equal_inputs_take_equal_room(case: Case, tmp_path: Path) -> None:
    """To the byte, and however many words the codebook has: its size is not an image's."""
    memory = [
        finish(case.test, tmp_path / str(words), codebook=given_words(words)).card["memory"] for words in (2, 900)
    ]
    assert memory[0] == memory[1]


def given_words(count: int) -> Codebook:
    """Two words in use, the others far from everything."""
    far = np.full((count - 2, 3), 1e3, np.float32) + np.arange(count - 2, dtype=np.float32)[:, None]
    near = np.asarray([[0.5, 0.5, 0.5], [-0.5, -0.5, -0.5]], np.float32)
    return Codebook(np.concatenate((near, far)), palette_network().digest)


def test_words_are_learned_once_for_the_same_photos(
    case: Case, tmp_path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))

    def learn(folder: Path, number: int) -> str:
        photos = [Photo(folder / photo.path.name, photo.name) for photo in case.others]
        words = finish(case.test, tmp_path / f"run{number}", codebook=photos).card["codebook"]
        assert words is not None
        return words["digest"]

    source = case.others[0].path.parent
    first = learn(source, 0)
    assert learn(shutil.copytree(source, tmp_path / "elsewhere"), 1) == first
    assert trained == [1]
    changed = shutil.copytree(source, tmp_path / "changed") / case.others[2].path.name
    with changed.open("ab") as file:
        file.write(b"x")
    learn(changed.parent, 2)
    assert trained == [1, 1]
    (folder, _) = sorted((tmp_path / "cache" / "codebooks").iterdir())
    assert [path.name for path in folder.iterdir()] == ["codebook"]  # what it was made from is not kept


def test_what_words_were_made_from_is_swept_away(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the process ended before it could."""
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))

    save = Codebook.save

    def killed(self: Codebook, path: Path) -> None:
        save(self, path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Codebook, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            finish(case.test, tmp_path / "run", codebook=case.others)
    finish(case.test, tmp_path / "run", codebook=case.others)
    (folder,) = (tmp_path / "cache" / "codebooks").iterdir()
    assert [path.name for path in folder.iterdir()] == ["codebook"]


@pytest.mark.parametrize("change", ["network", "max_side", "words", "seed", "images"])
def test_other_words_for_other_settings(
    change: str, case: Case, tmp_path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    finish(case.test, tmp_path / "first", codebook=case.others)
    config, codebook = PALETTE_CONFIG, PALETTE_CONFIG.codebook
    if change == "max_side":
        config = dataclasses.replace(config, extract=ExtractConfig(scales=(1.0,), max_side=16))
    elif change == "words":
        config = dataclasses.replace(config, codebook=dataclasses.replace(codebook, words=3))
    elif change == "seed":
        config = dataclasses.replace(config, codebook=dataclasses.replace(codebook, seed=1))
    elif change == "images":
        config = dataclasses.replace(config, codebook_images=3)
    network = other_network() if change == "network" else palette_network()
    card: Any = finish(case.test, tmp_path / "second", config, network=network, codebook=case.others).card
    assert trained == [1, 1]
    assert card["codebook"]["images"] == (3 if change == "images" else 4)
    assert card["codebook"]["settings"]["seed"] == config.codebook.seed


def test_scales_of_the_search_do_not_change_the_words(case: Case, tmp_path: Path, trained: list[int]) -> None:
    config = dataclasses.replace(PALETTE_CONFIG, extract=ExtractConfig(scales=(1.0, 0.5)))
    finish(case.test, tmp_path / "run", config, codebook=case.others)
    assert trained == []


def test_a_given_codebook(case: Case, tmp_path: Path, trained: list[int]) -> None:
    words = given_words(2)
    card: Any = finish(case.test, tmp_path / "run", codebook=words).card
    assert (card["codebook"]["digest"], trained) == (words.digest, [])
    assert f"Codebook {words.digest[:12]}: 2 words, given." in (tmp_path / "run" / "card.txt").read_text()
    other = Codebook(words.centroids, "f" * 64)
    with pytest.raises(SuperfeatError, match="another network"):
        finish(case.test, tmp_path / "other", codebook=other)


def test_words_need_photos(case: Case, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="words must be learned from photos of other things"):
        finish(case.test, tmp_path / "run")
    with pytest.raises(SuperfeatError, match="none of the 1 photos could be read"):
        finish(case.test, tmp_path / "run", codebook=[Photo(truncated(tmp_path / "bad.png"), "bad.png")])
    assert_same(
        finish(case.test, tmp_path / "run", codebook=case.others),
        finish(case.test, tmp_path / "b", codebook=case.others),
    )


# -- Two runs


def test_a_run_is_the_same_as_itself(case: Case) -> None:
    kept = open_run(case.path)
    found = compare(kept.scores, kept.scores, (kept.card, kept.card))
    assert found["settings"] == []
    grade = found["grades"]["all"]
    assert (grade["won"], grade["lost"], grade["queries"]) == ([], [], 2)
    assert grade["first"] == grade["second"] == pytest.approx(kept.scores["grades"]["all"]["map"], abs=1e-3)
    assert grade["bootstrap"] == {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
    lines = list(comparison_in_words(found))
    assert lines[0] == "the cards are the same"
    assert "p = 1.0000: not significant over 2 queries" in lines[1]
    assert lines[2:] == ["  won 0", "  lost 0"]


def test_won_and_lost(case: Case) -> None:
    """From made-up scores of seven queries: won by most first, lost by most first; one has no value."""
    before = [10.0, 50.0, 50.0, 70.0, None, 20.0, 30.0]
    after = [40.0, 20.0, 50.005, 65.0, 80.0, 90.0, 30.0]

    def scores(values: Sequence[float | None]) -> Any:
        queries = [{"name": f"q{n}", "positives": 1, "box": None, "ap": {"all": ap}} for n, ap in enumerate(values)]
        return {"dataset": "made up", "grades": {"all": {}}, "queries": queries}

    card = of_disk(case.once.card)
    other: Any = {**card, "extract": {**card["extract"], "max_side": 480}, "codebook": None, "seconds": {}}
    found = compare(scores(before), scores(after), (card, other))
    assert [change["setting"] for change in found["settings"]] == ["extract.max_side", "codebook"]
    assert (found["settings"][0]["first"], found["settings"][0]["second"]) == (1024, 480)
    grade = found["grades"]["all"]
    assert [one["query"] for one in grade["won"]] == ["q5", "q0"]
    assert [one["query"] for one in grade["lost"]] == ["q1", "q3"]
    assert grade["won"][0] == {"query": "q5", "first": 20.0, "second": 90.0}
    assert grade["queries"] == 6
    nan = [[np.nan if value is None else value for value in values] for values in (before, after)]
    assert grade["bootstrap"] == paired_bootstrap(np.asarray(nan[0]), np.asarray(nan[1]))
    text = "\n".join(comparison_in_words(found))
    assert "extract.max_side: 1024 -> 480" in text
    assert "won 2: q5 20.0 -> 90.0, q0 10.0 -> 40.0" in text
    assert "lost 2: q1 50.0 -> 20.0, q3 70.0 -> 65.0" in text


def test_runs_of_different_sets_are_not_compared(case: Case, tmp_path: Path) -> None:
    other = dataclasses.replace(case.test, name="other", queries=case.test.queries[:1])
    found = finish(other, tmp_path / "other", codebook=case.others)
    with pytest.raises(
        SuperfeatError, match=r"different queries \(painted: 2, other: 1\); compare runs of the same set"
    ):
        compare(case.once.scores, found.scores, (case.once.card, found.card))
    boxed = dataclasses.replace(case.test.queries[0].photo, box=(0.0, 0.0, 8.0, 8.0))
    cropped = dataclasses.replace(
        case.test, queries=(dataclasses.replace(case.test.queries[0], photo=boxed), case.test.queries[1])
    )
    found = finish(cropped, tmp_path / "cropped", codebook=case.others)
    with pytest.raises(SuperfeatError, match="different queries"):
        compare(case.once.scores, found.scores, (case.once.card, found.card))


def test_the_same_queries_of_other_photos_are_told(case: Case, tmp_path: Path) -> None:
    """Two sets of the same names can be compared, and the first thing that is said is that the photos differ."""
    test, others = painted_set(tmp_path / "other")
    paint(test.photos[0].path, WHITE)
    found = finish(test, tmp_path / "run", codebook=others, distractors=case.distractors)
    kept = compare(case.once.scores, found.scores, (case.once.card, found.card))
    assert kept["settings"][0]["setting"] == "dataset.listing_sha256"


def test_diffusion_is_on_the_card_and_needs_words(case: Case, tmp_path: Path) -> None:
    config = dataclasses.replace(PALETTE_CONFIG, rerank="diffuse")
    found = finish(case.test, tmp_path / "run", config, codebook=case.others, distractors=case.distractors)
    assert found.card["rerank"] == "diffuse"
    said = "The first 400 are ordered by how alike they are to each other (diffuse)."
    assert said in (tmp_path / "run" / "card.txt").read_text()
    with pytest.raises(SuperfeatError, match="'rerank' is 'diffuse'"):
        dataclasses.replace(POOLED, rerank="diffuse")
