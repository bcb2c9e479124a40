"""The order of the modules: imports point one way, importing does nothing, the public surface stays small."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import superfeat

PACKAGE = Path(superfeat.__file__).parent
# From the first words to the last edge; a module may import from its own group and from those before it.
GROUPS = {
    "words": ("errors", "settings", "config", "features", "figures"),
    "sums": (
        "nets",
        "losses",
        "metrics",
        "threads",
        "kernel",
        "postings",
        "nearest",
        "attribution",
        "places",
        "calibration",
    ),
    "goods": (
        "images",
        "datasets",
        "recipes",
        "unpickle",
        "store",
        "feature_store",
        "weights",
        "onnx",
        "asmk_files",
        "names",
        "segments",
        "journal",
    ),
    "stages": (
        "extraction",
        "whiten",
        "codebook",
        "snapshot",
        "contents",
        "writer",
        "index",
        "indexing",
        "geometry",
        "training",
        "train",
        "pretrain",
        "evaluation",
        "evaluate",
    ),
    "uses": ("analyses", "explain", "likeness", "calibrate", "engine", "duplicates", "doctor", "reproduce"),
    "edges": ("plots", "sheet", "pictures", "report", "results_page", "service", "cli", "__main__"),
}
ORDER = list(GROUPS)
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def dotted(path: Path) -> str:
    """src/superfeat/nets/lit.py -> nets.lit"""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def group_of(module: str) -> str:
    head = module.split(".")[0]
    return next((group for group, members in GROUPS.items() if head in members), f"none: put {head} into a group")


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "superfeat"
                else [node.module or ""]
            )
        else:
            continue
        yield from (name.removeprefix("superfeat.") for name in names if name.startswith("superfeat."))


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_point_one_way(path: Path) -> None:
    own = group_of(dotted(path))
    assert own in ORDER
    for module in imports(path):
        # The one way back: weights.files gives .onnx files to the reader that builds on it, when asked to.
        if (dotted(path), module) == ("weights.files", "onnx"):
            continue
        assert ORDER.index(group_of(module)) <= ORDER.index(own), f"{dotted(path)} imports {module}"


@pytest.mark.parametrize("path", [path for path in MODULES if dotted(path).startswith("nets")], ids=dotted)
def test_networks_know_no_settings_files_or_logs(path: Path) -> None:
    assert all(module.startswith("nets.") for module in imports(path))
    outside = {node.names[0].name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)}
    assert not outside & {"os", "pathlib", "logging", "json", "io"}


@pytest.mark.parametrize("path", [path for path in MODULES if group_of(dotted(path)) == "words"], ids=dotted)
def test_words_stand_alone(path: Path) -> None:
    assert set(imports(path)) <= {"errors", "settings"}


def test_no_module_imports_a_circle() -> None:
    """At the top level; an import inside a function is a choice that its comment explains."""
    edges: dict[str, set[str]] = {}
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tops = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
        edges[dotted(path)] = {module.removeprefix("superfeat.") for module in tops if module.startswith("superfeat.")}
    remaining = dict(edges)
    while free := [module for module, wanted in remaining.items() if not wanted & remaining.keys() - {module}]:
        for module in free:
            del remaining[module]
    assert remaining == {}


def test_modules_and_functions_are_short() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") < 400, dotted(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = node.body[min(ast.get_docstring(node) is not None, len(node.body) - 1)]
                length = (node.end_lineno or 0) - first.lineno + 1
                assert length <= 40, f"{dotted(path)}.{node.name} has {length} lines"


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


def test_nothing_writes_pickles() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
            ):
                assert (node.func.value.id, node.func.attr) not in {
                    ("pickle", "dump"),
                    ("pickle", "dumps"),
                    ("pickle", "load"),
                    ("pickle", "loads"),
                    ("torch", "save"),
                    ("torch", "load"),
                }, dotted(path)
