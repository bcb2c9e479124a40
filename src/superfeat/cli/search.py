"""superfeat search and explain: which photos of an index show the same thing as a photo, and why."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.accounts import accounts_for_files, as_told
from superfeat.cli.clusters import cluster_options, open_engine
from superfeat.cli.completion import INDEX_FOLDER, complete_weights
from superfeat.cli.export import export_options, export_sets
from superfeat.cli.lines import say
from superfeat.cli.terminal import Told, json_option, place_of, print_result, workers_option
from superfeat.errors import ImageError, SuperfeatError
from superfeat.settings import overlay, parse_assignment

if TYPE_CHECKING:
    from superfeat.addresses.address import Where
    from superfeat.engine import Answer, Engine, Named
    from superfeat.features import Features
    from superfeat.geometry.keypoints import KeypointKind
    from superfeat.images import Skipped
    from superfeat.index.places import Region
    from superfeat.rerank.order import Rerank

FIRST_LOCAL = 100  # results that --local looks at
VERIFY: dict[str, "KeypointKind"] = {"matcher": "sift", "xfeat": "xfeat", "aliked": "aliked", "disk": "disk"}
BAR = 24  # characters of the longest bar: of certainty, or of the best score
NO_GEOMETRY = (
    "no result is verified: the index does not note where words lie. To add that, make it again from the photos, or "
    "from features that were extracted with --regions"
)
LOCAL_HELP = "Order the first 100 by the local features of this folder, which `extract --regions` made (DELG)."
BOX_HELP = "Only this part of the photo: x,y,width,height in pixels of the upright photo, or as fractions up to 1."


class BoxType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """x,y,width,height."""

    name = "x,y,w,h"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if len(numbers) != 4 or not (numbers[2] > 0 and numbers[3] > 0):
            self.fail(f"{value!r} is not four numbers x,y,width,height with a width and a height", param, ctx)
        return numbers


index_argument = click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
box_option = click.option("--box", type=BoxType(), help=BOX_HELP)
engine_weights = click.option(
    "--weights",
    "-w",
    shell_complete=complete_weights,
    help="The network for photos. [default: what the index was made with]",
)


@click.command()
@index_argument
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="How many images to show.")
@click.option("--all", "every", is_flag=True, help="All images, best first.")
@box_option
@click.option("--only", type=click.File("r"), help="Search among these images alone: a name or a file per line.")
@engine_weights
@cluster_options
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A search setting, e.g. alpha=2.")
@click.option(
    "--least",
    type=click.FloatRange(min=0, max=1),
    metavar="PROBABILITY",
    help="Leave out results below it; in an index without a calibration it is a score.",
)
@click.option(
    "--rerank",
    type=click.Choice(["geometry", "expand", "diffuse", "off"]),
    help="The order of the first results: by score and where words lie, by a query widened with verified photos, by "
    "how alike they are to each other, or by score alone. [default: diffuse, by how alike]",
)
@click.option("--turned", is_flag=True, help="Verify results turned by a quarter, a half or three quarters too.")
@click.option(
    "--verify",
    type=click.Choice(list(VERIFY)),
    help="Match the query with the first 20 results by keypoints: SIFT (matcher), XFeat, or ALIKED or DISK with "
    "LightGlue; those that are certain come first.",
)
@click.option("--local", type=click.Path(path_type=Path), help=LOCAL_HELP)
@click.option(
    "--local-weights", shell_complete=complete_weights, help="The network of --local, for photos that it does not have."
)
@click.option("--html", type=click.Path(path_type=Path), help="Also write a page with the photos, to look at.")
@export_options
@workers_option
@json_option
@accounts_for_files
def search(
    index_folder: Path,
    queries: tuple[str, ...],
    top: int,
    every: bool,
    box: tuple[float, ...] | None,
    only: Any,
    weights: str | None,
    cluster: str | None,
    replicas: int,
    patience: float,
    assignments: tuple[str, ...],
    least: float | None,
    rerank: "Rerank | None",
    turned: bool,
    verify: str | None,
    local: Path | None,
    local_weights: str | None,
    html: Path | None,
    export: Path | None,
    keyword: str | None,
    merge_sidecars: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Find the images of INDEX that show the same thing as QUERY.

    A QUERY is a photo, a features folder (each of its images is one), or the name of an image in the index.
    """
    from superfeat.index.given import names_of

    opened = open_engine(index_folder, cluster, replicas, patience, weights=weights, workers=workers)
    engine = click.get_current_context().with_resource(opened)
    config = overlay(engine.index.config.search, dict(parse_assignment(text) for text in assignments), "search.")
    listed = [line.rstrip("\r\n") for line in only if line.strip()] if only else None
    names = None if listed is None else names_of(engine.index, listed)
    count, order = len(engine.index) if every else top, {} if rerank is None else {"rerank": rerank}
    first = count if local is None else max(count, FIRST_LOCAL)
    found, skipped = _ask(engine, queries, box, top=first, only=names, config=config, turned=turned, **order)
    if skipped and not found and not as_json:
        name, reason = skipped[0].name, skipped[0].reason
        raise ImageError(reason if name in reason else f"{name}: {reason}")
    if verify is not None:
        found = [engine.match_first(answer, kind=VERIFY[verify]) for answer in found]
    if local is not None:
        found = _by_local_features(found, local, local_weights, workers, count)
    answers = [_likely(answer, least) for answer in found]
    results, told = [answer.as_dict() for answer in answers], functools.partial(_report, rerank is not None)
    print_result({"index": str(index_folder), "results": results, "skipped": as_told(skipped)}, as_json, told)
    if not as_json and any(answers) and all(hit.verified is None for answer in answers for hit in answer):
        say(NO_GEOMETRY)
    if html is not None:
        from superfeat.found.results import write_results_page

        write_results_page(html, answers)
        say(f"look at {html}")
    if export is not None or keyword is not None:
        from superfeat.export.photos import found_photos

        sets = [found_photos(answer.name, answer) for answer in answers]
        for line in export_sets(sets, export, {} if keyword is None else {keyword: sets}, merge_sidecars):
            say(line)
    engine.keep_network()
    if skipped:
        say(f"superfeat: {len(skipped)} of {len(found) + len(skipped)} queries could not be read")
        raise click.exceptions.Exit(1)


def _by_local_features(
    answers: "list[Answer]", folder: Path, weights: str | None, workers: int | None, count: int
) -> "list[Answer]":
    from superfeat.engine.local import LocalLook

    look = LocalLook(folder, weights, workers)
    ordered = [look.order(answer) for answer in answers]
    return [dataclasses.replace(answer, hits=answer.hits[:count]) for answer in ordered]


def _likely(answer: "Answer", least: float | None) -> "Answer":
    """The hits that are likely enough; without probabilities, of a score that is high enough."""
    if least is None:
        return answer
    hits = [hit for hit in answer.hits if (hit.score if hit.probability is None else hit.probability) >= least]
    return dataclasses.replace(answer, hits=hits)


def _photos_of(engine: "Engine", query: str) -> "Iterable[tuple[str, Where | Named | Features]]":
    """What a query stands for: a photo, those of a folder or of a features folder, or an image of the index."""
    from superfeat.addresses.address import address_of
    from superfeat.addresses.text import is_remote
    from superfeat.engine import Named

    path = address_of(query)
    if isinstance(path, Path) and (path / "manifest.json").is_file():
        from superfeat.extraction.folder import FeatureStore

        return ((features.name, features) for features in FeatureStore(path))
    if query in engine.index and (not path.exists() or not engine.knows_network):
        return [(query, Named(query))]
    if is_remote(query) or path.exists():
        from superfeat.sources.listing import list_photos, nothing_there

        listing = list_photos([query])
        if not listing.photos:
            raise SuperfeatError(nothing_there([query], listing))
        return [(photo.name, photo.where) for photo in listing.photos]
    return [(query, Named(engine.name_of(query)))]


def _fractions(engine: "Engine", query: "Where | Named | Features", box: tuple[float, ...] | None) -> "Region | None":
    """A box in pixels as fractions of the photo; one whose numbers are all at most 1 is in fractions already."""
    if box is None or max(box) <= 1:
        return box  # type: ignore[return-value]
    from superfeat.engine import Named
    from superfeat.features import Features
    from superfeat.images import upright_size

    if isinstance(query, Features):
        raise SuperfeatError("a box in pixels needs the photo itself, not its features")
    width, height = upright_size(engine.path_of(query.name) if isinstance(query, Named) else query)
    if not (-box[2] < box[0] < width and -box[3] < box[1] < height):
        asked = ",".join(f"{number:g}" for number in box)
        raise SuperfeatError(f"the box {asked} lies outside of the photo, which is {width} by {height} pixels")
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def _ask(
    engine: "Engine", queries: Iterable[str], box: tuple[float, ...] | None, **options: Any
) -> "tuple[list[Answer], list[Skipped]]":
    """Answers to all queries that can be read, and the others."""
    from superfeat.addresses.text import is_remote, public
    from superfeat.images import Skipped

    answers, skipped = [], []
    for given in queries:
        try:
            asked = _photos_of(engine, given)
        except SuperfeatError as error:
            skipped.append(Skipped(public(given) if is_remote(given) else given, str(error)))
            continue
        for name, query in asked:
            try:
                region = _fractions(engine, query, box)
                answers.append(dataclasses.replace(engine.search(query, box=region, **options), name=name))
            except ImageError as error:
                skipped.append(Skipped(name, str(error)))
    return answers, skipped


def _report(chosen: bool, result: Told) -> Iterable[str]:
    """The lines; how results are ordered is said where that was chosen, or has moved one."""
    for one in result["results"]:
        yield f"{one['query']}{_itself(one)}:"
        if one["missing"]:
            shards = ", ".join(part["shard"] for part in one["missing"])
            yield f"  {one['unsearched']:.0%} of the collection was not searched: shard {shards} does not answer"
        if one["reordered"] is not None and (chosen or one["reordered"]["moved"]):
            yield f"  {_reordered(one)}"
        best = max((hit["score"] for hit in one["hits"]), default=0.0)
        places = {shown["name"]: place_of(shown) for shown in (one["itself"], *one["hits"]) if shown is not None}
        for rank, hit in enumerate(one["hits"], 1):
            chance, part = "", max(0.0, hit["score"]) / best if best > 0 else 0.0
            if hit["probability"] is not None:
                chance, part = f"{hit['probability']:6.1%}  ", hit["probability"]
            bar, shown = "█" * round(BAR * part), f"{place_of(hit)}{_remark(hit, places)}"
            yield f"{rank:5}  {chance}{hit['score']:.4f}  {bar:{BAR}}  {shown}"


def _reordered(one: Told) -> str:
    """What a second look changed."""
    said = one["reordered"]
    if said["used"] == 0:
        why = (
            "too few different photos tell how strangers score"
            if said["method"] == "diffuse"
            else "no result is verified"
        )
        return f"the order stays that of the scores: {why}"
    how = {
        "geometry": f"by where words lie in {said['used']} photos",
        "expand": f"by a query widened with {said['used']} verified photos",
        "diffuse": f"by how alike the first {said['used']} are to each other",
    }[said["method"]]
    came = f", {said['came']} came in" if said["came"] else ""
    return f"ordered {how}: {said['moved']} of {len(one['hits'])} moved{came}"


def _itself(one: Told) -> str:
    """Whether the index has the query, which is then no hit, and what it is called there."""
    if one["itself"] is None:
        return ""
    name, place = one["itself"]["name"], place_of(one["itself"])
    return " (itself in the index)" if one["query"] in (name, place) else f" (itself in the index, as {place})"


def _remark(hit: Told, places: Mapping[str, str]) -> str:
    """What else there is to say of the file of a hit."""
    gone = "  (no longer there)" if hit["gone"] else ""
    gone += "" if hit["matched"] is None else f"  ({hit['matched']} matches{', certain' * hit['certain']})"
    return gone + ("" if hit["copy_of"] is None else f"  (a copy of {places.get(hit['copy_of'], hit['copy_of'])})")


@click.command()
@index_argument
@click.argument("query")
@click.argument("result")
@click.option(
    "--output", "-o", required=True, type=click.Path(path_type=Path), help="The picture, a .png or .jpg file."
)
@box_option
@click.option(
    "--verify",
    type=click.Choice(list(VERIFY)),
    help="Draw the matches of keypoints instead, SIFT (matcher) or others: it needs no network of the index.",
)
@engine_weights
@workers_option
@json_option
def explain(
    index_folder: Path,
    query: str,
    result: str,
    output: Path,
    box: tuple[float, ...] | None,
    verify: str | None,
    weights: str | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Draw why RESULT, an image of INDEX, was found for QUERY: which parts of both photos match, and their shares.

    QUERY is a photo or the name of an image in the index; RESULT is such a name, or the file that was indexed.
    """
    from superfeat.engine import Engine
    from superfeat.features import Features

    engine = Engine.open(index_folder, weights=weights, workers=workers)
    (_, asked), *more = _photos_of(engine, query)
    if more or isinstance(asked, Features):
        raise SuperfeatError(f"{query} is not one photo; name a photo, or an image of the index")
    name, region = engine.name_of(result), _fractions(engine, asked, box)
    if verify is not None:
        match = engine.match(asked, name, VERIFY[verify])
        match.save(output)
        facts = {"picture": str(output), "name": name, "inliers": match.inliers, "certain": match.certain}
        print_result({**facts, "covered": list(match.covered)}, as_json, _match_report)
        return
    explanation = engine.explain(asked, engine.hit_of(asked, name, box=region) or name, box=region)
    explanation.save(output)
    told = {"picture": str(output), "name": name, "path": engine.index.meta([name])[name].get("path")}
    chance = explanation.captions.probability
    print_result({**told, "probability": chance, **explanation.as_dict()}, as_json, _explain_report)


def _match_report(result: Told) -> Iterable[str]:
    yield f"{result['picture']}: {result['inliers']} matches of keypoints agree on one transform"
    yield "  certainly the same" if result["certain"] else "  that is not certain: strangers may have as many"


def _explain_report(result: Told) -> Iterable[str]:
    chance = "" if result["probability"] is None else f", probability {result['probability']:.1%},"
    yield f"{result['picture']}: why {place_of(result)} was found"
    yield f"  score {result['score']:.4f}{chance} from {result['shared_words']} shared words"
    if result["agreement"] is not None:
        said = result["agreement"]
        yield f"  {said['verified']:.0%} of it verified: {said['inliers']} words lie as in the query"
    for number, region in enumerate(result["regions"], 1):
        yield f"  region {number}: {region['share']:.0%} of the score"
