"""The benchmarks still run, and what they compare still agrees. Their timings are not looked at."""

import json
import re
from pathlib import Path

import pytest
import torch
from benchmarks import (
    asmk_dropin,
    evaluate,
    first_answer,
    indexing,
    localization,
    method_vectors,
    methods,
    networks,
    pairs,
    scale,
    search,
    train,
    training_curve,
)
from benchmarks.extraction import seeded_network
from benchmarks.plain import PlainFire
from PIL import Image

from fixtures_evaluate import draw_things
from fixtures_mapping import write_scene
from fixtures_recipe import network_with_words, save_random_network
from superfeat import Index
from superfeat.config import LossConfig
from superfeat.extraction.extract import extract_to
from superfeat.index.make import index_photos
from superfeat.nets.trunk import ResNet
from superfeat.sources.listing import list_photos
from superfeat.weights import load_network


@pytest.mark.slow
@pytest.mark.parametrize(("silent", "frozen"), [(None, 0), (3, 0), (None, 2)])
def test_plain_training_has_our_gradients(silent: int | None, frozen: int) -> None:
    """A loop over images and pairs in plain calls, and ours, which leaves out negatives beyond the margin, and begins
    with stored maps where stages are frozen.
    """
    losses = LossConfig() if silent is None else train.losses_with(96, silent)
    plain, ours = (kind(96, losses, torch.float64, frozen).gradient() for kind in (train.Plain, train.Ours))
    assert len(plain) == len(ours) == len(train.Ours(96, losses, frozen=frozen).named)
    largest = max(float(part.abs().max()) for part in plain)
    assert largest > 0
    for a, b in zip(plain, ours, strict=True):
        assert float((a - b).abs().max()) < 1e-9 * largest


@pytest.mark.slow
def test_plain_fire_equals_ours() -> None:
    """Two implementations written apart: METHOD in plain calls, and the fused network."""
    network = seeded_network()
    plain = PlainFire(dict(network.module.state_dict()))
    image = torch.randn(1, 3, 96, 128, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        vectors, strengths = plain.scale(image, 1.0)
        local = network.fast(image)
    torch.testing.assert_close(local.strengths[0], strengths, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(local.vectors[0], vectors, rtol=1e-4, atol=1e-5)


def test_the_model_of_scale_is_fitted_and_simulated(tmp_path: Path) -> None:
    small = ["--words", "256", "--words-per-image", "20", "--query-words", "60", "--queries", "2", "--rounds", "1"]
    scale.main(["-o", str(tmp_path / "index"), "--images", "30", "90", *small, "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert [row["images"] for row in result["measured"]] == [30, 90]
    assert result["at"]["answers"][0]["median_ms"] <= result["at"]["answers"][0]["p99_ms"]


def test_the_first_answer_is_the_same_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUPERFEAT_ENGINE", "SUPERFEAT_CACHE"):
        monkeypatch.setenv(name, "torch")  # so that what the benchmark sets is taken back
    photos, asked = tmp_path / "photos", tmp_path / "asked"
    draw_things(photos, 2, 2)
    for known in draw_things(asked, 1, 4)[0][:2]:
        known.unlink()  # the index has them, and needs no network for them
    index = tmp_path / "index"
    index_photos(photos, index, weights=network_with_words(tmp_path / "network"), settings={"max_side": 64})
    first_answer.main([str(index), str(asked), "--rounds", "1", "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["search"]["ratio"] > 0
    assert result["agreement"]["words_of_one_alone"] == 0
    assert result["agreement"]["answers_in_the_same_order"] == result["agreement"]["photos"] == 2
    assert [len(result["warm"][name]) for name in ("warm", "cold")] == [2, 2]


def test_the_indexing_benchmark_accounts_for_every_part(tmp_path: Path) -> None:
    draw_things(tmp_path / "photos", 3, 3)
    weights = network_with_words(tmp_path / "network")
    small = ["--photos", "6", "--weights", str(weights), "--set", "max_side=64"]
    indexing.main([str(tmp_path / "photos"), *small, "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    parts = result["cpu_ms_per_photo"]
    assert result["photos"] == 6
    assert set(parts) == {"decode", "hash", "join", "network", "resize", "rest", "words", "write"}
    assert all(parts[name] > 0 for name in ("decode", "network", "resize", "words"))
    assert 0 < result["share_outside_network"] < 1


def test_the_search_benchmark_compares_equal_scores(tmp_path: Path) -> None:
    small = ["--words", "256", "--words-per-image", "20", "--rounds", "2", "--json", str(tmp_path / "out.json")]
    search.main(["compare", "--images", "50", "--build-images", "20", *small])
    result = json.loads((tmp_path / "out.json").read_text())
    assert [row["images"] for row in result["search"]] == [50]
    assert result["build"]["times_faster"] > 0


def test_the_drop_in_benchmark_compares_equal_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asmk_dropin, "REFERENCE", "superfeat.asmk")  # in place of the package, which is not a must
    small = ["--words", "256", "--words-per-image", "20", "--query-words", "60", "--rounds", "2", "--images", "50"]
    asmk_dropin.main([*small, "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert all(result["search"][0][side]["times_faster"] > 0 for side in ("per_word", "reference"))
    assert result["whole"]["largest_difference_of_scores"] == 0


def test_the_benchmark_of_pairs_tells_time_and_memory(tmp_path: Path) -> None:
    small = [
        "--images",
        "60",
        "--words",
        "64",
        "--words-per-image",
        "8",
        "--top",
        "3",
        "--connected",
        "--checked",
        "30",
    ]
    pairs.main(["-o", str(tmp_path / "index"), *small, "--json", str(tmp_path / "out.json")])
    rows = json.loads((tmp_path / "out.json").read_text())["pairs"]
    assert [row["photos"] for row in rows] == [60, 60]
    assert rows[1]["parts"] == 1
    assert json.loads((tmp_path / "out.json").read_text())["brute_force"]["equal"]
    assert all(row["peak_MB"] > 0 for row in rows)


def test_the_benchmark_of_localization_compares_ways_of_retrieval(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    write_scene(tmp_path / "scenes" / "wall", 3)
    network = load_network(str(save_random_network(tmp_path / "tiny", templates=24, whitened_dim=16)))
    photos = list_photos([tmp_path / "scenes"]).photos
    assert len(list(extract_to(tmp_path / "features", network, photos))) == 6
    asked = [str(tmp_path / "scenes"), "-o", str(tmp_path / "work"), "--features", f"tiny={tmp_path / 'features'}"]
    localization.main([*asked, "--exhaustive", "--tops", "5", "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert [row["method"] for row in result["scores"]] == ["tiny", "tiny-pooled", "exhaustive"]
    assert all(row["queries"] == 1 for row in result["scores"])


def test_the_large_benchmark_goes_on_with_its_index(tmp_path: Path) -> None:
    small = ["--words", "64", "--words-per-image", "8", "--query-words", "20", "--rounds", "1"]
    for images in (30, 50):
        search.main(["million", "-o", str(tmp_path / "index"), "--images", str(images), *small])
    assert len(Index.open(tmp_path / "index")) == 50


def test_the_assignment_benchmark_checks_its_answers(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    from benchmarks import assign

    assign.main(["--words", "512", "--features", "40", "--rounds", "1", "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert [row["same_answers"] for row in result["results"]] == [1.0, 1.0]


def test_the_evaluation_benchmark_finds_its_things(tmp_path: Path) -> None:
    found = evaluate.measure(tmp_path, 60, 5, 20, 32)
    assert found["images"] == 60
    assert found["map"] > 90
    assert set(found["seconds"]) == {"writing features", "codebook", "index", "search", "score"}


def test_documents_name_benchmarks_as_they_are_started() -> None:
    """As modules: a script inside a folder does not find its neighbours."""
    root = Path(__file__).parents[2]
    named = set()
    for path in [root / "README.md", *(root / "docs").glob("*.md"), *(root / "benchmarks").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert "python benchmarks/" not in text, path
        named |= set(re.findall(r"python -m benchmarks\.(\w+)", text))
    assert named
    assert all((root / "benchmarks" / f"{name}.py").is_file() for name in named)


@pytest.mark.parametrize("kernel", ["float32", "float16", "int8"])
def test_the_vector_benchmark_checks_its_answers(tmp_path: Path, kernel: str) -> None:
    pytest.importorskip("faiss")
    from benchmarks import vectors

    small = ["--images", "300", "--dim", "32", "--rounds", "3", "--gigabytes", "0.01", "--kernel", kernel]
    vectors.main(["-o", str(tmp_path / "index"), *small, "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["same_ids"] == 1.0
    assert list(Index.open(tmp_path / "index").verify())


def test_the_curve_of_a_run_is_read_and_drawn(tmp_path: Path) -> None:
    rows = [
        {"event": "step", "step": 1, "seconds": {"gradient": 1800.0, "reading": 0.0}},
        {
            "event": "validation",
            "step": 1,
            "map": 61.5,
            "words_per_image": 90.0,
            "sets": {"town": {"map": 60.0}, "city": {"map": 90.0, "map_hard": 63.0}},
        },
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kept = tmp_path / "curve.json"
    asked = ["read", str(tmp_path / "log.jsonl"), "--pairs-per-step", "10", "--seen", "100", "--json", str(kept)]
    for name in ("first", "second", "first"):
        training_curve.main([*asked, "--name", name])
    row = {"pairs": 110, "mean": 61.5, "town": 60.0, "city": 63.0, "words": 90.0, "step_hours": 0.5}
    assert json.loads(kept.read_text()) == {"first": [row], "second": [row]}
    training_curve.main(["draw", str(kept), "-o", str(tmp_path / "curve.png")])
    assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.fixture
def methods_data(tmp_path: Path) -> Path:
    """Two small sets and a train.json with pairs, as DATA has them."""
    folder = tmp_path / "data"
    names = [[str(path.relative_to(folder)) for path in views] for views in draw_things(folder / "photos", 3, 3)]
    every = [name for views in names for name in views]
    (folder / "gnd").mkdir()
    for name, grade in (("first", "pos"), ("second", "hard")):
        queries = [{"img": views[0], grade: [every.index(other) for other in views[1:]]} for views in names]
        extra: dict[str, list[int]] = {} if grade == "pos" else {"easy": []}
        gnd = {"db": every, "queries": [extra | query | {"junk": []} for query in queries]}
        (folder / "gnd" / f"{name}.json").write_text(json.dumps(gnd))
    pairs_ = [[views[a], views[b]] for views in names for a in range(3) for b in range(a)]
    (folder / "train.json").write_text(json.dumps({"pairs": pairs_}))
    return folder


def test_the_benchmark_of_methods_keeps_rows_and_draws(
    methods_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every method but FIRe, on a tiny trunk; a row that is there is not measured again; others stay in the table."""
    pytest.importorskip("cv2", reason="SIFT needs the extra geometry")
    pytest.importorskip("matplotlib")
    torch.manual_seed(0)
    torch.save(ResNet("resnet18", 4).state_dict(), tmp_path / "trunk.pth")
    for module in (methods, method_vectors):
        monkeypatch.setattr(module, "TRUNK", str(tmp_path / "trunk.pth"))
    for name, value in (("LEARNING_PHOTOS", 6), ("WORDS", 8), ("WHITENED", 8), ("SIFT_WORDS", 4)):
        monkeypatch.setattr(methods, name, value)
    table = tmp_path / "methods.json"
    base = ["--data", str(methods_data), "--work", str(tmp_path / "work"), "--size", "48"]
    base = [*base, "--sets", "first", "second"]
    with pytest.raises(SystemExit, match="run `extract` again"):
        methods.main(["measure", *base, "--only", "gem"])
    methods.main(["extract", *base, "train"])
    methods.main(["measure", *base, "--only", "sift", "gem", "--json", str(table)])
    rows = tmp_path / "work" / "rows"
    before = {row.name: row.stat().st_mtime_ns for row in rows.iterdir()}
    methods.main(["measure", *base, "--only", "gem", "gem-lw", "--json", str(table)])
    assert before.items() <= {row.name: row.stat().st_mtime_ns for row in rows.iterdir()}.items()
    found = json.loads(table.read_text())["methods"]
    assert {one["key"] for one in found} == {"sift", "gem", "gem-lw"}
    assert all(one["low"] <= one["mean"] <= one["high"] and len(one["sets"]) == 2 for one in found)
    methods.main(["draw", str(table), "-o", str(tmp_path / "methods.png")])
    assert (tmp_path / "methods.png").stat().st_size > 1000


def test_what_networks_find_is_drawn_against_their_work(tmp_path: Path) -> None:
    names = {"a": "one", "b": "one:max_side=480,precision=int8", "c": "one:precision=int8"}
    rows = [{"network": name, "mean": mean} for name, mean in zip(names, (75.0, 73.0, 74.0), strict=True)]
    (tmp_path / "compared.json").write_text(json.dumps({"networks": rows}))
    timed = {text: {"ratio": ratio} for text, ratio in zip(names.values(), (1.0, 0.2, 0.4), strict=True)}
    (tmp_path / "timed.json").write_text(json.dumps({"networks": timed}))
    points = [f"{name}={text}" for name, text in names.items()]
    files = [str(tmp_path / name) for name in ("compared.json", "timed.json", "out.png")]
    networks.main(["draw", *files[:2], "--points", *points, "-o", files[2]])
    with Image.open(files[2]) as picture:
        assert picture.size[0] > 300
    with pytest.raises(KeyError):
        networks.main(["draw", *files[:2], "--points", "a=two", "-o", files[2]])
