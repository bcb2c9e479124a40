"""superfeat map and superfeat localize: a sparse model of photos, and where other photos were taken in it."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from superfeat.cli.accounts import accounts_for_files, as_told, name_some
from superfeat.cli.lines import Follow, say
from superfeat.cli.search import engine_weights
from superfeat.cli.terminal import Told, json_option, print_result

if TYPE_CHECKING:
    from superfeat.mapping.localize import Located

PATH = click.Path(path_type=Path)
top_option = click.option(
    "--top", default=20, show_default=True, type=click.IntRange(min=1), help="Photos that each is matched with."
)
root_option = click.option("--images", "root", type=PATH, help="Where the photos of a list lie. [default: beside it]")


@click.command("map")
@click.argument("photos", type=PATH)
@click.option("--output", "-o", required=True, type=PATH, help="Folder of the map.")
@click.option("--local", default="sift", show_default=True, help="Local points: sift, xfeat, aliked, disk, r2d2:FILE.")
@top_option
@root_option
@engine_weights
@json_option
@accounts_for_files
def make_map(
    photos: Path, output: Path, local: str, top: int, root: Path | None, weights: str | None, as_json: bool
) -> None:
    """Make a sparse model of PHOTOS: a folder, a kapture dataset, or a list of hloc or COLMAP.

    Where all poses are known (kapture's trajectories) points are triangulated, else COLMAP finds the poses. Run again
    after a stop, it goes on. The exit code is 1 if a photo has no place, or the map is in parts.
    """
    from superfeat.mapping.build_map import MapChoice, build_map
    from superfeat.mapping.image_lists import read_photos

    work = build_map(read_photos(photos, root), output, MapChoice(local, top, weights))
    follow = Follow()
    for step in work:
        follow(step.doing, step.done, step.total)
    follow.end()
    built = work.result()
    result = {"map": str(output), **built._asdict(), "skipped": as_told(built.skipped)}
    print_result(result, as_json, _map_report)
    if built.skipped or built.alone or len(built.models) > 1:
        raise click.exceptions.Exit(1)


def _map_report(result: Told) -> Iterable[str]:
    models = result["models"]
    how = "with the poses given" if result["known_poses"] else "by COLMAP"
    yield f"{result['map']}: {sum(models)} of {result['photos']} photos, {result['points']} points, {how}"
    yield f"  {result['verified']} of {result['pairs']} pairs of photos agree"
    if len(models) > 1:
        parts = ", ".join(str(count) for count in models)
        yield f"  the map is in {len(models)} parts ({parts} photos) that share no coordinates"
    yield from name_some(f"without a place {len(result['alone'])}", result["alone"], False)
    yield from name_some(f"camera not known {len(result['guessed'])} (guessed)", result["guessed"], False)


@click.command("localize")
@click.argument("map_folder", metavar="MAP", type=PATH)
@click.argument("queries", type=PATH)
@click.option("--output", "-o", type=PATH, help="Folder for poses.txt, images.txt, cameras.txt and a kapture dataset.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page to look at.")
@top_option
@root_option
@engine_weights
@json_option
@accounts_for_files
def localize_photos(
    map_folder: Path,
    queries: Path,
    output: Path | None,
    html: Path | None,
    top: int,
    root: Path | None,
    weights: str | None,
    as_json: bool,
) -> None:
    """Find where QUERIES were taken in MAP. The exit code is 1 if one of them has no pose."""
    from superfeat.mapping.image_lists import read_photos
    from superfeat.mapping.localize import localize

    listed = read_photos(queries, root)
    work = localize(map_folder, listed, top=top, weights=weights)
    follow = Follow()
    for step in work:
        follow("localizing", step.done, step.queries)
    follow.end()
    found = work.result()
    posed = sum(one.pose is not None for one in found)
    result = {"map": str(map_folder), "queries": len(found), "located": posed, "results": [_told(one) for one in found]}
    print_result(result, as_json, _report)
    if output is not None:
        from superfeat.mapping.pose_files import write_poses

        write_poses(output, found)
        say(f"poses are in {output}")
    if html is not None:
        from superfeat.pages.map_page import write_map_page

        write_map_page(html, map_folder, {photo.name: photo.path for photo in listed.photos}, found)
        say(f"look at {html}")
    if posed < len(found):
        raise click.exceptions.Exit(1)


def _told(one: "Located") -> Told:
    pose = None if one.pose is None else {"qvec": list(one.pose.qvec), "tvec": list(one.pose.tvec)}
    centre = None if one.pose is None else one.pose.centre().tolist()
    facts = {"name": one.name, "trust": one.trust, "reason": one.reason, "pose": pose, "centre": centre}
    more = {"model": one.model, "inliers": one.inliers, "matches": one.matches, "deviation": one.deviation}
    return {**facts, **more}


def _report(result: Told) -> Iterable[str]:
    yield f"{result['located']} of {result['queries']} photos have a place in {result['map']}"
    for one in result["results"]:
        if one["centre"] is None:
            yield f"  {one['name']}: no place: {one['reason']}"
            continue
        where = ", ".join(f"{value:.3f}" for value in one["centre"])
        spread = "" if one["deviation"] is None else f" ± {one['deviation']:.3g}"
        yield f"  {one['name']}: at {where}{spread} ({one['trust']}: {one['reason']})"
