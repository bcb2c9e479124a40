"""The web page in a real browser: token, adding and deleting, keyboard, contrast, phones."""

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures_page import PHONE, Visit, expect, settled, upload
from fixtures_service import PHOTOS, TOKEN, Served, photo, redrawn, serving

# -- Token, adding, deleting


def test_the_token_is_asked_for_and_kept(visit: Visit, made: Path) -> None:
    with serving(made, token=TOKEN, read_only=True) as served:
        page = visit.open(served.url)
        dialog = page.get_by_role("dialog", name="Token needed")
        expect(dialog).to_be_visible()
        dialog.get_by_label("Token").fill("a wrong one, long enough")
        dialog.get_by_role("button", name="Continue").click()
        expect(dialog.get_by_role("alert")).to_have_text("This token was not accepted.")
        dialog.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator(".sample img[src^=blob]")).to_have_count(PHOTOS)
        page.reload()
        expect(page.locator(".sample img[src^=blob]")).to_have_count(PHOTOS)
        assert visit.context.cookies() == []


def test_photos_are_added_and_deleted(visit: Visit, writer: Served) -> None:
    page = visit.open(writer.url)
    page.get_by_role("button", name="Add photos").click()
    dialog = page.get_by_role("dialog", name="Add photos")
    files = [("new.jpg", photo(77)), ("bad.jpg", b"no photo"), ("1.jpg", photo(78))]
    page.set_input_files(
        "#add-files", [{"name": name, "mimeType": "image/jpeg", "buffer": data} for name, data in files]
    )
    lines = dialog.locator("#adding li")
    expect(lines.nth(0)).to_contain_text("added")
    expect(lines.nth(1)).to_contain_text("This is not a photo that can be read")
    expect(lines.nth(2)).to_contain_text("There is a photo called 1.jpg")
    lines.nth(2).get_by_role("button", name="Replace").click()
    expect(lines.nth(2)).to_contain_text("replaced")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("#count")).to_have_text(f"{PHOTOS + 1} photos")
    expect(page.locator(".sample")).to_have_count(PHOTOS + 1)
    page.get_by_role("button", name="Search with new.jpg").click()
    settled(page)
    page.get_by_role("button", name="Delete this photo").click()
    sure = page.get_by_role("dialog", name="Delete this photo?")
    sure.get_by_role("button", name="Keep it").click()
    expect(sure).to_be_hidden()
    assert "new.jpg" in writer.names()
    page.get_by_role("button", name="Delete this photo").click()
    sure.get_by_role("button", name="Delete").click()
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator(".sample")).to_have_count(PHOTOS)
    assert "new.jpg" not in writer.names()


def test_a_result_is_deleted_from_its_explanation(visit: Visit, writer: Served) -> None:
    page = visit.open(f"{writer.url}?image=1")
    settled(page)
    first = page.locator(".card-photo").first
    deleted = page.locator(f".card-photo[data-id='{first.get_attribute('data-id')}']")
    deleted.click()
    page.locator("#why").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name="Delete this photo?").get_by_role("button", name="Delete").click()
    expect(page.locator("#why")).to_be_hidden()
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false")
    expect(deleted).to_have_count(0)
    assert len(writer.names()) == PHOTOS - 1
    expect(page).to_have_url(f"{writer.url}?image=1")


# -- For everybody


def test_the_keyboard_alone(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    expect(page.locator(".sample img[src^=blob]")).to_have_count(PHOTOS)
    reached: list[str] = []
    while "sample" not in reached and len(reached) < 30:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert list(dict.fromkeys(reached)) == [
        *["skip", "home", "albums-open", "file", "filter-folder", "filter-since", "filter-until", "sample"]
    ]
    page.keyboard.press("Enter")
    settled(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className").startswith("card-photo")


@pytest.mark.parametrize("place", ["", "?image=1", "?image=1&explain=2"])
def test_everything_has_a_name(visit: Visit, reader: Served, place: str) -> None:
    page = visit.open(reader.url + place)
    expect(page.locator("img[src^=blob]").first).to_be_visible()
    assert page.evaluate(NAMELESS) == []
    assert page.locator("h1:visible").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"


NAMELESS = """() => [...document.querySelectorAll("button, a, input, img, dialog, [role], ul[id], section, aside")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.textContent.trim() || one.hasAttribute("aria-label") || one.hasAttribute("aria-labelledby")
    || one.hasAttribute("alt") || one.labels?.length || one.getAttribute("role") === "status"))
  .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser: Any, reader: Served, scheme: str) -> None:
    """WCAG AA: 4.5 to 1 between text and what is behind it."""
    visit = Visit(browser, color_scheme=scheme)
    page = visit.open(f"{reader.url}?image=1")
    settled(page)
    page.wait_for_timeout(300)
    poor = [one for one in page.evaluate(CONTRASTS) if one["ratio"] < 4.5]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    visit.context.close()
    assert poor == []
    assert (sum(json.loads("[" + dark[4:-1] + "]")) < 200) == (scheme == "dark")


CONTRASTS = r"""() => {
  const numbers = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("main p, main h1, main h2, main button, header span, header a")]
    .filter((one) => one.checkVisibility() && one.textContent.trim())
    .map((one) => {
      const [a, b] = [light(numbers(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
      return { what: one.outerHTML.slice(0, 80), ratio: (a + 0.05) / (b + 0.05) };
    });
}"""


@pytest.mark.parametrize("place", ["", "?image=1", "?image=1&explain=2"])
def test_it_fits_on_a_phone(phone: Visit, reader: Served, place: str) -> None:
    page = phone.open(reader.url + place)
    expect(page.locator("img[src^=blob]").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    small = page.evaluate(
        "() => [...document.querySelectorAll('button, .button')].filter((one) => one.checkVisibility())"
        ".map((one) => one.getBoundingClientRect()).filter((one) => one.width < 32 || one.height < 32).length"
    )
    assert small == 0


def test_a_phone_uploads_and_finds(phone: Visit, reader: Served) -> None:
    page = phone.open(reader.url)
    expect(page.locator(".by-finger").first).to_be_visible()
    upload(page, redrawn(photo(3)))
    expect(settled(page).first.locator(".card-name")).to_have_text("3.jpg")


def test_nothing_moves_for_those_who_ask(browser: Any, reader: Served) -> None:
    visit = Visit(browser, reduced_motion="reduce")
    page = visit.open(reader.url)
    expect(page.locator(".sample").first).to_be_visible()
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].filter((one) => getComputedStyle(one).animationName !== 'none').length"
    )
    visit.context.close()
    assert moving == 0
