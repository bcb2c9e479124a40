"""The page of duplicates: names are text, facts and advice are shown, and it does not grow without end."""

import re
from pathlib import Path

from PIL import Image

from fixtures_index import CODEBOOK, vectors
from fixtures_recipe import noise
from superfeat.duplicates import Group, Member
from superfeat.duplicates.review import ReviewedGroup, review_groups
from superfeat.index.index import Index
from superfeat.pages.review import write_review_page

HOSTILE = '<script>alert("1")<.png'


def reviewed(folder: Path, sets: int = 1) -> list[ReviewedGroup]:
    """Sets of three copies: a large one, a small one of a hostile name, and one whose file has gone."""
    (folder / "photos").mkdir()
    index = Index.create(folder / "index", CODEBOOK)
    groups = []
    for number in range(sets):
        members = []
        for name, size in ((f"{number} large.png", 32), (f"{number} {HOSTILE}", 16), (f"{number} gone.png", 8)):
            path = folder / "photos" / name
            Image.fromarray(noise(size, size)).save(path)
            stamp = [path.stat().st_size, path.stat().st_mtime_ns]
            added = index.add(name, vectors(number), {"path": str(path), "stamp": stamp})
            members.append(Member(name, added.id, 0.5, 0))
        (folder / "photos" / f"{number} gone.png").unlink()
        groups.append(Group(tuple(members), 0.5))
    return list(review_groups(index, groups))


def test_photos_with_their_facts_and_what_to_keep(tmp_path: Path) -> None:
    write_review_page(tmp_path / "page.html", reviewed(tmp_path), images=7)
    text = (tmp_path / "page.html").read_text()
    assert "3 of 7 photos in 1 groups; 1 is a copy that can go" in text
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 2  # its name, and the words for those who cannot see it
    assert "default-src 'none'" in text
    cards = [re.sub(r"<[^>]+>", "|", card) for card in text.split('<li class="hit">')[1:]]
    assert "Keep" in cards[0]
    assert "the most pixels" in cards[0]
    assert "32 x 32" in cards[0]
    assert "A copy, can go" in cards[1]
    assert "nearly the same picture, fewer pixels" in cards[1]
    assert "Cannot be judged" in cards[2]
    assert "its file is not there" in cards[2]
    assert text.count("data:image/jpeg") == 2
    assert f'href="{(tmp_path / "photos" / "0 large.png").as_uri()}"' in text


def test_a_page_that_would_be_too_long_says_so(tmp_path: Path) -> None:
    groups = reviewed(tmp_path, sets=3)
    write_review_page(tmp_path / "page.html", groups, images=9, most=7)
    text = (tmp_path / "page.html").read_text()
    assert text.count("<section>") == 2
    assert "1 more groups do not fit on this page" in text
    write_review_page(tmp_path / "page.html", groups[:1], images=9, most=1)
    assert (tmp_path / "page.html").read_text().count("<section>") == 1
