"""The tests' own checker of shapes: functions inside functions are checked each time, though prepared once."""

from collections.abc import Callable

import jaxtyping
import numpy as np
import pytest
from jaxtyping import Float32

from fixtures_shapes import check_once

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
