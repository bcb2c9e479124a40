"""Records that are read: what is missing or of another kind is named, what is unknown stays."""

from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest

from superfeat.errors import StoreError
from superfeat.storage.records import as_record

FILE = Path("somewhere/file.json")


class Part(TypedDict):
    """A group inside."""

    size: int


class _Needed(TypedDict):
    name: str
    kind: Literal["a", "b"]
    share: float
    part: Part | None
    parts: list[Part]
    counts: dict[str, int]
    on: bool


class Whole(_Needed, total=False):
    """All kinds of fields."""

    note: str
    any: Any


GOOD: dict[str, Any] = {
    "name": "x",
    "kind": "a",
    "share": 1,
    "part": None,
    "parts": [{"size": 1}],
    "counts": {"one": 1},
    "on": True,
}


@pytest.mark.parametrize(
    "changes", [{}, {"note": "y"}, {"any": [None]}, {"unknown": 1}, {"part": {"size": 2, "more": 1}}, {"share": 0.5}]
)
def test_a_record_is_the_value_itself(changes: dict[str, Any]) -> None:
    value = {**GOOD, **changes}
    assert as_record(Whole, value, FILE) is value


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": 1}, "'name'"),
        ({"kind": "c"}, "'kind'"),
        ({"share": "1"}, "'share'"),
        ({"share": True}, "'share'"),
        ({"part": {}}, "'part'"),
        ({"part": {"size": 1.5}}, "'part'"),
        ({"parts": [{"size": None}]}, "'parts'"),
        ({"parts": {}}, "'parts'"),
        ({"counts": {"one": True}}, "'counts'"),
        ({"counts": []}, "'counts'"),
        ({"on": 1}, "'on'"),
        ({"note": None}, "'note'"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(StoreError, match=f"{FILE} is damaged: its {field} is not of the kind that it should be"):
        as_record(Whole, {**GOOD, **changes}, FILE)


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(StoreError, match=f"{FILE} is damaged: it has no '{name}'"):
        as_record(Whole, {key: value for key, value in GOOD.items() if key != name}, FILE)


def test_fields_of_a_group_are_named_by_their_path() -> None:
    class Outer(TypedDict):
        inner: Part

    with pytest.raises(StoreError, match=r"it has no 'inner\.size'"):
        as_record(Outer, {"inner": {}}, FILE)
    with pytest.raises(StoreError, match="its 'inner' is not a group of fields"):
        as_record(Outer, {"inner": 1}, FILE)


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_what_is_no_group_at_all(value: object) -> None:
    with pytest.raises(StoreError, match="it is not a group of fields"):
        as_record(Whole, value, FILE)
