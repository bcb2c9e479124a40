"""The report: one file that fetches nothing, is harmless whatever files are called, and shows the worst first."""

import base64
import itertools
import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.errors import MissingExtraError, StoreError
from superfeat.evaluation.card import Card
from superfeat.evaluation.judge import grade_ranking, grades_of, judge
from superfeat.evaluation.run import open_run
from superfeat.images import Photo
from superfeat.pages.report import THUMBNAIL, _Thumbnails, write_report
from superfeat.storage.store import write_json

pytest.importorskip("matplotlib")
EVIL = "<script>alert(1)</script>.jpg"
VOID = {"meta", "img", "input", "br", "link"}
CARD: Card = {
    "format": "superfeat-card",
    "version": 1,
    "method": "pooled",
    "asmk": None,
    "codebook": None,
    "dataset": {
        "crop": "2 of 6 queries are cropped to their boxes",
        "distractors": 2,
        "exif": "as stored",
        "images": 12,
        "missing": ["a.jpg"],
        "name": "things",
        "protocol": "plain",
        "queries": 6,
        "files": {},
        "listing_sha256": "12",
        "distractors_listing_sha256": "34",
        "queries_without_positives": 0,
    },
    "extract": {"features_per_image": 1000, "max_side": 160, "scales": [1.414, 1.0], "upright": True},
    "memory": {"bytes_per_image": 256, "images": 12},
    "network": {
        "digest": "0123456789abcdef",
        "hinge": "h",
        "method": "fire",
        "ratio_test": "r",
        "provenance": {},
        "settings": {},
    },
    "seconds": {"features": 6.4},
    "software": {"superfeat": "0.1.0"},
}


class Page(HTMLParser):
    """The tags of a document; fails where they are not closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(self.text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [
            found
            for name, found in self.tags
            if name == tag and all(value in found.get(key.rstrip("_"), "").split() for key, value in wanted.items())
        ]


def make_photos(folder: Path, count: int) -> tuple[Photo, ...]:
    folder.mkdir()
    noise = np.random.default_rng(3)
    for number in range(count):
        pixels = noise.integers(0, 255, (6, 8, 3)).repeat(10, 0).repeat(10, 1).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=95)
    return tuple(Photo(folder / f"{number}.jpg", f"thing/{number}.jpg") for number in range(count))


def make_run(tmp_path: Path, test: RetrievalSet, **facts: Any) -> Path:
    """A finished run whose queries each find all photos in an order of chance."""
    chance = np.random.default_rng(5)
    answers = []
    for query in test.queries:
        numbers, scores = chance.permutation(len(test.photos)), np.sort(chance.random(len(test.photos)))[::-1]
        answers.append(grade_ranking(query, grades_of(test), numbers, scores.copy()))
    run = tmp_path / "run"
    run.mkdir()
    write_json(run / "card.json", CARD | facts)
    write_json(run / "scores.json", judge(test, answers))
    return run


@pytest.fixture
def things(tmp_path: Path) -> RetrievalSet:
    photos = make_photos(tmp_path / "photos", 12)
    queries = [Query(photos[number], ((number + 1) % 12, (number + 5) % 12), (number,)) for number in range(6)]
    return RetrievalSet("things", photos, tuple(queries))


def strips_of(page: Page) -> list[str]:
    return [found["data-name"] for found in page.all("article")]


def data_uris(text: str) -> list[str]:
    return re.findall(r"data:image/[a-z]+;base64,[A-Za-z0-9+/=]+", text)


def test_document_is_whole_and_fetches_nothing(tmp_path: Path, things: RetrievalSet) -> None:
    run = make_run(tmp_path, things)
    path = write_report(run)
    assert path == run / "report.html"
    page = Page(path)
    ids = [found["id"] for _, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids))
    rest = re.sub(r"data:image/[a-z]+;base64,[A-Za-z0-9+/=]+", "", page.text)
    assert "://" not in rest
    assert "@import" not in rest
    assert not re.search(r"""(?:src|href)=["']?//|url\(["']?//""", rest)
    for _, found in page.tags:
        assert found.get("src", "data:").startswith("data:")
        target = found.get("href", "")
        assert not target or (target[0] == "#" and target[1:] in ids)
    assert page.all("link") == []
    (policy,) = (found["content"] for found in page.all("meta") if "http-equiv" in found)
    assert "default-src 'none'" in policy
    assert str(tmp_path) not in page.text


def test_page_can_be_used_by_everyone(tmp_path: Path, things: RetrievalSet) -> None:
    page = Page(write_report(make_run(tmp_path, things)))
    assert page.all("html", lang="en")
    assert all(found["alt"] for found in page.all("img"))
    named = [found for _, found in page.tags if found.get("role") == "img"]
    assert named
    assert all(found["aria-label"] for found in named)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert "prefers-color-scheme:dark" in page.text
    assert "prefers-reduced-motion" in page.text


def test_numbers_card_and_table(tmp_path: Path, things: RetrievalSet) -> None:
    run = make_run(tmp_path, things)
    page = Page(write_report(run))
    words = " ".join(page.words)
    scores = open_run(run).scores
    assert f"{scores['grades']['all']['map']:.2f}" in words
    assert words.index("mP@1") < words.index("mP@5") < words.index("mP@10") < words.index("recall@1000")
    assert "N-S" not in words
    assert "FIRe with pooled vectors" in words
    assert "6 queries of things (plain protocol)" in words
    assert "network.digest" in words
    assert "superfeat evaluate --compare run OTHER" in words
    rows = [found["data-name"] for found in page.all("tr") if "data-name" in found]
    assert sorted(rows) == sorted(query["name"] for query in scores["queries"])
    assert len(page.all("svg", class_="plot")) == 2


def test_worst_queries_come_first_and_the_rest_are_in_the_table(tmp_path: Path, things: RetrievalSet) -> None:
    run = make_run(tmp_path, things)
    queries = open_run(run).scores["queries"]
    worst = [query["name"] for query in sorted(queries, key=lambda query: query["ap"]["all"] or 0.0)]
    assert strips_of(Page(write_report(run))) == worst
    page = Page(write_report(run, strips=2))
    assert strips_of(page) == worst[:2]
    assert [found["data-name"] for found in page.all("tr") if "data-name" in found] == worst
    assert len([found for found in page.all("a") if re.fullmatch(r"#q\d+", found["href"])]) == 2
    assert "the 2 worst of 6 queries" in " ".join(page.words)
    assert strips_of(Page(write_report(run, strips=0))) == []


def test_every_photo_is_in_the_file_once(tmp_path: Path, things: RetrievalSet) -> None:
    page = Page(write_report(make_run(tmp_path, things)))
    found = data_uris(page.text)
    assert len(found) == 12
    assert max(Counter(found).values()) == 1
    with_class = set(re.findall(r"\.(t\d+)\{background-image", page.text))
    used = Counter(name for span in page.all("span", class_="photo") for name in span["class"].split()[1:])
    assert used.keys() == with_class
    assert min(used.values()) > 1


def test_thumbnails_are_small_jpegs(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for name, size in (("wide", (2000, 400)), ("high", (300, 900)), ("tiny", (20, 10))):
        Image.new("RGB", size, "olive").save(tmp_path / "photos" / f"{name}.png")
    photos = tuple(Photo(tmp_path / "photos" / f"{name}.png", name) for name in ("wide", "high", "tiny"))
    test = RetrievalSet("s", photos, (Query(photos[0], (1,), (0,)),))
    for data in data_uris(write_report(make_run(tmp_path, test)).read_text()):
        (tmp_path / "one.jpg").write_bytes(base64.b64decode(data.partition(",")[2]))
        with Image.open(tmp_path / "one.jpg") as image:
            assert image.format == "JPEG"
            assert image.height <= 144
            assert image.width <= 288


def test_judgements_have_signs_beside_colours(tmp_path: Path, things: RetrievalSet) -> None:
    run = make_run(tmp_path, things)
    page = Page(write_report(run))
    counts = Counter(hit["judgement"] for query in open_run(run).scores["queries"] for hit in query["hits"])
    lowest = sum(len(query["lowest"]) for query in open_run(run).scores["queries"])
    for judgement, sign in (("right", "✓"), ("wrong", "✕"), ("junk", "○")):
        more = lowest if judgement == "right" else 0
        assert (
            len([one for one in page.all("li", class_="tile") if judgement in one["class"]]) == counts[judgement] + more
        )
        assert page.words.count(sign) == counts[judgement] + more + 1  # and once in the key
    assert "◆" not in page.words
    for query in open_run(run).scores["queries"]:
        for one in query["lowest"]:
            assert f"rank {one['rank']}" in page.words


def test_revisited_grades_go_from_easy_to_hard_and_medium_counts(tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos", 12)
    box = (10.0, 10.0, 50.0, 40.0)
    asked = [Photo(photos[number].path, f"q{number}", box) for number in range(4)]
    queries = [Query(photo, (4 + n, 5 + n, 6 + n), (n,), (5 + n,)) for n, photo in enumerate(asked)]
    queries[3] = Query(asked[3], (8,), (0,), (8,))  # nothing easy
    run = make_run(tmp_path, RetrievalSet("roxford5k", photos, tuple(queries), "revisited"))
    page = Page(write_report(run))
    medium = {query["name"]: query["ap"]["medium"] for query in open_run(run).scores["queries"]}
    assert strips_of(page) == sorted(medium, key=lambda name: medium[name] or 0.0)
    words = " ".join(page.words)
    assert words.index("Easy") < words.index("Medium") < words.index("Hard")
    assert "By AP medium" in words
    assert "Query, cropped to its box" in words
    assert "—" in page.words  # the AP of the query without an easy answer
    assert page.all("li", class_="hard")
    assert "◆" in page.words


def test_ukbench_has_its_score(tmp_path: Path, things: RetrievalSet) -> None:
    test = RetrievalSet("ukbench", things.photos, things.queries, "ukbench")
    words = " ".join(Page(write_report(make_run(tmp_path, test))).words)
    assert "N-S score" in words
    assert "of 4" in words


def test_photos_that_cannot_be_read_have_a_placeholder(tmp_path: Path, things: RetrievalSet) -> None:
    run = make_run(tmp_path, things)
    things.photos[0].path.unlink()
    things.photos[1].path.write_bytes(b"no image")
    things.photos[2].path.write_bytes(b"")
    page = Page(write_report(run))
    gone = [found["aria-label"] for found in page.all("span", class_="gone")]
    assert {re.sub(r".*(thing/\d+).*", r"\1", label) for label in gone} == {"thing/0", "thing/1", "thing/2"}
    assert all("cannot be read: " in label for label in gone)
    assert len(data_uris(page.text)) == 9


def test_names_are_harmless(tmp_path: Path) -> None:
    evil = "\"><img src=x onerror=alert(1)>&amp;'.jpg"
    path = make_photos(tmp_path / "photos", 1)[0].path
    photos = (Photo(path, f"a/{EVIL}"), Photo(path, evil), Photo(tmp_path / EVIL.replace("/", "_"), "lost\udcff.jpg"))
    test = RetrievalSet(f"set{EVIL}", photos, (Query(photos[0], (1, 2)), Query(photos[1], (0,))))
    run = make_run(tmp_path, test, dataset=CARD["dataset"] | {"name": EVIL, "missing": [EVIL]})
    (run / "analyses").mkdir()
    Image.new("RGB", (4, 4)).save(run / "analyses" / "x.png")
    write_json(run / "analyses" / "x.json", {"title": EVIL, "caption": evil})
    page = Page(write_report(run))
    assert len(page.all("script")) == 1
    assert not any("onerror" in found for _, found in page.tags)
    assert not any(found.get("src") == "x" for found in page.all("img"))
    assert f"a/{EVIL}" in [found.get("data-name") for found in page.all("article")]
    assert evil in page.words
    assert EVIL not in page.text


def test_analyses_are_shown_with_their_words(tmp_path: Path, things: RetrievalSet) -> None:
    run = make_run(tmp_path, things)
    assert "Analyses" not in Page(write_report(run)).words
    (run / "analyses").mkdir()
    for name, size in (("wide", (60, 20)), ("plain", (30, 30)), ("odd", (30, 30))):
        Image.new("RGB", size, "teal").save(run / "analyses" / f"{name}.png")
    write_json(run / "analyses" / "wide.json", {"title": "Where it looks", "caption": "Three templates."})
    (run / "analyses" / "odd.json").write_text("[not json")
    (run / "analyses" / "broken.png").write_bytes(b"no picture")
    page = Page(write_report(run))
    assert {"Analyses", "Where it looks", "Three templates.", "plain", "odd", "broken"} <= set(page.words)
    assert "This picture cannot be read." in page.words
    assert [found["alt"] for found in page.all("img") if found["src"].startswith("data:image/png")] == [
        "odd",
        "plain",
        "Where it looks",
    ]
    assert len(page.all("figure", class_="full")) == 1


def test_many_photos_are_made_smaller(tmp_path: Path) -> None:
    """About 8 MB at most, as far as photos are like photos."""

    def height(count: int) -> int:
        hits = [{"path": str(number)} for number in range(count - 1)]
        query: Any = {"path": "q", "box": None, "hits": hits, "lowest": []}
        return _Thumbnails([query], CARD).height

    heights = [height(count) for count in (1, 500, 1000, 2500, 100_000)]
    assert heights[:2] == [THUMBNAIL, THUMBNAIL]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] >= 64


def test_unfinished_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    for name in ("begun", "nowhere"):
        with pytest.raises(StoreError, match="no finished evaluation"):
            write_report(tmp_path / name)
    assert list((tmp_path / "begun").iterdir()) == []


def test_without_matplotlib_one_line_names_the_extra(
    tmp_path: Path, things: RetrievalSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, things)
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"superfeat\[report\]"):
        write_report(run)
    assert not (run / "report.html").exists()


def test_equal_runs_give_equal_reports(tmp_path: Path, things: RetrievalSet) -> None:
    run = make_run(tmp_path, things)
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


def test_queries_without_answers_and_sets_without_curves(tmp_path: Path, things: RetrievalSet) -> None:
    queries = tuple(Query(query.photo, (), query.junk) for query in things.queries)
    page = Page(write_report(make_run(tmp_path, RetrievalSet("none", things.photos, queries))))
    assert len(strips_of(page)) == 6
    assert "none was found" in page.words
