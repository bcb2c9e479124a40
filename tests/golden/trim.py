"""Makes tests/golden/data from the reference fixtures, which lie beside the project: what a test reads, and no more.

    python tests/golden/trim.py ../shared/fixtures

No number is changed. Where an array is thinned out, whole arrays beside it prove the rest (data/README.md says which).
"""

import hashlib
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent / "data"
Arrays = dict[str, np.ndarray]

COPIED = (
    "asmk_codebook.pkl", "asmk_ivf_5images.pkl", "fire_r50_state_dict_shapes.json", "fire_tiny.pth", "gnd_synth.pkl",
    "load_src.png", "zoo_layout_cirtorch.pth", "zoo_layout_dirtorch.pt", "zoo_tf_codebook.data-00000-of-00001",
    "zoo_tf_codebook.index",
)  # fmt: skip
ROWS = 3  # of a scaled input one row in three stays: both phases of an enlargement by two
DIMENSIONS = 8  # one in so many of a feature stays, where features are many
CHANNELS = 8  # the same for the templates of LIT
TRAINING_VECTORS = 1000  # of 3000


def asmk(arrays: Arrays) -> Arrays:
    return {
        **arrays,
        "train_vecs": arrays["train_vecs"][:TRAINING_VECTORS],
        "nobin_agg_des": arrays["nobin_agg_des"][:, ::4],
    }


def fire_tiny(arrays: Arrays) -> Arrays:
    """The trunk's largest maps go; what the network makes of them at these scales stays."""
    dropped = {f"{image}_{what}_s0" for image in ("im0", "im1") for what in ("backbone", "lit")}
    dropped |= {"im0_backbone_s1", "im0_lit_s1"}
    return _without_repeated_vectors(_thin_inputs({key: arrays[key] for key in arrays if key not in dropped}))


def fire_r50(arrays: Arrays) -> Arrays:
    """Trunk and LIT are compared on the image with odd sides alone."""
    dropped = {"im0_backbone_s2", "im0_lit_s2", "im0_scaled_input_s2"}
    kept = {key: arrays[key] for key in arrays if key not in dropped}
    for key in kept:
        if "_feat_" in key:
            kept[key] = kept[key][:, ::DIMENSIONS]
        elif "_lit_" in key:
            kept[key] = kept[key][:, ::CHANNELS]
    return _thin_inputs(kept)


def how(arrays: Arrays) -> Arrays:
    return _thin_inputs(arrays)


def how_r50(arrays: Arrays) -> Arrays:
    return {**how(arrays), "top300_desc": arrays["top300_desc"][:, ::DIMENSIONS]}


def image_loading(arrays: Arrays) -> Arrays:
    """Of the largest image a digest is enough: pixels are compared bit for bit."""
    kept = {key: arrays[key] for key in arrays if key != "full_1024_uint8"}
    digest = hashlib.sha256(arrays["full_1024_uint8"].tobytes()).hexdigest()
    return {**kept, "full_1024_sha256": np.array(digest)}


def losses(arrays: Arrays) -> Arrays:
    """Gradients of the paper-sized case are thinned; the triplet loss is nobody's."""
    kept = {key: arrays[key] for key in arrays if key != "triplet_m0.1"}
    for part in ("query", "pos", "neg"):
        kept[f"c2_grad_{part}"] = kept[f"c2_grad_{part}"][..., ::DIMENSIONS]
    return kept


def delg_extract(arrays: Arrays) -> Arrays:
    return _thin_inputs(arrays)


def solar(arrays: Arrays) -> Arrays:
    """The form for drawing alone is nobody's."""
    return {key: value for key, value in arrays.items() if not key.endswith("_draw")}


def whole(arrays: Arrays) -> Arrays:
    return arrays


TRIMMED: dict[str, Callable[[Arrays], Arrays]] = {
    "asmk": asmk,
    "eval_map": whole,
    "fire_r50_forward": fire_r50,
    "fire_tiny_forward": fire_tiny,
    "how_r50_forward": how_r50,
    "how_tiny_forward": how,
    "image_loading": image_loading,
    "lit_standalone": whole,
    "losses": losses,
    "train_step_tiny": whole,
    "whitening": whole,
    "zoo_cirtorch_full": whole,
    "zoo_cirtorch_net": whole,
    "zoo_cirtorch_pool": whole,
    "zoo_cirtorch_whiten": whole,
    "zoo_delf_select": whole,
    "zoo_delf_slim_r50": whole,
    "zoo_delf_sv": whole,
    "zoo_delg_extract": delg_extract,
    "zoo_delg_heads": whole,
    "zoo_delg_keras_r50": whole,
    "zoo_delg_port": whole,
    "zoo_dirtorch": whole,
    "zoo_layout_truth": whole,
    "zoo_rasmk": whole,
    "zoo_solar": solar,
}


def _thin_inputs(arrays: Arrays) -> Arrays:
    return {key: value[:, ::ROWS] if "scaled_input" in key else value for key, value in arrays.items()}


def _without_repeated_vectors(arrays: Arrays) -> Arrays:
    """`_desc` of a selection, which are rows of `_feat_s*` to the bit."""
    kept = {key: value for key, value in arrays.items() if not key.endswith("_desc")}
    for key in arrays.keys() - kept.keys():
        features = np.concatenate([arrays[f"{key[:3]}_feat_s{scale}"] for scale in range(7)])
        rows = arrays[key.replace("_desc", "_index")]
        np.testing.assert_array_equal(features[rows], arrays[key])
    return kept


def write(path: Path, arrays: Arrays) -> None:
    """As np.savez_compressed does it, but with one time for all: the same arrays are the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            contents = io.BytesIO()
            np.lib.format.write_array(contents, np.array(array, order="C"), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(entry, contents.getvalue(), zipfile.ZIP_DEFLATED, 9)


def main(source: Path) -> None:
    DATA.mkdir(exist_ok=True)
    for name in COPIED:
        shutil.copyfile(source / name, DATA / name)
    shapes = json.loads((source / "zoo_state_dict_shapes.json").read_text())
    (DATA / "zoo_state_dict_shapes.json").write_text(json.dumps(shapes, separators=(",", ":")))
    for name, trim in TRIMMED.items():
        with np.load(source / f"{name}.npz") as file:
            write(DATA / f"{name}.npz", trim(dict(file)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
