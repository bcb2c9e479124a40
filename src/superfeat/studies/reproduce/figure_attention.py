"""Figure 1: what super-features look at: the attention maps of five IDs on three photos, the first two of one thing."""

import numpy as np

from superfeat.errors import SuperfeatError
from superfeat.figures import Picture
from superfeat.images import Photo, read_image
from superfeat.studies.analyses import attention_of_ids, strongest_ids
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study

IDS = 5
ROW_TITLES = ("a photo", "the same thing", "another thing")


def run(study: Study) -> Outcome:
    """The strongest IDs on two photos of one thing and one of another."""
    network = study.train().network
    config = study.size.evaluation.extract
    photos = three_photos(study)
    ids = strongest_ids(network, photos, IDS, config, run=study.run)
    rows, pictures = [], []
    maps = []
    for photo, seen in zip(photos, attention_of_ids(network, photos, ids, config, run=study.run), strict=True):
        pixels = read_image(photo.where, max_side=config.max_side, upright=config.upright, box=photo.box)
        pictures.append([Picture(pixels), *(Picture(pixels, attention) for attention in seen.maps)])
        rows += [
            [photo.name, id, *region] for id, region in zip(ids, np.asarray(seen.regions, float).tolist(), strict=True)
        ]
        maps.append(seen.vectors)
    units = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in maps]
    same = float((units[0] * units[1]).sum(axis=1).mean())
    other = float((units[0] * units[2]).sum(axis=1).mean())
    finding = f"mean cosine of these IDs' features: {same:.2f} on the photos of one thing, {other:.2f} to the other's"
    titles = (ROW_TITLES, ["photo", *(f"ID {id}" for id in ids)])
    columns = ["photo", "id", "x", "y", "spread x", "spread y"]
    return Outcome(columns, rows, finding, agrees=same > other, photos=pictures, photo_titles=titles)


def three_photos(study: Study) -> list[Photo]:
    """A query, a photo of the same thing, and one of another."""
    test = study.analysed
    first = test.queries[0]
    others = [query for query in test.queries if not set(query.positives) & {*first.positives, *first.junk}]
    if not others:
        raise SuperfeatError("this figure needs photos of two things that are held out: give more things")
    return [first.photo, test.photos[first.positives[0]], others[0].photo]
