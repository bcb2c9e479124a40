"""Pages that are files, in a real browser: results of a search and duplicates to look through."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures_page import PHONE, Visit, expect
from superfeat.duplicates.find import Group, Member
from superfeat.duplicates.review import review_groups
from superfeat.engine import Engine, Named
from superfeat.found.results import write_results_page
from superfeat.index.journal import Note
from superfeat.pages.review import write_review_page


@pytest.fixture
def results(made: Path, tmp_path: Path) -> str:
    """All photos have names that are long, and have no place to break them."""
    engine = Engine.open(shutil.copytree(made, tmp_path / "index"))
    names = [(image, one.name) for image, one in engine.index.snapshot().images()]
    engine.index.note([Note(image, f"{'long' * 20}_{name.replace('/', '_')}", {}) for image, name in names])
    write_results_page(tmp_path / "found.html", [engine.search(Named(f"{'long' * 20}_1.jpg"))])
    return (tmp_path / "found.html").as_uri()


def test_results_fit_on_a_phone(phone: Visit, results: str) -> None:
    page = phone.open(results)
    expect(page.locator(".asked img")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_a_path_is_copied_from_results(browser: Any, results: str) -> None:
    visit = Visit(browser, permissions=["clipboard-read", "clipboard-write"])
    page = visit.open(results)
    button = page.locator("button[data-path]").first
    path = button.get_attribute("data-path")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == path
    assert Path(path).is_file()
    visit.context.close()
    assert visit.troubles == []


def test_duplicates_fit_on_a_phone_and_say_what_to_keep(phone: Visit, made: Path, tmp_path: Path) -> None:
    index = Engine.open(made).index
    members = tuple(Member(name, index.id(name), 0.9, 0) for name in ("1.jpg", "2.jpg", "3.jpg"))
    write_review_page(tmp_path / "copies.html", list(review_groups(index, [Group(members, 0.9)])), images=len(index))
    page = phone.open((tmp_path / "copies.html").as_uri())
    expect(page.locator(".hit")).to_have_count(3)
    expect(page.get_by_text("Keep", exact=True)).to_have_count(1)
    expect(page.get_by_text("A copy, can go", exact=True)).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
