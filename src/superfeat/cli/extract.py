"""superfeat extract: photos -> features."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.accounts import accounts_for_files
from superfeat.cli.lines import Progress, say
from superfeat.cli.terminal import (
    Told,
    device_option,
    exclude_option,
    json_option,
    limit_pixels,
    max_pixels_option,
    print_result,
    weights_option,
    workers_option,
)
from superfeat.config import DEFAULT_PROFILE, PROFILES, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.settings import overlay, parse_assignment, read_toml

if TYPE_CHECKING:
    from superfeat.sources.listing import Listing


@click.command()
@click.argument("photos", nargs=-1, required=True)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder for the features.")
@weights_option
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), default=DEFAULT_PROFILE, show_default=True, help="Named settings."
)
@click.option("--features", type=int, help="Features kept per image. [default: the profile's]")
@click.option("--max-side", type=int, help="Longest side in pixels. [default: the profile's]")
@click.option("--as-stored", is_flag=True, help="Do not turn photos upright by their EXIF tag (benchmarks).")
@click.option("--regions", is_flag=True, help="Also keep where in the photo each feature looks.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with an [extract] table.")
@click.option(
    "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any other setting, e.g. scales=[1.0,0.5]."
)
@device_option
@exclude_option
@max_pixels_option
@workers_option
@json_option
@accounts_for_files
def extract(
    photos: tuple[str, ...],
    output: Path,
    weights: str,
    profile: str,
    features: int | None,
    max_side: int | None,
    as_stored: bool,
    regions: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
    device: str,
    exclude: tuple[str, ...],
    max_pixels: int | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Turn PHOTOS (folders, files, archives, glob patterns, .txt lists; also s3://… and https://…) into features.

    What is already in the output folder is not done again, so an interrupted run goes on where it stopped.
    """
    flags: dict[str, Any] = {"features_per_image": features, "max_side": max_side}
    flags |= {"upright": False if as_stored else None, "attention": "regions" if regions else None}

    from superfeat.extraction.extract import extract_to, keep_memory
    from superfeat.extraction.folder import stored_names
    from superfeat.images import Skipped
    from superfeat.methods import profile_for
    from superfeat.sources.listing import list_photos, nothing_there
    from superfeat.weights import load_network

    keep_memory()
    limit_pixels(max_pixels)
    listing = list_photos(photos, exclude=exclude)
    if not listing.photos:
        raise SuperfeatError(nothing_there(photos, listing))
    network = load_network(weights)
    config = read_extract_config(profile_for(network.config.method, profile), config_file, assignments)
    config = overlay(config, {name: value for name, value in flags.items() if value is not None})
    there = stored_names(output)
    progress = Progress("extracting", len(listing.photos))
    progress.at(sum(photo.name in there for photo in listing.photos))
    new, noted = 0, []
    for outcome in extract_to(output, network, listing.photos, config, workers=workers, device=device):
        if not isinstance(outcome, Skipped):
            new += 1
            noted += [] if outcome.note is None else [{"name": outcome.name, "reason": outcome.note}]
        progress.step(outcome.name)
    progress.done()
    print_result({**_extract_result(output, listing, new), "noted": noted}, as_json, _extract_report)
    if network.config.whitened_dim is None and not network.one_vector and not as_json:
        note = f"note: these weights have no whitening, so features have {network.dim} raw dimensions; learn one with"
        say(f"{note}: superfeat weights whiten {weights} PHOTOS -o NETWORK")


def _extract_result(output: Path, listing: "Listing", new: int) -> Told:
    from superfeat.extraction.folder import FeatureStore, photo_stamp

    store = FeatureStore(output)
    stamps = {photo.name: photo_stamp(photo.where) for photo in listing.photos}
    return {
        "features": str(output),
        "images": len(store),
        "new": new,
        "features_per_image": round(store.manifest["features"] / max(1, len(store)), 1),
        "dim": store.manifest["dim"],
        "skipped": [{"name": entry.name, "reason": entry.skipped} for entry in store.skipped],
        "changed": [entry.name for entry in store.entries if stamps.get(entry.name, entry.stamp) != entry.stamp],
    }


def read_extract_config(config: ExtractConfig, config_file: Path | None, assignments: Iterable[str]) -> ExtractConfig:
    """Settings with those of a file and of single assignments on top."""
    if config_file is not None:
        tables = read_toml(config_file)
        unknown = sorted(set(tables) - {"extract"})
        if unknown:
            raise SuperfeatError(f"{config_file}: unknown table '{unknown[0]}'; extract reads the table [extract]")
        config = overlay(config, tables.get("extract", {}), "extract.")
    return overlay(config, dict(parse_assignment(text) for text in assignments), "extract.")


def _extract_report(result: Told) -> Iterable[str]:
    yield f"{result['features']}: {result['images']} images ({result['new']} new), " + (
        f"{result['features_per_image']} features of {result['dim']} dimensions each"
    )
    if result["changed"]:
        yield f"  {len(result['changed'])} photos have changed since; extract into a new folder to see them anew"
