"""superfeat info and verify: what an artefact is, and whether it is whole."""

import dataclasses
from pathlib import Path
from typing import Any

import click

import superfeat
from superfeat.cli.lines import Progress
from superfeat.cli.terminal import Told, json_option, print_result, tree
from superfeat.config import DEFAULT_PROFILE, DEFAULT_WEIGHTS, PROFILES
from superfeat.errors import SuperfeatError
from superfeat.settings import as_dict

INDEXES = ("superfeat-index", "superfeat-shards")


@click.command()
@click.argument("artefact", required=False, type=click.Path(path_type=Path))
@json_option
def info(artefact: Path | None, as_json: bool) -> None:
    """Say what ARTEFACT (features, a codebook, an index or a network) is and how it was made.

    Without ARTEFACT: what superfeat uses where nothing is chosen, and how to choose otherwise.
    """
    print_result(_defaults() if artefact is None else _describe(artefact), as_json, tree)


def _defaults() -> Told:
    from superfeat.storage.cache import cache_folder
    from superfeat.weights.named import SHIPPED_FOLDER, known_names

    folder = SHIPPED_FOLDER / DEFAULT_WEIGHTS
    facts = _describe(folder)
    return {
        "superfeat": superfeat.__version__,
        "weights": {
            "name": DEFAULT_WEIGHTS,
            "method": facts["network"]["method"],
            "trunk": facts["network"]["trunk"]["arch"],
            "model card": str(folder / "README.md"),
            "others": [name for name in known_names() if name != DEFAULT_WEIGHTS],
            "change with": "--weights",
        },
        "codebook": {"words": _describe(folder / "codebook")["words"], "change with": "--codebook"},
        "profile": {"name": DEFAULT_PROFILE, **as_dict(PROFILES[DEFAULT_PROFILE]), "change with": "--profile, --set"},
        "cache": {"folder": str(cache_folder()), "change with": "the variable SUPERFEAT_CACHE"},
    }


@click.command()
@click.argument("artefact", type=click.Path(path_type=Path))
@json_option
def verify(artefact: Path, as_json: bool) -> None:
    """Read all of ARTEFACT (features, a codebook, an index) and compare it with its checksums."""
    kind = _require_format(artefact)
    if kind in INDEXES:
        from superfeat.index.index import Index
        from superfeat.probability.stored import verify_calibrations

        index = Index.open(artefact)
        progress = Progress("verifying", None, unit="files")
        for name in index.verify():
            progress.step(name)
        for name in verify_calibrations(index):
            progress.step(name)
        progress.done()
        counts = {"images": len(index), "files": progress.position}
    elif kind == "superfeat-codebook":
        from superfeat.index.codebook import Codebook

        counts = {"words": Codebook.open(artefact).words}
    else:
        from superfeat.extraction.folder import FeatureStore

        store = FeatureStore(artefact)
        store.verify()
        counts = {"images": len(store)}
    print_result({"artefact": str(artefact), **counts, "whole": True}, as_json, tree)


def _format(artefact: Path) -> str | None:
    """What the manifest says it is; None if there is none to read."""
    from superfeat.storage.store import read_json

    manifest = read_json(artefact / "manifest.json") if (artefact / "manifest.json").is_file() else None
    return manifest.get("format") if isinstance(manifest, dict) else None


def _require_format(artefact: Path) -> str | None:
    """The same of what can be verified."""
    if not artefact.exists():
        raise SuperfeatError(f"there is nothing at {artefact}; name an index, a features folder or a codebook")
    if not (artefact / "manifest.json").is_file():
        raise SuperfeatError(f"{artefact} is no index, no features folder and no codebook: it has no manifest.json")
    return _format(artefact)


def _describe(artefact: Path) -> Told:
    """Facts of an artefact, without loading torch for our own formats."""
    kind = _format(artefact)
    if kind in INDEXES:
        from superfeat.index.index import Index

        told = dataclasses.asdict(Index.open(artefact).info())
        return {key: value for key, value in told.items() if key != "shards" or value is not None}
    if kind == "superfeat-codebook":
        from superfeat.index.codebook import read_codebook_manifest

        return {**read_codebook_manifest(artefact)}
    if (artefact / "manifest.json").is_file():
        from superfeat.extraction.folder import FeatureStore

        store = FeatureStore(artefact)
        files = [file for file in artefact.iterdir() if file.is_file()]
        counts = {"images": len(store), "skipped": len(store.skipped), "features": sum(e.count for e in store.entries)}
        return {**store.manifest, **counts, "bytes": sum(file.stat().st_size for file in files)}
    if (artefact / "config.json").is_file():
        from superfeat.storage.store import read_json

        facts: dict[str, Any] = read_json(artefact / "config.json")
        return facts
    from superfeat.cli.weights import describe_network
    from superfeat.weights.named import known_names

    if not artefact.exists() and str(artefact) not in (names := known_names()):
        raise SuperfeatError(
            f"there is nothing at {artefact}; name an index, a features folder, a codebook, a network, "
            f"or one of the names {', '.join(names)}"
        )
    if artefact.is_dir():
        raise SuperfeatError(f"{artefact} is no index, no features, no codebook and no network of superfeat")
    return describe_network(str(artefact))
