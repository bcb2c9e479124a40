"""An analysis as a library call: what it computes, how far it says it is, what it refuses."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fixtures_recipe import noise, save_random_network
from superfeat import Codebook, ExtractConfig, Network, extract, train_codebook
from superfeat import weights as loading
from superfeat.cli.evaluate import evaluate
from superfeat.drawn.drawing import draw_folder
from superfeat.errors import ImageError, SuperfeatError
from superfeat.images import Photo, Skipped
from superfeat.pages.analysis import analysis_facts, draw_figure, write_analysis
from superfeat.studies import analyses
from superfeat.studies import analysis as of
from superfeat.studies.analyse import analyse
from superfeat.studies.analysis import Analysing
from superfeat.studies.kinds import KINDS

CONFIG = ExtractConfig(max_side=48, scales=(1.0, 0.5))
OF_FIRE = {"attention", "attention-scales", "ids", "correlation"}


@pytest.fixture
def codebook(tiny_network: Network, photo_folder: Path) -> Codebook:
    return train_codebook(extract(tiny_network, photo_folder, CONFIG), words=8)


def options(kind: str, codebook: Codebook) -> dict[str, Any]:
    return {"config": CONFIG, "workers": 1, **({"codebook": codebook} if kind == "words" else {})}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str, tiny_network: Network, photo_folder: Path, codebook: Codebook) -> None:
    (photo_folder / "c.png").write_bytes(b"no photo")
    work = analyse(kind, tiny_network, photo_folder, images=4, **options(kind, codebook))
    events = list(work)
    stages = list(dict.fromkeys(event.stage for event in events))
    assert [[event.done for event in events if event.stage == stage] for stage in stages] == [[1, 2, 3]] * len(stages)
    assert {event.total for event in events} == {4}
    found = work.result()
    assert (found.kind, found.images) == (kind, 3)
    assert [one.name for one in found.skipped] == ["c.png"]
    assert found.network["digest"] == tiny_network.digest
    assert not KINDS[kind].decides & found.extract.keys()
    wanted = {field.name for field in dataclasses.fields(ExtractConfig) if not field.metadata.get("optional")}
    assert KINDS[kind].decides | found.extract.keys() == wanted
    facts = analysis_facts(found)
    assert json.loads(json.dumps(facts, allow_nan=False))["images"] == 3
    assert facts["skipped"] == [dataclasses.asdict(one) for one in found.skipped]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_with_more_workers(kind: str, tiny_network: Network, photo_folder: Path, codebook: Codebook) -> None:
    one = analyse(kind, tiny_network, photo_folder, **options(kind, codebook)).result()
    more = analyse(kind, tiny_network, photo_folder, **(options(kind, codebook) | {"workers": 3})).result()
    assert analysis_facts(one) == analysis_facts(more)


def test_nothing_is_done_before_it_is_asked_for(tiny_network: Network, photo_folder: Path) -> None:
    work = analyse("redundancy", tiny_network, photo_folder, config=CONFIG)
    (photo_folder / "a.png").unlink()
    assert next(iter(work)) == Analysing("features", 1, 6)
    assert [one.name for one in work.result().skipped] == ["a.png"]


def test_photos_unless_told(tiny_network: Network, photo_folder: Path) -> None:
    """A few in a picture, all in a mean."""
    assert analyse("attention", tiny_network, photo_folder, config=CONFIG).result().images == 3
    assert analyse("attention", tiny_network, photo_folder, config=CONFIG, images=5).result().images == 5
    assert analyse("correlation", tiny_network, photo_folder, config=CONFIG).result().images == 6


def test_ids_and_scales(tiny_network: Network, photo_folder: Path) -> None:
    found = analyse("attention-scales", tiny_network, photo_folder, config=CONFIG, ids=[3, 1, 3], images=1).result()
    numbers, figure = found.found.numbers, found.found.figure
    assert isinstance(numbers, of.ScaleAttentionNumbers)
    assert [(one.name, one.id, list(one.scales)) for one in numbers.photos] == [
        ("a.png", 3, ["1", "0.5"]),
        ("a.png", 1, ["1", "0.5"]),
    ]
    [expected, _] = analyses.attention_over_scales(tiny_network, photo_folder / "a.png", 3, CONFIG)
    assert numbers.photos[0].scales["1"].strength == pytest.approx(expected.strength, rel=1e-4)
    assert isinstance(figure, of.PhotoRows)
    assert [len(row) for row in figure.rows] == [3, 3]
    assert figure.column_titles == ["photo", "0.5", "1"]


def test_strongest_photos(tiny_network: Network, photo_folder: Path) -> None:
    found = analyse("ids", tiny_network, photo_folder, config=CONFIG, ids=[2], top=4).result().found.numbers
    assert isinstance(found, of.IdNumbers)
    expected = analyses.what_an_id_looks_for(tiny_network, photo_folder, 2, 4, CONFIG)
    assert [photo.name for photo in found.ids[0].photos] == [photo.name for photo in expected.strongest]
    assert found.ids[0].cosine == pytest.approx(expected.cosine, abs=1e-5)


def test_a_kind_decides_some_settings_itself(tiny_how: Network, photo_folder: Path) -> None:
    config = dataclasses.replace(CONFIG, features_per_image=2, scales=(0.5,))
    found = analyse("redundancy", tiny_how, photo_folder, config=config, counts=[1, 4]).result().found
    one = dataclasses.replace(analyses.every_feature(CONFIG), scales=(1.0,))
    expected = analyses.redundancy(extract(tiny_how, photo_folder, one), [1, 4])
    assert isinstance(found.numbers, of.RedundancyNumbers)
    np.testing.assert_allclose(np.asarray(found.numbers.cosines, float), expected, atol=1e-6)
    assert isinstance(found.figure, of.Curves)
    assert found.figure.panels[0].title == "HOW, 6 photos"


def test_where_there_are_too_few_features(tiny_network: Network, photo_folder: Path) -> None:
    numbers = analyse("redundancy", tiny_network, photo_folder, config=CONFIG, counts=[8, 9]).result().found.numbers
    assert isinstance(numbers, of.RedundancyNumbers)
    assert [cosine is None for cosine in numbers.cosines] == [False, True]


def test_words_of_a_codebook_on_disk(
    tiny_network: Network, photo_folder: Path, codebook: Codebook, tmp_path: Path
) -> None:
    codebook.save(tmp_path / "words")
    given: list[str | Path | Codebook] = [codebook, tmp_path / "words", str(tmp_path / "words")]
    found = [
        analyse("words", tiny_network, photo_folder, config=CONFIG, codebook=book, counts=[1, 3]).result().found.numbers
        for book in given
    ]
    assert found[0] == found[1] == found[2]
    assert isinstance(found[0], of.WordNumbers)
    assert found[0].words[0] == 1.0
    assert found[0].codebook_words == 8


def test_a_part_of_a_photo(tiny_network: Network, tmp_path: Path) -> None:
    """What is drawn is what was looked at."""
    Image.fromarray(noise(64, 96)).save(tmp_path / "a.png")
    photo = Photo(tmp_path / "a.png", "a", box=(0, 0, 40, 64))
    figure = analyse("attention", tiny_network, [photo], config=CONFIG, ids=[0]).result().found.figure
    assert isinstance(figure, of.PhotoRows)
    assert figure.rows[0][0] is not None
    assert figure.rows[0][0].pixels.shape == (64, 40, 3)


@pytest.mark.parametrize("kind", sorted(OF_FIRE))
def test_how_has_no_ids(kind: str, tiny_how: Network, photo_folder: Path) -> None:
    with pytest.raises(SuperfeatError, match="take the weights of a FIRe network"):
        analyse(kind, tiny_how, photo_folder, config=CONFIG).result()


@pytest.mark.parametrize(
    ("kind", "asked", "words"),
    [
        ("attentoin", {}, "there is no analysis 'attentoin'; did you mean 'attention'?"),
        ("redundancy", {"ids": [1]}, "an analysis of redundancy takes no ids"),
        ("correlation", {"counts": [1]}, "an analysis of correlation takes no counts"),
        ("attention", {"top": 2}, "an analysis of attention takes no top"),
        ("scales", {"codebook": "words"}, "an analysis of scales takes no codebook"),
        ("words", {}, "an analysis of words needs a codebook"),
        ("ids", {"images": 0}, "the first 0 photos are none; ask for 1 or more"),
    ],
)
def test_what_is_refused_at_once(
    kind: str, asked: dict[str, Any], words: str, tiny_network: Network, photo_folder: Path
) -> None:
    with pytest.raises(SuperfeatError) as caught:
        analyse(kind, tiny_network, photo_folder, **asked)
    assert str(caught.value) == words
    assert "--" not in words


def test_nothing_asked_for(tiny_network: Network, photo_folder: Path, codebook: Codebook) -> None:
    for counts in ([], [0]):
        for kind in ("redundancy", "words"):
            with pytest.raises(SuperfeatError, match="cannot be looked at; give 1 or more"):
                analyse(kind, tiny_network, photo_folder, counts=counts, **options(kind, codebook)).result()
    with pytest.raises(SuperfeatError, match="no ID is given"):
        analyse("ids", tiny_network, photo_folder, ids=[], config=CONFIG).result()
    with pytest.raises(SuperfeatError, match="the 0 strongest photos are none"):
        analyse("ids", tiny_network, photo_folder, top=0, config=CONFIG).result()


@pytest.mark.parametrize("kind", KINDS)
def test_no_photos(kind: str, tiny_network: Network, codebook: Codebook) -> None:
    with pytest.raises(ImageError, match="there is no photo to look at"):
        analyse(kind, tiny_network, [], **options(kind, codebook)).result()


@pytest.mark.parametrize("kind", KINDS)
def test_written_and_drawn(
    kind: str, tiny_network: Network, photo_folder: Path, codebook: Codebook, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    found = analyse(kind, tiny_network, photo_folder, images=2, **options(kind, codebook)).result()
    facts = write_analysis(found, tmp_path / "deep" / "out")
    assert json.loads((tmp_path / "deep" / "out" / f"{kind}.json").read_text()) == json.loads(json.dumps(facts))
    draw_figure(found.found.figure, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "deep" / "out" / facts["picture"]).read_bytes()


def test_skipped_once_in_two_passes(tiny_network: Network, photo_folder: Path) -> None:
    """Choosing IDs reads the photos, and looking reads them again."""
    (photo_folder / "b.jpg").write_bytes(b"no photo")
    work = analyse("ids", tiny_network, photo_folder, config=CONFIG)
    assert [event.stage for event in work] == ["ids"] * 5 + ["maps"] * 5
    assert list(work.result().skipped) == [Skipped("b.jpg", "not an image, or a format that Pillow cannot read")]


def test_an_evaluation_loads_its_network_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    list(draw_folder(tmp_path / "photos", things=2, views=2, max_side=48))
    save_random_network(tmp_path / "fire", templates=8, whitened_dim=6)
    loaded: list[object] = []
    load: Callable[..., Network] = loading.load_network

    def counting(*arguments: Any, **named: Any) -> Network:
        loaded.append(arguments)
        return load(*arguments, **named)

    for module in ("superfeat.evaluation.evaluate", "superfeat.weights", "superfeat.weights.files"):
        monkeypatch.setattr(f"{module}.load_network", counting)
    stream = extract(load(tmp_path / "fire"), tmp_path / "photos", CONFIG)
    train_codebook(stream, words=8).save(tmp_path / "words")
    settings = ["--set", "extract.max_side=48", "--set", "extract.scales=[1.0,0.5]"]
    paths = ["-o", tmp_path / "run", "--weights", tmp_path / "fire", "--codebook", tmp_path / "words"]
    result = CliRunner().invoke(evaluate, [*map(str, [tmp_path / "photos", *paths]), *settings], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stderr == ""
    kinds = {path.stem for path in (tmp_path / "run" / "analyses").glob("*.png")}
    assert kinds == {"redundancy", "scales", "words", "attention", "correlation"}
    assert len(loaded) == 1
