"""The tests' own checker of shapes: functions inside functions are checked each time, though prepared once."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jaxtyping
import numpy as np
import pytest
from jaxtyping import Float32

from fixtures_shapes import CHECKED, check_once, has_shapes

checked = jaxtyping.jaxtyped(typechecker=check_once)


def made(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    @checked
    def multiply(values: Float32[np.ndarray, "n 2"]) -> Float32[np.ndarray, "n 2"]:
        return values * np.float32(factor) if factor else values[:, 0]

    return multiply


def test_a_function_that_is_made_again_is_checked_again() -> None:
    values = np.ones((3, 2), np.float32)
    for factor in (2.0, 3.0):
        multiply = made(factor)
        np.testing.assert_array_equal(multiply(values), factor * values)
        with pytest.raises(jaxtyping.TypeCheckError):
            multiply(values[:, :1])
    with pytest.raises(jaxtyping.TypeCheckError, match="return"):
        made(0)(values)


def test_equal_names_with_other_annotations_are_checked_apart() -> None:
    def taking(kind: type) -> Callable[[object], None]:
        @checked
        def take(value: kind) -> None: ...  # type: ignore[valid-type]

        return take

    taking(int)(1)
    taking(str)("1")
    with pytest.raises(jaxtyping.TypeCheckError):
        taking(str)(1)


def test_what_has_a_shape() -> None:
    def plain(name: str, kind: Literal["n 2"], values: np.ndarray) -> list[int]: ...  # type: ignore[empty-body]
    def inner(values: list[Float32[np.ndarray, "n"] | None]) -> None: ...
    def quoted(values: "dict[str, Float32[np.ndarray, 'n']]") -> None: ...
    def returned(values: np.ndarray) -> Callable[[Float32[np.ndarray, "n"]], None]: ...  # type: ignore[empty-body]
    def unknown(values: "NotYet") -> None: ...  # type: ignore[name-defined]

    assert [has_shapes(one) for one in (plain, inner, quoted, returned, unknown)] == [False, True, True, True, True]


def functions_of(module: Any) -> Iterator[Any]:
    """All that the module defines, those of its classes too, without decorators of descriptors."""
    for owner in (module, *(one for one in vars(module).values() if inspect.isclass(one))):
        for one in vars(owner).values():
            function = getattr(one, "__func__", getattr(one, "fget", one))
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                yield function


def is_checked(function: Any) -> bool:
    while function is not None:
        if function.__globals__["__name__"] == "jaxtyping._decorator":
            return True
        function = getattr(function, "__wrapped__", None)
    return False


@pytest.mark.parametrize("name", CHECKED)
def test_every_function_of_the_library_with_a_shape_is_checked(name: str) -> None:
    module = importlib.import_module(name)
    shaped = [one for one in functions_of(module) if has_shapes(inspect.unwrap(one))]
    assert shaped, "to be left out of the list"
    assert [one.__qualname__ for one in shaped if not is_checked(one)] == []
