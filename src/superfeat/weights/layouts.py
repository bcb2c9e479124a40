"""Parameter names of other people's files -> ours, and a clear word on what does not fit."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.errors import ConfigError, WeightsError
from superfeat.nets.trunk import DEPTHS, Bottleneck, Normalisation

# The released networks keep their trunk in a list of modules: these are the numbers of its parts.
RELEASED_PARTS = {"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6", "layer4": "7"}
RELEASED_LIT = {"templates": "templates_init", "query": "project_q", "key": "project_k", "value": "project_v"}
MAX_WRAPPINGS = 4
WRAPPERS = ("module.", "model.", "backbone.", "encoder.", "resnet.", "trunk.", "net.")
TENSORS_SHOWN = 3  # how many names an error lists of each kind


class Foreign(NamedTuple):
    """A file's parameters, how the network's own names are spelled in it, and which entries may be left over."""

    tensors: Mapping[str, Tensor]
    config: NetworkConfig
    rename: Callable[[str], str]
    spare: re.Pattern[str]
    kind: str


def recognise(contents: Any, source: str) -> Foreign:
    """Tells which layout the contents of a torch file have."""
    tensors = find_tensors(contents)
    if not tensors:
        raise WeightsError(f"{source} holds no parameters; expected a state dict or a checkpoint with one inside")
    parameters = contents.get("net_params") if isinstance(contents, Mapping) else None
    if "features.0.weight" in tensors and any(name.startswith("features.4.0.") for name in tensors):
        return _recognise_released(tensors, parameters if isinstance(parameters, Mapping) else {}, source)
    return recognise_trunk(tensors, source)


def find_tensors(contents: Any) -> dict[str, Tensor]:
    """The state dict itself or inside its usual wrappings, with wrapper prefixes taken off the names."""
    for _ in range(MAX_WRAPPINGS):
        keys = (
            ("state_dict", "model_state_dict", "model_state", "model", "net") if isinstance(contents, Mapping) else ()
        )
        contents = next((contents[key] for key in keys if isinstance(contents.get(key), Mapping)), contents)
    if not isinstance(contents, Mapping):
        return {}
    tensors = {name: value for name, value in contents.items() if isinstance(name, str) and isinstance(value, Tensor)}
    for prefix in WRAPPERS * 2:
        if tensors and all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def _recognise_released(tensors: dict[str, Tensor], parameters: Mapping[str, Any], source: str) -> Foreign:
    """A FIRe or HOW checkpoint as its authors released it (METHOD.md 9). Sizes are read off the tensors."""
    if "whiten.weight" in tensors:  # the older form of HOW
        tensors = {re.sub(r"^whiten\.", "dim_reduction.", name): value for name, value in tensors.items()}
    trunk_names = [_unrelease(name) for name in tensors if name.startswith("features.")]
    trunk = trunk_config(trunk_names, source, stages=None)
    try:
        trunk = dataclasses.replace(trunk, **_released_pixels(parameters))
        lit = _released_lit(tensors, parameters)
        weight = tensors.get("dim_reduction.weight")
        config = NetworkConfig("fire" if lit else "how", trunk, lit, None if weight is None else weight.shape[0])
    except (TypeError, ValueError, AttributeError, IndexError, ConfigError) as error:
        raise WeightsError(
            f"{source} looks like a released checkpoint, but its settings make no sense: {error}"
        ) from error
    kind = f"released {'FIRe' if lit else 'HOW'} checkpoint"
    return Foreign(tensors, config, _release, re.compile(r"^fc"), kind)


def _released_pixels(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and deviation of the pixels, where the checkpoint tells them."""
    runtime = parameters.get("runtime")
    mean_std = runtime.get("mean_std") if isinstance(runtime, Mapping) else None
    if mean_std is None:
        return {}
    mean, std = (tuple(float(value) for value in values) for values in mean_std)
    return {"mean": mean, "std": std}


def _released_lit(tensors: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> LitConfig | None:
    if "lit.templates_init" not in tensors:
        return None
    _, templates, dim = tensors["lit.templates_init"].shape
    rounds = parameters.get("lit", {}).get("T", LitConfig().rounds)
    return LitConfig(templates=templates, rounds=int(rounds), dim=dim)


def _release(name: str) -> str:
    """Our name -> the released checkpoints' name."""
    part, _, rest = name.partition(".")
    head, _, tail = rest.partition(".")
    if part == "trunk":
        return f"features.{RELEASED_PARTS[head]}.{tail}"
    if part == "lit":
        return ".".join(filter(None, ("lit", RELEASED_LIT.get(head, head), tail)))
    return f"dim_reduction.{rest}"


def _unrelease(name: str) -> str:
    number, _, tail = name.removeprefix("features.").partition(".")
    return next((f"{part}.{tail}" for part, value in RELEASED_PARTS.items() if value == number), name)


def recognise_trunk(
    tensors: Mapping[str, Tensor],
    source: str,
    stages: int | None = 3,
    stride_in_1x1: bool = False,
    pixels: Normalisation = Normalisation(),  # noqa: B008 - an immutable tuple
) -> Foreign:
    """A trunk in torchvision's names (timm's ResNets have the same), to be used with HOW; its classifier is spare."""
    if "conv1.weight" not in tensors:
        known = "a released FIRe or HOW checkpoint, a torchvision, timm or Keras ResNet"
        names = ", ".join(list(tensors)[:TENSORS_SHOWN])
        raise WeightsError(f"{source} is none of the layouts known here ({known}); its first entries are {names}")
    trunk = trunk_config(tensors, source, stages)
    trunk = TrunkConfig(trunk.arch, trunk.stages, stride_in_1x1, *pixels)
    later = "|".join(f"layer{number}" for number in range(trunk.stages + 1, 5)) or "-"
    config = NetworkConfig("how", trunk, None, None)
    return Foreign(tensors, config, lambda name: name.removeprefix("trunk."), re.compile(rf"^(fc\.|{later})"), "trunk")


def stages_in(names: Iterable[str]) -> int:
    """The last stage of a ResNet that these names speak of."""
    return max((int(match[1]) for name in names if (match := re.match(r"layer(\d)\.\d+\.", name))), default=0)


def trunk_config(names: Iterable[str], source: str, stages: int | None) -> TrunkConfig:
    """Which ResNet has these blocks."""
    names = list(names)
    found = {(int(match[1]), int(match[2])) for name in names if (match := re.match(r"layer(\d)\.(\d+)\.", name))}
    last = max((stage for stage, _ in found), default=0)
    depths = tuple(
        1 + max((block for stage, block in found if stage == number), default=-1) for number in range(1, last + 1)
    )
    bottleneck = any(re.match(r"layer\d\.\d+\.conv3\.", name) for name in names)
    for arch, (block, full) in DEPTHS.items():
        if depths and full[: len(depths)] == depths and (block is Bottleneck) == bottleneck:
            return TrunkConfig(arch, min(stages or 4, last))  # type: ignore[arg-type]
    shape = "x".join(map(str, depths)) or "no"
    raise WeightsError(f"{source} has {shape} residual blocks, which is none of {', '.join(DEPTHS)}")


def fit(foreign: Foreign, expected: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """The file's tensors under our names. Raises with what is missing, unexpected or of the wrong shape."""
    state: dict[str, Tensor] = {}
    missing, misshapen = [], []
    for name, wanted in expected.items():
        theirs = foreign.rename(name)
        value = foreign.tensors.get(theirs)
        if value is None and name.endswith("num_batches_tracked"):
            value = wanted.new_zeros((), device="cpu")
        if value is None:
            missing.append(theirs)
        elif _without_ones(value) != _without_ones(wanted):
            misshapen.append(f"{theirs} is {tuple(value.shape)}, not {tuple(wanted.shape)}")
        else:
            state[name] = value.reshape(wanted.shape).to(wanted.dtype)
    used = {foreign.rename(name) for name in expected}
    unexpected = [name for name in foreign.tensors if name not in used and not foreign.spare.search(name)]
    if missing or unexpected or misshapen:
        raise WeightsError(f"{source} does not fit ({foreign.kind}): " + _misfit(missing, unexpected, misshapen))
    return state


def _without_ones(tensor: Tensor) -> list[int]:
    return [size for size in tensor.shape if size != 1]


def _misfit(missing: list[str], unexpected: list[str], misshapen: list[str]) -> str:
    parts = []
    if missing:
        named = []
        for name in missing[:TENSORS_SHOWN]:
            near = difflib.get_close_matches(name, unexpected, n=1)
            named.append(f"{name} (nearest in the file: {near[0]})" if near else name)
        parts.append(f"{len(missing)} missing: {_few(named, len(missing))}")
    if unexpected:
        parts.append(f"{len(unexpected)} unexpected: {_few(unexpected, len(unexpected))}")
    if misshapen:
        parts.append(f"{len(misshapen)} of the wrong shape: {_few(misshapen, len(misshapen))}")
    return "; ".join(parts)


def _few(names: list[str], total: int) -> str:
    return ", ".join(names[:TENSORS_SHOWN]) + (", …" if total > TENSORS_SHOWN else "")
