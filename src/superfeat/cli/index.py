"""superfeat codebook, index, delete, compact, merge: make an index and keep it."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.completion import INDEX_FOLDER, complete_weights
from superfeat.cli.extract import read_extract_config
from superfeat.cli.terminal import (
    DEFAULT_PROFILE,
    DEFAULT_WEIGHTS,
    SHOWN,
    Progress,
    json_option,
    print_result,
    tree,
    workers_option,
)
from superfeat.config import PROFILES, CodebookConfig, ExtractConfig, IndexConfig
from superfeat.errors import SuperfeatError
from superfeat.settings import overlay, parse_assignment

if TYPE_CHECKING:
    from superfeat.extraction.folder import FeatureStore
    from superfeat.images import Photo, Skipped
    from superfeat.index.codebook import Codebook, Round
    from superfeat.index.index import Added, Index
    from superfeat.weights import Network

folder = click.Path(path_type=Path)
DEFAULTS = CodebookConfig()
OWN = "own"


@click.command()
@click.argument("features", type=folder)
@click.option("--output", "-o", required=True, type=folder, help="Folder for the codebook.")
@click.option("--words", default=DEFAULTS.words, show_default=True, help="How many.")
@click.option("--rounds", default=DEFAULTS.rounds, show_default=True, help="Of k-means.")
@click.option(
    "--points-per-word", default=DEFAULTS.points_per_word, show_default=True, help="Features to learn from at most."
)
@click.option("--seed", default=DEFAULTS.seed, show_default=True)
@click.option("--overwrite", is_flag=True)
@workers_option
@json_option
def codebook(
    features: Path, output: Path, words: int, rounds: int, points_per_word: int, seed: int, overwrite: bool,
    workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Learn the words of a collection from FEATURES (a features folder), or import an asmk codebook.pkl."""
    from superfeat.extraction.folder import FeatureStore
    from superfeat.index.codebook import Codebook

    if output.exists() and not overwrite:
        raise SuperfeatError(f"{output} exists already; choose another name or add --overwrite")
    if features.is_file():
        Codebook.open(features).save(output, overwrite=overwrite)
    else:
        config = CodebookConfig(words=words, rounds=rounds, points_per_word=points_per_word, seed=seed)
        _train(FeatureStore(features), config, output, overwrite, workers)
    print_result(_codebook_result(output), as_json, _codebook_report)


def _train(store: "FeatureStore", config: CodebookConfig, output: Path, overwrite: bool, workers: int | None) -> None:
    """An interrupted training leaves its rounds in a folder beside the output and goes on from there."""
    from superfeat.index.codebook import remove_work, train_codebook

    work = output.with_name(f"{output.name}.partial")
    progress = Progress("learning words from", None, unit="features")

    def show(now: "Round") -> None:
        if now.number:
            progress.total = now.points * now.rounds
            progress.doing = f"round {now.number} of {now.rounds}, feature"
            progress.at(now.points * (now.number - 1) + now.done)
        else:
            progress.at(now.done)

    trained = train_codebook(store, config, work=work, workers=workers, on_progress=show)
    progress.done()
    trained.save(output, overwrite=overwrite)
    remove_work(work)


def _codebook_result(output: Path) -> dict[str, Any]:
    from superfeat.index.codebook import read_codebook_manifest

    manifest = read_codebook_manifest(output)
    facts = manifest.pop("facts")
    last = {key: value for key, value in facts.get("quality", {}).items() if key != "rounds"}
    return {"codebook": str(output), **manifest, "points": facts.get("points"), **last}


def _codebook_report(result: Mapping[str, Any]) -> Iterable[str]:
    yield f"{result['codebook']}: {result['words']} words of {result['dim']} dimensions"
    if result.get("distortion") is not None:
        yield (
            f"  from {result['points']} features; mean squared distance {result['distortion']:.3f}, "
            f"imbalance {result['imbalance']:.2f} (1 is even), {result['empty']} words were empty in the last round"
        )


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FEATURES|PHOTOS...")
@click.option("--output", "-o", required=True, type=folder, help="Folder of the index, new or not.")
@click.option(
    "--codebook",
    "words",
    type=folder,
    help=f"For a new index: a folder, or '{OWN}' for one learned from what is indexed. "
    f"[default: the one that comes with the network, else '{OWN}']",
)
@click.option("--kernel", type=click.Choice(["binary", "real"]), help="For a new index. [default: binary]")
@click.option(
    "--weights", "-w", shell_complete=complete_weights,
    help=f"The network for photos. [default: the index's, or {DEFAULT_WEIGHTS}]",
)  # fmt: skip
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help=f"Settings for photos. [default: the index's, or {DEFAULT_PROFILE}]",
)
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any other setting of extract.")
@click.option("--sync", is_flag=True, help="Also drop photos that are no longer there.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps.")
@workers_option
@json_option
def index(
    sources: tuple[str, ...], output: Path, words: Path | None, kernel: str | None, weights: str | None,
    profile: str | None, assignments: tuple[str, ...], sync: bool, device: str, workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Add FEATURES (a features folder) or PHOTOS to an index; make it if there is none.

    What is there and has not changed is left alone, a changed photo replaces the old one, and an interrupted run goes
    on where it stopped. An asmk inverted file (.pkl) can be imported into a new index with its codebook.
    """
    old = (output / "manifest.json").is_file()
    if old and (words is not None or kernel is not None):
        raise SuperfeatError(f"{output} has its codebook and kernel already; leave --codebook and --kernel out")
    config = overlay(IndexConfig(), {"kernel": kernel} if kernel else {})
    run = _Run(output, words, config, workers)
    single = Path(sources[0]) if len(sources) == 1 else None
    photos = single is None or not (single.suffix == ".pkl" or (single / "manifest.json").is_file())
    if sync and not photos:
        raise SuperfeatError("--sync compares an index with folders of photos; it takes neither features nor a .pkl")
    if single is not None and single.suffix == ".pkl":
        run.import_inverted_file(single)
    elif single is not None and not photos:
        run.add_features(single)
    else:
        known = _facts(output) if old else {}
        extract = _extract_settings(known, profile, assignments)
        run.add_photos(sources, str(weights or known.get("weights") or DEFAULT_WEIGHTS), extract, device, sync)
    print_result(run.result(), as_json, _index_report)


def _facts(output: Path) -> dict[str, Any]:
    from superfeat.index.index import Index

    return Index.open(output).facts


def _extract_settings(known: Mapping[str, Any], profile: str | None, assignments: tuple[str, ...]) -> ExtractConfig:
    """The index's own settings, so that they need not be repeated; new ones for a new index."""
    if known.get("extract") and profile is None:
        return overlay(
            ExtractConfig(), {**known["extract"], **dict(parse_assignment(text) for text in assignments)}, "extract."
        )
    config = read_extract_config(profile or DEFAULT_PROFILE, None, assignments)
    return overlay(config, {"attention": known.get("extract", {}).get("attention", "regions")})


class _Run:
    """One call of `superfeat index`: counts what became of each image."""

    def __init__(self, output: Path, words: Path | None, config: IndexConfig, workers: int | None) -> None:
        self.own = words == Path(OWN) and not words.exists()
        self.output, self.config, self.workers = output, config, workers
        self.words = None if self.own else words
        self.counts = {"new": 0, "replaced": 0, "same": 0, "dropped": 0}
        self.skipped: list[dict[str, str]] = []
        self._learned = output.with_name(f"{output.name}.codebook")

    def _open(self, facts: Mapping[str, Any], network: str | None, store: "FeatureStore | None" = None) -> "Index":
        """The index, made if it is not there, with the codebook given or one learned from `store`."""
        from superfeat.index.index import Index

        if (self.output / "manifest.json").is_file():
            return Index.open(self.output)
        index = Index.create(self.output, self._codebook(store), self.config, network=network, facts=facts)
        shutil.rmtree(self._learned, ignore_errors=True)  # it travels with the index
        return index

    def _codebook(self, store: "FeatureStore | None") -> "Codebook":
        from superfeat.index.build import suggest_words
        from superfeat.index.codebook import Codebook

        if self.words is not None:
            return Codebook.open(self.words)
        if store is None:
            raise SuperfeatError("a new index needs its codebook here; name it with --codebook")
        words = suggest_words(sum(entry.count for entry in store.entries))
        advice = "one learned from many other photos finds more; name it with --codebook"
        click.echo(f"learning a codebook of {words} words from these photos ({advice})", err=True)
        if not self._learned.exists():
            _train(store, CodebookConfig(words=words), self._learned, False, self.workers)
        return Codebook.open(self._learned)

    def import_inverted_file(self, path: Path) -> None:
        from superfeat.index.build import index_inverted_file

        self._follow(index_inverted_file(self._open({}, None), path), None)

    def add_features(self, path: Path) -> None:
        from superfeat.extraction.folder import FeatureStore
        from superfeat.index.build import feature_facts, index_features

        store = FeatureStore(path)
        network = store.manifest.get("network", {}).get("digest")
        index = self._open(feature_facts(store), network, store)
        self._follow(index_features(index, store), len(store))
        self.counts["same"] = len(store) - self.counts["new"] - self.counts["replaced"]
        self.skipped += [{"name": entry.name, "reason": str(entry.skipped)} for entry in store.skipped]

    def add_photos(
        self, sources: tuple[str, ...], weights: str, extract: ExtractConfig, device: str, sync: bool
    ) -> None:
        from superfeat.extraction.extract import keep_memory
        from superfeat.extraction.folder import FeatureStore
        from superfeat.images import list_photos
        from superfeat.index.build import index_photos, take_calibration, vanished
        from superfeat.settings import as_dict
        from superfeat.storage.store import as_json
        from superfeat.weights import find_weights, load_network

        keep_memory()
        photos = list_photos(sources).photos
        if not photos:
            raise SuperfeatError(f"no photos in {', '.join(sources)}")
        network = load_network(weights)
        where = str(Path(weights).absolute()) if Path(weights).exists() else weights
        beside = self.output.with_name(f"{self.output.name}.features")
        carried = find_weights(weights) / "codebook"  # a network may bring a general one
        if self.words is None and not self.own and carried.is_dir() and not (self.output / "manifest.json").is_file():
            self.words = carried
        if not (self.output / "manifest.json").is_file() and self.words is None:
            self._extract_first(beside, network, photos, extract, device)
        store = FeatureStore(beside) if beside.exists() else None
        facts = as_json({"extract": as_dict(extract), "weights": where})
        index = self._open(facts, network.digest, store)
        take_calibration(index, carried)
        if sync and (gone := vanished(index, photos, [Path(source) for source in sources if Path(source).is_dir()])):
            self.counts["dropped"] = index.delete(gone)
        outcomes = index_photos(index, network, photos, extract, extracted=store, workers=self.workers, device=device)
        self._follow(outcomes, len(photos))
        self.counts["same"] = len(photos) - self.counts["new"] - self.counts["replaced"] - len(self.skipped)
        shutil.rmtree(beside, ignore_errors=True)

    def _extract_first(
        self, beside: Path, network: "Network", photos: "list[Photo]", extract: ExtractConfig, device: str
    ) -> None:
        """Words can only be learned when there are features: they wait in a folder beside the index."""
        from superfeat.extraction.extract import extract_to

        progress = Progress("extracting", len(photos))
        for outcome in extract_to(beside, network, photos, extract, workers=self.workers, device=device):
            progress.step(outcome.name)
        progress.done()

    def _follow(self, outcomes: "Iterable[Added | Skipped]", total: int | None) -> None:
        from superfeat.images import Skipped

        progress = Progress("indexing", total)
        for outcome in outcomes:
            if isinstance(outcome, Skipped):
                self.skipped.append({"name": outcome.name, "reason": outcome.reason})
            else:
                self.counts[outcome.outcome] += 1
            progress.step(outcome.name)
        progress.done()

    def result(self) -> dict[str, Any]:
        from superfeat.index.index import Index

        index = Index.open(self.output)
        facts = index.info()
        shown = {key: facts[key] for key in ("images", "words_per_image", "postings", "bytes", "bytes_per_posting")}
        return {"index": str(self.output), **shown, **self.counts, "skipped": self.skipped}


def _index_report(result: Mapping[str, Any]) -> Iterable[str]:
    size = f"{result['bytes'] / 1e6:.1f} MB" if result["bytes"] >= 1e6 else f"{result['bytes'] / 1e3:.0f} kB"
    dropped = f", {result['dropped']} dropped" if result["dropped"] else ""
    yield (
        f"{result['index']}: {result['images']} images ({result['new']} new, {result['replaced']} replaced, "
        f"{result['same']} unchanged{dropped}), {result['words_per_image']} words each, {size}"
    )
    for entry in result["skipped"][:SHOWN]:
        yield f"  skipped {entry['name']}: {entry['reason']}"
    if len(result["skipped"]) > SHOWN:
        yield f"  … and {len(result['skipped']) - SHOWN} more (--json lists them)"


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.argument("names", nargs=-1)
@click.option("--list", "list_file", type=click.File("r"), help="A file with a name per line (- for stdin).")
@json_option
def delete(index_folder: Path, names: tuple[str, ...], list_file: Any, as_json: bool) -> None:
    """Delete images by NAME from INDEX: all, or none if one is not there. `superfeat compact` frees their space."""
    from superfeat.index.index import Index

    listed = [line.rstrip("\r\n") for line in list_file] if list_file else []
    wanted = [*names, *(name for name in listed if name)]
    if not wanted:
        raise SuperfeatError("no names given; name images as `superfeat search` prints them, or use --list")
    index = Index.open(index_folder)
    deleted = index.delete(wanted)
    print_result({"index": str(index_folder), "deleted": deleted, "images": len(index)}, as_json, tree)


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@json_option
def compact(index_folder: Path, as_json: bool) -> None:
    """Rewrite INDEX without its deleted images and join small segments."""
    from superfeat.index.index import Index

    index = Index.open(index_folder)
    before = index.info()
    index.compact()
    after = index.info()
    result = {"index": str(index_folder), "images": after["images"], "segments": after["segments"]}
    print_result({**result, "bytes_before": before["bytes"], "bytes": after["bytes"]}, as_json, tree)


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.argument("others", nargs=-1, required=True, type=INDEX_FOLDER)
@json_option
def merge(index_folder: Path, others: tuple[Path, ...], as_json: bool) -> None:
    """Take the images of OTHERS, made with the same codebook, into INDEX; one of the same name replaces."""
    from superfeat.index.index import Index

    index = Index.open(index_folder)
    taken = sum(index.merge(Index.open(other)) for other in others)
    print_result({"index": str(index_folder), "taken": taken, "images": len(index)}, as_json, tree)
