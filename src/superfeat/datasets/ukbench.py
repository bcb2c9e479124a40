"""UKBench: every four images in order of number show one thing, and each of them is a query."""

import re
from pathlib import Path

from superfeat.datasets.holidays import find_numbered
from superfeat.datasets.retrieval_set import Query, RetrievalSet, with_positives
from superfeat.datasets.revisited import places
from superfeat.errors import DatasetError

NAME = "ukbench"
FILE = re.compile(r"ukbench([0-9]{5})\.jpg")
GROUP = 4


def read_ukbench(root: str | Path) -> RetrievalSet:
    """All four images of a group are right, the query too: the best score is four among the first four."""
    root = Path(root)
    photos = find_numbered(((place / end,) for place in reversed(places(root, NAME)) for end in ("", "full")), FILE)
    if not photos:
        raise DatasetError(
            f"there are no images ukbench00000.jpg, ukbench00001.jpg and so on at {root} or {root / 'full'}: unpack "
            "the published images there"
        )
    position = {number: place for place, number in enumerate(photos)}
    queries = []
    for number, photo in photos.items():
        group = range(number - number % GROUP, number - number % GROUP + GROUP)
        for member in group:
            if member not in position:
                path = photo.path.with_name(f"ukbench{member:05}.jpg")
                raise DatasetError(f"there is no {path}: put it there, for every {GROUP} numbers are one group")
        queries.append(Query(photo, tuple(position[member] for member in group)))
    return with_positives(NAME, photos.values(), queries, "ukbench")
