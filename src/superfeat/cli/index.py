"""superfeat codebook, index, delete, compact, merge: make an index and keep it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.accounts import accounts_for_files, as_told
from superfeat.cli.clusters import cluster_assign, cluster_option, hire_cluster
from superfeat.cli.completion import INDEX_FOLDER, complete_weights
from superfeat.cli.lines import Follow, Progress, say
from superfeat.cli.shards import print_shards
from superfeat.cli.terminal import (
    Command,
    Told,
    device_option,
    exclude_option,
    json_option,
    limit_pixels,
    max_pixels_option,
    print_result,
    tree,
    workers_option,
)
from superfeat.config import DEFAULT_PROFILE, DEFAULT_WEIGHTS, OWN_CODEBOOK, PROFILES, VECTOR_KERNELS, CodebookConfig
from superfeat.errors import SuperfeatError
from superfeat.settings import parse_assignment

if TYPE_CHECKING:
    from superfeat.index.codebook import Round
    from superfeat.index.make import Indexed
    from superfeat.index.target import Indexing

folder = click.Path(path_type=Path)
# What becomes of a photo, in the order and the words in which it is told.
OUTCOMES = {"new": "new", "replaced": "replaced", "moved": "moved", "copied": "copied", "same": "unchanged"}
ALWAYS_COUNTED = ("new", "replaced", "same")
CODEBOOK_DEFAULTS = CodebookConfig()


@click.command()
@click.argument("features", type=folder)
@click.option("--output", "-o", required=True, type=folder, help="Folder for the codebook.")
@click.option("--words", default=CODEBOOK_DEFAULTS.words, show_default=True, help="How many.")
@click.option("--rounds", default=CODEBOOK_DEFAULTS.rounds, show_default=True, help="Of k-means.")
@click.option(
    "--points-per-word",
    default=CODEBOOK_DEFAULTS.points_per_word,
    show_default=True,
    help="Features to learn from at most.",
)
@click.option("--seed", default=CODEBOOK_DEFAULTS.seed, show_default=True)
@click.option("--overwrite", is_flag=True)
@cluster_option("k-means is done by this cluster of Ray's")
@workers_option
@json_option
def codebook(
    features: Path,
    output: Path,
    words: int,
    rounds: int,
    points_per_word: int,
    seed: int,
    overwrite: bool,
    cluster: str | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Learn the words of a collection from FEATURES (a features folder), or import an asmk codebook.pkl."""
    from superfeat.extraction.folder import FeatureStore
    from superfeat.index.codebook import Codebook
    from superfeat.index.target import learn_words
    from superfeat.storage.store import require_replaceable

    require_replaceable(output, ["manifest.json"], overwrite)
    if features.is_file():
        Codebook.open(features).save(output, overwrite=overwrite)
    else:
        config = CodebookConfig(words=words, rounds=rounds, points_per_word=points_per_word, seed=seed)
        chosen: dict[str, Any] = {"overwrite": overwrite, "workers": workers, "on_round": _rounds()}
        if cluster is not None:
            chosen["assign"] = click.get_current_context().with_resource(cluster_assign(cluster))
        learn_words(FeatureStore(features), config, output, **chosen)
    print_result(_codebook_result(output), as_json, _codebook_report)


def _rounds() -> "Callable[[Round], None]":
    """Shows how far k-means is."""
    progress = Progress("learning words from", None, unit="features")

    def show(now: "Round") -> None:
        if now.number:
            progress.total = now.points * now.rounds
            progress.doing = f"round {now.number} of {now.rounds}, feature"
            progress.at(now.points * (now.number - 1) + now.done)
            if (now.number, now.done) == (now.rounds, now.points):
                progress.done()
        else:
            progress.at(now.done)

    return show


def _codebook_result(output: Path) -> Told:
    from superfeat.index.codebook import read_codebook_manifest

    manifest = read_codebook_manifest(output)
    facts = manifest["facts"]
    told = {key: value for key, value in manifest.items() if key != "facts"}
    last = {key: value for key, value in facts.get("quality", {}).items() if key != "rounds"}
    return {"codebook": str(output), **told, "points": facts.get("points"), **last}


def _codebook_report(result: Told) -> Iterable[str]:
    yield f"{result['codebook']}: {result['words']} words of {result['dim']} dimensions"
    if result.get("distortion") is not None:
        yield (
            f"  from {result['points']} features; mean squared distance {result['distortion']:.3f}, "
            f"imbalance {result['imbalance']:.2f} (1 is even), {result['empty']} words were empty in the last round"
        )


def photo_options(command: Command) -> Command:
    """How photos are brought into an index; each verb that does it has all of these."""
    options = (
        click.option("--output", "-o", required=True, type=folder, help="Folder of the index, new or not."),
        click.option(
            "--weights",
            "-w",
            shell_complete=complete_weights,
            help=f"The network for photos. [default: the index's, or {DEFAULT_WEIGHTS}]",
        ),
        click.option(
            "--profile",
            type=click.Choice(list(PROFILES)),
            help=f"Settings for photos. [default: the index's, or {DEFAULT_PROFILE}]",
        ),
        click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any other setting of extract."),
        exclude_option,
        device_option,
        max_pixels_option,
        workers_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FEATURES|PHOTOS...")
@click.option(
    "--codebook",
    "words",
    type=folder,
    help=f"For a new index: a folder, or '{OWN_CODEBOOK}' for one learned from what is indexed. "
    f"[default: the one that comes with the network, else '{OWN_CODEBOOK}']",
)
@click.option(
    "--kernel",
    type=click.Choice(["binary", "real", *VECTOR_KERNELS]),
    help="For a new index. [default: binary; of vectors: float32]",
)
@click.option("--shards", type=int, help="For a new index: in so many shards.")
@click.option(
    "--boxes",
    type=folder,
    help="Regional aggregation (R-ASMK): a JSON file of boxes by photo, or 'attention' for a box of our own.",
)
@photo_options
@click.option("--sync", is_flag=True, help="Also drop photos that are no longer there.")
@cluster_option("Photos are looked at, and words learned, by this cluster of Ray's")
@json_option
@accounts_for_files
def index(
    sources: tuple[str, ...],
    output: Path,
    words: Path | None,
    kernel: str | None,
    shards: int | None,
    boxes: Path | None,
    weights: str | None,
    profile: str | None,
    assignments: tuple[str, ...],
    exclude: tuple[str, ...],
    sync: bool,
    cluster: str | None,
    device: str,
    max_pixels: int | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Add FEATURES (a features folder) or PHOTOS to an index; make it if there is none.

    PHOTOS are folders, files, archives (.tar, .zip), glob patterns and .txt lists, here or at an address (s3://…).
    What is there and has not changed is left alone, a changed photo replaces the old one, and an interrupted run goes
    on where it stopped. An asmk inverted file (.pkl) can be imported into a new index with its codebook.
    """
    from superfeat.extraction.extract import keep_memory
    from superfeat.index.make import begin_indexing, index_features

    single = Path(sources[0]) if len(sources) == 1 else None
    chosen: dict[str, Any] = {"codebook": words, "kernel": kernel, "workers": workers, "on_round": _rounds()}
    chosen["shards"] = shards
    if single is not None and (single.suffix == ".pkl" or (single / "manifest.json").is_file()):
        if sync or boxes is not None or cluster is not None:
            raise SuperfeatError(
                "--sync compares an index with folders of photos, --boxes cuts them and --cluster looks at them: "
                "none of these takes features or .pkl"
            )
        work = index_features(single, output, **chosen)
    else:
        keep_memory()
        limit_pixels(max_pixels)
        chosen |= {"settings": dict(parse_assignment(text) for text in assignments), "exclude": exclude}
        chosen["boxes"] = boxes
        if cluster is not None:
            chosen |= click.get_current_context().with_resource(hire_cluster(cluster, output, shards, workers, device))
        work = begin_indexing(sources, output, weights=weights, profile=profile, sync=sync, device=device, **chosen)
    follow = Follow()
    for event in work:
        show_event(follow, event)
    follow.end()
    print_result(index_result(work.result()), as_json, index_report)


def show_event(follow: Follow, event: "Indexing") -> None:
    """How far an indexing is."""
    if event.detail:
        say(f"{event.detail} (one learned from many other photos finds more: --codebook)")
    else:
        follow(event.stage, event.done, event.total, event.name, event.known)


def index_result(done: "Indexed") -> Told:
    facts = done.open().info()
    shown = {
        key: getattr(facts, key) for key in ("images", "words_per_image", "postings", "bytes", "bytes_per_posting")
    }
    counts = {kind: getattr(done, kind) for kind in OUTCOMES}
    reasons = {kind: as_told(getattr(done, kind)) for kind in ("skipped", "noted", "left_out", "unlisted", "unsure")}
    return {"index": str(done.path), **shown, **counts, **reasons, "dropped": done.dropped, "gone": done.gone}


def index_report(result: Told) -> Iterable[str]:
    size = f"{result['bytes'] / 1e6:.1f} MB" if result["bytes"] >= 1e6 else f"{result['bytes'] / 1e3:.0f} kB"
    counts = [f"{result[kind]} {word}" for kind, word in OUTCOMES.items() if result[kind] or kind in ALWAYS_COUNTED]
    counts += [f"{len(result['dropped'])} dropped"] if result["dropped"] else []
    yield (
        f"{result['index']}: {result['images']} images ({', '.join(counts)}), "
        f"{result['words_per_image']} words each, {size}"
    )
    if result["gone"]:
        gone = len(result["gone"])
        are, them = ("photo of the index is", "it") if gone == 1 else ("photos of the index are", "them")
        yield f"  {gone} {are} no longer there (--sync drops {them})"


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.argument("names", nargs=-1)
@click.option("--list", "list_file", type=click.File("r"), help="A file with a name per line (- for stdin).")
@json_option
def delete(index_folder: Path, names: tuple[str, ...], list_file: Any, as_json: bool) -> None:
    """Delete images from INDEX by name or by file, as `superfeat search` prints them: all, or none if one is not there.

    `superfeat compact` frees their space.
    """
    from superfeat.index.given import names_of
    from superfeat.index.index import Index

    listed = [line.rstrip("\r\n") for line in list_file] if list_file else []
    wanted = [*names, *(name for name in listed if name)]
    if not wanted:
        raise SuperfeatError("no names given; name images as `superfeat search` prints them, or use --list")
    index = Index.open(index_folder)
    deleted = index.delete(names_of(index, wanted))
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
    result = {"index": str(index_folder), "images": after.images, "segments": after.segments}
    print_result({**result, "bytes_before": before.bytes, "bytes": after.bytes}, as_json, tree)


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.argument("others", nargs=-1, type=INDEX_FOLDER)
@click.option(
    "--output", "-o", type=folder, help="A new index of them all; INDEX, which may be in shards, stays as it is."
)
@json_option
def merge(index_folder: Path, others: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Take the images of OTHERS, made with the same codebook, into INDEX: all of them, or none if one cannot be.

    An image of the same file, or of the same name and bytes, replaces ours; another photo of the same name gets a
    longer one.
    """
    from superfeat.index.index import Index
    from superfeat.index.splitting import begin_joining

    index = Index.open(index_folder)
    if output is not None and not others:
        print_shards(begin_joining(index, output), as_json)
        return
    if not others:
        raise SuperfeatError("nothing to merge: name other indexes, or a new one (--output) for the images of shards")
    if output is not None:
        index, index_folder = begin_joining(index, output).result(), output
    taken = index.merge(*[Index.open(other) for other in others])
    print_result({"index": str(index_folder), "taken": taken, "images": len(index)}, as_json, tree)
