"""The photos that the shipped network was trained on, as `superfeat train` reads them: labels, pairs, made views.

PHOTOS has gldv2/THING/*.jpg and grocery/THING/*.jpg, made from the lists of two public repositories; the model card
says which. ROLES is a CSV file with the columns thing and role for the former: `train` and `split` have pairs,
`distractor` only views, all others are left out.

    python tools/landmarks_training_set.py labels PHOTOS ROLES -o to-pair.csv
    superfeat pairs-from-labels PHOTOS --labels to-pair.csv -o found.csv --keypoints xfeat --exhaustive 40 \\
        --neighbours 24
    python tools/landmarks_training_set.py views PHOTOS ROLES --pairs found.csv --views 1800 -o SET
    python tools/landmarks_training_set.py landmarks PHOTOS ROLES --pairs found.csv -o SET    (the trainer makes views)
    python tools/landmarks_training_set.py sample PHOTOS ROLES --every 12 -o licensed.txt          (for the codebook)
    python tools/landmarks_training_set.py alike PHOTOS ROLES --each 10 -o CARTONS  (for the calibration: a folder each)
    python tools/landmarks_training_set.py others PHOTOS ROLES --every 4 -o OTHERS                 (for the calibration)

SET/labels.csv and SET/pairs.csv name photos below PHOTOS; the views lie in PHOTOS/views. With --small 0.5 the
second photo of half of the pairs is a smaller copy, in PHOTOS/small: maps that are stored have one size.
"""

import argparse
import csv
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from superfeat.geometry.pairs import vouched_pairs
from superfeat.images import read_image
from superfeat.training.views import make_view

PAIRED = ("train", "split")
USED = (*PAIRED, "distractor")
MOST_INLIERS = 250  # more are the same photo twice
VIEW_SIDE, VIEW_QUALITY = 448, 92
SMALL_SIDES = (176, 272)
ORDER_SEED, VIEW_SEED, SMALL_SEED = 7, 11, 13


def read_labels(photos: Path, roles: Path, wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(photo, thing) of all landmarks with these roles, and of the groceries."""
    with roles.open(encoding="utf-8", newline="") as file:
        role_of = {row["thing"]: row["role"] for row in csv.DictReader(file)}
    for kind in ("gldv2", "grocery"):
        for folder in sorted((photos / kind).iterdir()):
            if kind == "grocery" or role_of.get(folder.name) in wanted:
                thing = f"{kind}/{folder.name}"
                yield from ((f"{thing}/{photo.name}", thing) for photo in sorted(folder.glob("*.jpg")))


def make_views(photos: Path, labels: Sequence[tuple[str, str]], count: int) -> Iterator[tuple[str, str, str]]:
    """(photo, view, thing): one view of each of `count` photos, drawn at random; the same on every machine."""
    (photos / "views").mkdir(exist_ok=True)
    for number in np.random.default_rng(ORDER_SEED).permutation(len(labels))[:count].tolist():
        name, thing = labels[number]
        pixels = read_image(photos / name, max_side=VIEW_SIDE)
        view = make_view(pixels, np.random.default_rng((VIEW_SEED, number)))
        made = f"views/{name.replace('/', '__')}"
        Image.fromarray(view).save(photos / made, quality=VIEW_QUALITY)
        yield name, made, thing


def shrink_some(photos: Path, pairs: Sequence[tuple[str, str]], share: float) -> Iterator[tuple[str, str]]:
    """The pairs, in this share of them, by chance, the second photo as a smaller copy."""
    (photos / "small").mkdir(exist_ok=True)
    random = np.random.default_rng(SMALL_SEED)
    for query, positive in pairs:
        if random.random() >= share:
            yield query, positive
            continue
        made = f"small/{positive.replace('/', '__')}"
        side = int(random.integers(*SMALL_SIDES))
        if not (photos / made).exists():
            Image.fromarray(read_image(photos / positive, max_side=side)).save(photos / made, quality=VIEW_QUALITY)
        yield query, made


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows(rows)


def labels(args: argparse.Namespace) -> None:
    write_table(args.output, ("image", "thing"), read_labels(args.photos, args.roles, PAIRED))


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs that are not the same photo twice."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [(row["query"], row["positive"]) for row in rows if int(row["inliers"]) <= MOST_INLIERS]


def landmarks(args: argparse.Namespace) -> None:
    """All photos, and the pairs of landmarks alone, with those that others vouch for if they are wanted."""
    args.output.mkdir(parents=True, exist_ok=True)
    every = dict(read_labels(args.photos, args.roles, USED))
    pairs = [pair for pair in read_pairs(args.pairs) if pair[0].startswith("gldv2/") and set(pair) <= set(every)]
    if args.vouchers is not None:
        pairs += vouched_pairs(pairs, args.vouchers)
    write_table(args.output / "labels.csv", ("image", "thing"), every.items())
    write_table(args.output / "pairs.csv", ("query", "positive"), pairs)


def views(args: argparse.Namespace) -> None:
    every = list(read_labels(args.photos, args.roles, USED))
    pairs = list(shrink_some(args.photos, read_pairs(args.pairs), args.small))
    made = list(make_views(args.photos, every, args.views))
    pairs += [(photo, view) for photo, view, _ in made]
    thing_of = dict(every) | {view: thing for _, view, thing in made}
    thing_of |= {f"small/{name.replace('/', '__')}": thing for name, thing in every}
    args.output.mkdir(parents=True, exist_ok=True)
    used = sorted({name for pair in pairs for name in pair})
    write_table(args.output / "labels.csv", ("image", "thing"), [(name, thing_of[name]) for name in used])
    write_table(args.output / "pairs.csv", ("query", "positive"), pairs)


def sample(args: argparse.Namespace) -> None:
    names = [name for name, _ in read_labels(args.photos, args.roles, USED)]
    args.output.write_text("".join(f"{args.photos / name}\n" for name in names[:: args.every]), encoding="utf-8")


def others(args: argparse.Namespace) -> None:
    """Every so many photos of the landmarks, among which others are looked for."""
    landmarks = [name for name, _ in read_labels(args.photos, args.roles, USED) if name.startswith("gldv2/")]
    for name in landmarks[:: args.every]:
        target = args.output / Path(name).relative_to("gldv2")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(args.photos / name, target)


def alike(args: argparse.Namespace) -> None:
    """Photos of each of the groceries, evenly spread by name."""
    for folder in sorted((args.photos / "grocery").iterdir()):
        photos = sorted(folder.glob("*.jpg"))
        chosen = np.unique(np.linspace(0, len(photos) - 1, args.each).round().astype(int))
        (args.output / folder.name).mkdir(parents=True, exist_ok=True)
        for number in chosen.tolist():
            shutil.copyfile(photos[number], args.output / folder.name / photos[number].name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for verb in (labels, views, landmarks, sample, alike, others):
        one = verbs.add_parser(verb.__name__)
        one.set_defaults(run=verb)
        one.add_argument("photos", type=Path)
        one.add_argument("roles", type=Path)
        one.add_argument("--output", "-o", type=Path, required=True)
        if verb in (views, landmarks):
            one.add_argument("--pairs", type=Path, required=True)
        if verb is landmarks:
            one.add_argument("--vouchers", type=int, help="pairs too of which so many photos are paired with both")
        if verb is views:
            one.add_argument("--views", type=int, required=True)
            one.add_argument("--small", type=float, default=0.0, help="share of the pairs")
        if verb in (sample, others):
            one.add_argument("--every", type=int, required=True)
        if verb is alike:
            one.add_argument("--each", type=int, required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
