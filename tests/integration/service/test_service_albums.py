"""Things as albums, found in the background; photos by folder and by the day they were taken."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures_service import WAIT, Served, error_of, ids, pattern, serving, with_dated

TAKEN = {
    "trip/a.jpg": (pattern(30), "2019:05:04 10:00:00"),
    "trip/day 2/a2.jpg": (pattern(30).crop((1, 1, 200, 150)), "2019:05:05 10:00:00"),
    "home/b.jpg": (pattern(31), "2020:01:01 00:00:00"),
}


@pytest.fixture(scope="module")
def browsed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The shared index with three photos more: two of one thing, in folders, with the days they were taken."""
    with serving(with_dated(made, tmp_path_factory.mktemp("browsed"), TAKEN)) as served:
        yield served


def when_ready(served: Served, path: str, **values: str) -> Any:
    """What the service says once it is neither comparing nor reading."""
    until = time.monotonic() + WAIT
    while True:
        answer = get(served, path, **values)
        if not answer.get("working") and not answer["unread"]:
            return answer
        assert time.monotonic() < until
        time.sleep(0.02)


def names(page: Any) -> set[str]:
    return {photo["name"] for photo in page["photos"]}


def get(served: Served, path: str, **values: str) -> Any:
    answer = served.client.get(path, params=values)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_photos_of_the_same_thing_are_albums(browsed: Served) -> None:
    page = when_ready(browsed, "/albums")
    numbers = ids(browsed)
    album = get(browsed, f"/images/{numbers['trip/a.jpg']}/album")["album"]
    assert {"trip/a.jpg", "trip/day 2/a2.jpg"} <= names(album)
    assert album["images"] == len(album["photos"])
    assert album["id"] == min(photo["id"] for photo in album["photos"])
    assert get(browsed, f"/albums/{album['id']}")["album"] == album
    listed = next(one for one in page["found"] if one["id"] == album["id"])
    assert listed == {**album, "photos": album["photos"][:4]}  # in a list, the first few
    assert page["albums"] == len(page["found"])
    assert page["grouped"] == sum(one["images"] for one in page["found"])
    assert error_of(browsed.client.get("/albums/99999")) == (404, "no_such_album")
    assert error_of(browsed.client.get("/images/99999/album")) == (404, "no_such_photo")


def test_folders_and_what_is_in_them(browsed: Served) -> None:
    folders = {one["folder"]: one["images"] for one in browsed.client.get("/folders").json()["folders"]}
    assert folders == {"home": 1, "more": 1, "trip": 2, "trip/day 2": 1}
    assert names(get(browsed, "/images", folder="trip")) == {"trip/a.jpg", "trip/day 2/a2.jpg"}
    assert names(get(browsed, "/images", folder="trip/day 2")) == {"trip/day 2/a2.jpg"}
    assert error_of(browsed.client.get("/images", params={"folder": "tri"})) == (404, "no_such_folder")


def test_photos_by_the_day_they_were_taken(browsed: Served) -> None:
    def on(**days: str) -> set[str]:
        return names(when_ready(browsed, "/images", **days))

    assert on(since="2019-05-05") == {"trip/day 2/a2.jpg", "home/b.jpg"}
    assert on(until="2019-05-04") == {"trip/a.jpg"}
    assert on(since="2019-05-04", until="2019-05-05", folder="trip") == {"trip/a.jpg", "trip/day 2/a2.jpg"}
    assert on(since="2021-01-01") == set()
    photo = get(browsed, "/images", until="2019-05-04")["photos"][0]
    assert photo["taken"] == "2019-05-04"
    when_ready(browsed, "/albums")
    chosen = get(browsed, "/albums", since="2019-05-04", until="2019-05-05")
    wanted = get(browsed, f"/images/{ids(browsed)['trip/a.jpg']}/album")["album"]["id"]
    assert wanted in [album["id"] for album in chosen["found"]]
    assert get(browsed, "/albums", since="2021-01-01")["albums"] == 0
    for day in ("someday", "0", "2019-02-30", ""):
        assert error_of(browsed.client.get("/images", params={"since": day})) == (422, "invalid")


def test_searches_do_not_wait_for_albums(browsed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Albums are looked for again when the index has changed; the old ones are told until then."""
    before = when_ready(browsed, "/albums")
    entered: list[bool] = []
    monkeypatch.setattr("superfeat.service.background.Background._run", lambda self, work: entered.append(True))
    browsed.index.delete("home/b.jpg")
    page = get(browsed, "/albums")
    assert entered
    assert [album["id"] for album in page["found"]] == [album["id"] for album in before["found"]]
    assert browsed.search(image=1).status_code == 200
