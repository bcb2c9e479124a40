"""The web page in a real browser: what can be done with a photo, and results in sections that agree with them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures_page import Visit, expect, settled, upload
from fixtures_service import Served, encoded, pattern, serving
from superfeat.index.labels import read_labels

FOUND = [
    *[("a/b/IMG_1.jpg", 0.97), ("a/c/IMG_1.jpg", 0.8), ("x.jpg", 0.5), ("y.jpg", 0.2)],
    *[(f"{number}.jpg", 0.01) for number in range(30)],
]


@pytest.fixture(scope="module")
def near(made: Path) -> Iterator[Served]:
    """A service that gives files themselves."""
    with serving(made, read_only=True, files=True) as served:
        yield served


def best_path(served: Served) -> Path:
    """Of the file of the first card for the photo 1."""
    return next(Path(hit["path"]) for hit in served.search(image=1).json()["hits"])


def open_menu(page: Any, card: Any) -> Any:
    card.get_by_role("button", name="More").click()
    menu = page.get_by_role("menu")
    expect(menu).to_be_visible()
    return menu


# -- Sections


def answered(page: Any, found: list[tuple[str, float]]) -> None:
    """Makes the service find this."""
    hits = [
        {"id": number, "name": name, "image": f"/images/{number % 6}", "thumbnail": f"/images/{number % 6}/thumbnail"}
        | {"path": None, "score": chance, "probability": chance, "region": None, "gone": False, "copy_of": None}
        for number, (name, chance) in enumerate(found, 100)
    ]
    query = {"query": None, "image": 1, "name": "1.jpg", "itself": None, "size": None, "features": 0, "box": None}
    page.route("**/search", lambda route: route.fulfill(json={"query": query, "hits": hits, "seconds": 0.1}))


def test_sections_agree_with_cards_and_title(visit: Visit, reader: Served) -> None:
    answered(visit.page, FOUND)
    page = visit.open(f"{reader.url}?image=1")
    assert settled(page).count() == 4  # thirty of "very unlikely" are folded away
    expect(page.get_by_role("heading", level=1)).to_have_text("2 photos of the same thing, 1 more perhaps")
    titles = page.locator(".part-title").all_inner_texts()
    assert [" ".join(title.split()) for title in titles] == [
        "The same thing 2",
        "Perhaps the same thing 1",
        "Less alike 1",
        "Very unlikely to be the same 30",
    ]
    said = [part.locator(".verdict").all_inner_texts() for part in page.locator(".part").all()]
    assert said == [["Very likely the same", "Likely the same"], ["Perhaps the same"], ["Unlikely to be the same"], []]
    page.get_by_text("Very unlikely to be the same").click()
    expect(page.locator("details.part .verdict")).to_have_text(["Very unlikely to be the same"] * 30)


def test_where_nothing_is_alike_a_few_are_shown(visit: Visit, reader: Served) -> None:
    answered(visit.page, FOUND[4:])
    page = visit.open(f"{reader.url}?image=1")
    assert settled(page).count() == 4
    expect(page.get_by_role("heading", level=1)).to_have_text("No photo of the same thing was found")
    expect(page.get_by_role("heading", level=2)).to_have_text("Most alike 4")


def test_names_are_shown_by_the_end_that_tells_them_apart(phone: Visit, reader: Served) -> None:
    long = "holiday pictures of everybody/a rather long folder name"
    answered(phone.page, [(f"{long} 1/IMG_20190501.jpg", 0.9), (f"{long} 2/IMG_20190501.jpg", 0.9), ("z.jpg", 0.9)])
    page = phone.open(f"{reader.url}?image=1")
    settled(page)
    names = page.locator(".card-name")
    expect(names).to_have_text([f"{long.split('/')[1]} {n}/IMG_20190501.jpg" for n in (1, 2)] + ["z.jpg"])
    end = names.first.locator(".end")
    expect(end).to_have_text("G_20190501.jpg")
    card, shown = page.locator(".card").first.bounding_box(), end.bounding_box()
    assert shown["x"] + shown["width"] <= card["x"] + card["width"]  # the end can be seen


# -- What to do with a photo


def test_a_photo_in_full_size(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=1")
    menu = open_menu(page, settled(page).first)
    expect(menu.get_by_role("menuitem")).to_have_text(
        ["See it in full size", "Go to its album", "Copy its name"]
    )  # no files here
    expect(menu.get_by_role("menuitem").first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(menu.get_by_role("menuitem").last).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    full = page.locator("#full")
    expect(full.locator("img")).to_have_attribute("src", re.compile("^blob:"))
    assert page.evaluate("document.getElementById('full-photo').naturalWidth") == 200  # as large as it is
    page.keyboard.press("Escape")
    expect(full).to_be_hidden()
    expect(page).to_have_url(f"{reader.url}?image=1")


def test_a_menu_goes_back_to_its_button(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=1")
    card = settled(page).first
    menu = open_menu(page, card)
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(card.get_by_role("button", name="More for")).to_be_focused()


def test_a_path_is_copied(browser: Any, near: Served) -> None:
    visit = Visit(browser, permissions=["clipboard-read", "clipboard-write"])
    page = visit.open(f"{near.url}?image=1")
    open_menu(page, page.locator(".query")).get_by_role("menuitem", name="Copy its path").click()
    expect(page.locator("#toast")).to_have_text("Its path was copied.")
    assert page.evaluate("navigator.clipboard.readText()") == near.engine.index.meta(["1.jpg"])["1.jpg"]["path"]
    visit.context.close()
    assert visit.troubles == []


def test_a_file_is_opened_and_shown_in_its_folder(
    visit: Visit, near: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the desktop's own programs; here one that notes what it was given. From a card, and from an explanation."""
    opener = tmp_path / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/opened\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    page = visit.open(f"{near.url}?image=1")
    card = settled(page).first
    path = best_path(near)
    open_menu(page, card).get_by_role("menuitem", name="Open the file").click()
    expect(page.locator("#toast")).to_have_text("Opened.")
    card.locator(".card-photo").click()
    open_menu(page, page.locator("#why")).get_by_role("menuitem", name="Show it in its folder").click()
    expect(page.locator("#toast")).to_have_text("Shown in its folder.")
    assert (tmp_path / "opened").read_text().splitlines() == [str(path), str(path.parent)]


def test_the_original_is_saved(visit: Visit, near: Served) -> None:
    page = visit.open(f"{near.url}?image=1")
    menu = open_menu(page, settled(page).first)
    with page.expect_download() as coming:
        menu.get_by_role("menuitem", name="Save the original").click()
    saved = Path(coming.value.path()).read_bytes()
    assert saved == best_path(near).read_bytes()


def test_an_explanation_names_both_photos_and_the_probability(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=1&explain=2")
    expect(page.locator("#why-sub")).to_have_text(re.compile(r"^2.jpg for 1.jpg · .* the same, .*% · score"))
    expect(page.locator("#why-picture")).to_have_attribute("alt", re.compile("^1.jpg and 2.jpg side by side"))


# -- Yes and no


def test_yes_and_no_are_noted(visit: Visit, writer: Served) -> None:
    """With a click on a card, and in its explanation; again takes it back; what was said is there later."""
    page = visit.open(f"{writer.url}?image=1")
    first, second = settled(page).nth(0), settled(page).nth(1)
    first.get_by_role("button", name="Yes, the same thing").click()
    expect(page.locator("#toast")).to_have_text("Noted. 1 yes and 0 no so far.")
    expect(first.get_by_role("button", name="Yes, the same thing")).to_have_attribute("aria-pressed", "true")
    second.locator(".card-photo").click()
    page.locator("#why").get_by_role("button", name="No, another thing").click()
    expect(page.locator("#toast")).to_have_text("Noted. 1 yes and 1 no so far.")
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("explain="))  # going back takes a moment: reloaded before, it is open again
    page.reload()
    settled(page)
    expect(first.get_by_role("button", name="Yes, the same thing")).to_have_attribute("aria-pressed", "true")
    expect(second.get_by_role("button", name="No, another thing")).to_have_attribute("aria-pressed", "true")
    assert read_labels(writer.index.path).counts() == (1, 1)
    first.get_by_role("button", name="Yes, the same thing").click()
    expect(page.locator("#toast")).to_have_text("Taken back.")
    assert read_labels(writer.index.path).counts() == (0, 1)


def test_nothing_can_be_said_to_a_service_that_is_read_only(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=1&explain=2")
    expect(page.locator("#why-picture")).to_be_visible()
    expect(page.locator(".say")).to_have_count(0)


# -- Photos that are too large


@pytest.mark.parametrize("what", ["bytes", "pixels"])
def test_a_photo_above_the_limit_is_made_smaller(visit: Visit, reader: Served, what: str) -> None:
    """The service takes 2 MB and a million pixels: neither stops a search."""
    kind = "bmp" if what == "bytes" else "jpeg"
    large = encoded(pattern(3, 1600, 1200), kind.upper())
    assert (len(large) > reader.service.limits.max_upload) == (what == "bytes")
    page = visit.open(reader.url)
    upload(page, large, f"large.{kind}", f"image/{kind}")
    expect(settled(page).first.locator(".card-name")).to_have_text("3.jpg")
    expect(page.locator("#query-name")).to_have_text(re.compile("^large"))
    assert page.evaluate("document.getElementById('query-photo').naturalWidth") == 1600  # the page shows it as it is
