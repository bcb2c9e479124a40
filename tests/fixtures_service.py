"""A small index with its photos, and the service over it, listening on a free port of this machine."""

import contextlib
import hashlib
import io
import math
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import ExifTags, Image, ImageDraw

from fixtures_recipe import save_random_network
from superfeat.config import CALIBRATION, CodebookConfig, ExtractConfig, IndexConfig
from superfeat.engine import Engine
from superfeat.extraction.extract import extract
from superfeat.index.build import add_photos
from superfeat.index.codebook import train_codebook
from superfeat.index.index import Index
from superfeat.probability.model import Calibration, Origin
from superfeat.rerank.strangers import Null
from superfeat.service.app import create_app
from superfeat.service.limits import Limits
from superfeat.service.server import Server, listen, url_of
from superfeat.service.state import Service
from superfeat.settings import as_dict, overlay
from superfeat.sources.listing import list_photos
from superfeat.storage.store import as_json, write_json
from superfeat.weights import load_network

PHOTOS = 6
WAIT = 60.0  # seconds after which a test gives up on a server that does not do what it should
SETTINGS = overlay(IndexConfig(), {"search": {"assignments": 1}})  # so that a photo finds itself with the score 1
TOKEN = "a-token-of-twenty-letters"
CONFIG = ExtractConfig(max_side=128, scales=(1.0, 0.5), features_per_image=60, attention="regions")


def pattern(seed: int, width: int = 200, height: int = 150) -> Image.Image:
    """A photo that looks like no other: coarse blocks of colour with a few shapes on them."""
    random = np.random.default_rng(seed)
    blocks = Image.fromarray(random.integers(0, 256, (6, 8, 3), np.uint8))
    photo = blocks.resize((width, height), Image.Resampling.BICUBIC)
    pencil = ImageDraw.Draw(photo)
    for _ in range(12):
        x, y = int(random.integers(0, width)), int(random.integers(0, height))
        colour = tuple(int(value) for value in random.integers(0, 256, 3))
        pencil.ellipse((x, y, x + width // 8, y + height // 8), fill=colour)
    return photo


def encoded(photo: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    photo.save(file, kind, **options)
    return file.getvalue()


def photo(seed: int, **options: Any) -> bytes:
    return encoded(pattern(seed), quality=95, **options)


def redrawn(data: bytes) -> bytes:
    """The same pixels in other bytes: a photo that the index does not know, and finds with the score 1."""
    with Image.open(io.BytesIO(data)) as image:
        return encoded(image.convert("RGB"), "PNG")


def make_index(folder: Path, photos: int = PHOTOS, *, calibrated: bool = False) -> Path:
    """folder/photos (one of them in a folder of its own), folder/network and folder/index."""
    (folder / "photos" / "more").mkdir(parents=True)
    for number in range(photos):
        path = folder / "photos" / ("more" if number == photos - 1 else "") / f"{number}.jpg"
        pattern(number).save(path, quality=95)
    torch.manual_seed(0)
    weights = save_random_network(folder / "network", templates=24, whitened_dim=16)
    network = load_network(str(weights))
    listed = list_photos([folder / "photos"]).photos
    codebook = train_codebook(extract(network, listed, CONFIG, workers=1), CodebookConfig(words=16, rounds=2))
    facts = as_json({"extract": as_dict(CONFIG), "weights": str(weights)})
    index = Index.create(folder / "index", codebook, SETTINGS, network=network.digest, facts=facts)
    assert len(list(add_photos(index, network, listed, CONFIG, workers=1))) == photos
    if calibrated:
        calibrate(index)
    return folder / "index"


def with_dated(made: Path, folder: Path, photos: Mapping[str, tuple[Image.Image, str]]) -> Path:
    """A copy of an index with photos more, in folder/photos, each taken at a time that its EXIF tells."""
    for name, (photo, taken) in photos.items():
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = taken
        photo.save(path, quality=95, exif=exif)
    index = Index.open(shutil.copytree(made, folder / "index"))
    network = load_network(str(made.parent / "network"))
    list(add_photos(index, network, list_photos([folder / "photos"]).photos, CONFIG, workers=1))
    return index.path


def calibrate(index: Index) -> None:
    """Made-up numbers, of the kind that real ones have: the score 1 is certain, strangers are unlikely."""
    search = index.config.search
    origin = Origin(index.network, index.codebook.digest, index.config.kernel, search.alpha, search.threshold)
    calibration = Calibration(-5.0, 2.0, 0.0, Null(math.log(0.02), 0.8, 50), origin)
    write_json(index.path / CALIBRATION, calibration.to_dict())


class Served:
    """A running service, and a client of it."""

    def __init__(self, service: Service, url: str, token: str | None) -> None:
        self.service, self.engine, self.url = service, service.engine, url
        self.index = service.engine.index
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=WAIT, trust_env=False)

    @property
    def address(self) -> tuple[str, int]:
        parts = httpx.URL(self.url)
        return parts.host, parts.port or 80

    def search(self, photo: bytes | None = None, /, **fields: Any) -> httpx.Response:
        files = None if photo is None else {"photo": ("photo.jpg", photo)}
        return self.client.post("/search", data=fields, files=files)

    def found(self, photo: bytes | None = None, /, **fields: Any) -> list[str]:
        """Names: of the query itself if it is indexed, then of the others, best first."""
        response = self.search(photo, **fields)
        assert response.status_code == 200, response.text
        answer = response.json()
        itself = answer["query"]["itself"]
        return [hit["name"] for hit in [*([] if itself is None else [itself]), *answer["hits"]]]

    def add(self, photo: bytes, file: str, **fields: Any) -> httpx.Response:
        return self.client.post("/images", data=fields, files={"photo": (file, photo)})

    def names(self) -> list[str]:
        """Of all images, as the service tells them."""
        return [photo["name"] for photo in self.client.get("/images", params={"limit": 200}).json()["photos"]]

    def send_raw(self, *parts: bytes) -> bytes:
        """What a client gets that writes these bytes, read until the service closes the connection."""
        with socket.create_connection(self.address, timeout=WAIT) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for part in parts:
                    connection.sendall(part)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while more := connection.recv(65536):
                    answer += more
        return answer


@contextlib.contextmanager
def serving(
    index: Path | Engine,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    *,
    token: str | None = None,
    read_only: bool = False,
    files: bool = False,
) -> Iterator[Served]:
    """The service over an index, in a thread of this process; stopped gracefully at the end."""
    engine = Engine.open(index, workers=1) if isinstance(index, Path) else index
    app = create_app(engine, limits, token=token, read_only=read_only, files=files)
    bound = listen("127.0.0.1", 0)
    url = url_of(bound)
    server, ready = Server(app), threading.Event()
    server.on_ready = ready.set
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    try:
        assert ready.wait(WAIT)
        served = Served(app.state.service, url, token)
        try:
            yield served
        finally:
            served.client.close()
    finally:
        server.should_exit = True
        thread.join(WAIT)
        bound.close()
    assert not thread.is_alive()


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Status and code, after making sure that the error has its one shape."""
    body = response.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["message"]
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["error"]["code"]


def ids(served: Served) -> dict[str, int]:
    page = served.client.get("/images", params={"limit": 200}).json()
    return {one["name"]: one["id"] for one in page["photos"]}


def state_of(folder: Path) -> dict[str, str]:
    """A digest of every file below a folder, by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
