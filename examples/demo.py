"""The main job, as far as it goes today: photos -> features -> index -> which photos show the same thing.

Draws a few houses from several viewpoints, brings the ImageNet trunk, learns a whitening, extracts features, indexes
them, and searches with every photo; then trains a little network of its own, from nothing, on drawn landmarks. Writes
everything, and a picture of it, below the given folder.

    python examples/demo.py demo
"""

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

import superfeat

WEIGHTS = "imagenet-resnet50"
HOUSES, VIEWS = 5, 3
WIDTH, HEIGHT = 480, 360
# drawn-mini in a minute or two; as it stands it takes minutes, and learns more
SHORT = "--set data.things=40 --set pretraining.epochs=4 --set training.epochs=2 --set training.queries=40"


def main(folder: Path) -> None:
    photos, network, features, index = (folder / name for name in ("photos", "network", "features", "index"))
    draw_photos(photos)
    run(f"superfeat weights get {WEIGHTS}")
    if not network.exists():
        run(f"superfeat weights whiten {WEIGHTS} {quote(photos)} -o {quote(network)} --max-side 480")
    run(f"superfeat extract {quote(photos)} -o {quote(features)} --weights {quote(network)} --profile fast --regions")
    run(f"superfeat index {quote(features)} -o {quote(index)}")
    run(f"superfeat verify {quote(index)}")
    run(f"superfeat search {quote(index)} house0_view0.jpg --top 5")
    store = superfeat.FeatureStore(features)
    rankings = search_all(store, superfeat.Index.open(index))
    right = sum(names[0].split("_")[0] == query.split("_")[0] for query, names in rankings.items())
    picture = folder / "demo.png"
    draw_report(store, rankings, photos, picture)
    print(f"\n{right} of {len(store)} photos have another view of the same house as their best match.")
    print(f"Look at {picture}: each row is a photo, where its strongest features look, and its best matches.")
    trained = folder / "trained"
    run(f"superfeat train drawn-mini -o {quote(trained)} {SHORT}" + (" --resume" if trained.exists() else ""))


def quote(path: Path) -> str:
    return shlex.quote(str(path))


def run(command: str) -> None:
    print(f"\n$ {command}", flush=True)
    program = [sys.executable, "-m", *shlex.split(command)]
    if subprocess.run(program, check=False).returncode != 0:
        sys.exit("the demo stops here; the line above says why and what to do")


def draw_photos(folder: Path) -> None:
    """Houses that differ in colour, windows and roof; views that differ in perspective, crop and light."""
    folder.mkdir(parents=True, exist_ok=True)
    for house in range(HOUSES):
        facade = draw_house(np.random.default_rng(house))
        for view in range(VIEWS):
            photograph(facade, np.random.default_rng(100 * house + view)).save(folder / f"house{house}_view{view}.jpg")


def draw_house(random: np.random.Generator) -> Image.Image:
    sky, wall, roof, frame = (tuple(random.integers(60, 230, 3).tolist()) for _ in range(4))
    image = Image.new("RGB", (WIDTH, HEIGHT), sky)
    draw = ImageDraw.Draw(image)
    left, right, top, ground = 70.0, WIDTH - 70.0, 110.0, HEIGHT - 30.0
    draw.rectangle((0, ground, WIDTH, HEIGHT), fill=(90, 110, 80))
    draw.rectangle((left, top, right, ground), fill=wall)
    for y in np.arange(top, ground, random.integers(7, 14)).tolist():
        draw.line((left, y, right, y), fill=tuple(max(0, value - 18) for value in wall))
    peak = left + (right - left) * random.uniform(0.3, 0.7)
    draw.polygon((left - 20, top, peak, top - random.uniform(40, 90), right + 20, top), fill=roof)
    columns, rows = int(random.integers(3, 7)), int(random.integers(2, 4))
    arched = bool(random.integers(0, 2))
    for column in range(columns):
        for row in range(rows):
            x = left + (column + 0.5) * (right - left) / columns
            y = top + 20 + (row + 0.5) * (ground - top - 30) / (rows + 0.6)
            w, h = 0.28 * (right - left) / columns, 0.33 * (ground - top) / rows
            draw.rectangle((x - w, y - h, x + w, y + h), fill=(40, 50, 70), outline=frame, width=4)
            draw.line((x, y - h, x, y + h), fill=frame, width=2)
            if arched:
                draw.pieslice((x - w, y - h - w, x + w, y - h + w), 180, 360, fill=frame)
    door = left + random.uniform(0.2, 0.8) * (right - left)
    draw.rectangle((door - 18, ground - 62, door + 18, ground), fill=frame, outline=(30, 20, 20), width=3)
    return image


def photograph(facade: Image.Image, random: np.random.Generator) -> Image.Image:
    """A view: perspective, crop, light, blur and sensor noise."""
    corners = np.asarray([(0, 0), (0, HEIGHT), (WIDTH, HEIGHT), (WIDTH, 0)], float)
    moved = corners + random.uniform(-40, 40, corners.shape)
    view = facade.transform((WIDTH, HEIGHT), Image.Transform.QUAD, moved.ravel().tolist(), Image.Resampling.BICUBIC)
    view = view.filter(ImageFilter.GaussianBlur(float(random.uniform(0, 1.2))))
    pixels = np.asarray(view, float) * random.uniform(0.7, 1.25) + random.normal(0, 6, (HEIGHT, WIDTH, 1))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def search_all(store: superfeat.FeatureStore, index: superfeat.Index) -> dict[str, list[str]]:
    """For each photo the others, best first."""
    rankings = index.search_many(list(store))
    names = [entry.name for entry in store.entries]
    return {
        query: [name for name in ranking.names if name != query] for query, ranking in zip(names, rankings, strict=True)
    }


def draw_report(store: superfeat.FeatureStore, rankings: dict[str, list[str]], photos: Path, path: Path) -> None:
    width, height = WIDTH // 2, HEIGHT // 2
    chosen = list(rankings)[::VIEWS]
    sheet = Image.new("RGB", (width * 5, height * len(chosen)), "white")
    for row, query in enumerate(chosen):
        tiles = [open_photo(photos, query), with_regions(store[query], photos)]
        tiles += [open_photo(photos, other) for other in rankings[query][:3]]
        for column, tile in enumerate(tiles):
            sheet.paste(tile.resize((width, height)), (column * width, row * height))
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
