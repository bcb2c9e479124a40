"""Files of format version 1, made once and never again (make_formats.py): each stays readable, with the same contents.

The same files under a version that does not exist yet are refused, with one error that names it and says what to do.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from golden.make_formats import benchmark, draw_things, picture, read_log
from superfeat.config import EvaluateConfig, ExtractConfig, Recipe
from superfeat.errors import StoreError, SuperfeatError
from superfeat.evaluation.run import Evaluated, open_run, run_protocol
from superfeat.extraction.extract import extract_to
from superfeat.extraction.folder import FeatureStore
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.probability.apply import judge_ranking
from superfeat.probability.comparing import origin_of
from superfeat.probability.stored import shipped_calibration
from superfeat.rerank.strangers import Null
from superfeat.settings import overlay
from superfeat.storage.store import read_json, write_json
from superfeat.training.run import Event, RunFolder
from superfeat.training.train import train
from superfeat.weights import Network, load_network

FORMATS = "formats-1"
NETWORK_TOLERANCE = 1e-4  # absolute; what another build of torch may compute otherwise
LOSS_TOLERANCE = 1e-3  # relative; the same, after a step


@pytest.fixture
def formats(golden: Path, tmp_path: Path) -> Path:
    """A copy, which tests may write to."""
    return shutil.copytree(golden / FORMATS, tmp_path / FORMATS)


@pytest.fixture(scope="module")
def expected(golden: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(golden / FORMATS / "expected.json")
    return found


def test_no_file_tells_where_it_was_made(golden: Path) -> None:
    """Nor is any missing: git keeps no empty folders, and is not told to leave one of these out."""
    files = [path for path in (golden / FORMATS).rglob("*") if path.is_file()]
    assert len(files) == 61
    for path in files:
        assert not any(word in path.read_bytes() for word in (b"/tmp/", b"/home/", b"/root/", b"/work/")), path
    assert sum(path.stat().st_size for path in files) < 1_000_000


# --- Networks, features, codebooks ------------------------------------------------------------------------------------


def test_a_network(formats: Path, expected: dict[str, Any]) -> None:
    network = load_network(formats / "network")
    assert network.digest == expected["network"]["digest"]
    assert (network.config.trunk.arch, network.dim, network.provenance) == ("resnet10", 8, {"source": "recipe"})
    assert_sees(network, expected["network"])


def assert_sees(network: Network, numbers: Mapping[str, Any]) -> None:
    with torch.inference_mode():
        local = network.module(picture())
    np.testing.assert_allclose(local.vectors[0, 0], numbers["vector"], rtol=0, atol=NETWORK_TOLERANCE)
    np.testing.assert_allclose(local.strengths[0], numbers["strengths"], rtol=0, atol=NETWORK_TOLERANCE)


def test_features(formats: Path, expected: dict[str, Any]) -> None:
    store, numbers = FeatureStore(formats / "features"), expected["features"]
    store.verify()
    assert [entry.name for entry in store.entries] == numbers["names"]
    assert [entry.count for entry in store.entries] == numbers["counts"] == [10] * 12
    assert store.skipped == []
    assert store.manifest["complete"]
    first = store["thing0/0.png"]
    assert (first.network, first.image_size) == (numbers["network"], (32, 40))
    assert (first.ids.tolist(), first.scales.tolist()) == (numbers["ids"], numbers["scales"])
    assert first.strengths.tolist() == numbers["strengths"]
    assert first.vectors[0].tolist() == numbers["vector"]
    assert first.regions is not None
    assert first.regions[0].tolist() == numbers["region"]


def test_features_that_are_there_are_not_extracted_again(formats: Path, tmp_path: Path) -> None:
    before = (formats / "features" / "vectors.npy").read_bytes()
    config = overlay(ExtractConfig(), read_json(formats / "features" / "manifest.json")["extract"])
    photos = draw_things(tmp_path / "things").photos
    assert not list(extract_to(formats / "features", load_network(formats / "network"), photos, config, workers=1))
    assert (formats / "features" / "vectors.npy").read_bytes() == before


def test_a_codebook(formats: Path, expected: dict[str, Any]) -> None:
    codebook, numbers = Codebook.open(formats / "codebook"), expected["codebook"]
    assert (codebook.words, codebook.dim) == (8, 8)
    assert (codebook.digest, codebook.network) == (numbers["digest"], numbers["network"])
    vectors = FeatureStore(formats / "features")["thing0/0.png"].vectors
    assert codebook.assign(vectors, 2).tolist() == numbers["assigned"]
    assert len(codebook.facts["quality"]["rounds"]) == 2


# --- An index ---------------------------------------------------------------------------------------------------------


def test_an_index(formats: Path, expected: dict[str, Any]) -> None:
    index, numbers = Index.open(formats / "index"), expected["index"]
    assert len(list(index.verify())) == 14
    info = index.info()
    assert {key: getattr(info, key) for key in numbers["info"]} == numbers["info"]
    assert (info.images, info.deleted, info.segments, info.in_journal) == (9, 4, 2, 4)
    assert list(index.names()) == numbers["names"]
    assert [index.id(name) for name in index.names()] == numbers["ids"]
    assert index.meta(["thing0/0.png", "thing0/2.png"]) == numbers["meta"]
    words = index.words_of("thing3/0.png")
    assert (words.words.tolist(), words.codes.tolist()) == (numbers["words"], numbers["codes"])
    assert_ranking(index, "thing3/0.png", numbers["ranking"])
    assert_ranking(index, FeatureStore(formats / "features")["thing2/1.png"].vectors, numbers["asked"])


def assert_ranking(index: Index, query: str | np.ndarray, ranking: list[tuple[str, float]]) -> None:
    found = index.search(query, len(ranking), workers=1)
    names, scores = zip(*ranking, strict=True)
    assert found.names == names
    np.testing.assert_allclose(found.scores, scores, rtol=1e-12)


@pytest.mark.parametrize("gone", ["thing0/1.png", "thing2/1.png", "thing3/1.png"])
def test_deleted_images_stay_deleted(formats: Path, gone: str) -> None:
    """One in the file of dead images, one in a segment by the journal, one that was never in a segment."""
    index = Index.open(formats / "index")
    assert gone not in index
    index.add(gone, FeatureStore(formats / "features")[gone])
    assert index.id(gone) == 13
    assert len(Index.open(formats / "index")) == 10


def test_an_index_is_compacted(formats: Path, expected: dict[str, Any]) -> None:
    index = Index.open(formats / "index")
    index.compact()
    assert index.info().deleted == index.info().in_journal == 0
    assert list(index.names()) == expected["index"]["names"]
    assert_ranking(Index.open(formats / "index"), "thing3/0.png", expected["index"]["ranking"])


def test_a_calibration(formats: Path, expected: dict[str, Any]) -> None:
    index = Index.open(formats / "index")
    calibration = shipped_calibration(index)
    assert calibration is not None
    assert (calibration.intercept, calibration.slope, calibration.size_slope) == (-1.5, 1.25, -0.1)
    assert (calibration.background, calibration.origin) == (Null(-2.0, 0.5, 40), origin_of(index))
    _, probabilities = judge_ranking(index, "thing3/0.png", calibration, workers=1)
    assert probabilities is not None
    np.testing.assert_allclose(probabilities, expected["index"]["probabilities"], rtol=1e-9)


# --- A training run ---------------------------------------------------------------------------------------------------


def resume(formats: Path) -> list[Event]:
    photos = draw_things(formats / "things")
    recipe = overlay(Recipe(), read_json(formats / "run" / "run.json")["recipe"])
    return list(train(recipe, photos, formats / "run", validation=benchmark(photos), resume=True, workers=1))


def test_a_run(formats: Path, expected: dict[str, Any]) -> None:
    assert load_network(formats / "run" / "best").digest == expected["run"]["best"]
    loaded = RunFolder(formats / "run").load_checkpoint()
    assert loaded is not None
    position, tensors = loaded
    assert (position.epoch, position.step, position.steps, position.best_epoch) == (1, 1, 3, 1)
    assert position.log_bytes == (formats / "run" / "log.jsonl").stat().st_size
    assert tensors["tuples"].shape == (4, 4)
    assert {name.split("/")[0] for name in tensors} == {"network", "optimiser", "tuples", "totals"}


def test_a_run_is_resumed_to_its_end(formats: Path, expected: dict[str, Any]) -> None:
    before = (formats / "run" / "log.jsonl").read_bytes()
    assert resume(formats)[-1].stage == "end"
    after = (formats / "run" / "log.jsonl").read_bytes()
    assert after.startswith(before)
    log = read_log(formats / "run")
    assert [record["event"] for record in log] == [*expected["run"]["events"], "step", "epoch", "validation"]
    losses = [record["loss"] for record in log if record["event"] == "step"]
    assert losses[:3] == expected["run"]["losses"]
    assert losses[3] == pytest.approx(expected["run"]["last_loss"], rel=LOSS_TOLERANCE)
    assert load_network(formats / "run" / "last").provenance["training"] == "2 epochs, 4 steps"


# --- An evaluation ----------------------------------------------------------------------------------------------------


def test_an_evaluation(formats: Path, expected: dict[str, Any]) -> None:
    found, numbers = open_run(formats / "evaluation"), expected["evaluation"]
    assert found.scores["grades"]["all"]["map"] == numbers["map"]
    assert [query["ap"]["all"] for query in found.scores["queries"]] == numbers["aps"]
    assert found.card["network"]["digest"] == numbers["network"]
    assert_rankings(formats / "evaluation", numbers)
    assert len(FeatureStore(formats / "evaluation" / "features")) == 12
    assert len(Index.open(formats / "evaluation" / "index")) == 12


def assert_rankings(run: Path, numbers: Mapping[str, Any]) -> None:
    assert np.load(run / "rankings" / "numbers.npy")[0].tolist() == numbers["numbers"]
    np.testing.assert_allclose(np.load(run / "rankings" / "scores.npy")[0], numbers["scores"], rtol=1e-12)


def evaluate_again(formats: Path) -> Evaluated:
    """By its features alone: photos that are drawn again are newer than those they were made from."""
    config = overlay(EvaluateConfig(), read_json(formats / "evaluation" / "run.json")["settings"])
    test = benchmark(draw_things(formats / "things"))
    shutil.rmtree(formats / "things")
    codebook = Codebook.open(formats / "codebook")
    network = load_network(formats / "network")
    steps = run_protocol(
        network, test, formats / "evaluation", config, codebook=codebook, allow_missing=True, workers=1
    )
    *_, done = steps
    assert isinstance(done, Evaluated)
    return done


def test_an_evaluation_is_gone_on_with(formats: Path, expected: dict[str, Any]) -> None:
    before = (formats / "evaluation" / "features" / "vectors.npy").read_bytes()
    assert evaluate_again(formats).scores["grades"]["all"]["map"] == expected["evaluation"]["map"]
    assert (formats / "evaluation" / "features" / "vectors.npy").read_bytes() == before
    assert_rankings(formats / "evaluation", expected["evaluation"])


# --- Versions that do not exist yet -----------------------------------------------------------------------------------

READERS: dict[str, list[Callable[[Path], object]]] = {
    "network/config.json": [lambda formats: load_network(formats / "network")],
    "features/manifest.json": [lambda formats: FeatureStore(formats / "features")],
    "codebook/manifest.json": [lambda formats: Codebook.open(formats / "codebook")],
    "index/manifest.json": [lambda formats: Index.open(formats / "index")],
    "index/codebook/manifest.json": [lambda formats: Index.open(formats / "index").codebook],
    "index/calibration.json": [lambda formats: shipped_calibration(Index.open(formats / "index"))],
    "run/run.json": [resume],
    "run/best/config.json": [lambda formats: load_network(formats / "run" / "best")],
    "evaluation/run.json": [lambda formats: open_run(formats / "evaluation"), evaluate_again],
    "evaluation/card.json": [lambda formats: open_run(formats / "evaluation")],
}


def assert_refused(read: Callable[[Path], object], formats: Path) -> None:
    with pytest.raises(SuperfeatError) as caught:
        read(formats)
    message = str(caught.value)
    assert "version 9;" in message
    assert re.search(r"this superfeat reads (1|2|1 and 2|1 to 5): upgrade it$", message)
    assert "\n" not in message


@pytest.mark.parametrize("file", READERS)
def test_a_later_version(formats: Path, file: str) -> None:
    facts = read_json(formats / file)
    assert facts["version"] == 1
    write_json(formats / file, {**facts, "version": 9})
    for read in READERS[file]:
        assert_refused(read, formats)


def test_every_file_with_a_version_is_tried(golden: Path) -> None:
    """`maps/manifest.json` of a run with a frozen trunk has none: it is made anew where it does not fit."""
    found = set()
    for path in (golden / FORMATS).rglob("*.json"):
        if "version" in read_json(path):
            found.add(path.relative_to(golden / FORMATS).as_posix())
    same = {f"evaluation/{name}" for name in ("features/manifest.json", "index/manifest.json")}
    assert found == READERS.keys() | same | {"evaluation/index/codebook/manifest.json"}


def test_a_later_journal(formats: Path) -> None:
    """The version of an index is that of its journal too; the number in a journal alone may be a flipped bit."""
    (journal,) = (formats / "index").glob("journal-*")
    assert journal.read_bytes().startswith(b"SFJRNL01")
    journal.write_bytes(journal.read_bytes().replace(b"SFJRNL01", b"SFJRNL02", 1))
    with pytest.raises(StoreError, match=r"^\S+ is damaged: it is not a journal; "):
        Index.open(formats / "index")
    manifest = read_json(formats / "index" / "manifest.json")
    write_json(formats / "index" / "manifest.json", {**manifest, "version": 9})
    assert_refused(lambda formats: Index.open(formats / "index"), formats)


def test_a_later_checkpoint(formats: Path) -> None:
    path = formats / "run" / "checkpoint.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["version"] == "1"
    safetensors.torch.save_file(safetensors.torch.load_file(path), path, {**metadata, "version": "9"})
    assert_refused(resume, formats)
