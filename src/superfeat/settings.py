"""How settings are read, checked and laid over each other, whatever dataclass holds them."""

import dataclasses
import difflib
import math
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from superfeat.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The metadata of a field that settings may have or not: without it they are written, and have the digest, as before
# there was any.
OPTIONAL = {"optional": True}
Settings = TypeVar("Settings")
Values = dict[str, Any]  # settings as plain values, as files hold them: what `as_dict` gives
Changes = Mapping[str, Any]  # settings by name, nested or dotted: what `overlay` takes


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """ConfigError, with the value and what it may be, unless the condition holds."""
    if not condition:
        raise ConfigError(f"setting '{name}' is {value!r}; it must be {allowed}")


def nearest_name(name: str, known: typing.Iterable[str]) -> str:
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known are {', '.join(options)}"


def overlay(settings: Settings, changes: Changes, where: str = "") -> Settings:
    """`settings` with `changes` on top. Keys may be nested (TOML tables) or dotted ('lit.rounds')."""
    hints = typing.get_type_hints(type(settings))
    known = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        if head not in known:
            raise ConfigError(f"unknown setting '{where}{head}'; {nearest_name(head, known)}")
        if rest or isinstance(value, Mapping):
            parts.setdefault(head, {}).update({rest: value} if rest else value)
        else:
            values[head] = _coerce(value, hints[head], where + head)
    for name, inside in parts.items():
        if name in values:
            raise ConfigError(f"setting '{where}{name}' is given both as a whole and in parts; give one")
        current = getattr(settings, name)
        group = current if current is not None else _dataclass_in(hints[name])()
        if not dataclasses.is_dataclass(group):
            raise ConfigError(f"setting '{where}{name}' is a single value and has no parts")
        values[name] = overlay(group, inside, f"{where}{name}.")
    return dataclasses.replace(settings, **values)  # type: ignore[type-var]


def read_toml(path: Path) -> Values:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the settings in {path}: {error}") from error


def parse_assignment(text: str) -> tuple[str, Any]:
    """'lit.rounds=3' -> ('lit.rounds', 3). The value is read as TOML, or as plain text if it is not TOML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"'{text}' is not a setting; write name=value, for example max_side=640")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def as_dict(settings: Any) -> Values:
    """Plain JSON-ready values. A part that most do not have (OPTIONAL) is left out where there is none."""
    plain: Values = dataclasses.asdict(settings)
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is None and field.metadata.get("optional"):
            del plain[field.name]
        elif dataclasses.is_dataclass(value):
            plain[field.name] = as_dict(value)
    return plain


def _coerce(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type that the dataclass declares, or a ConfigError."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        options = typing.get_args(hint)
        require(value in options, where, value, " or ".join(repr(option) for option in options))
        return value
    if origin in (typing.Union, types.UnionType):
        inner = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        named = inner is not str and "none" not in typing.get_args(inner)
        none = value is None or (value == "none" and named)  # TOML has no word for it
        if none and type(None) in typing.get_args(hint):
            return None
        return _coerce(value, inner, where)
    if origin is tuple:
        require(isinstance(value, (list, tuple)), where, value, "a list of numbers")
        args = typing.get_args(hint)
        if args[-1] is not Ellipsis:
            require(len(value) == len(args), where, value, f"{len(args)} numbers")
        return tuple(_coerce(item, args[0], where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, float):
        require(not math.isinf(value), where, value, "a finite number")
    if dataclasses.is_dataclass(hint):
        raise ConfigError(f"setting '{where}' is a group of settings; name one of its parts, for example '{where}.…'")
    require(type(value) is hint, where, value, f"a value of type {hint.__name__}")
    return value


def _dataclass_in(hint: Any) -> Any:
    return next((arg for arg in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(arg)), dict)
