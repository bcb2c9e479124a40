"""superfeat.reproduce: names to tables, one that fails among others, and what is refused at once."""

from pathlib import Path
from typing import Any

import pytest

import superfeat
from superfeat.errors import SuperfeatError
from superfeat.studies.reproduce import catalogue
from superfeat.studies.reproduce.catalogue import NAMES, Failed, Reproduced
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.sizes import SIZES, read_size


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What studies are made with; a table is its name, and table-2 cannot be measured."""
    made: list[dict[str, Any]] = []

    def study(size: Any, work: Path, **given: Any) -> dict[str, Any]:
        made.append({"size": size.name, "work": work, **given})
        return made[-1]

    def measure(name: str, with_study: dict[str, Any]) -> Reproduced:
        assert with_study is made[-1]
        with_study["on_progress"](name, 1, 2)
        if name == "table-2":
            raise SuperfeatError("no photos", arguments=["images"])
        return Reproduced(name, Outcome(["x"], [[1]], "it is 1", True), {}, 0.0)

    monkeypatch.setattr(catalogue, "Study", study)
    monkeypatch.setattr(catalogue, "measure", measure)
    return made


def test_one_after_another(studies: list[dict[str, Any]], tmp_path: Path) -> None:
    """One that fails does not keep the others back; all share one study, which begins when it is asked for."""
    told: list[tuple[str, int, int]] = []
    names = ["table-1", "table-2", "figure-scales", "table-1"]
    given: dict[str, Any] = {"images": str(tmp_path), "workers": 2, "device": "cuda"}
    work = superfeat.reproduce(names, tmp_path / "work", on_progress=lambda *at: told.append(at), **given)
    assert studies == []
    events = list(work)
    assert [one.name for one in events] == ["table-1", "table-2", "figure-scales"]
    assert isinstance(events[1], Failed)
    assert (str(events[1].error), events[1].error.arguments) == ("no photos", ("images",))
    assert [one.name for one in work.result()] == ["table-1", "figure-scales"]
    assert told == [(name, 1, 2) for name in ("table-1", "table-2", "figure-scales")]
    (study,) = studies
    assert (study["size"], study["work"], study["images"]) == ("mini", tmp_path / "work", tmp_path)
    assert (study["imagenet"], study["weights"], study["workers"], study["device"]) == (None, None, 2, "cuda")


def test_all_by_one_word(studies: list[dict[str, Any]], tmp_path: Path) -> None:
    found = superfeat.reproduce("all", tmp_path, size="paper").result()
    assert [one.name for one in found] == [name for name in NAMES if name != "table-2"]
    assert studies[0]["size"] == "paper"


def test_what_is_refused_at_once(studies: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="the paper has no 'table-3' here; did you mean"):
        superfeat.reproduce("table-3", tmp_path)
    with pytest.raises(SuperfeatError, match="table-local cannot be reproduced: the paper gives no numbers"):
        superfeat.reproduce(["table-1", "table-local"], tmp_path)
    with pytest.raises(SuperfeatError, match="there is no size 'papr'; did you mean 'paper'"):
        superfeat.reproduce("table-1", tmp_path, size="papr")
    assert studies == []


def test_the_sizes() -> None:
    assert [read_size(name).name for name in SIZES] == list(SIZES)


def test_the_papers_size_needs_its_data(tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="size paper needs images: the folder with SfM-120k, roxford5k") as refused:
        superfeat.reproduce("table-1", tmp_path / "work", size="paper").result()
    assert refused.value.arguments == ("images", "size=mini")
    assert not (tmp_path / "work").exists()
