"""The student that distillation begins with: a trunk of its own, the teacher's LIT, whitening and points behind it."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.config import DEFAULT_WEIGHTS, DistilConfig, NetworkConfig, Recipe, TrunkConfig
from superfeat.errors import ConfigError, WeightsError
from superfeat.methods.method import trunk_stride
from superfeat.nets.distillation import Squares
from superfeat.nets.efficientnet import CEILING, EfficientNetLite
from superfeat.nets.fire import Fire
from superfeat.nets.points import APART
from superfeat.training.lessons import Lessons
from superfeat.training.start import NEW
from superfeat.weights import Network, build_module, load_network
from superfeat.weights.files import read_foreign
from superfeat.weights.named import find_weights
from superfeat.weights.network import Provenance

INPUTS = ("lit.query.", "lit.key.", "lit.value.", "lit.norm_inputs.", "points.whitening.")  # what reads the map


class StudentStart(NamedTuple):
    """What a student begins with: a trunk, or a student that has learned before."""

    trunk: TrunkConfig
    tensors: Mapping[str, Tensor]
    provenance: Provenance
    digest: str
    learned: bool


def load_teacher(config: DistilConfig) -> Network:
    """The network to learn from; WeightsError where it is none of FIRe, or not finished."""
    source = config.teacher or DEFAULT_WEIGHTS
    teacher = load_network(source)
    if not isinstance(teacher.module, Fire) or teacher.module.whitening is None:
        raise WeightsError(f"{source} cannot be a teacher: give a whitened network of FIRe, in superfeat's own format")
    return teacher


def load_given(recipe: Recipe) -> StudentStart | None:
    """The weights that the recipe names; None: a new network."""
    if recipe.weights in (None, NEW):
        return None
    given = load_network(str(recipe.weights))
    if not isinstance(given.module, nn.Module):
        raise WeightsError(f"{recipe.weights} is an exported network, which cannot learn; give the one it came from")
    tensors = dict(given.module.state_dict())
    path = find_weights(str(recipe.weights))
    if isinstance(given.module.trunk, EfficientNetLite) and path.is_file() and path.suffix != ".safetensors":
        tensors |= {f"trunk.{name}": value for name, value in read_foreign(path).tensors.items()}
    return StudentStart(given.config.trunk, tensors, given.provenance, given.digest, given.config.lit is not None)


def student_config(recipe: Recipe, teacher: Network, given: StudentStart | None) -> NetworkConfig:
    """The teacher's settings on the recipe's trunk; pixels and form of the trunk are those of the weights."""
    wanted = recipe.network.trunk
    if not wanted.arch.startswith("efficientnet") or wanted.neck is None:
        raise ConfigError("a student has an EfficientNet with a neck: set network.trunk.arch and network.trunk.neck")
    known = wanted if given is None else given.trunk
    if (known.arch, known.stages) != (wanted.arch, wanted.stages):
        raise WeightsError(
            f"{recipe.weights} does not fit the recipe: network.trunk is {wanted.arch} with {wanted.stages} stages, "
            f"the weights are {known.arch} with {known.stages}; set one as the other"
        )
    trunk = dataclasses.replace(known, neck=wanted.neck)
    stride = trunk_stride(trunk)
    if stride != teacher.stride:
        raise ConfigError(
            f"a place of the student's map has {stride} pixels, of the teacher's {teacher.stride}: "
            "choose network.trunk.stages so that they agree"
        )
    return dataclasses.replace(teacher.config, trunk=trunk)


def build_student(recipe: Recipe, teacher: Network, given: StudentStart | None) -> Network:
    """The student without what reads its map, unless it has learned before: `solve_student` finds that."""
    assert recipe.distillation is not None
    config = student_config(recipe, teacher, given)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.distillation.seed)
        module = build_module(config)
    own, taught = module.state_dict(), teacher.module.state_dict()
    kept = {name: value for name, value in taught.items() if not name.startswith(("trunk.", *INPUTS))}
    before = {} if given is None else given.tensors
    learned = {name: value for name, value in before.items() if name in own and own[name].shape == value.shape}
    module.load_state_dict({**own, **kept, **learned})
    provenance = {**({} if given is None else given.provenance), "start": str(recipe.weights or NEW)}
    return Network(module, config, provenance)


@torch.no_grad()
def solve_student(student: Network, lessons: Lessons, config: DistilConfig) -> None:
    """What reads the map, in closed form, by least squares on some lessons.

    The neck keeps the directions in which the expanded map tells most of the teacher's keys and values; then keys,
    values and points are read off the map as well as can be.
    """
    fire = student.module
    assert isinstance(fire, Fire)
    trunk, lit = fire.trunk, fire.lit
    assert isinstance(trunk, EfficientNetLite)
    assert trunk.neck is not None
    chosen = range(min(config.start_lessons, len(lessons)))
    wide = Squares(trunk.neck.expand.out_channels + 1, 2 * lit.templates.shape[1])
    strengths = 0.0
    for number in chosen:
        x, seen = lessons(number)
        expanded = _places(trunk.neck.expand(trunk.before_neck(config.frozen_stages, x)).clamp(0, CEILING))
        spread = [part[0] / part.std() for part in (seen.keys, seen.values)]
        wide.add(_with_one(expanded), torch.cat(spread, dim=1))
        strengths += 0.0 if seen.point_strengths is None else float(seen.point_strengths.mean()) / len(chosen)
    project = wide.reduced(trunk.channels)
    length = float(((project @ wide.gram) * project).sum() / wide.count) ** 0.5  # root of the mean square of the map
    project *= (strengths or length) / length
    trunk.neck.project.weight.copy_(project[:, :-1, None, None])
    assert trunk.neck.project.bias is not None
    trunk.neck.project.bias.copy_(project[:, -1])
    _solve_readers(fire, lessons, chosen, config.frozen_stages)


def _solve_readers(fire: Fire, lessons: Lessons, chosen: range, frozen_stages: int) -> None:
    """LIT's keys and values, and the whitening of points, from the map as it is now."""
    trunk, lit = fire.trunk, fire.lit
    assert isinstance(trunk, EfficientNetLite)
    dim = lit.templates.shape[1]
    read = Squares(trunk.channels, 2 * dim)
    points = Squares(trunk.channels + 1, 0 if fire.whitening is None else len(fire.whitening.bias))
    for number in chosen:
        x, seen = lessons(number)
        found = trunk.behind(frozen_stages, x)
        read.add(lit.norm_inputs(_places(found)), torch.cat((seen.keys[0], seen.values[0]), dim=1))
        if seen.points is not None:
            smooth = nn.functional.avg_pool2d(found, 3, stride=1, padding=1, count_include_pad=False)
            points.add(_with_one(_places(smooth)), seen.points[0])
    keys, values = read.solve().split(dim)
    keys = keys * dim**0.5
    balance = float(keys.norm() / dim**0.5) ** 0.5  # between queries and keys, whose product alone counts
    lit.query.weight.copy_(torch.eye(dim) * balance)
    lit.key.weight.copy_(keys / balance)
    lit.value.weight.copy_(values)
    if fire.points is not None:
        assert fire.points.whitening is not None
        both = points.solve()
        fire.points.whitening.weight.copy_(both[:, :-1])
        fire.points.whitening.bias.copy_(both[:, -1] + APART)


def _places(x: Float[Tensor, "1 channels h w"]) -> Float[Tensor, "places channels"]:
    return x.flatten(2)[0].T


def _with_one(x: Float[Tensor, "n inputs"]) -> Float[Tensor, "n more"]:
    return torch.cat((x, x.new_ones(len(x), 1)), dim=1)
