"""Checkpoints of other systems, as their authors published them: cirtorch, SOLAR, dirtorch, DELF and DELG."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from superfeat.config import AttentionConfig, NetworkConfig, PoolingConfig, TrunkConfig
from superfeat.errors import ConfigError, WeightsError
from superfeat.methods import method_of
from superfeat.methods.method import Method
from superfeat.nets.pair_whitening import affine, pca_whitening
from superfeat.nets.tensorflow_trunks import TF_PIXELS
from superfeat.nets.whitening import Whitening
from superfeat.storage.unpickle import Inert
from superfeat.weights.layouts import RELEASED_PARTS, Foreign, find_tensors, stages_in, trunk_config
from superfeat.weights.tensorflow import KERAS_EPSILON, TORCH_EPSILON, keras_parameters, slim_parameters

NOTHING_SPARE = re.compile(r"(?!)")
SOLAR_PARTS = {"conv1": "conv1.0", "bn1": "conv1.1", "layer1": "conv2_x.2", "layer2": "conv3_x", "layer3": "conv4_x"}
SOLAR_PARTS |= {"layer4": "conv5_x", "soa4": "soa4", "soa5": "soa5"}
DIRTORCH_POWER = 0.25  # of the variances: what AP-GeM's numbers are reported with
Rename = Callable[[str], str]


def recognise_published(contents: Any, source: str, method: str | None = None) -> Foreign | None:
    """The parameters of one of these systems; None if the contents are none of them.

    A file of DELG is two networks: `method` says whether its global vector (delg) or its local features (delf).
    """
    tensors = find_tensors(contents)
    meta = contents.get("meta") if isinstance(contents, Mapping) else None
    facts: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
    if any(name.startswith("globalmodel.") for name in tensors):
        return _delg_port(port_parameters(tensors), method or "delg", source)
    if "adpool.p" in tensors:
        return _dirtorch(tensors, contents, source)
    if any(name.startswith("features.conv2_x.") for name in tensors):
        return _cirtorch(tensors, facts, source, "solar", SOLAR_PARTS)
    if "features.0.weight" in tensors and ("pool.p" in tensors or facts.get("pooling") in ("mac", "spoc", "rmac")):
        return _cirtorch(tensors, facts, source, str(facts.get("pooling", "gem")), RELEASED_PARTS)
    return None


def _cirtorch(
    tensors: dict[str, Tensor], meta: Mapping[str, Any], source: str, method: str, parts: Mapping[str, str]
) -> Foreign:
    """cirtorch's layout, and SOLAR's, which has other names inside `features`."""
    for key in ("lwhiten.weight", "pool.whiten.weight"):
        if key in tensors:
            raise WeightsError(
                f"{source} whitens {'places' if 'lwh' in key else 'regions'} ({key}); no method here does"
            )
    names = {theirs: ours for ours, theirs in parts.items()}
    trunk = trunk_config((_unpublish(name, names) for name in tensors), source, stages=None)
    _require_whole(trunk, method_of(method), source)
    layer = tensors.get("whiten.weight")
    kind = method if method in ("mac", "spoc", "rmac") else "gem"
    whitening = None if layer is not None else _learned_whitening(meta, source)
    try:
        trunk = dataclasses.replace(trunk, **_pixels(meta))
        pooling = PoolingConfig(kind, layer=None if layer is None else len(layer))  # type: ignore[arg-type]
        config = NetworkConfig(method, trunk, None, None if whitening is None else len(whitening.bias), pooling)
    except (TypeError, ValueError, ConfigError) as error:
        raise WeightsError(f"{source} looks like a cirtorch file, but its settings make no sense: {error}") from error

    def rename(name: str) -> str:
        part, _, rest = name.partition(".")
        head, _, tail = rest.partition(".")
        if part == "trunk":
            return f"features.{parts[head]}.{tail}"
        return {"pooling": f"pool.{rest}", "layer": f"whiten.{rest}"}.get(part, name)

    return Foreign(
        {**tensors, **_named(whitening)}, config, rename, NOTHING_SPARE, f"{method_of(method).title} network"
    )


def _unpublish(name: str, names: Mapping[str, str]) -> str:
    rest = name.removeprefix("features.")
    for theirs, ours in names.items():
        if rest.startswith(f"{theirs}."):
            return f"{ours}.{rest.removeprefix(f'{theirs}.')}"
    return name


def _pixels(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and deviation, where the file tells them."""
    return {key: tuple(float(value) for value in meta[key]) for key in ("mean", "std") if key in meta}


def _learned_whitening(meta: Mapping[str, Any], source: str) -> Whitening | None:
    """Lw of several scales, learned on the largest set that the file has it for."""
    learned = meta.get("Lw")
    if not isinstance(learned, Mapping) or not learned:
        return None
    name = sorted(learned, key=lambda key: ("120k" in key, key))[-1]
    try:
        maps = learned[name]["ms"]
        rows, mean = (torch.as_tensor(maps[key]).double() for key in ("P", "m"))
    except (KeyError, TypeError) as error:
        raise WeightsError(
            f"{source} has a whitening '{name}' without its {error}; it should have ms, P and m"
        ) from error
    if rows.ndim != 2 or mean.numel() != rows.shape[1]:
        found = f"{tuple(rows.shape)} for a mean of {mean.numel()}"
        raise WeightsError(f"{source} has a whitening '{name}' that does not fit its own mean: {found}")
    return affine(rows, mean.flatten())


def _dirtorch(tensors: dict[str, Tensor], contents: Any, source: str) -> Foreign:
    """torchvision's names, `adpool.p` and `fc`; perhaps a PCA, of which only its arrays are read."""
    trunk = trunk_config(tensors, source, stages=None)
    _require_whole(trunk, method_of("apgem"), source)
    if "fc.weight" not in tensors:
        raise WeightsError(f"{source} has GeM and no layer fc behind it; an AP-GeM network has one")
    whitening = _dirtorch_pca(contents.get("pca") if isinstance(contents, Mapping) else None, source)
    outputs = len(tensors["fc.weight"])
    if whitening is not None and whitening.weight.shape[1] != outputs:
        found = f"{whitening.weight.shape[1]} dimensions, and the network gives {outputs}"
        raise WeightsError(f"{source} has a PCA of {found}")
    whitened = None if whitening is None else len(whitening.bias)
    config = NetworkConfig("apgem", trunk, None, whitened, PoolingConfig("gem", layer=outputs))
    heads = {"pooling.p": "adpool.p", "layer.weight": "fc.weight", "layer.bias": "fc.bias"}

    def rename(name: str) -> str:
        return heads.get(name, name.removeprefix("trunk."))

    return Foreign({**tensors, **_named(whitening)}, config, rename, NOTHING_SPARE, "AP-GeM network")


def _dirtorch_pca(found: Any, source: str) -> Whitening | None:
    if not isinstance(found, Mapping) or not found:
        return None
    name = "Landmarks_clean" if "Landmarks_clean" in found else sorted(found)[0]
    held = found[name]
    try:
        values = held.values if isinstance(held, Inert) else held
        parts = [torch.as_tensor(values[key]) for key in ("mean_", "components_", "explained_variance_")]
        return pca_whitening(*parts, power=DIRTORCH_POWER)
    except (KeyError, TypeError, RuntimeError) as error:
        raise WeightsError(f"{source} has a PCA '{name}' that cannot be read ({error}); fit it again") from error


def _named(whitening: Whitening | None) -> dict[str, Tensor]:
    return {} if whitening is None else {f"whitening.{name}": value for name, value in whitening.state_dict().items()}


def _require_whole(trunk: TrunkConfig, method: Method, source: str) -> None:
    wanted = method.network.trunk.stages
    if trunk.stages < wanted:
        raise WeightsError(
            f"{source} has {trunk.stages} stages of its ResNet, and {method.title} needs {wanted}: the last stage is "
            "missing; give the file of the whole network"
        )


def for_method(foreign: Foreign, name: str, source: str) -> Foreign:
    """A trunk, off the shelf, as the trunk of this method."""
    method = method_of(name)
    if foreign.config.method == name:
        return foreign
    if not foreign.kind.endswith("trunk"):
        raise WeightsError(f"{source} is a {foreign.kind}, not a trunk; {method.title} can be built on a trunk alone")
    wanted = method.network
    if wanted.pooling is not None and wanted.pooling.layer is not None:
        raise WeightsError(
            f"{method.title} has a layer that must be trained: give its own weights, not the trunk {source}"
        )
    trunk = dataclasses.replace(foreign.config.trunk, stages=min(stages_in(foreign.tensors), wanted.trunk.stages))
    _require_whole(trunk, method, source)
    tensors = dict(foreign.tensors)
    if wanted.pooling is not None and wanted.pooling.kind == "gem":
        tensors["pooling.p"] = torch.tensor([wanted.pooling.p])
    config = dataclasses.replace(wanted, trunk=trunk)
    later = "|".join(f"layer{number}" for number in range(trunk.stages + 1, 5)) or "-"
    return foreign._replace(tensors=tensors, config=config, spare=re.compile(rf"^(fc\.|{later})"))


PORT_PARTS = {"a": "conv1", "a_bn": "bn1", "b": "conv2", "b_bn": "bn2", "c": "conv3", "c_bn": "bn3"}


def port_parameters(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names of DELG's PyTorch port -> ours. It reads pixels as BGR; the order goes into the first convolution."""
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if match := re.fullmatch(r"globalmodel\.stem\.(conv|bn)\.(\w+)", name):
            found[f"trunk.{match[1]}1.{match[2]}"] = value.flip(1) if match[1] == "conv" else value
        elif match := re.fullmatch(r"globalmodel\.s(\d)\.b(\d+)\.(f\.\w+|proj|bn)\.(\w+)", name):
            block = f"trunk.layer{match[1]}.{int(match[2]) - 1}"
            inner = {"proj": "downsample.0", "bn": "downsample.1"}.get(match[3]) or PORT_PARTS[match[3][2:]]
            found[f"{block}.{inner}.{match[4]}"] = value
        elif match := re.fullmatch(r"globalmodel\.head\.(pool|fc)\.(\w+)", name):
            found[f"{'pooling' if match[1] == 'pool' else 'layer'}.{match[2]}"] = value
        elif name.startswith("localmodel."):
            found[f"attention.{name.removeprefix('localmodel.')}"] = value
    return found


def _delg_port(tensors: dict[str, Tensor], method: str, source: str) -> Foreign:
    """The port's network: the global half, or the local one, whose features are inside its head."""
    trunk = trunk_config((name.removeprefix("trunk.") for name in tensors), source, stages=None)
    return _delg(tensors, trunk, method, source, AttentionConfig("head"), "DELG network of the PyTorch port")


def _delg(
    tensors: dict[str, Tensor], trunk: TrunkConfig, method: str, source: str, attention: AttentionConfig, kind: str
) -> Foreign:
    if method == "delf":
        trunk = dataclasses.replace(trunk, stages=min(trunk.stages, 3))
        config = NetworkConfig("delf", trunk, None, None, attention=attention)
        spare = r"^(trunk\.layer4|pooling\.|layer\.)"
    elif method == "delg" and "layer.weight" in tensors:
        _require_whole(trunk, method_of("delg"), source)
        pooling = PoolingConfig("gem", layer=len(tensors["layer.weight"]))
        tensors = {"pooling.p": torch.tensor([pooling.p]), **tensors}
        config, spare = NetworkConfig("delg", trunk, None, None, pooling), r"^(attention|autoencoder)\."
    else:
        found = "local features" if method == "delg" else "DELG or DELF"
        raise WeightsError(f"{source} is a file of {found}; {method_of(method).title} cannot be made of it")
    return Foreign(tensors, config, lambda name: name, re.compile(spare), kind)


def recognise_tensorflow(arrays: Mapping[str, np.ndarray], source: str, method: str | None) -> Foreign:
    """DELF or DELG in a checkpoint of TensorFlow's."""
    keras = any(name.startswith("backbone/") for name in arrays)
    tensors = keras_parameters(arrays) if keras else slim_parameters(arrays)
    if "trunk.conv1.weight" not in tensors:
        names = ", ".join(list(arrays)[:3]) or "nothing"
        raise WeightsError(
            f"{source} is a checkpoint of TensorFlow's, but of neither DELF nor DELG; it begins with {names}"
        )
    trunk = trunk_config((name.removeprefix("trunk.") for name in tensors), source, stages=None)
    wanted = method or "delf"
    half: Literal["keras-half", "keras"] = "keras-half" if wanted == "delf" else "keras"
    trunk = dataclasses.replace(trunk, layout=half if keras else "slim", mean=TF_PIXELS.mean, std=TF_PIXELS.std)
    if keras:
        trunk = dataclasses.replace(trunk, stride_in_1x1=True)
    reduced = tensors.get("autoencoder.conv1.weight")
    attention = AttentionConfig(epsilon=KERAS_EPSILON if keras else TORCH_EPSILON)
    if reduced is not None:
        attention = dataclasses.replace(attention, source="reduced", reduced=len(reduced))
    return _delg(tensors, trunk, wanted, source, attention, "DELG or DELF network of TensorFlow")
