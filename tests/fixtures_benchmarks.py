"""The retrieval benchmarks in their published layouts, made up small."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fixtures_recipe import noise
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.errors import SuperfeatError
from superfeat.images import Box

IMAGES = [f"landmark_{number:06}" for number in range(8)]
BOX: Box = (136.5, 34.1, 648.5, 955.7)
OXFORD = ("all_souls_000013", "all_souls_000026", "keble_000001", "oxford_000317", "oxford_002416")
PARIS = ("paris_defense_000605", "paris_defense_000001", "paris_eiffel_000002")


def photo_files(folder: Path, *names: str) -> Path:
    """Small real photos with these names."""
    for seed, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(8, 12, seed)).save(folder / name)
    return folder


def empty_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names(found: RetrievalSet) -> list[str]:
    return [photo.name for photo in found.photos]


def require_one_line(raised: pytest.ExceptionInfo[SuperfeatError]) -> None:
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700


def gnd(**changes: Any) -> dict[str, Any]:
    """What the list of a revisited benchmark holds, changed like this."""
    truths = [
        {"bbx": BOX, "easy": [3, 1], "hard": [5], "junk": [0, 2]},
        {"bbx": [0, 0, 8, 6], "easy": [], "hard": [7, 6], "junk": []},
    ]
    return {"imlist": IMAGES, "qimlist": ["query_000001", "query_000002"], "gnd": truths} | changes


def save(folder: Path, contents: Any, name: str = "roxford5k") -> Path:
    """Writes such a list, or bytes in its place."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"gnd_{name}.pkl").write_bytes(contents if isinstance(contents, bytes) else pickle.dumps(contents))
    return folder


def judge(folder: Path, name: str, query: str, good: str = "", ok: str = "", junk: str = "") -> Path:
    """The four files of one query of Oxford5k or Paris6k."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in (("query", query), ("good", good), ("ok", ok), ("junk", junk)):
        (folder / f"{name}_{kind}.txt").write_text(text)
    return folder


def oxford(root: Path, truths: str = "gt", images: str = "jpg") -> Path:
    judge(
        root / truths,
        "all_souls_1",
        "oxc1_all_souls_000013 136.5 34.1 648.5 955.7\n",
        good="all_souls_000026\nall_souls_000013\n",
        ok="oxford_002416\n\n",
        junk="oxford_000317\r\n",
    )
    judge(root / truths, "keble_2", "oxc1_keble_000001 0 0 12 8", good="keble_000001")
    photo_files(root / images, *(f"{name}.jpg" for name in OXFORD))
    return root
