"""DELF, DELG, their re-ranking and R-ASMK against the released implementations."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import oracles_zoo
from fixtures_recipe import absolute_error, relative_error
from fixtures_zoo import zoo_arrays, zoo_state
from superfeat import ExtractConfig, Network, extract, load_network
from superfeat.config import (
    AttentionConfig,
    IndexConfig,
    NetworkConfig,
    PoolingConfig,
    SearchConfig,
    TrunkConfig,
)
from superfeat.errors import StoreError, WeightsError
from superfeat.extraction.decode import read_for
from superfeat.extraction.delf_files import read_global_file, read_local_file
from superfeat.extraction.receptive import centres, receptive_boxes, strong_enough, without_overlap
from superfeat.extraction.scaling import ROUNDED, resize
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.regional import mean_residuals, regional_words, residuals, vlad
from superfeat.nets.attentive import AttentionHead, Autoencoder, Delf, attended
from superfeat.nets.global_vector import GlobalNetwork, VectorRules, over_scales
from superfeat.nets.pooling import Pooling, gem
from superfeat.nets.tensorflow_trunks import NEVER, pad_same
from superfeat.nets.trunk import Normalisation
from superfeat.nets.vector_losses import ARC_MARGIN, ARC_SCALE, arcface_logits
from superfeat.rerank.affine import D2R, DELG, LocalFeatures, Matching, count_inliers, local_features, match, rerank
from superfeat.weights.files import adopt
from superfeat.weights.published import recognise_tensorflow
from superfeat.weights.tensorflow import as_tensor, keras_parameters, read_tensorflow

TOLERANCE = 2e-6  # of the largest value of an array
Arrays = dict[str, np.ndarray]
MATCHINGS = {"delg": DELG, "d2r": D2R, "ratio": Matching(1.0, 0.9, 20.0)}


@pytest.fixture(scope="module")
def arrays(golden: Path) -> Callable[[str], Arrays]:
    def load(name: str) -> Arrays:
        with np.load(golden / f"zoo_{name}.npz") as file:
            return dict(file)

    return load


def tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


def pixels(network: Network, image: np.ndarray) -> Tensor:
    from superfeat.images import normalise

    return tensor(normalise(image, *network.normalisation)).unsqueeze(0)


def last(maps: Tensor) -> np.ndarray:
    """As TensorFlow has maps: channels last."""
    return maps.movedim(1, -1).numpy()


# -- Networks


@torch.inference_mode()
def test_published_delf(arrays: Callable[[str], Arrays], golden: Path) -> None:
    found = arrays("delf_slim_r50")
    network = adopt(recognise_tensorflow(zoo_arrays(golden, "delf_slim_r50"), "delf", None), Path("delf"))
    module: Any = network.module
    assert (network.config.method, network.config.trunk.layout, module.trunk.stride) == ("delf", "slim", 32)
    for number in (0, 1):
        x = pixels(network, found[f"im{number}_image"])
        maps = module.trunk(x)
        assert relative_error(last(maps)[0], found[f"im{number}_features"]) <= TOLERANCE
        before = module.attention.conv2(module.attention.inside(maps).relu())[0, 0]
        assert relative_error(before, found[f"im{number}_attention_before_softplus"]) <= TOLERANCE
        local = module(x)
        attention = found[f"im{number}_attention"]
        assert relative_error(local.strengths[0].reshape(attention.shape), attention) <= TOLERANCE
        unit = found[f"im{number}_features"] / np.linalg.norm(found[f"im{number}_features"], axis=-1, keepdims=True)
        assert relative_error(local.vectors[0].reshape(unit.shape), unit) <= TOLERANCE
        x = module.trunk.bn1(module.trunk.conv1(x)).relu()
        for stage, key in (("layer1", "block1_shape"), ("layer2", "block2_shape")):
            if stage == "layer1":
                x = module.trunk.maxpool(pad_same(x, 3, 2, NEVER))
            x = module.trunk.get_submodule(stage)(x)
            assert list(last(x)[0].shape) == found[f"im{number}_{key}"].tolist()


@pytest.mark.parametrize("stride", [32, 16])
@torch.inference_mode()
def test_delg_of_the_training_code(arrays: Callable[[str], Arrays], golden: Path, stride: int) -> None:
    found, weights = arrays("delg_keras_r50"), zoo_arrays(golden, "delg_keras_r50")
    networks = {
        method: adopt(recognise_tensorflow(weights, "delg", method), Path("delg")) for method in ("delf", "delg")
    }
    x = pixels(networks["delf"], found["image"])
    module: Any = networks["delf"].module
    module.trunk.subsample = stride == 32
    maps = module.trunk(x)
    assert relative_error(module.attention(maps)[0], found[f"stride{stride}_attention"]) <= TOLERANCE
    assert relative_error(last(module.autoencoder(maps))[0], found[f"stride{stride}_reduced"]) <= TOLERANCE
    whole: Any = networks["delg"].module
    pooled = gem(whole.trunk(x), 3.0)
    assert relative_error(whole.layer(pooled)[0], found[f"stride{stride}_global"]) <= TOLERANCE
    expected = found[f"stride{stride}_global"] / np.linalg.norm(found[f"stride{stride}_global"])
    assert absolute_error(whole(x).vectors[0, 0], expected) <= TOLERANCE


@torch.inference_mode()
def test_delg_of_the_port(arrays: Callable[[str], Arrays], golden: Path, tmp_path: Path) -> None:
    found = arrays("delg_port")
    torch.save({"model_state": zoo_state(golden, "delg_port_r50"), "epoch": 3}, tmp_path / "port.pyth")
    whole, local = (load_network(tmp_path / "port.pyth", method=method) for method in ("delg", "delf"))
    x = pixels(whole, found["image"])
    module: Any = whole.module
    assert relative_error(module.layer(module.pooling(module.trunk(x)))[0], found["global_raw"]) <= TOLERANCE
    features = local.module(x)
    attention = found["attention"]
    assert relative_error(features.strengths[0].reshape(attention.shape), attention) <= TOLERANCE
    weighted = (features.vectors * features.strengths.unsqueeze(-1))[0].T.reshape(found["local_map"].shape)
    assert relative_error(weighted, found["local_map"]) <= TOLERANCE


def heads(found: Arrays, channels: int, reduced: int) -> tuple[AttentionHead, Autoencoder]:
    named = {name: value for name, value in found.items() if name.startswith(("attention/", "autoencoder/"))}
    values = keras_parameters(named)
    attention, autoencoder = AttentionHead(channels, 1e-3).eval(), Autoencoder(channels, reduced).eval()
    for part, module in (("attention.", attention), ("autoencoder.", autoencoder)):
        own = {name.removeprefix(part): value for name, value in values.items() if name.startswith(part)}
        module.load_state_dict(own, strict=False)
        assert set(own) == {name for name in module.state_dict() if not name.endswith("num_batches_tracked")}
    return attention, autoencoder


@torch.inference_mode()
def test_delg_heads(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("delg_heads")
    attention, autoencoder = heads(found, 24, 10)
    block3 = tensor(found["block3"]).movedim(-1, 1)
    reduced = autoencoder(block3)
    expanded = autoencoder.expand(reduced)
    weights = attention(block3)
    block4 = tensor(found["block4"]).movedim(-1, 1)
    ours = {
        "reduced": last(reduced),
        "expanded": last(expanded),
        "attention": weights,
        "attention_before_softplus": attention.conv2(attention.inside(block3).relu())[:, 0],
        "attention_pooled": attended(weights, expanded),
        "attention_pooled_without_autoencoder": attended(weights, block3),
        "reconstruction_loss": nn.functional.mse_loss(expanded, block3),
        "gem3": gem(block4, 3.0),
        "embedding": gem(block4, 3.0) @ tensor(found["embedding_kernel"]) + tensor(found["embedding_bias"]),
    }
    for key, value in ours.items():
        assert relative_error(value, found[key]) <= TOLERANCE, key
    given = r"block[34]|attention/.*|autoencoder/.*|embedding_(kernel|bias)|arcface_.*"
    assert set(ours) == {key for key in found if not re.fullmatch(given, key)}


def test_classes_with_a_margin(arrays: Callable[[str], Arrays]) -> None:
    """DELG's ArcFace; the last vector is opposite to its class."""
    found = arrays("delg_heads")
    vectors, classes = tensor(found["arcface_vectors"]), tensor(found["arcface_weights"].T)
    labels = tensor(found["arcface_vector_labels"]).long()
    assert [found["arcface_scale"], found["arcface_margin"]] == pytest.approx([ARC_SCALE, ARC_MARGIN])
    assert relative_error(arcface_logits(vectors, classes), found["arcface_logits_eval"]) <= TOLERANCE
    trained = arcface_logits(vectors, classes, labels)
    assert relative_error(trained, found["arcface_logits_train"]) <= TOLERANCE
    loss = nn.functional.cross_entropy(trained[:3], labels[:3])
    assert relative_error(loss, found["arcface_loss"]) <= TOLERANCE


# -- Extraction over scales


@torch.inference_mode()
def test_features_over_scales(arrays: Callable[[str], Arrays]) -> None:
    """Scaled inputs, attention and features of each scale, and what is selected of all."""
    found = arrays("delg_extract")
    attention, autoencoder = heads(found, 16, 8)
    kernel = as_tensor(found["trunk_kernel"])
    image = (tensor(found["image"]).float().permute(2, 0, 1).unsqueeze(0) - 128) / 128
    boxes, scales, scores, vectors, wholes = [], [], [], [], []
    for number, scale in enumerate(found["scales"].tolist()):
        x = resize(image, scale, ROUNDED)
        assert list(x.shape[-2:]) == found[f"scaled_size_s{number}"].tolist()
        if number in (1, 3):
            assert absolute_error(last(x)[0][:, ::3], found[f"scaled_input_s{number}"]) <= 1e-5
        maps = nn.functional.conv2d(pad_same(x, 9, 32, 0.0), kernel, stride=32).relu()
        weights, reduced = attention(maps), autoencoder(maps)
        assert relative_error(weights[0], found[f"attention_s{number}"]) <= 1e-5
        assert relative_error(last(reduced)[0], found[f"reduced_s{number}"]) <= 1e-5
        whole = gem(maps, 3.0) @ tensor(found["embedding_kernel"])
        assert relative_error(whole[0], found[f"global_s{number}"]) <= 1e-5
        wholes.append(whole[0])
        height, width = maps.shape[-2:]
        boxes.append(receptive_boxes(height, width, 291, 32, 145) / np.float32(scale))
        scales.append(np.full(height * width, 1 / scale, np.float32))
        scores.append(weights.flatten().numpy())
        vectors.append(nn.functional.normalize(reduced, dim=1)[0].flatten(1).T.numpy())
    every = [np.concatenate(part) for part in (boxes, scales, scores, vectors)]
    for setting in ("top60", "all", "iou0.7"):
        strong = np.flatnonzero(every[2] >= found[f"{setting}_threshold"])
        limit, most = float(found[f"{setting}_iou"]), int(found[f"{setting}_max_features"])
        chosen = strong[without_overlap(every[0][strong], every[2][strong], limit, most)]
        for key, values in zip(("boxes", "scales", "scores", "descriptors"), every, strict=True):
            assert relative_error(values[chosen], found[f"{setting}_{key}"]) <= 1e-5, (setting, key)
        assert relative_error(centres(every[0][chosen]), found[f"{setting}_locations_yx"]) <= 1e-5
    chosen_scales = torch.stack([wholes[number] for number in found["global_scale_indices"].tolist()])
    assert absolute_error(chosen_scales, found["global_each_scale"]) <= 1e-5
    units = nn.functional.normalize(chosen_scales, dim=1)
    assert absolute_error(over_scales(units, 1.0, signed=False), found["global_descriptor"]) <= 1e-5


class TinyTrunk(nn.Module):
    """One convolution of stride 32, padded as TensorFlow's SAME, behind which DELG's own heads stand."""

    stride, channels, normalisation = 32, 16, Normalisation((128 / 255,) * 3, (128 / 255,) * 3)

    def __init__(self, kernel: np.ndarray) -> None:
        super().__init__()
        self.kernel = nn.Parameter(as_tensor(kernel))

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.conv2d(pad_same(images, 9, 32, 0.0), self.kernel, stride=32).relu()


def tiny_delg(found: Arrays) -> tuple[Network, Network]:
    """The local and the global half."""
    trunk = TinyTrunk(found["trunk_kernel"])
    config = TrunkConfig(mean=trunk.normalisation.mean, std=trunk.normalisation.std)
    local = Delf(trunk, *heads(found, 16, 8), None, "reduced")
    layer = nn.Linear(16, 8)
    layer.load_state_dict({"weight": tensor(found["embedding_kernel"].T), "bias": torch.zeros(8)})
    whole = GlobalNetwork(trunk, Pooling("gem", 3.0), layer, None, VectorRules(unit_before_layer=False, floor=0.0))
    settings = AttentionConfig("reduced", 8, epsilon=1e-3)
    return (
        Network(local.eval(), NetworkConfig("delf", config, None, None, attention=settings)),
        Network(whole.eval(), NetworkConfig("delg", config, None, None, PoolingConfig("gem", layer=8))),
    )


@pytest.mark.parametrize("case", ["free", "limited", "query"])
def test_the_released_extractor(arrays: Callable[[str], Arrays], tmp_path: Path, case: str) -> None:
    """From a photo to both kinds of features, as DELG's `MakeExtractor` does it; a query's limit is smaller."""
    found = arrays("delg_extract")
    theirs = {key.removeprefix(f"extractor_{case}_"): found[key] for key in found if f"extractor_{case}_" in key}
    Image.fromarray(found["image"]).save(tmp_path / "photo.png")
    most, factor = int(theirs["max_image_size"]), float(theirs["resize_factor"])
    config = ExtractConfig(
        features_per_image=60,
        max_side=4096 if most < 0 else round(most * factor),
        scales=tuple(found["scales"].tolist()),
        attention="regions",
        least_strength=float(found["top60_threshold"]),
        resampling="bilinear",
    )
    pixels = read_for(config, tmp_path / "photo.png").pixels
    np.testing.assert_array_equal(pixels, theirs["image"])
    factors = theirs["scale_factors_yx"]
    assert np.array(pixels.shape[:2]) / found["image"].shape[:2] == pytest.approx(factors)
    local, whole = tiny_delg(found)
    (features,) = extract(local, [tmp_path / "photo.png"], config, workers=1)
    assert relative_error(local_features(features).places / factors, theirs["locations_yx"]) <= 1e-5
    assert relative_error(features.vectors, theirs["descriptors"]) <= 1e-5
    assert relative_error(1 / features.scales, theirs["scales"]) <= TOLERANCE
    assert relative_error(features.strengths, theirs["attention"]) <= 1e-5
    three = tuple(found["scales"][found["global_scale_indices"]].tolist())
    (vector,) = extract(whole, [tmp_path / "photo.png"], dataclasses.replace(config, scales=three), workers=1)
    assert absolute_error(vector.vectors[0], theirs["global"]) <= 1e-5
    compared = {"max_image_size", "resize_factor", "image", "scale_factors_yx", "locations_yx", "descriptors"}
    assert set(theirs) == compared | {"scales", "attention", "global"}


def test_boxes_and_selection(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("delf_select")
    for kind in ("block3", "dense"):
        height, width, field, stride, padding = found[f"{kind}_grid"].tolist()
        boxes = receptive_boxes(int(height), int(width), field, stride, padding)
        np.testing.assert_array_equal(boxes, found[f"{kind}_boxes"])
        np.testing.assert_array_equal(centres(boxes), found[f"{kind}_centres_yx"])
    for key in (key for key in found if key.startswith("nms_keep")):
        overlap, most = re.fullmatch(r"nms_keep_iou([\d.]+)_max(\d+)", key).groups()  # type: ignore[union-attr]
        kept = without_overlap(found["nms_boxes"], found["nms_scores"], float(overlap), int(most))
        assert kept.tolist() == found[key].tolist(), key


def test_the_ports_selection(arrays: Callable[[str], Arrays]) -> None:
    """Scale 0.5 and stride 16; the threshold of 1 is halved until 20 places are left."""
    found = arrays("delg_port")
    attention = found["select_attention"]
    chosen = strong_enough(attention.ravel(), 1.0)
    np.testing.assert_array_equal(attention.ravel()[chosen], found["select_scores"])
    boxes = receptive_boxes(4, 6, 291, 16, 145)[chosen] / found["select_scales"][:, None]
    np.testing.assert_array_equal(boxes, found["select_boxes"])
    vectors = nn.functional.normalize(tensor(found["select_map"]), dim=0).flatten(1).T.numpy()
    assert relative_error(vectors[chosen], found["select_features"]) <= TOLERANCE
    for overlap in ("0.98", "0.7"):
        theirs = found[f"select_keep_iou{overlap}"].tolist()
        assert without_overlap(boxes, found["select_scores"], float(overlap), 15).tolist() == theirs


def test_files_of_features(arrays: Callable[[str], Arrays], tmp_path: Path) -> None:
    found = arrays("delf_select")
    local, whole = tmp_path / "photo.delg_local", tmp_path / "photo.delg_global"
    local.write_bytes(found["file_local_bytes"].tobytes())
    whole.write_bytes(found["file_global_bytes"].tobytes())
    np.testing.assert_array_equal(read_global_file(whole), found["file_global"])
    features = read_local_file(local, (640, 480))
    np.testing.assert_array_equal(features.vectors, found["file_descriptors"])
    np.testing.assert_array_equal(features.strengths, found["file_attention"])
    np.testing.assert_array_equal(1 / features.scales, found["file_scales"])
    assert relative_error(local_features(features).places, found["file_locations_yx"]) <= TOLERANCE
    for damaged in (local.read_bytes()[:-3], b"\x08" * 9, b"", whole.read_bytes()):
        whole.write_bytes(damaged)
        with pytest.raises(StoreError, match="holds no"):
            read_local_file(whole, (640, 480)) if damaged else read_global_file(whole)


def test_delf_pca(arrays: Callable[[str], Arrays]) -> None:
    """L2, PCA (whitened or not), L2: a whitening of ours says all of it."""
    found = arrays("delf_select")
    raw = nn.functional.normalize(tensor(found["pca_raw"]), dim=1)
    assert relative_error(raw, found["no_pca"]) <= TOLERANCE
    from superfeat.nets.pair_whitening import pca_whitening

    mean, rows, variances = (tensor(found[f"pca_{key}"]) for key in ("mean", "matrix", "variances"))
    for key, power in (("pca_12", 0.0), ("pca_12_whitened", 0.5)):
        whitening = pca_whitening(mean, rows, variances, outputs=12, power=power)
        assert relative_error(nn.functional.normalize(whitening(raw), dim=1), found[key]) <= 1e-5, key


# -- Re-ranking


@pytest.mark.parametrize("case", ["easy", "hard", "unrelated", "few", "crowded"])
@pytest.mark.parametrize("name", list(MATCHINGS))
def test_inliers_seed_by_seed(arrays: Callable[[str], Arrays], case: str, name: str) -> None:
    found, rules = arrays("delf_sv"), MATCHINGS[name]
    query, image = (
        LocalFeatures(found[f"{case}_{side}_yx"], found[f"{case}_{side}_vectors"]) for side in ("query", "image")
    )
    ours, theirs = match(query, image, rules)
    if f"{case}_{name}_pairs_query_yx" in found:
        np.testing.assert_array_equal(ours, found[f"{case}_{name}_pairs_query_yx"])
        np.testing.assert_array_equal(theirs, found[f"{case}_{name}_pairs_image_yx"])
        affine = found[f"{case}_affine"]  # image = A query + t
        back = (theirs - affine[:, 2]) @ np.linalg.inv(affine[:, :2]).T
        true = int((np.linalg.norm(back - ours, axis=1) < rules.residual).sum())
        assert true == found[f"{case}_{name}_inliers_of_true_map"]
    else:
        assert len(ours) <= 3
    counts = [count_inliers(query, image, rules, int(seed)) for seed in found["seeds"]]
    assert counts == found[f"{case}_{name}_inliers_by_seed"].tolist()


def test_reranking(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("delf_sv")
    query = LocalFeatures(found["rerank_query_yx"], found["rerank_query_vectors"])
    images = [
        LocalFeatures(*both) for both in zip(found["rerank_image_yx"], found["rerank_image_vectors"], strict=True)
    ]
    inliers = {number: count_inliers(query, image) for number, image in enumerate(images)}
    order, scores = found["rerank_before"], found["rerank_scores"]
    for name, first in (("all", 100), ("junk", 100), ("first6", 6)):
        junk = found[f"rerank_junk_{name}"].tolist()
        assert rerank(order, scores, inliers, first=first, junk=junk) == found[f"rerank_after_{name}"].tolist()
    nothing = LocalFeatures(np.empty((0, 2)), np.empty((0, 40)))
    assert count_inliers(query, nothing) == found["empty_inliers"]


# -- R-ASMK, R-VLAD


@pytest.mark.parametrize("dim", [16, 20])
@pytest.mark.parametrize("kernel", ["real", "binary"])
@pytest.mark.parametrize("kind", ["asmk", "rasmk"])
def test_regional_asmk(arrays: Callable[[str], Arrays], tmp_path: Path, dim: int, kernel: str, kind: str) -> None:
    """Bits are compared in whole bytes there: features that do not fill them are given with zeros behind."""
    found = arrays("rasmk")
    width = -(-dim // 8) * 8 if kernel == "binary" else dim

    def wide(values: np.ndarray) -> np.ndarray:
        return np.pad(values, ((0, 0), (0, width - dim)))

    index = Index.create(tmp_path / "index", Codebook(wide(found[f"d{dim}_codebook"])), IndexConfig(kernel=kernel))  # type: ignore[arg-type]
    star = "_star" if kernel == "binary" else ""
    for image in range(6):
        rows, sizes = wide(found[f"d{dim}_db{image}_features"]), found[f"d{dim}_db{image}_region_sizes"]
        regions = np.split(rows, np.cumsum(sizes)[:-1])
        words = index.query(rows, 1) if kind == "asmk" else regional_words(index, regions)
        index.add(str(image), words)
        expected = found[f"d{dim}_db{image}_{kind}{star}"].reshape(len(words), -1)
        assert words.words.tolist() == found[f"d{dim}_db{image}_{kind}{star}_words"].tolist()
        assert absolute_error(words.codes[:, : expected.shape[1]].astype(float), expected) <= 3e-6
    for number in range(3):
        asked, key = index.query(wide(found[f"d{dim}_q{number}_features"]), 1), f"d{dim}_q{number}_asmk{star}"
        assert asked.words.tolist() == found[f"{key}_words"].tolist()
        expected = found[key].reshape(len(asked), -1)
        assert absolute_error(asked.codes[:, : expected.shape[1]].astype(float), expected) <= 3e-6
    plain = {"l2": {}, "no_l2": {"norm": "none"}, "tau0.2_alpha1": {"alpha": 1.0, "threshold": 0.2}}
    plain["published"] = {} if kind == "asmk" else {"norm": "none"}
    for name, settings in plain.items():
        config = SearchConfig(assignments=1, **settings)  # type: ignore[arg-type]
        queries = [wide(found[f"d{dim}_q{number}_features"]) for number in range(3)]
        ours = np.array([index.scores(one, [str(image) for image in range(6)], config=config) for one in queries])
        assert relative_error(ours, found[f"d{dim}_{kind}{star}_scores_{name}"]) <= (1e-12 if star else 2e-5), name


@pytest.mark.parametrize("dim", [16, 20])
@pytest.mark.parametrize("kernel", ["real", "binary"])
def test_several_words_and_no_features(arrays: Callable[[str], Arrays], tmp_path: Path, dim: int, kernel: str) -> None:
    """An image may have three words per feature. One without any scores -1 there and 0 here: last in both."""
    found, star = arrays("rasmk"), "_star" if kernel == "binary" else ""
    index = Index.create(tmp_path / "index", Codebook(found[f"d{dim}_codebook"]), IndexConfig(kernel=kernel))  # type: ignore[arg-type]
    words = index.query(found[f"d{dim}_db1_features"], 3)
    assert words.words.tolist() == found[f"d{dim}_db1_asmk{star}_ma3_words"].tolist()
    codes = found[f"d{dim}_db1_asmk{star}_ma3"].reshape(len(words), -1)
    assert absolute_error(words.codes[:, : codes.shape[1]].astype(float), codes) <= 3e-6
    index.add("some", words)
    index.add("empty", np.empty((0, dim), np.float32))
    query = found[f"d{dim}_q0_features"]
    some, empty = index.scores(query, ["some", "empty"])
    assert float(found[f"d{dim}_score_with_empty_asmk{star}"]) == -1
    assert empty == 0
    assert some > 0
    assert index.search(query).names == ("some", "empty")


def test_regional_vlad(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("rasmk")
    for dim in (16, 20):
        codebook, rows = Codebook(found[f"d{dim}_codebook"]), found[f"d{dim}_db0_features"]
        regions = np.split(rows, np.cumsum(found[f"d{dim}_db0_region_sizes"])[:-1])
        ours = {
            "vlad": vlad(codebook, [rows]),
            "vlad_no_l2": residuals(codebook, rows).ravel(),
            "rvlad": mean_residuals(codebook, regions).ravel(),
            "rvlad_l2": vlad(codebook, regions),
        }
        for name, value in ours.items():
            if f"d{dim}_db0_{name}" in found:
                assert relative_error(value, found[f"d{dim}_db0_{name}"]) <= TOLERANCE, name
        slow = oracles_zoo.regional_vlad(regions, codebook.centroids)
        assert relative_error(ours["rvlad"].reshape(slow.shape), slow) <= 1e-5


# -- Files


def test_a_codebook_of_tensorflow(arrays: Callable[[str], Arrays], golden: Path) -> None:
    (found,) = read_tensorflow(golden / "zoo_tf_codebook.index").values()
    np.testing.assert_array_equal(found, arrays("rasmk")["d16_codebook"])
    assert Codebook.open(golden / "zoo_tf_codebook.index").words == 24


def test_a_damaged_checkpoint_of_tensorflow(golden: Path, tmp_path: Path) -> None:
    data = (golden / "zoo_tf_codebook.index").read_bytes()
    for number, broken in enumerate((data[:-20], data[:30], b"", data[:60] + b"\xff" * 40 + data[100:])):
        path = tmp_path / f"b{number}.index"
        path.write_bytes(broken)
        (tmp_path / f"b{number}.data-00000-of-00001").write_bytes(b"\0" * 8)
        with pytest.raises(WeightsError, match=r"damaged|checkpoint"):
            read_tensorflow(path)
    with pytest.raises(WeightsError, match="cannot read"):
        read_tensorflow(tmp_path / "none.index")
    with pytest.raises(WeightsError, match="neither DELF nor DELG"):
        load_network(golden / "zoo_tf_codebook.index")
