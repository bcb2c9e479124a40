"""superfeat search: which images of an index show the same thing as a photo."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.terminal import json_option, print_result, workers_option
from superfeat.config import ExtractConfig, overlay, parse_assignment
from superfeat.errors import SuperfeatError

if TYPE_CHECKING:
    from superfeat.features import Features
    from superfeat.index import Index

BAR = 24  # characters of the best score's bar


@click.command()
@click.argument("index_folder", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="How many images to show.")
@click.option("--all", "every", is_flag=True, help="All images, best first.")
@click.option("--only", type=click.File("r"), help="Search among the names in this file alone, one per line.")
@click.option("--weights", "-w", help="The network for photos. [default: what the index was made with]")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A search setting, e.g. alpha=2.")
@workers_option
@json_option
def search(
    index_folder: Path, queries: tuple[str, ...], top: int, every: bool, only: Any, weights: str | None,
    assignments: tuple[str, ...], workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Find the images of INDEX that show the same thing as QUERY.

    A QUERY is a photo, a features folder (each of its images is one), or the name of an image in the index.
    """
    from superfeat.index import Index

    index = Index.open(index_folder)
    config = overlay(index.config.search, dict(parse_assignment(text) for text in assignments), "search.")
    names = [line.rstrip("\r\n") for line in only if line.strip()] if only else None
    results = []
    for name, query in _queries(index, queries, weights, workers):
        ranking = index.search(query, None if every else top, only=names, config=config, workers=workers)
        hits = [{"name": hit.name, "score": hit.score, "id": hit.id} for hit in ranking]
        results.append({"query": name, "hits": hits})
    print_result({"index": str(index_folder), "results": results}, as_json, _report)


def _queries(
    index: "Index", queries: Iterable[str], weights: str | None, workers: int | None
) -> "Iterator[tuple[str, str | Features]]":
    """Photos wait for each other, so that the network is loaded once."""
    photos = []
    for query in queries:
        path = Path(query)
        if (path / "manifest.json").is_file():
            from superfeat.feature_store import FeatureStore

            yield from ((features.name, features) for features in FeatureStore(path))
        elif query in index and (not path.exists() or (weights is None and "weights" not in index.facts)):
            yield query, query
        elif path.exists():
            photos.append(path)
        else:
            raise SuperfeatError(f"{query} is neither a photo here nor the name of an image in {index.path}")
    if photos:
        yield from _extract(index, photos, weights, workers)


def _extract(
    index: "Index", paths: list[Path], weights: str | None, workers: int | None
) -> "Iterator[tuple[str, Features]]":
    from superfeat.extraction import extract
    from superfeat.images import list_photos
    from superfeat.weights import load_network

    source = weights or index.facts.get("weights")
    if source is None:
        raise SuperfeatError(f"{index.path} does not say which network it was made with; name it with --weights")
    config = overlay(ExtractConfig(), index.facts.get("extract", {}))
    photos = [photo for path in paths for photo in list_photos([path]).photos]
    for features in extract(load_network(source), photos, config, workers=workers, on_skip=_warn):
        yield features.name, features


def _warn(skipped: Any) -> None:
    click.echo(f"skipped {skipped.name}: {skipped.reason}", err=True)


def _report(result: Mapping[str, Any]) -> Iterable[str]:
    for one in result["results"]:
        yield f"{one['query']}:"
        best = max((hit["score"] for hit in one["hits"]), default=0.0)
        for rank, hit in enumerate(one["hits"], 1):
            bar = "█" * round(BAR * max(0.0, hit["score"]) / best) if best > 0 else ""
            yield f"{rank:5}  {hit['score']:.4f}  {bar:{BAR}}  {hit['name']}"
