"""A small index of four photos, one of them with a name that is not nice."""

from pathlib import Path

from PIL import Image

from fixtures_recipe import noise
from superfeat.config import ExtractConfig
from superfeat.engine import Engine
from superfeat.extraction.extract import extract
from superfeat.index.build import add_photos
from superfeat.index.codebook import train_codebook
from superfeat.index.index import Index
from superfeat.settings import as_dict
from superfeat.sources.listing import list_photos
from superfeat.storage.store import as_json
from superfeat.weights import Network, save_network

CONFIG = ExtractConfig(max_side=96, scales=(1.0, 0.5), attention="regions")
HOSTILE = "<script>alert(1)<.png"


def small_engine(place: Path, network: Network) -> Engine:
    """place/photos, place/network and place/index."""
    folder = place / "photos"
    folder.mkdir()
    for number, name in enumerate(("a.png", "b.png", "c.png", HOSTILE)):
        Image.fromarray(noise(72, 96, number)).save(folder / name)
    save_network(network, place / "network")
    features = list(extract(network, folder, CONFIG, workers=1))
    facts = as_json({"extract": as_dict(CONFIG), "weights": str(place / "network")})
    index = Index.create(place / "index", train_codebook(features, words=8), facts=facts)
    list(add_photos(index, network, list_photos([folder]).photos, CONFIG, workers=1))
    return Engine(index, workers=1)
