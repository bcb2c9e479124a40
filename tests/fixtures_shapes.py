"""The checker of annotated shapes that tests/conftest.py installs."""

from collections.abc import Callable
from typing import Any

import beartype

# The tower lets an int pass for a float, as every type checker does.
check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
_checked: dict[tuple[object, ...], Callable[..., Any]] = {}


def check_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but a function that each call of another defines anew is looked at once: making a check takes long.

    jaxtyping gives the checker a stand-in, which has the annotations of the function and nothing of its body: where
    they are equal, so is the check.
    """
    if "<locals>" not in function.__qualname__:
        return check(function)
    key = (function.__module__, function.__qualname__, *function.__annotations__.items())
    if key not in _checked:
        _checked[key] = check(function)
    return _checked[key]
