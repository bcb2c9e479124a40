"""Yes and no over HTTP: noted for what was asked with, told with later results, refused where they must be."""

from fixtures_service import Served, error_of, photo
from superfeat.index.labels import read_labels


def said(served: Served, *given: bytes, **asked: object) -> dict[str, bool | None]:
    return {hit["name"]: hit["said"] for hit in served.search(*given, **asked).json()["hits"]}


def test_what_was_said_is_told_with_later_results(served: Served) -> None:
    answer = served.client.post("/labels", data={"image": 1, "found": 2, "same": "yes"})
    assert answer.status_code == 201
    assert answer.json() == {"found": 2, "same": True, "yes": 1, "no": 0}
    served.client.post("/labels", data={"name": "1.jpg", "found": 3, "same": "no"})
    assert served.client.get("/labels").json() == {"yes": 1, "no": 1}
    told = said(served, image=1)
    assert {name: one for name, one in told.items() if one is not None} == {"2.jpg": True, "3.jpg": False}
    assert set(said(served, image=2).values()) == {None}  # it was said of results for another photo
    served.client.post("/labels", data={"image": 1, "found": 2, "same": "forget"})
    assert said(served, image=1)["2.jpg"] is None


def test_an_upload_and_a_part_of_it_are_asked_with(served: Served) -> None:
    mine = photo(77)
    query = served.search(mine).json()["query"]["query"]
    for fields in ({"same": "yes"}, {"same": "no", "box": "0,0,0.6,1"}):
        assert served.client.post("/labels", data={"query": query, "found": 2, **fields}).status_code == 201
    assert said(served, mine)["2.jpg"] is True
    assert said(served, query=query, box="0,0,0.6,1")["2.jpg"] is False
    kept = read_labels(served.index.path)
    assert [asked.box for asked in kept.words] == [None, (0.0, 0.0, 0.6, 1.0)]


def test_labels_keep_to_the_rules_of_the_service(served: Served, reader: Served) -> None:
    fields = {"image": 1, "found": 2, "same": "yes"}
    assert error_of(reader.client.post("/labels", data=fields)) == (403, "read_only")
    elsewhere = {"Origin": "http://elsewhere.example"}
    assert error_of(served.client.post("/labels", data=fields, headers=elsewhere)) == (403, "wrong_origin")
    wrongs: list[dict[str, object]] = [
        {"same": "perhaps"},
        {"found": 999},
        {"image": 999},
        {"image": ""},
        {"query": ""},
        {"query": "0" * 32},
    ]
    for wrong in wrongs:
        assert error_of(served.client.post("/labels", data={**fields, **wrong}))[0] in (404, 410, 422)
    assert served.client.get("/labels").json() == {"yes": 0, "no": 0}
