"""The paper's training set, retrieval-SfM-120k: its lists as published, with the images in folders by their ids."""

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np

from superfeat.datasets.retrieval_set import Query, RetrievalSet, with_positives
from superfeat.datasets.training_set import TrainingSet, require_entries, require_inside, whole_numbers
from superfeat.errors import DatasetError
from superfeat.images import Photo
from superfeat.storage.unpickle import read_pickle

NAME = "retrieval-SfM-120k"
TRAINING_FILE = f"{NAME}.pkl"
VALIDATION_FILE = f"{NAME}-val-eccv2020.pkl"
PLACES = (Path(), Path(NAME), Path("train") / NAME)  # the folder itself, or one of those that cirtorch puts it into
SPLIT_KEYS = ("cids", "cluster", "qidxs", "pidxs")
VALIDATION_KEYS = ("cids", "qidx", "gnd")
CID = re.compile(r"[0-9A-Za-z_-]{6,}")  # its last six characters name folders, so it must not hold dots or slashes


def read_sfm120k(root: str | Path, split: Literal["train", "val"] = "train") -> TrainingSet:
    """The pairs of retrieval-SfM-120k.pkl; things are its clusters (3D models). Image files are not looked for."""
    file = _find(Path(root), TRAINING_FILE, "a dict with 'train' and 'val', each with " + ", ".join(SPLIT_KEYS))
    whole = require_entries(read_pickle(file), (split,), str(file))
    part = require_entries(whole[split], SPLIT_KEYS, f"{file}: '{split}'")
    what = f"{file}: '{split}'"
    photos = _photos(part["cids"], file)
    clusters, queries, positives = (
        whole_numbers(part[key], f"{what}: '{key}'") for key in ("cluster", "qidxs", "pidxs")
    )
    if len(clusters) != len(photos):
        raise DatasetError(f"{what} has {len(photos)} cids but {len(clusters)} clusters: fetch the file again")
    if len(queries) != len(positives):
        raise DatasetError(f"{what} has {len(queries)} qidxs but {len(positives)} pidxs: fetch the file again")
    pairs = np.stack((queries, positives), axis=1)
    require_inside(pairs, len(photos), f"{what}: 'qidxs' and 'pidxs'")
    return TrainingSet(photos, clusters, pairs)


def read_sfm120k_validation(root: str | Path) -> RetrievalSet:
    """The validation list of HOW and FIRe; a query's own image is junk for it."""
    file = _find(Path(root), VALIDATION_FILE, "a dict with " + ", ".join(VALIDATION_KEYS))
    contents = require_entries(read_pickle(file), VALIDATION_KEYS, str(file))
    photos = _photos(contents["cids"], file)
    images = whole_numbers(contents["qidx"], f"{file}: 'qidx'")
    require_inside(images, len(photos), f"{file}: 'qidx'")
    truths = contents["gnd"]
    if not isinstance(truths, (list, tuple)) or len(truths) != len(images):
        raise DatasetError(f"{file}: 'gnd' must be a list with one entry for each of the {len(images)} queries")
    queries = []
    for number, (image, truth) in enumerate(zip(images.tolist(), truths, strict=True)):
        positives, junk = _judgement(truth, len(photos), f"{file}: 'gnd' of query {number}")
        own = {image}
        queries.append(Query(photos[image], tuple(sorted(positives - own)), tuple(sorted(junk - positives | own))))
    return with_positives(VALIDATION_FILE.removesuffix(".pkl"), photos, queries, files=[file])


def _find(root: Path, name: str, contents: str) -> Path:
    """The file in this folder, or where cirtorch's data folder has it."""
    for place in PLACES:
        if (root / place / name).is_file():
            return root / place / name
    raise DatasetError(
        f"there is no {name} at {root} or {root / PLACES[-1]}: put the published file there ({contents}), "
        "with the images below ims/ beside it"
    )


def _photos(cids: Any, file: Path) -> tuple[Photo, ...]:
    """Image files by id: ims/<last 2>/<2 before>/<2 before>/<cid>, without an ending."""
    if isinstance(cids, np.ndarray) and cids.ndim == 1:
        cids = cids.tolist()
    if not isinstance(cids, (list, tuple)) or not cids:
        raise DatasetError(f"{file}: 'cids' must be a list of image ids; the file is damaged or of another kind")
    folder = file.parent / "ims"
    photos = []
    for cid in cids:
        if not isinstance(cid, str) or not CID.fullmatch(cid):
            raise DatasetError(
                f"{file}: 'cids' holds {repr(cid[:80]) if isinstance(cid, str) else type(cid).__name__}, "
                "which is no image id (six or more letters and digits)"
            )
        photos.append(Photo(folder / cid[-2:] / cid[-4:-2] / cid[-6:-4] / cid, cid))
    return tuple(photos)


def _judgement(truth: Any, size: int, what: str) -> tuple[set[int], set[int]]:
    """Positives and junk of a query: a dict with 'ok', or 'easy' and 'hard', and perhaps 'junk'; or the positives."""
    if not isinstance(truth, dict):
        truth = {"ok": truth}
    known = [key for key in ("ok", "easy", "hard") if key in truth]
    if not known:
        raise DatasetError(f"{what} has neither 'ok' nor 'easy' and 'hard': fetch the file again")

    def numbers(key: str) -> set[int]:
        found = whole_numbers(truth[key], f"{what}: '{key}'")
        require_inside(found, size, f"{what}: '{key}'")
        return set(found.tolist())

    return set().union(*map(numbers, known)), numbers("junk") if "junk" in truth else set()
