"""What an index holds in memory: changed by its own module alone, and never ahead of the disk."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.errors import StoreError
from superfeat.index import contents, writer
from superfeat.index.codebook import Codebook
from superfeat.index.contents import load_contents
from superfeat.index.disk import Held
from superfeat.index.index import Index
from superfeat.index.places import encode_places
from superfeat.index.segments import write_segment

CODEBOOK = Codebook(np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32))
MODULES = sorted(path for path in Path(contents.__file__).parent.glob("*.py") if path.stem != "contents")


def vectors(seed: int) -> np.ndarray:
    return np.random.default_rng(100 + seed).standard_normal((5, 64)).astype(np.float32)


def make(path: Path, *names: str) -> Index:
    index = Index.create(path, CODEBOOK)
    for number, name in enumerate(names):
        index.add(name, vectors(number))
    return index


def facts_of(held: Held) -> dict[str, Any]:
    """All that later changes could touch."""
    return {
        "manifest": held.manifest,
        "next": held.next_id,
        "end": getattr(held, "end", None),
        "images": [(image, one) for image, one in held.snapshot().images()],
        "words": [held.snapshot().words_of(image).codes.tobytes() for image, _ in held.snapshot().images()],  # type: ignore[union-attr]
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_contents_are_changed_in_their_own_module_alone(path: Path) -> None:
    """Others may put new contents in the place of old ones; they set nothing inside them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets:
            while isinstance(target, (ast.Attribute, ast.Subscript)):
                target = target.value
                assert ast.unparse(target) not in {"contents", "self._contents", "theirs", "new"}, ast.unparse(node)


def test_what_is_in_memory_is_what_is_read_from_disk(tmp_path: Path) -> None:
    index = make(tmp_path / "index", "a", "b", "c")
    index.delete("b")
    index.add("a", vectors(9))
    assert facts_of(index._contents) == facts_of(load_contents(index.path))
    index._contents.note_network(index.path, "0123")
    assert index.network == Index.open(index.path).network == "0123"
    assert facts_of(index._contents) == facts_of(load_contents(index.path))
    index.compact()
    assert facts_of(index._contents) == facts_of(load_contents(index.path))


def test_images_that_a_merge_replaces_are_there_until_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, other = make(tmp_path / "index", "a", "b", "c"), make(tmp_path / "other", "b", "d")
    index.compact()
    other.compact()
    held, before = index._contents, facts_of(index._contents)
    seen: list[list[str]] = []

    def watched(*arguments: Any) -> Any:
        written = write_segment(*arguments)
        seen.append(list(index.names()))
        return written

    monkeypatch.setattr(writer, "write_segment", watched)
    index.merge(other)
    assert seen == [["a", "b", "c"]]
    assert list(index.names()) == ["a", "c", "b", "d"]
    assert facts_of(held) == before
    assert facts_of(index._contents) == facts_of(load_contents(index.path))


def test_places_that_do_not_fit_are_one_error(tmp_path: Path) -> None:
    """Noted by whoever wrote the journal: the checksums are right, and so are the words."""
    index = make(tmp_path / "index", "a")
    words = index.words_of("a")
    good = encode_places(np.zeros((len(words), 4)))
    index.add("b", words, {"places": good})
    assert list(index.verify())
    for damaged in (good[:-4], "?", 3, [good]):
        index.add("c", words, {"places": damaged})
        with pytest.raises(StoreError, match=f"places of c do not fit its {len(words)} words"):
            list(index.verify())
