"""superfeat train in very small: a recipe, photos, the command, and what it leaves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fixtures_recipe import noise
from superfeat.config import LitConfig

RECIPE = """
[network]
whitened_dim = 6
trunk = { arch = "resnet10", stages = 1 }
lit = { templates = 8, rounds = 2, dim = 16 }

[training]
epochs = 2
queries = 6
tuples_per_step = 2
negatives = 2
pool = 12
learning_rate = 1e-3
max_side = 40
whitening_images = 12

[losses]
ratio_test = "off"

[validation]
every = 0
codebook = { words = 16, rounds = 2 }
codebook_images = 6
extract = { max_side = 40, scales = [1.0], features_per_image = 8 }

[pretraining]
epochs = 2
batch = 4
optimiser = "adam"
learning_rate = 1e-3
hidden = 8
side = 32
hold_out = 0.34
"""
STEPS = 6
LIT = LitConfig(templates=8, rounds=2, dim=16)


def draw_things(folder: Path, things: int, views: int, seed: int = 0) -> Path:
    """Noise, and under it one pattern for each thing."""
    for thing in range(things):
        (folder / f"thing{thing}").mkdir(parents=True)
        for view in range(views):
            mixed = 0.6 * noise(40, 32, seed + thing) + 0.4 * noise(40, 32, seed + 100 + 10 * thing + view)
            Image.fromarray(mixed.astype(np.uint8)).save(folder / f"thing{thing}" / f"{view}.png")
    return folder


def train_words(data: Path, output: Path, *more: object) -> list[object]:
    return ["train", data / "tiny.toml", "--images", data / "photos", "--workers", "1", "-o", output, *more]


def weights(folder: Path, name: str = "last") -> bytes:
    return (folder / name / "model.safetensors").read_bytes()


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def steps(folder: Path) -> list[int]:
    return [record["step"] for record in log(folder) if record["event"] == "step"]


def tree_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder: when it was written, and its bytes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
