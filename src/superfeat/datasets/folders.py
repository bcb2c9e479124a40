"""A training set of your own: one sub-folder of photos per thing, and a list of pairs if you have one."""

from pathlib import Path

from superfeat.datasets.labelled import read_pairs
from superfeat.datasets.training_set import TrainingSet, from_labels, listed
from superfeat.errors import DatasetError
from superfeat.sources.listing import list_photos, nothing_there

PAIRS_FILE = "pairs.csv"


def read_folders(folder: str | Path, pairs: str | Path | None = None) -> TrainingSet:
    """Photos below one sub-folder per thing; the pairs of `pairs`, or of pairs.csv in the folder, if there is one."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DatasetError(f"there is no folder {folder}: give a folder with one sub-folder of photos per thing")
    listing = list_photos([folder])
    names = [photo.name for photo in listing.photos]
    if not names:
        raise DatasetError(f"{nothing_there([folder], listing)}: give a folder with one sub-folder of photos per thing")
    if loose := [name for name in names if "/" not in name]:
        raise DatasetError(
            f"{folder} holds photos that are in no sub-folder ({listed(loose)}), so that what they show is unknown: "
            "sort them into one sub-folder per thing"
        )
    if pairs is None and (folder / PAIRS_FILE).is_file():
        pairs = folder / PAIRS_FILE
    numbers = {name: number for number, name in enumerate(names)}
    rows = read_pairs(Path(pairs), numbers).rows if pairs is not None else None
    return from_labels(listing.photos, [name.split("/")[0] for name in names], rows, str(folder))
