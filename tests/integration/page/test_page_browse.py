"""The web page in a real browser: albums, folders, days."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures_page import PHONE, Visit, expect, settled
from fixtures_service import PHOTOS, Served, pattern, serving, with_dated


@pytest.fixture(scope="module")
def browsed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The shared index with three photos more, all of one thing, taken on three days."""
    views = [
        (f"trip/{day}.jpg", pattern(30).crop((day, 0, 200, 150)), f"2019:05:0{day + 1} 10:00:00") for day in range(3)
    ]
    days = {name: (view, taken) for name, view, taken in views}
    with serving(with_dated(made, tmp_path_factory.mktemp("browsed"), days), read_only=True) as served:
        yield served


def test_things_are_albums(visit: Visit, browsed: Served) -> None:
    """From the start to the albums, into one, from a photo of it to a search, and from there back to its album."""
    page = visit.open(browsed.url)
    page.get_by_role("button", name="Albums").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Albums")
    card = page.get_by_role("button", name="trip/0.jpg")
    expect(card.locator(".cover img[src^=blob]").first).to_be_visible()
    card.click()
    expect(page.locator("#album-title")).to_contain_text("photos")
    inside = page.locator("#album-photos")
    expect(inside.get_by_role("button", name="Search with trip/1.jpg")).to_be_visible()
    page.go_back()
    expect(card).to_be_visible()
    page.go_forward()
    inside.get_by_role("button", name="Search with trip/1.jpg").click()
    settled(page)
    page.get_by_role("button", name="More for this photo").click()
    page.get_by_role("menuitem", name="Go to its album").click()
    expect(inside.locator(".here")).to_contain_text("trip/1.jpg")
    page.get_by_role("button", name="All albums").click()
    expect(card).to_be_visible()


def test_photos_by_folder_and_day(visit: Visit, browsed: Served) -> None:
    page = visit.open(browsed.url)
    samples = page.locator(".sample")
    expect(samples).to_have_count(PHOTOS + 3)
    page.get_by_label("Folder").select_option("trip")
    expect(samples).to_have_count(3)
    expect(page.locator("#filter-state")).to_have_text("3 photos")
    expect(page).to_have_url(f"{browsed.url}?folder=trip")
    page.get_by_label("From").fill("2019-05-02")
    expect(samples).to_have_count(2)
    page.get_by_label("To", exact=True).fill("2019-05-02")
    expect(samples).to_have_count(1)
    page.reload()
    expect(samples).to_have_count(1)
    expect(page.get_by_label("From")).to_have_value("2019-05-02")
    page.get_by_label("To", exact=True).fill("2018-05-02")
    expect(page.locator("#nothing")).to_have_text("No photo fits.")
    page.get_by_role("button", name="All photos").click()
    expect(samples).to_have_count(PHOTOS + 3)


def test_a_photo_that_is_alone(visit: Visit, browsed: Served) -> None:
    page = visit.open(f"{browsed.url}?albums=1&since=2030-01-01")
    expect(page.locator("#albums-text")).to_have_text("No two photos here show the same thing.")


def test_albums_fit_on_a_phone(phone: Visit, browsed: Served) -> None:
    page = phone.open(f"{browsed.url}?albums=1")
    expect(page.locator(".cover img[src^=blob]").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
