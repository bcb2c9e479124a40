"""The benchmarks by name, and whatever else a search can be judged by: a .json of queries, a folder of things."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path

from superfeat.datasets.folders import read_folders
from superfeat.datasets.holidays import read_holidays
from superfeat.datasets.oxford import read_oxford
from superfeat.datasets.retrieval_set import RetrievalSet, each_photo_in_turn, read_gnd_json
from superfeat.datasets.revisited import read_revisited
from superfeat.datasets.sfm120k import read_sfm120k_validation
from superfeat.datasets.training_set import is_file
from superfeat.datasets.ukbench import read_ukbench
from superfeat.errors import DatasetError
from superfeat.settings import nearest_name

GND_FILE = "gnd.json"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A published set, what reads it from a data folder, and which files belong where in that folder."""

    name: str
    what: str
    reader: Callable[[Path], RetrievalSet]
    layout: str


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "roxford5k",
            "Oxford buildings with revisited labels: 4993 images, 70 queries, Easy, Medium and Hard",
            functools.partial(read_revisited, name="roxford5k"),
            "gnd_roxford5k.pkl in the folder, in roxford5k/ or in test/roxford5k/, and the images in jpg/ beside it",
        ),
        Benchmark(
            "rparis6k",
            "Paris landmarks with revisited labels: 6322 images, 70 queries, Easy, Medium and Hard",
            functools.partial(read_revisited, name="rparis6k"),
            "gnd_rparis6k.pkl in the folder, in rparis6k/ or in test/rparis6k/, and the images in jpg/ beside it",
        ),
        Benchmark(
            "oxford5k",
            "Oxford buildings with their first labels: 5063 images, 55 queries",
            functools.partial(read_oxford, name="oxford5k"),
            "the text files (all_souls_1_query.txt and so on) in the folder, gt/, groundtruth/ or gt_files_170407/, "
            "and the images below jpg/, oxbuild_images/ or images/; or all of it in oxford5k/",
        ),
        Benchmark(
            "paris6k",
            "Paris landmarks with their first labels: 6392 images that can be read, 55 queries",
            functools.partial(read_oxford, name="paris6k"),
            "the text files (defense_1_query.txt and so on) in the folder, gt/, groundtruth/ or paris_120310/, "
            "and the images below jpg/, paris/ or images/; or all of it in paris6k/",
        ),
        Benchmark(
            "holidays",
            "INRIA Holidays: 1491 images, 500 queries",
            read_holidays,
            "100000.jpg and so on in the folder, in jpg/, or in jpg1/ and jpg2/; or all of it in holidays/",
        ),
        Benchmark(
            "ukbench",
            "UKBench: 10200 images, each a query, four of each thing",
            read_ukbench,
            "ukbench00000.jpg and so on in the folder, in full/ or in ukbench/full/",
        ),
        Benchmark(
            "sfm120k-val",
            "the validation list of retrieval-SfM-120k, as HOW and FIRe use it",
            read_sfm120k_validation,
            "retrieval-SfM-120k-val-eccv2020.pkl in the folder, in retrieval-SfM-120k/ or "
            "train/retrieval-SfM-120k/, and the images in ims/ beside it",
        ),
    )
}


def read_benchmark(source: str, images: Path | None = None) -> RetrievalSet:
    """A benchmark by its name, with `images` its data folder; or a .json of queries; or a folder of things.

    The paths in a .json are below `images`, by default its own folder, or the one above if that has the first photo. In
    a folder gnd.json decides; without it every sub-folder is a thing.
    """
    if (benchmark := BENCHMARKS.get(source)) is not None:
        if images is None:
            raise DatasetError(f"{source} needs the folder of its files: give one with {benchmark.layout}")
        return benchmark.reader(images)
    path = Path(source)
    if source and path.is_dir():
        if (path / GND_FILE).is_file():
            return _read_gnd(path / GND_FILE, images)
        if images is not None:
            raise DatasetError(
                f"{source} is a folder without {GND_FILE}, so that its own photos are asked for: leave {images} out"
            )
        return each_photo_in_turn(read_folders(path), path.resolve().name)
    if path.suffix.lower() == ".json":
        return _read_gnd(path, images)
    known = ", ".join(sorted(BENCHMARKS))
    hint = nearest_name(source.lower(), BENCHMARKS)
    hint = hint if known in hint else f"{hint} known are {known}"
    raise DatasetError(
        f"'{source}' is no benchmark, .json of queries or folder with one sub-folder of photos per thing; {hint}"
    )


def _read_gnd(path: Path, images: Path | None) -> RetrievalSet:
    return read_gnd_json(path, _folder_of_photos(path) if images is None else images)


def _folder_of_photos(path: Path) -> Path:
    """The folder of a .json, or the one above if only that has the first photo of 'db'."""
    try:
        first = json.loads(path.read_text(encoding="utf-8-sig"))["db"][0]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return path.parent  # whoever reads the whole file says what is wrong with it
    above = path.parent.resolve().parent
    if isinstance(first, str) and not is_file(path.parent / first) and is_file(above / first):
        return above
    return path.parent
