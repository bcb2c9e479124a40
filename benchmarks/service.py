"""The service under load: many clients search by name and by upload while one writer adds and deletes photos.

`superfeat serve` runs in a process of its own over an index of drawn landmarks. Every answer is checked: no error, the
right photo first where it is known, no acknowledged photo lost, none that was deleted still there, and the index whole
at the end. Of the uploads some are always the same, so that the engine remembers them, and some are too many for that.
Memory is the resident set of the server, twice a second. Latencies depend on what else the machine does (its load
average is noted); the server's CPU time per search hardly does. A second part sends more than the waiting room holds:
what does not fit must get 503 at once, and nothing else may go wrong.

    python -m benchmarks.service --json benchmarks/results/service.json
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.extraction import seeded_network
from superfeat import Index
from superfeat.config import CodebookConfig, ExtractConfig
from superfeat.drawn import draw_folder
from superfeat.extraction.extract import extract
from superfeat.index.build import add_photos
from superfeat.index.codebook import train_codebook
from superfeat.settings import as_dict
from superfeat.sources.listing import list_photos
from superfeat.storage.store import as_json
from superfeat.weights import load_network, save_network

CONFIG = ExtractConfig(max_side=192, scales=(1.0, 0.707, 0.5), features_per_image=300, attention="regions")
SIDE, VIEWS = 192, 4
HOT, COLD = 3, 24  # different uploads: fewer, and more, than the engine remembers
WARM_UP = 0.2  # of the run, in which memory may still grow: caches fill
SAMPLE_SECONDS = 0.5


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--overload", type=int, default=48, help="clients of the second part, with a queue of 4")
    parser.add_argument("--weights", help="a network [default: a FIRe ResNet-50 with random weights]")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), args.images, args.weights)
        with serving(work.index) as server:
            load = run_load(server, work, args.searches, args.clients)
        images = len(Index.open(work.index))
        files = sum(1 for _ in Index.open(work.index).verify())
        with serving(work.index, "--queue", "4") as server:
            overload = run_overload(server, work, args.overload)
    result = {"clients": args.clients, "load_average": os.getloadavg()[1], **load, "overload": overload}
    result |= {"images_at_the_end": images, "files_whole": files}
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


class Work:
    """An index of drawn landmarks, and photos to search with."""

    def __init__(self, folder: Path, images: int, weights: str | None) -> None:
        things = max(2, images // VIEWS)
        for _ in draw_folder(folder / "photos", things=things, views=VIEWS, max_side=SIDE):
            pass
        more = list(draw_folder(folder / "more", things=HOT + COLD, views=1, first=things, max_side=SIDE))
        source = weights or str(folder / "network")
        if weights is None:
            save_network(seeded_network(), folder / "network")
        self.index = folder / "index"
        network, listed = load_network(source), list_photos([folder / "photos"]).photos
        sample = extract(network, listed[:50], CONFIG)
        codebook = train_codebook(sample, CodebookConfig(words=256 if weights is None else 16, rounds=3))
        facts = as_json({"extract": as_dict(CONFIG), "weights": str(Path(source).absolute())})
        index = Index.create(self.index, codebook, network=network.digest, facts=facts)
        for _ in add_photos(index, network, listed, CONFIG):
            pass
        self.names = list(index.names())
        uploads = [path.read_bytes() for path in more]
        self.hot, self.cold = uploads[:HOT], uploads[HOT:]
        self.new = [path.read_bytes() for path in sorted((folder / "photos").rglob("*.jpg"))]


class Server(NamedTuple):
    url: str
    process: int

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, trust_env=False)


@contextlib.contextmanager
def serving(index: Path, *options: str) -> Iterator[Server]:
    """A process of its own, stopped as a service manager would."""
    command = [sys.executable, "-m", "superfeat", "serve", str(index), "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(json.loads(process.stdout.readline())["url"], process.pid)
        finally:
            process.terminate()
            assert process.wait(60) == 0


class Samples:
    """Resident memory of a process while something runs, in MB."""

    def __init__(self, process: int) -> None:
        self.process, self.values = process, [resident(process)]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Samples":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self.values.append(resident(self.process))

    def summary(self) -> dict[str, Any]:
        """Growth is from the first third after the warm-up to the last third, by their medians."""
        steady = self.values[int(len(self.values) * WARM_UP) :]
        third = max(1, len(steady) // 3)
        first, last = statistics.median(steady[:third]), statistics.median(steady[-third:])
        keys = {"start": self.values[0], "steady": round(first, 1), "end": round(last, 1), "most": max(self.values)}
        return {**keys, "growth_percent": round(100 * (last / first - 1), 2), "samples": len(self.values)}


def resident(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise RuntimeError("this system does not tell how much memory a process has")


def cpu_seconds(process: int) -> float:
    """That a process has computed for: says how much was done, however busy the machine is."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


# -- Much


def run_load(server: Server, work: Work, searches: int, clients: int) -> dict[str, Any]:
    """All searches, a writer beside them, and what is in the index afterwards."""
    times: dict[str, list[float]] = {"by name": [], "by upload, seen lately": [], "by upload, not seen lately": []}
    stop = threading.Event()
    numbers = iter(range(searches))
    lock = threading.Lock()

    def client(seed: int) -> None:
        chance = random.Random(seed)
        with server.client() as http:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                kind, search = pick(work, chance)
                began = time.perf_counter()
                search(http)
                times[kind].append(time.perf_counter() - began)

    with Samples(server.process) as memory, ThreadPoolExecutor(clients + 1) as pool:
        began, spent = time.perf_counter(), cpu_seconds(server.process)
        writing = pool.submit(write, server, work, stop)
        for done in [pool.submit(client, seed) for seed in range(clients)]:
            done.result()
        seconds, spent = time.perf_counter() - began, cpu_seconds(server.process) - spent
        stop.set()
        written = writing.result()
    check(server, work, written)
    return {
        "searches": searches,
        "errors": 0,  # any would have ended the run
        "seconds": round(seconds, 1),
        "searches_per_second": round(searches / seconds, 1),
        "cpu_ms_per_search": round(1000 * spent / searches, 1),  # of the server, its writes included
        "latency_ms": {kind: latencies(values) for kind, values in times.items()},
        "writes": {"added": written.added, "deleted": written.deleted, "lost": 0},
        "memory_mb": memory.summary(),
    }


def pick(work: Work, chance: random.Random) -> tuple[str, Callable[[httpx.Client], None]]:
    kind = chance.random()
    if kind < 0.5:
        name = chance.choice(work.names)
        return "by name", lambda http: search_name(http, name)
    if kind < 0.75:
        data = chance.choice(work.hot)
        return "by upload, seen lately", lambda http: search_upload(http, data)
    data = chance.choice(work.cold)
    return "by upload, not seen lately", lambda http: search_upload(http, data)


def search_name(http: httpx.Client, name: str) -> None:
    found = answer(http.post("/search", data={"name": name}))
    assert found["query"]["itself"]["name"] == name
    assert found["hits"]
    assert name not in [hit["name"] for hit in found["hits"]]


def search_upload(http: httpx.Client, data: bytes) -> None:
    assert answer(http.post("/search", files={"photo": data}))["hits"]


def answer(response: httpx.Response) -> Any:
    assert response.status_code in (200, 201), response.text
    return response.json()


def latencies(seconds: list[float]) -> dict[str, float]:
    values = sorted(1000 * value for value in seconds) or [0.0]
    at = {f"p{part}": round(values[min(len(values) - 1, int(part * len(values) / 100))], 1) for part in (50, 95, 99)}
    return {"count": len(seconds), **at, "most": round(values[-1], 1)}


# -- The writer


class Written(NamedTuple):
    here: dict[str, int]  # ids of photos that were acknowledged, by name
    gone: list[int]
    added: int
    deleted: int


def write(server: Server, work: Work, stop: threading.Event) -> Written:
    """Adds photos, deletes every third one, until it is told to stop."""
    here: dict[str, int] = {}
    gone: list[int] = []
    with server.client() as http:
        for number in itertools.count():
            if stop.is_set():
                return Written(here, gone, number, len(gone))
            name = f"added-{number:05}.jpg"
            data = work.new[number % len(work.new)]
            here[name] = answer(http.post("/images", files={"photo": (name, data)}))["id"]
            if number % 3 == 2:
                gone.append(here.pop(next(iter(here))))
                answer(http.delete(f"/images/{gone[-1]}"))
    raise AssertionError("unreachable")


def check(server: Server, work: Work, written: Written) -> None:
    """What was acknowledged is there and can be seen; what was deleted is not."""
    with server.client() as http:
        found: dict[str, int] = {}
        while page := answer(http.get("/images", params={"offset": len(found), "limit": 200}))["photos"]:
            found |= {photo["name"]: photo["id"] for photo in page}
        assert set(found) == set(work.names) | set(written.here)
        for name, image in written.here.items():
            assert found[name] == image
            assert http.get(f"/images/{image}/thumbnail").status_code == 200
        for image in written.gone:
            assert http.get(f"/images/{image}").status_code == 404


# -- Too much


def run_overload(server: Server, work: Work, clients: int) -> dict[str, Any]:
    """Everybody sends at once what the network has to look at; nobody may see anything but an answer or 503."""
    seen: Counter[int] = Counter()
    ready = threading.Barrier(clients)

    def client(seed: int) -> None:
        with server.client() as http:
            ready.wait(60)
            for turn in range(4):
                data = work.cold[(seed + turn) % len(work.cold)]
                response = http.post("/search", files={"photo": data})
                assert response.status_code in (200, 503), response.text
                assert response.status_code == 200 or response.headers["retry-after"]
                seen[response.status_code] += 1

    with Samples(server.process) as memory, ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client, seed) for seed in range(clients)]:
            done.result()
        with server.client() as http:
            search_name(http, work.names[0])
    return {"clients": clients, "answered": seen[200], "sent_away": seen[503], "memory_mb_most": max(memory.values)}


if __name__ == "__main__":
    main()
