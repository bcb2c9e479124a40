"""Appendix, attention consistency across scales: one super-feature's map at every scale, on three photos."""

import numpy as np

from superfeat.figures import Picture
from superfeat.images import read_image
from superfeat.studies.analyses import attention_over_scales, strongest_ids
from superfeat.studies.reproduce.figure_attention import ROW_TITLES, three_photos
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """The strongest ID of each photo, from the smallest scale to the largest."""
    network = study.train().network
    config = study.size.evaluation.extract
    rows, pictures, drift = [], [], []
    scales = sorted(config.scales)
    photos = three_photos(study)
    for photo in photos:
        id = strongest_ids(network, [photo], 1, config, run=study.run)[0]
        pixels = read_image(photo.where, max_side=config.max_side, upright=config.upright, box=photo.box)
        seen = {one.scale: one for one in attention_over_scales(network, photo, id, config, run=study.run)}
        pictures.append([Picture(pixels, seen[scale].map) if scale in seen else None for scale in scales])
        places = np.asarray([seen[scale].region[:2] for scale in sorted(seen)], float)
        rows += [[photo.name, id, scale, *place] for scale, place in zip(sorted(seen), places.tolist(), strict=True)]
        drift.append(float(np.linalg.norm(places - places.mean(axis=0), axis=1).mean()))
    moved = float(np.mean(drift))
    finding = f"over the scales the centre of a map moves by {moved:.3f} of the image's side"
    titles = (ROW_TITLES, [f"scale {scale:g}" for scale in scales])
    columns = ["photo", "id", "scale", "x", "y"]
    return Outcome(columns, rows, finding, agrees=moved < 0.1, photos=pictures, photo_titles=titles)
