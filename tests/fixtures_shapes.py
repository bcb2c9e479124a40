"""The checker of annotated shapes that tests/conftest.py installs."""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import beartype
import jaxtyping

# Every annotated shape is checked while the tests run. `features` is left out because jaxtyping takes one "height
# width" for all the maps of an image, `nets.fire` and `nets.how` because other trunks and the fused LIT stand in their
# parts' places; modules without shapes gain nothing.
CHECKED = (
    "superfeat.nets.trunk",
    "superfeat.nets.lit",
    "superfeat.nets.whitening",
    "superfeat.nets.local",
    "superfeat.nets.points",
    "superfeat.nets.fused",
    "superfeat.nets.fused_lite",
    "superfeat.nets.efficientnet",
    "superfeat.nets.distillation",
    "superfeat.images",
    "superfeat.extraction.folder",
    "superfeat.extraction.extract",
    "superfeat.extraction.selection",
    "superfeat.extraction.joining",
    "superfeat.extraction.without_torch",
    "superfeat.index.segments",
    "superfeat.index.snapshot",
    "superfeat.index.contents",
    "superfeat.index.index",
    "superfeat.nets.losses",
    "superfeat.evaluation.metrics",
    "superfeat.nets.training",
    "superfeat.datasets.training_set",
    "superfeat.training.mining",
    "superfeat.training.objective",
    "superfeat.training.inputs",
    "superfeat.training.steps",
    "superfeat.training.views",
    "superfeat.evaluation.judge",
    "superfeat.evaluation.searching",
    "superfeat.evaluation.stages",
    "superfeat.studies.analyses",
    "superfeat.explain.attribution",
    "superfeat.index.places",
    "superfeat.explain.explain",
    "superfeat.found.explanation",
    "superfeat.duplicates.find",
    "superfeat.probability.apply",
    "superfeat.probability.fit",
)
# The tower lets an int pass for a float, as every type checker does.
check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
jaxtyped: Callable[..., Any] = jaxtyping.jaxtyped
_checked: dict[tuple[object, ...], Callable[..., Any]] = {}
_shaped: dict[types.CodeType, bool] = {}


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


def check_shapes(modules: Sequence[str]) -> None:
    """From here on, modules of these names are imported with a check of every annotated shape.

    What has no shape among its annotations is left as it is: mypy has looked at it, and there are several times
    as many calls of it, each of which the check makes slower.
    """
    # What the hook puts above each function and class.
    jaxtyping.jaxtyped = _only_shaped  # type: ignore[assignment]
    jaxtyping.install_import_hook(modules, "fixtures_shapes.check_once")


def _only_shaped(decorated: Any = None, *, typechecker: Any) -> Any:
    if decorated is None:
        return functools.partial(_only_shaped, typechecker=typechecker)
    own = decorated.__module__.startswith("superfeat.")
    return decorated if own and not has_shapes(decorated) else jaxtyped(decorated, typechecker=typechecker)


def has_shapes(decorated: Any) -> bool:
    """Of a function, or of the fields of a class, which only a dataclass checks."""
    if inspect.isclass(decorated):
        return dataclasses.is_dataclass(decorated) and has_shapes(decorated.__init__)
    if not inspect.isfunction(decorated):
        return True  # a property or the like: let jaxtyping see
    code = decorated.__code__
    if code not in _shaped:
        _shaped[code] = any(_is_shape(one, decorated.__globals__) for one in decorated.__annotations__.values())
    return _shaped[code]


def _is_shape(annotation: Any, names: dict[str, Any]) -> bool:
    """Or one that holds a shape, or that cannot be known yet."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, names)
        except (NameError, AttributeError):
            return True
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    if typing.get_origin(annotation) is typing.Literal:
        return False
    inner = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return any(_is_shape(one, names) for one in inner)
