"""Records as files hold them: a TypedDict says which fields there are, and what is read is checked against it."""

import functools
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from superfeat.errors import StoreError

Record = TypeVar("Record")


def as_record(kind: type[Record], value: Any, path: Path) -> Record:
    """`value`, which was read from `path`, as a record of this kind; StoreError if it is none.

    Fields that the kind does not know stay as they are.
    """
    wrong = next(_wrong(kind, value, ""), None)
    if wrong is not None:
        raise StoreError(f"{path} is damaged: {wrong}")
    return typing.cast(Record, value)


def _wrong(kind: Any, value: Any, where: str) -> Iterator[str]:
    """What is not as it should be, in words."""
    if typing.is_typeddict(kind):
        yield from _wrong_fields(kind, value, where)
    elif not _fits(kind, value, where):
        yield f"its '{where}' is not of the kind that it should be"


def _wrong_fields(kind: Any, value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"its '{where}' is not a group of fields" if where else "it is not a group of fields"
        return
    for name, hint in _fields(kind).items():
        place = f"{where}.{name}" if where else name
        if name in value:
            yield from _wrong(hint, value[name], place)
        elif name in kind.__required_keys__:
            yield f"it has no '{place}'"


@functools.cache
def _fields(kind: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _fits(kind: Any, value: Any, where: str) -> bool:
    """Whether a value as JSON has them is of a kind: a class, or list, dict, Literal and unions of such."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object:
        return True
    if typing.is_typeddict(kind):
        return not any(_wrong_fields(kind, value, where))
    if origin in (typing.Union, types.UnionType):
        return any(_fits(part, value, where) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(_fits(parts[0], one, where) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(parts[1], one, where) for one in value.values())
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
