"""The web page in a real browser: the start, searches, a part of a photo, explanations, failures."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures_page import Visit, expect, settled, upload
from fixtures_service import PHOTOS, Served, make_index, photo, redrawn, serving
from fixtures_shards import Here
from superfeat.engine import Engine
from superfeat.index.far import far_index
from superfeat.index.index import Index
from superfeat.index.splitting import shard_index

# -- Start


def test_the_start_invites(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    expect(page.get_by_role("heading", level=1)).to_have_text("Find every photo of the same thing")
    expect(page.locator(".sample")).to_have_count(PHOTOS)
    expect(page.locator(".sample img[src^=blob]")).to_have_count(PHOTOS)
    expect(page.locator("#count")).to_have_text(f"{PHOTOS} photos")
    expect(page.locator("#add-open")).to_be_hidden()  # read-only


def test_nothing_is_loaded_from_elsewhere(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    expect(page.locator(".sample img[src^=blob]")).to_have_count(PHOTOS)
    page.locator(".sample").first.click()
    settled(page)
    assert visit.asked
    assert all(url.startswith((reader.url, "blob:", "data:")) for url in visit.asked)


def test_an_index_without_photos(visit: Visit, reader: Served, tmp_path: Path) -> None:
    Index.create(tmp_path / "empty", reader.index.codebook)
    with serving(tmp_path / "empty") as empty:
        page = visit.open(empty.url)
        expect(page.locator("#nothing")).to_be_visible()


# -- Search


def test_what_was_not_searched_is_told(visit: Visit, made: Path, tmp_path: Path) -> None:
    shards = shard_index(Index.open(made), 2, tmp_path / "shards").path
    here = Here(shards, ["000000", "000001"])
    with serving(Engine(far_index(shards, here), workers=1), read_only=True) as served:
        page = visit.open(served.url)
        upload(page, redrawn(photo(3)))
        settled(page)
        expect(page.locator("#facts")).not_to_contain_text("was not searched")
        here.dead = {0}
        page.reload()
        settled(page)
        expect(page.locator("#facts")).to_have_text(re.compile(r"\d+\s% of the collection did not answer"))


def test_an_upload_is_searched_with(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    upload(page, redrawn(photo(3)))
    first = settled(page).first
    expect(first.locator(".verdict")).to_have_text("Very likely the same")
    expect(first.locator(".card-numbers")).to_have_text(re.compile(r"^(over )?\d+\s% · score\s1\.00$"))
    expect(first.locator(".card-name")).to_have_text("3.jpg")
    expect(first.locator(".region")).to_be_visible()
    expect(page.locator("#found-title")).to_have_text(re.compile("photos? of the same thing"))
    expect(page.locator("#status")).to_have_text(page.locator("#found-title").inner_text())
    expect(page.locator("#found-title")).to_be_focused()
    expect(page.locator("#query-name")).to_have_text("mine.jpg")
    assert re.search(r"\?query=[0-9a-f]{32}$", page.url)


def test_an_upload_that_is_in_the_collection_is_no_result(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    upload(page, photo(3))
    settled(page)
    expect(page.locator("#facts")).to_contain_text("It is 3.jpg of this collection.")
    expect(page.locator(".card-name", has_text=re.compile("^3.jpg$"))).to_have_count(0)
    page.get_by_role("button", name="More for this photo").click()  # it is one of the index, and has its menu
    expect(page.get_by_role("menuitem", name="Go to its album")).to_be_visible()


def test_the_outline_lies_where_the_match_is(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    upload(page, redrawn(photo(2)))
    first = settled(page).first
    expect(first.locator(".frame img")).to_have_js_property("complete", True)  # before, the frame has another size
    both = "card => ['.frame', '.region'].map(part => card.querySelector(part).getBoundingClientRect().toJSON())"
    frame, mark = first.evaluate(both)  # at one moment, as the page may move between two
    left, top, width, height = reader.search(redrawn(photo(2))).json()["hits"][0]["region"]
    assert mark["x"] == pytest.approx(frame["x"] + left * frame["width"], abs=2)
    assert mark["y"] == pytest.approx(frame["y"] + top * frame["height"], abs=2)
    assert mark["width"] == pytest.approx(width * frame["width"], abs=2)
    assert mark["height"] == pytest.approx(height * frame["height"], abs=2)


def test_an_index_that_is_not_calibrated_has_scores(visit: Visit, made: Path, tmp_path: Path) -> None:
    index = Path(shutil.copytree(made, tmp_path / "index"))
    (index / "calibration.json").unlink()
    with serving(index, read_only=True) as served:
        page = visit.open(served.url)
        upload(page, redrawn(photo(3)))
        expect(settled(page).first.locator(".verdict")).to_have_text("Score 1.00")
        expect(page.locator("#found-title")).to_have_text(re.compile("most alike first"))
        expect(page.locator("#facts")).to_contain_text("This index is not calibrated")


def test_any_photo_can_be_clicked_to_search_by_it(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    page.get_by_role("button", name="Search with 2.jpg").click()
    settled(page)
    expect(page.locator("#query-name")).to_have_text("2.jpg")
    expect(page.locator(".card-name", has_text=re.compile("^2.jpg$"))).to_have_count(0)  # not itself
    other = page.locator(".card").first
    name = other.locator(".card-name").inner_text()
    other.get_by_role("button", name="Search with").click()
    expect(page.locator("#query-name")).to_have_text(name)
    settled(page)


def test_paste(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    expect(page.locator(".sample").first).to_be_visible()
    page.evaluate(SEND_FILE, {"kind": "paste", "data": list(photo(1)), "type": "image/jpeg"})
    settled(page)


def test_drop_anywhere(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    expect(page.locator(".sample").first).to_be_visible()
    page.evaluate(SEND_FILE, {"kind": "dragenter", "data": list(photo(1)), "type": "image/jpeg"})
    expect(page.locator("#veil")).to_be_visible()
    page.evaluate(SEND_FILE, {"kind": "drop", "data": list(photo(1)), "type": "image/jpeg"})
    expect(page.locator("#veil")).to_be_hidden()
    settled(page)


SEND_FILE = """({kind, data, type}) => {
  const carrier = new DataTransfer();
  carrier.items.add(new File([new Uint8Array(data)], "mine.jpg", {type}));
  const event = kind === "paste"
    ? new ClipboardEvent("paste", {clipboardData: carrier, bubbles: true})
    : new DragEvent(kind, {dataTransfer: carrier, bubbles: true, cancelable: true});
  document.body.dispatchEvent(event);
}"""


def test_back_forward_and_reload(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    upload(page, redrawn(photo(3)))
    settled(page)
    query = page.url
    page.locator(".card").last.get_by_role("button", name="Search with").click()
    expect(page).to_have_url(re.compile(r"\?image="))
    settled(page)
    page.go_back()
    expect(page).to_have_url(query)
    expect(page.locator("#query-name")).to_have_text("mine.jpg")
    page.go_back()
    expect(page.locator("#start")).to_be_visible()
    page.go_forward()
    expect(settled(page).first.locator(".card-name")).to_have_text("3.jpg")
    page.reload()
    expect(settled(page).first.locator(".card-name")).to_have_text("3.jpg")
    expect(page.locator("#query-photo")).to_have_attribute("src", re.compile("^blob:"))
    page.locator("#pick-again").click()
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator("#file")).to_be_focused()


# -- A part of a photo


def box_of(page: Any) -> list[float]:
    expect(page).to_have_url(re.compile("box="))
    text = re.search("box=([^&]*)", page.url)
    assert text is not None
    return [float(part) for part in text[1].replace("%2C", ",").split(",")]


def test_a_box_by_mouse(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=2")
    settled(page)
    expect(page.locator("#query-photo")).to_have_attribute("src", re.compile("^blob:"))
    stage = page.locator("#stage").bounding_box()
    page.mouse.move(stage["x"] + 0.1 * stage["width"], stage["y"] + 0.2 * stage["height"])
    page.mouse.down()
    page.mouse.move(stage["x"] + 0.5 * stage["width"], stage["y"] + 0.6 * stage["height"])
    page.mouse.move(stage["x"] + 0.9 * stage["width"], stage["y"] + 0.95 * stage["height"])
    page.mouse.up()
    assert box_of(page) == pytest.approx([0.1, 0.2, 0.8, 0.75], abs=0.02)
    settled(page)
    expect(page.locator("#facts")).to_have_text(re.compile("features in the box"))
    expect(page.locator("#box")).to_be_visible()
    page.locator("#box-clear").click()
    expect(page).to_have_url(f"{reader.url}?image=2")
    expect(page.locator("#box")).to_be_hidden()
    page.go_back()
    expect(page.locator("#box")).to_be_visible()


def test_a_box_is_moved_and_its_corners_are_pulled(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=2&box=0.05,0.05,0.8,0.75")
    settled(page)
    stage = page.locator("#stage").bounding_box()

    def drag(from_: tuple[float, float], to: tuple[float, float]) -> list[float]:
        before = page.url
        page.mouse.move(stage["x"] + from_[0] * stage["width"], stage["y"] + from_[1] * stage["height"])
        page.mouse.down()
        page.mouse.move(stage["x"] + to[0] * stage["width"], stage["y"] + to[1] * stage["height"], steps=3)
        page.mouse.up()
        expect(page).not_to_have_url(before)
        settled(page)
        return box_of(page)

    assert drag((0.4, 0.4), (0.5, 0.6)) == pytest.approx([0.15, 0.25, 0.8, 0.75], abs=0.02)
    assert drag((0.15, 0.25), (0.05, 0.05)) == pytest.approx([0.05, 0.05, 0.9, 0.95], abs=0.02)


def test_a_click_is_not_a_box(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=2")
    settled(page)
    page.locator("#stage").click()
    expect(page).to_have_url(f"{reader.url}?image=2")
    expect(page.locator("#box")).to_be_hidden()


def test_a_box_by_keyboard(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=2")
    settled(page)
    page.locator("#box-toggle").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#stage")).to_be_focused()
    page.keyboard.press("Enter")
    for key in ("ArrowLeft", "ArrowUp", "Shift+ArrowRight", "Shift+ArrowDown"):
        for _ in range(10):
            page.keyboard.press(key)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    expect(page.locator("#status")).to_have_text(
        "Box: 7 % from the left, 5 % from the top, 70 % wide, 68 % high. Enter searches."
    )
    page.keyboard.press("Enter")
    assert box_of(page) == pytest.approx([0.07, 0.05, 0.7, 0.68])
    settled(page)
    page.locator("#stage").focus()
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{reader.url}?image=2")


def test_a_box_by_finger(phone: Visit, reader: Served) -> None:
    page = phone.open(f"{reader.url}?image=2")
    settled(page)
    expect(page.locator("#query-photo")).to_have_attribute("src", re.compile("^blob:"))
    swipe(phone, 0.2, 0.8)
    expect(page.locator("#box")).to_be_hidden()  # a finger scrolls unless a box is asked for
    page.evaluate("scrollTo(0, 0)")
    page.locator("#box-toggle").tap()
    swipe(phone, 0.1, 0.9)
    assert box_of(page) == pytest.approx([0.1, 0.1, 0.8, 0.8], abs=0.03)
    settled(page)
    expect(page.locator("#box-toggle")).to_have_attribute("aria-pressed", "false")


def swipe(visit: Visit, begin: float, end: float) -> None:
    stage = visit.page.locator("#stage").bounding_box()
    session = visit.context.new_cdp_session(visit.page)

    def touch(kind: str, *at: float) -> None:
        points = [{"x": stage["x"] + one * stage["width"], "y": stage["y"] + one * stage["height"]} for one in at]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", begin)
    touch("touchMove", (begin + end) / 2)
    touch("touchMove", end)
    touch("touchEnd")


# -- Why


def test_a_click_explains(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    upload(page, redrawn(photo(3)))
    opener = settled(page).first.locator(".card-photo")
    opener.click()
    dialog = page.get_by_role("dialog", name="Why this photo?")
    expect(dialog.locator("#why-picture")).to_be_visible()
    assert page.evaluate("document.getElementById('why-picture').naturalWidth") == 1200
    expect(dialog.locator("#why-picture")).to_have_attribute("alt", re.compile("3.jpg"))
    lines = dialog.locator("#why-regions li")
    expect(lines.first).to_have_text(re.compile(r"\d+\s%The .* of your photo matches the .* of this one"))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    page.go_forward()
    expect(dialog).to_be_visible()
    page.go_back()
    expect(dialog).to_be_hidden()


def test_an_explanation_can_be_linked_and_searched_on(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=1&explain=2")
    dialog = page.get_by_role("dialog", name="Why this photo?")
    expect(dialog.locator("#why-picture")).to_be_visible()
    dialog.get_by_role("button", name="Search with this photo").click()
    expect(dialog).to_be_hidden()
    expect(page).to_have_url(f"{reader.url}?image=2")
    settled(page)


def test_what_cannot_be_explained_is_said(visit: Visit, tmp_path: Path) -> None:
    index = make_index(tmp_path / "loose", photos=3, calibrated=True)
    with serving(index) as served:
        page = visit.open(f"{served.url}?image=1")
        settled(page)
        (index.parent / "photos" / "0.jpg").write_bytes(photo(50))
        page.locator(".card-photo[data-id='0']").click()
        expect(page.locator("#why-error")).to_have_text("The file of 0.jpg has changed since it was indexed.")


# -- Failures


def test_what_is_told_of_a_photo_dropped_at_once_stays(visit: Visit, reader: Served) -> None:
    """The page knows the service a moment after it is there; a photo may be dropped, and refused, before."""
    held: list[Any] = []
    visit.page.route(re.compile("/info$"), lambda route: held.append(route))
    page = visit.open(reader.url)
    upload(page, b"not a photo at all")
    expect(page.get_by_role("alert")).to_contain_text("This is not a photo that can be read")
    held[0].continue_()
    expect(page.locator("#count")).to_have_text(f"{PHOTOS} photos")
    expect(page.locator(".sample")).to_have_count(PHOTOS)
    expect(page.get_by_role("alert")).to_contain_text("This is not a photo that can be read")


def test_a_file_that_is_no_photo(visit: Visit, reader: Served) -> None:
    page = visit.open(reader.url)
    upload(page, b"not a photo at all")
    expect(page.get_by_role("alert")).to_contain_text("This is not a photo that can be read")
    expect(page.locator("#start")).to_be_visible()
    page.get_by_role("button", name="Hide this message").click()
    expect(page.locator("#notice")).to_be_hidden()
    upload(page, b"text", "notes.txt", "text/plain")
    expect(page.get_by_role("alert")).to_contain_text("notes.txt is not a photo.")
    upload(page, b"x" * 3_000_000)
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"mine.jpg is too large: a photo may have 2\sMB here"))
    upload(page, photo(1))
    settled(page)
    expect(page.locator("#notice")).to_be_hidden()


def test_an_old_link(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?query={'0' * 32}")
    expect(page.get_by_role("alert")).to_contain_text("no longer remembered; send it again.")
    page.goto(f"{reader.url}?image=12345")
    expect(page.get_by_role("alert")).to_contain_text("There is no photo 12345 in the index.")


def test_a_service_that_has_stopped(visit: Visit, made: Path) -> None:
    with serving(made, read_only=True) as served:
        page = visit.open(served.url)
        expect(page.locator(".sample img[src^=blob]")).to_have_count(PHOTOS)
    page.locator(".sample").first.click()
    expect(page.get_by_role("alert")).to_contain_text("The service cannot be reached. Is it still running?")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_a_box_with_nothing_in_it(visit: Visit, reader: Served) -> None:
    page = visit.open(f"{reader.url}?image=2&box=0.5,0.5,0.001,0.001")
    expect(page.get_by_role("alert")).to_contain_text("Nothing in this box draws attention; make it larger.")


def test_a_photo_whose_file_is_gone_says_so_in_its_place(visit: Visit, tmp_path: Path) -> None:
    index = make_index(tmp_path / "loose", photos=3)
    (index.parent / "photos" / "0.jpg").unlink()
    with serving(index) as served:
        page = visit.open(served.url)
        expect(page.locator(".missing")).to_have_text("The file of 0.jpg is not where it was indexed.")
