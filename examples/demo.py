"""The main job, as far as it goes today: photos -> features -> index -> which photos show the same thing.

Draws a few landmarks from several viewpoints, brings the ImageNet trunk, learns a whitening, extracts features, indexes
them, and searches with every photo; then trains a little network of its own from nothing, in small. Writes everything,
and a picture of it, below the given folder.

    python examples/demo.py demo
"""

import shlex
import subprocess
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

import superfeat

WEIGHTS = "imagenet-resnet50"
THINGS, VIEWS = 5, 3
TILE = (240, 180)
# drawn-mini in a minute or two; as it stands it takes minutes, and learns more
SHORT = "--set data.things=40 --set pretraining.epochs=4 --set training.epochs=2 --set training.queries=40"


def main(folder: Path) -> None:
    photos, network, features, index = (folder / name for name in ("photos", "network", "features", "index"))
    run(f"superfeat draw -o {quote(photos)} --things {THINGS} --views {VIEWS} --side 480 --seed 2")
    run(f"superfeat weights get {WEIGHTS}")
    if not network.exists():
        run(f"superfeat weights whiten {WEIGHTS} {quote(photos)} -o {quote(network)} --max-side 480")
    run(f"superfeat extract {quote(photos)} -o {quote(features)} --weights {quote(network)} --profile fast --regions")
    run(f"superfeat index {quote(features)} -o {quote(index)}")
    run(f"superfeat verify {quote(index)}")
    run(f"superfeat search {quote(index)} landmark_0000/view_00.jpg --top 5")
    store = superfeat.FeatureStore(features)
    rankings = search_all(store, superfeat.Index.open(index))
    right = sum(Path(names[0]).parent == Path(query).parent for query, names in rankings.items())
    picture = folder / "demo.png"
    draw_report(store, rankings, photos, picture)
    print(f"\n{right} of {len(store)} photos have another view of the same landmark as their best match.")
    print(f"Look at {picture}: each row is a photo, where its strongest features look, its best matches.", flush=True)
    trained = folder / "trained"
    run(f"superfeat train drawn-mini -o {quote(trained)} {SHORT}" + (" --resume" if trained.exists() else ""))


def quote(path: Path) -> str:
    return shlex.quote(str(path))


def run(command: str) -> None:
    print(f"\n$ {command}", flush=True)
    program = [sys.executable, "-m", *shlex.split(command)]
    if subprocess.run(program, check=False).returncode != 0:
        sys.exit("the demo stops here; the line above says why and what to do")


def search_all(store: superfeat.FeatureStore, index: superfeat.Index) -> dict[str, list[str]]:
    """For each photo the others, best first."""
    rankings = index.search_many(list(store))
    names = [entry.name for entry in store.entries]
    return {
        query: [name for name in ranking.names if name != query] for query, ranking in zip(names, rankings, strict=True)
    }


def draw_report(store: superfeat.FeatureStore, rankings: dict[str, list[str]], photos: Path, path: Path) -> None:
    width, height = TILE
    chosen = list(rankings)[::VIEWS]
    sheet = Image.new("RGB", (width * 5, height * len(chosen)), "white")
    for row, query in enumerate(chosen):
        tiles = [open_photo(photos, query), with_regions(store[query], photos)]
        tiles += [open_photo(photos, other) for other in rankings[query][:3]]
        for column, tile in enumerate(tiles):
            sheet.paste(ImageOps.pad(tile, TILE, color="white"), (column * width, row * height))
    sheet.save(path)


def open_photo(photos: Path, name: str) -> Image.Image:
    with Image.open(photos / name) as image:
        return image.convert("RGB")


def with_regions(features: superfeat.Features, photos: Path, count: int = 60) -> Image.Image:
    image = open_photo(photos, features.name)
    draw = ImageDraw.Draw(image)
    assert features.regions is not None
    for x, y, dx, dy in features.regions[:count]:
        box = (
            (x - 2 * dx) * image.width,
            (y - 2 * dy) * image.height,
            (x + 2 * dx) * image.width,
            (y + 2 * dy) * image.height,
        )
        draw.ellipse(box, outline=(255, 210, 0), width=2)
    return image


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
