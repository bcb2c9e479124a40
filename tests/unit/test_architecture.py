"""The order of the modules: imports point one way, importing does nothing, the public surface stays small."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import superfeat

OUTSIDE = {"__init__", "__main__"}  # they hold no code: names, and a call of the command line
PACKAGE = Path(superfeat.__file__).parent
DOCUMENT = Path(__file__).parents[2] / "ARCHITECTURE.md"
INNER = {"contents", "journal", "names", "nearest", "postings", "segments", "writer"}  # parts of index/
EDGES = {"pages", "doctor", "service", "cli"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem not in OUTSIDE)


def rooms() -> dict[str, set[str]]:
    """The table of ARCHITECTURE.md: which room may import which."""
    rows = [
        line.split("|")[1:-1] for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    return {room.strip(" `"): {name.strip() for name in names.split(",") if name.strip()} for room, _, names in rows}


def dotted(path: Path) -> str:
    """src/superfeat/nets/lit.py -> nets.lit"""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    return module.split(".")[0]


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, anywhere in it and in any form."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [str(word.value) for word in node.args[:1] if isinstance(word, ast.Constant)]
        yield from (_module(name) for name in names if name.startswith("superfeat."))


def _module(name: str) -> str:
    """The module in a dotted name: superfeat.index.index.Index -> index.index"""
    parts = name.split(".")[1:]
    while len(parts) > 1 and not (
        PACKAGE.joinpath(*parts).with_suffix(".py").is_file() or PACKAGE.joinpath(*parts).is_dir()
    ):
        parts.pop()
    return ".".join(parts)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_are_those_of_the_table(path: Path) -> None:
    allowed, own = rooms(), room_of(dotted(path))
    assert own in allowed, f"{own} has no row in {DOCUMENT.name}"
    for module in imports(path):
        room = room_of(module)
        assert room == own or room in allowed[own], f"{dotted(path)} imports {module}"
        assert own == "index" or module.removeprefix("index.") not in INNER or room != "index", (
            f"{dotted(path)} looks inside the index: {module}"
        )
        assert room not in EDGES or own in EDGES, f"{dotted(path)} imports the edge {room}"


def test_the_table_has_no_more_than_there_is() -> None:
    """A room that is gone, or an import that nobody makes any more, leaves the table."""
    made: dict[str, set[str]] = {room_of(dotted(path)): set() for path in MODULES}
    for path in MODULES:
        own = room_of(dotted(path))
        made[own] |= {room_of(module) for module in imports(path)} - {own}
    assert made == rooms()


def test_no_circles_of_rooms_or_modules() -> None:
    """Imports inside functions count: a circle is a circle."""
    modules = {dotted(path): {module for module in imports(path) if module != dotted(path)} for path in MODULES}
    for edges in (rooms(), modules):
        remaining = {name: set(wanted) for name, wanted in edges.items()}
        while free := [name for name, wanted in remaining.items() if not wanted & remaining.keys()]:
            for name in free:
                del remaining[name]
        assert remaining == {}


@pytest.mark.parametrize("path", [path for path in MODULES if dotted(path).startswith("nets")], ids=dotted)
def test_networks_know_no_settings_files_or_logs(path: Path) -> None:
    assert all(module.startswith("nets.") for module in imports(path))
    outside = {node.names[0].name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)}
    assert not outside & {"os", "pathlib", "logging", "json", "io"}


def test_modules_and_functions_are_short() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") < 400, dotted(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = node.body[min(ast.get_docstring(node) is not None, len(node.body) - 1)]
                length = (node.end_lineno or 0) - first.lineno + 1
                assert length <= 40, f"{dotted(path)}.{node.name} has {length} lines"


def test_files_of_tests_are_short() -> None:
    """A longer one is split by what it tests; what the parts share goes to a conftest.py or tests/fixtures_*.py."""
    tests = Path(__file__).parents[1]
    lengths = {str(path.relative_to(tests)): path.read_text("utf-8").count("\n") for path in tests.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_one_class_name_is_one_class() -> None:
    """One word, one thing: no class name is defined in two modules."""
    homes: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(dotted(path))
    assert {name: sorted(modules) for name, modules in homes.items() if len(modules) > 1} == {}


def loaded_after(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return set(run.stdout.split())


def test_importing_does_not_load_torch() -> None:
    assert "torch" not in loaded_after("import superfeat; superfeat.__version__; dir(superfeat)")
    assert "torch" not in loaded_after("from superfeat import ExtractConfig, SuperfeatError, Features, FeatureStore")


def test_the_command_line_does_not_load_torch() -> None:
    assert "torch" not in loaded_after("import superfeat; import superfeat.cli")


def test_the_public_surface() -> None:
    assert len(superfeat.__all__) <= 25
    assert len(set(superfeat.__all__)) == len(superfeat.__all__)
    for name in superfeat.__all__:
        assert getattr(superfeat, name) is not None
    assert set(superfeat.__all__) <= set(dir(superfeat))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        superfeat.nothing  # noqa: B018


def test_errors_of_the_library_do_not_speak_of_flags() -> None:
    """They name arguments; the command line adds the options that these are."""
    for path in MODULES:
        if room_of(dotted(path)) == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise):
                texts = [str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)]
                assert not [text for text in texts if re.search(r"(^|\W)--[a-z]", text)], dotted(path)


def test_nothing_writes_pickles() -> None:
    """But for the drop-in of asmk, whose users exchange pickles; it reads none freely either."""
    for path in MODULES:
        written = {("pickle", "dump")} if dotted(path) == "asmk.io_helpers" else set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
            ):
                assert (node.func.value.id, node.func.attr) not in written ^ {
                    ("pickle", "dump"),
                    ("pickle", "dumps"),
                    ("pickle", "load"),
                    ("pickle", "loads"),
                    ("torch", "save"),
                    ("torch", "load"),
                }, dotted(path)
