"""The service as its clients meet it, over real connections: searches, photos, explanations, who may ask."""

import io
import json
from pathlib import Path

import httpx
import pytest
from PIL import Image

from fixtures_service import PHOTOS, TOKEN, Served, encoded, error_of, ids, pattern, photo, serving, state_of
from superfeat.engine import Named
from superfeat.index.index import Index
from superfeat.service import photos as photos_module
from superfeat.service.limits import Limits

# -- Search


def test_an_uploaded_photo_of_the_index_is_known(reader: Served) -> None:
    answer = reader.search(photo(3), top=4).json()
    assert answer["query"]["itself"]["name"] == "3.jpg"
    assert answer["query"]["itself"]["id"] == ids(reader)["3.jpg"]
    best = answer["hits"][0]
    assert best["image"] == f"/images/{best['id']}"
    assert best["thumbnail"] == f"/images/{best['id']}/thumbnail"
    assert len(answer["hits"]) == 4
    assert [hit["score"] for hit in answer["hits"]] == sorted((hit["score"] for hit in answer["hits"]), reverse=True)
    assert all(0 <= value <= 1 for value in best["region"])
    assert answer["hits"] == reader.search(name="3.jpg", top=4).json()["hits"]
    assert answer["query"]["features"] == 0
    assert len(answer["query"]["query"]) == 32


def test_an_uploaded_photo_that_is_new(reader: Served) -> None:
    query = reader.search(photo(33), top=4).json()["query"]
    assert query["itself"] is None
    assert query["size"] == [128, 96]
    assert query["features"] > 0
    assert len(query["query"]) == 32


def test_the_answer_is_the_engines(reader: Served) -> None:
    expected = reader.engine.search(photo(2), top=PHOTOS)
    hits = reader.search(photo(2), top=PHOTOS).json()["hits"]
    assert [(hit["id"], hit["score"]) for hit in hits] == [(hit.id, hit.score) for hit in expected.hits]


@pytest.mark.parametrize("field", ["name", "image"])
def test_search_by_an_indexed_photo(reader: Served, field: str) -> None:
    value = "2.jpg" if field == "name" else ids(reader)["2.jpg"]
    answer = reader.search(**{field: value}).json()
    assert "2.jpg" not in [hit["name"] for hit in answer["hits"]]
    assert answer["query"]["name"] == answer["query"]["itself"]["name"] == "2.jpg"
    assert answer["query"]["features"] == 0


def test_a_box_on_an_upload_does_not_need_the_upload_again(reader: Served) -> None:
    whole = reader.search(photo(44)).json()
    part = reader.search(query=whole["query"]["query"], box="0,0,0.6,1").json()
    assert part["query"]["query"] == whole["query"]["query"]
    assert part["query"]["box"] == [0, 0, 0.6, 1]
    assert 0 < part["query"]["features"] < whole["query"]["features"]
    expected = reader.engine.search(photo(44), box=(0, 0, 0.6, 1)).hits
    assert [(hit["name"], hit["score"]) for hit in part["hits"]] == [(hit.name, hit.score) for hit in expected]
    shown = reader.client.get(f"/queries/{whole['query']['query']}")
    assert shown.headers["content-type"] == "image/jpeg"


def test_a_box_on_an_indexed_photo(reader: Served) -> None:
    expected = reader.engine.search(Named("1.jpg"), box=(0.1, 0.1, 0.8, 0.8)).hits
    assert reader.found(name="1.jpg", box="0.1,0.1,0.8,0.8")[1:] == [hit.name for hit in expected]


def test_an_upload_that_is_no_longer_remembered(reader: Served) -> None:
    assert error_of(reader.search(query="0" * 32)) == (410, "query_expired")
    assert error_of(reader.client.get(f"/queries/{'0' * 32}")) == (410, "query_expired")


def test_remembered_uploads_are_bounded(made: Path) -> None:
    size = len(photo(0))
    with serving(made, Limits(max_upload=size + 2000), read_only=True) as few:
        keys = [few.search(photo(seed)).json()["query"]["query"] for seed in range(8)]
        assert few.service.queries.kept.held <= 4 * (size + 2000)
        assert few.search(query=keys[-1]).status_code == 200
        assert error_of(few.search(query=keys[0])) == (410, "query_expired")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({}, 422, "invalid"),
        ({"name": "1.jpg", "image": "1"}, 422, "invalid"),
        ({"name": "nothing.jpg"}, 404, "no_such_photo"),
        ({"image": "999"}, 404, "no_such_photo"),
        ({"image": "-1"}, 422, "invalid"),
        ({"image": str(2**63)}, 422, "invalid"),
        ({"image": "x"}, 422, "invalid"),
        ({"query": "../../etc/passwd"}, 422, "invalid"),
        ({"name": "1.jpg", "top": "0"}, 422, "invalid"),
        ({"name": "1.jpg", "top": "100000"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "1,2,3"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "2,2,1,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0,0,nan,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0,0,e,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0,0,0,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0.5,0.5,0.0001,0.0001"}, 422, "refused"),
        ({"name": "1.jpg", "tpo": "3"}, 422, "invalid"),
    ],
)
def test_questions_that_cannot_be_answered(reader: Served, fields: dict[str, str], status: int, code: str) -> None:
    assert error_of(reader.search(**fields)) == (status, code)


def test_errors_of_the_framework_have_the_same_shape(reader: Served) -> None:
    assert error_of(reader.client.get("/nothing")) == (404, "not_found")
    assert error_of(reader.client.put("/images")) == (405, "method_not_allowed")
    assert error_of(reader.client.get("/images/x")) == (422, "invalid")


def test_an_index_of_features_alone_searches_by_its_images(tmp_path: Path, made: Path) -> None:
    """No network, no photos: what can be done is done, and the rest is said."""
    old = Index.open(made)
    bare = Index.create(tmp_path / "bare", old.codebook)
    for name in old.names():
        bare.add(name, old.query(old.codebook.centroids[:4]).codes.view("u1").astype("f4").repeat(8, 1)[:, :16])
    with serving(tmp_path / "bare") as served:
        assert len(served.found(name="1.jpg")) == PHOTOS
        assert error_of(served.search(photo(1))) == (422, "refused")
        assert error_of(served.client.get("/images/0")) == (410, "no_file")


# -- Photos


def test_photos_are_listed_in_pages(reader: Served) -> None:
    first = reader.client.get("/images", params={"limit": 4}).json()
    rest = reader.client.get("/images", params={"limit": 4, "offset": 4}).json()
    assert first["images"] == rest["images"] == PHOTOS
    assert [one["name"] for one in first["photos"] + rest["photos"]] == list(reader.index.names())
    assert reader.client.get("/images", params={"offset": 10**9}).json()["photos"] == []
    assert error_of(reader.client.get("/images", params={"limit": 0})) == (422, "invalid")


def test_photos_and_thumbnails_are_small_and_drawn_anew(served: Served, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    exif.get_ifd(0x8825)[2] = (48.0, 51.0, 29.0)  # where it was taken
    data = encoded(pattern(9, 1800, 1200), exif=exif)
    added = served.add(data, "gps.jpg").json()
    for path, size in ((added["image"], (853, 1280)), (added["thumbnail"], (213, 320))):
        response = served.client.get(path)
        assert response.headers["content-type"] == "image/jpeg"
        assert response.headers["x-content-type-options"] == "nosniff"
        shown = Image.open(io.BytesIO(response.content))
        assert shown.size == size
        assert not shown.getexif()
        assert b"Exif" not in response.content


def test_a_browser_keeps_what_has_not_changed(reader: Served) -> None:
    first = reader.client.get("/images/0")
    again = reader.client.get("/images/0", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "no-cache" in first.headers["cache-control"]
    assert "private" in first.headers["cache-control"]


@pytest.mark.parametrize("path", ["/images/999", "/images/999/thumbnail"])
def test_a_photo_that_is_not_there(reader: Served, path: str) -> None:
    assert error_of(reader.client.get(path)) == (404, "no_such_photo")


def test_pixels_alone_leave(reader: Served) -> None:
    """The one way out for photos is a decoder and an encoder."""
    assert photos_module.draw_jpeg(photo(1), 64) != photo(1)
    original = (reader.index.path.parent / "photos" / "1.jpg").read_bytes()
    assert reader.client.get(f"/images/{ids(reader)['1.jpg']}").content != original


# -- Explanations


@pytest.mark.parametrize("box", [None, "0,0,1,0.7"])
def test_an_explanation(reader: Served, box: str | None) -> None:
    query = reader.search(photo(4)).json()["query"]["query"]
    part = {} if box is None else {"box": box}
    best = reader.search(query=query, **part).json()["hits"][0]
    answer = reader.client.get("/explain", params={"query": query, "found": best["id"], **part}).json()
    assert answer["score"] == pytest.approx(best["score"])
    assert answer["found"]["name"] == best["name"]
    assert sum(region["share"] for region in answer["regions"]) + answer["rest"] == pytest.approx(1)
    picture = reader.client.get(answer["picture"])
    assert picture.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(picture.content)).width == 1200


def test_an_explanation_of_two_indexed_photos(reader: Served) -> None:
    answer = reader.client.get("/explain", params={"name": "1.jpg", "found": 2})
    assert answer.status_code == 200
    assert error_of(reader.client.get("/explain", params={"name": "1.jpg", "found": 999})) == (404, "no_such_photo")
    assert error_of(reader.client.get("/explain", params={"found": 1})) == (422, "invalid")


# -- What it says of itself


def test_info_says_what_may_be_sent_and_not_where_it_lies(reader: Served, made: Path) -> None:
    facts = reader.client.get("/info").json()
    assert facts["images"] == PHOTOS
    assert facts["read_only"] is True
    assert facts["max_upload"] == Limits().max_upload
    assert str(made.parent) not in json.dumps(facts)


def test_health_and_metrics(reader: Served) -> None:
    assert reader.client.get("/health").json() == {"status": "ok"}
    reader.search(name="1.jpg")
    text = reader.client.get("/metrics").text
    assert 'superfeat_requests_total{method="POST",route="/search",status="200"}' in text
    assert f"superfeat_images {PHOTOS:.1f}" in text
    assert "superfeat_network_waiting 0.0" in text
    assert "process_resident_memory_bytes" in text


def test_metrics_do_not_grow_with_what_clients_make_up(reader: Served) -> None:
    for number in range(3):
        reader.client.get(f"/made-up-{number}")
        reader.client.request(f"MADE{number}", "/images")
    text = reader.client.get("/metrics").text
    assert "made-up" not in text
    assert "MADE" not in text


def test_the_description(reader: Served) -> None:
    schema = reader.client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/search",
        "/explain",
        "/explain/picture",
        "/queries/{query}",
        "/images",
        "/images/{image}",
        "/images/{image}/thumbnail",
        "/images/{image}/full",
        "/images/{image}/file",
        "/images/{image}/open",
        "/images/{image}/reveal",
        "/images/{image}/album",
        "/labels",
        "/folders",
        "/albums",
        "/albums/{album}",
        "/info",
        "/health",
        "/metrics",
    }
    for path in schema["paths"].values():
        for operation in path.values():
            assert operation["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"].endswith(
                "ErrorAnswer"
            )
            assert "422" not in operation["responses"]


def test_a_fault_of_ours_is_told_without_its_details(
    made: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(made, read_only=True) as served:
        with monkeypatch.context() as broken:
            broken.setattr(served.engine, "answer", lambda *_, **__: 1 / 0)
            response = served.search(name="1.jpg")
        assert error_of(response) == (500, "internal")
        assert "division" not in response.text
        assert "division by zero" in caplog.text
        assert response.headers["x-content-type-options"] == "nosniff"
        assert (
            'superfeat_requests_total{method="POST",route="/search",status="500"} 1.0'
            in served.client.get("/metrics").text
        )
        assert served.search(name="1.jpg").status_code == 200


def test_every_answer_is_guarded(reader: Served) -> None:
    for path in ("/", "/info", "/nothing", "/images/0"):
        headers = reader.client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


# -- Who may ask


def test_a_token_is_needed_for_all_but_the_empty_page(made: Path) -> None:
    with serving(made, token=TOKEN, read_only=True) as served:
        assert served.search(name="1.jpg").status_code == 200
        stranger = httpx.Client(base_url=served.url, trust_env=False)
        with stranger:
            for path in ("/info", "/images", "/images/0", "/images/0/thumbnail", "/metrics", "/explain?found=1"):
                refused = stranger.get(path)
                assert error_of(refused) == (401, "token_needed")
                assert refused.headers["www-authenticate"] == "Bearer"
            assert error_of(stranger.post("/search", data={"name": "1.jpg"})) == (401, "token_needed")
            assert error_of(stranger.delete("/images/0")) == (401, "token_needed")
            for wrong in ("Bearer wrong", f"bearer{TOKEN}", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
                response = stranger.get("/info", headers={b"Authorization": wrong.encode("latin-1")})
                assert error_of(response) == (401, "token_needed")
            for path in ("/", "/page/app.js", "/health", "/openapi.json"):
                assert stranger.get(path).status_code == 200
            assert stranger.get("/openapi.json").json()["security"] == [{"token": []}]
            assert stranger.get("/info", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
            named = stranger.get("/info", headers={"Authorization": f"Bearer {TOKEN}", "Host": "photos.example"})
            assert named.status_code == 200  # behind a proxy; the token decides


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "10.0.0.1", "[::2]"])
def test_other_host_names_are_refused_without_a_token(reader: Served, host: str) -> None:
    assert error_of(reader.client.get("/info", headers={"Host": host})) == (403, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "[::1]:80", "127.1.2.3"])
def test_names_of_this_machine_are_not(reader: Served, host: str) -> None:
    assert reader.client.get("/info", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_web_pages_cannot_use_a_visitors_browser(served: Served, headers: dict[str, str]) -> None:
    before = state_of(served.index.path)
    files = {"photo": ("new.jpg", photo(77))}
    assert error_of(served.client.post("/images", files=files, headers=headers)) == (403, "wrong_origin")
    assert error_of(served.client.delete("/images/0", headers=headers)) == (403, "wrong_origin")
    assert error_of(served.client.get("/images/0", headers=headers)) == (403, "wrong_origin")
    assert state_of(served.index.path) == before


def test_a_link_to_the_page_may_be_followed(reader: Served) -> None:
    assert reader.client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
