"""Whatever happens to the files, and wherever a run is stopped: an index holds each photo that is there, once.

Files, and members of archives, are written, renamed, moved, copied, exchanged, changed and deleted; folders that
overlap are indexed, with and without dropping what has gone, and runs are killed: between two photos, while one is
extracted, and whenever bytes go to the disk. A run that ends leaves what it was given as it is on disk, and one more
run brings in everything. No photo whose bytes the index knows is ever extracted, and an image never comes to be
another photo.
"""

import collections
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import superfeat.extraction.extract as extraction
import superfeat.index.make as make
from fixtures_archives import tar_bytes, zip_bytes
from fixtures_recipe import quick_network
from superfeat.addresses.address import address_of
from superfeat.addresses.text import split_member
from superfeat.errors import SuperfeatError
from superfeat.features import Features
from superfeat.found.photos import photo_key
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, train_codebook
from superfeat.index.identity import file_digest
from superfeat.index.index import Index
from superfeat.index.make import Indexed, begin_indexing

DIM = 3
AHEAD = 3  # photos that are taken before the first is ready, as decoders do
PLACES = [f"{folder}{name}.jpg" for folder in ("", "a/", "a/b/", "c/") for name in "xyz"]
FOLDERS = ["", "a", "a/b", "c"]
ARCHIVES = ["s.tar", "a/z.zip"]
PLACES += [f"{archive}/{name}.jpg" for archive in ARCHIVES for name in "xy"]
NETWORK = quick_network(dim=DIM)


class Killed(BaseException):
    """As Ctrl-C, or worse."""


class World:
    """A folder of photos, the index of it, and what was extracted when."""

    def __init__(self, path: Path, codebook: Codebook) -> None:
        self.path, self.codebook = path, codebook
        self.root, self.index = path / "photos", path / "index"
        self.old_roots: list[Path] = []
        self.time = 10**18
        self.photo_of: dict[int, str] = {}  # id -> digest: forever
        self.extracted: list[str] = []
        self.kill_at: int | None = None
        self.syncs_left: int | None = None
        for folder in FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            (self.root / folder / "stays.txt").touch()

    def files(self) -> dict[str, str]:
        """Digests by path of the photos that are there."""
        found = {str(path.resolve()): file_digest(path) for path in self.root.rglob("*.jpg")}
        for archive in ARCHIVES:
            path = self.root.resolve() / archive
            found |= {f"{path}/{name}": photo_key(data) for name, data in self.members(archive).items()}
        return {path: digest for path, digest in found.items() if digest is not None}

    def members(self, archive: str) -> dict[str, bytes]:
        path = self.root / archive
        names = ["x.jpg", "y.jpg"] if path.exists() else []
        return {name: where.read_bytes() for name in names if (where := address_of(path / name)).exists()}

    def entries(self) -> list[tuple[int, str, str, str]]:
        """Id, name, path and digest of every image."""
        if not self.index.exists():
            return []
        found = [(one.name, one.meta, image) for image, one in Index.open(self.index).snapshot().images()]
        return [(image, name, str(meta["path"]), str(meta["digest"])) for name, meta, image in found]

    # -- What people do

    def write(self, place: str, content: int) -> None:
        self.put(place, f"photo {content}".encode())

    def put(self, place: str, data: bytes | None) -> None:
        """Bytes into a file, or into an archive, which is written anew; None takes them out."""
        self.time += 1
        path = self.root / place
        inside = split_member(place)
        if inside is not None:
            path = self.root / inside[0]
            members = {**self.members(inside[0]), inside[1]: data}
            data = archived(inside[0], {name: content for name, content in members.items() if content is not None})
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(data)
            os.utime(path, ns=(self.time, self.time))

    def is_there(self, place: str) -> bool:
        return address_of(self.root / place).exists()

    def move(self, old: str, new: str) -> None:
        if old != new and self.is_there(old):
            self.copy(old, new)
            self.delete(old)

    def copy(self, old: str, new: str) -> None:
        if old == new or not self.is_there(old):
            return
        if split_member(old) is None and split_member(new) is None:
            shutil.copy2(self.root / old, self.root / new)  # with its time, as programs move files
        else:
            self.put(new, address_of(self.root / old).read_bytes())

    def exchange(self, one: str, other: str) -> None:
        if one != other and self.is_there(one) and self.is_there(other):
            self.move(one, "kept")
            self.move(other, one)
            self.move("kept", other)

    def delete(self, place: str) -> None:
        if self.is_there(place):
            self.put(place, None)

    def move_root(self) -> None:
        new = self.root.with_name(f"{self.root.name}-")
        self.root.rename(new)
        self.old_roots.append(self.root)
        self.root = new

    # -- Indexing

    def extract(self, _: Any, photos: Iterator[Photo], *__: Any, **___: Any) -> Iterator[Features]:
        """In the place of the network: features made from the bytes, some photos ahead."""
        taken: collections.deque[Photo] = collections.deque()
        photos = iter(photos)
        while True:
            while len(taken) < AHEAD and (photo := next(photos, None)) is not None:
                taken.append(photo)
            if not taken:
                return
            photo = taken.popleft()
            if self.kill_at is not None and len(self.extracted) >= self.kill_at:
                raise Killed
            digest = file_digest(photo.where)
            assert digest is not None
            self.extracted.append(digest)
            yield features_of(photo.name, digest)

    def sync_or_die(self, _: int) -> None:
        """In the place of os.fsync. Who is killed here has no chance to tidy up: what is on disk by now is kept."""
        if self.syncs_left is None:
            return
        self.syncs_left -= 1
        if self.syncs_left == 0:
            if self.index.exists():
                shutil.copytree(self.index, self.path / "killed")
            raise Killed

    def die(self) -> None:
        """The index becomes what a killed run has left."""
        shutil.rmtree(self.index, ignore_errors=True)
        if (self.path / "killed").exists():
            (self.path / "killed").rename(self.index)

    def run(
        self, folders: list[str], sync: bool, kill: tuple[str, int] | None = None, besides: Sequence[Path] = ()
    ) -> Indexed | None:
        """One run of indexing; None if it was killed."""
        known = {digest for *_, digest in self.entries()}
        self.extracted.clear()
        self.kill_at = kill[1] if kill is not None and kill[0] == "extraction" else None
        self.syncs_left = kill[1] + 1 if kill is not None and kill[0] == "sync" else None
        there = [*(self.root / folder for folder in folders), *besides]
        codebook = None if (self.index / "manifest.json").exists() else self.codebook
        work = begin_indexing(there, self.index, weights="quick", codebook=codebook, sync=sync, workers=1)
        done = None
        try:
            for number, _ in enumerate(work):
                if kill is not None and kill[0] == "event" and number == kill[1]:
                    work._steps.close()
                    break
            else:
                done = work.result()
        except Killed:
            if self.syncs_left == 0:
                self.die()
        except SuperfeatError:  # there is nothing to index
            assert not any(path.is_relative_to(one.resolve()) for one in there for path in map(Path, self.files()))
        assert not known.intersection(self.extracted), "a known photo was extracted again"
        assert len(set(self.extracted)) == len(self.extracted), "a photo was extracted twice"
        self.syncs_left = None
        self.check_ids()
        if done is not None:
            self.check_folders([one.resolve() for one in there], sync)
        return done

    def check_folders(self, folders: list[Path], sync: bool) -> None:
        """What was indexed just now is in it once; of what has gone nothing is left where that was asked for."""
        files = {path: digest for path, digest in self.files().items() if _is_below(path, folders)}
        here = [(path, digest) for *_, path, digest in self.entries() if _is_below(path, folders)]
        seen = [(path, digest) for path, digest in here if sync or address_of(path).exists()]
        assert sorted(seen) == sorted(files.items())

    def check_ids(self) -> None:
        names = [name for _, name, *_ in self.entries()]
        assert len(set(names)) == len(names)
        for image, _, _, digest in self.entries():
            assert self.photo_of.setdefault(image, digest) == digest, "an image became another photo"

    def check_all(self) -> None:
        """A last run brings in everything, and one more changes nothing."""
        before = collections.Counter(digest for *_, digest in self.entries())
        ids = {image for image, *_ in self.entries()}
        files = self.files()
        at = {path: image for image, _, path, digest in self.entries() if files.get(path) == digest}
        old = {root for root in self.old_roots for *_, path, _ in self.entries() if Path(path).is_relative_to(root)}
        done = self.run([""], True, besides=sorted(old))
        now = self.entries()
        assert sorted((path, digest) for _, _, path, digest in now) == sorted(files.items())
        stayed = collections.Counter(digest for image, *_, digest in now if image in ids)
        wanted = before & collections.Counter(files.values())
        assert stayed == wanted, "of each photo as many images stay as there were and are files"
        assert at.items() <= {path: image for image, _, path, _ in now}.items(), "what stays is the same image"
        if done is not None:
            again = self.run([""], True)
            assert again is not None
            assert (again.same, again.new, again.moved, again.copied, again.dropped) == (len(files), 0, 0, 0, [])
            assert self.entries() == now


def _is_below(path: str, folders: list[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def archived(name: str, members: dict[str, bytes]) -> bytes | None:
    """An archive of this kind; none without members."""
    return (zip_bytes if name.endswith(".zip") else tar_bytes)(members) if members else None


def features_of(name: str, digest: str) -> Features:
    rng = np.random.default_rng(int(digest[:8], 16))
    vectors = rng.standard_normal((4, DIM)).astype(np.float32)
    one = np.ones(4, np.float32)
    return Features(name, vectors, one, one, np.arange(4, dtype=np.int32), None, None, (8, 8), NETWORK.digest)


place = st.sampled_from(PLACES)
content = st.integers(0, 5)
act = st.one_of(
    st.tuples(st.just("write"), place, content),
    st.tuples(st.sampled_from(["move", "copy", "exchange"]), place, place),
    st.tuples(st.just("delete"), place),
    st.just(("move_root",)),
)
moment = st.tuples(st.sampled_from(["extraction", "event"]), st.integers(0, 6))
kill = st.none() | moment | st.tuples(st.just("sync"), st.integers(0, 40))
run = st.tuples(st.just("run"), st.lists(st.sampled_from(FOLDERS), min_size=1, max_size=2), st.booleans(), kill)


@pytest.fixture(scope="module")
def codebook() -> Codebook:
    return train_codebook([np.random.default_rng(0).standard_normal((32, DIM)).astype(np.float32)], words=4)


@contextlib.contextmanager
def quick(world: World) -> Iterator[None]:
    """The network is a function of the bytes, nothing is decoded, and nobody waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", world.sync_or_die)
        patch.setattr(extraction, "extract", world.extract)
        patch.setattr(make, "load_network", lambda _: NETWORK)
        patch.setattr(make, "carried_codebook", lambda _: None)
        yield


@settings(deadline=None, max_examples=60)
@given(acts=st.lists(act | run, max_size=14))
def test_whatever_happens(acts: list[tuple[Any, ...]], codebook: Codebook) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), codebook)
        with quick(world):
            for name, *arguments in acts:
                getattr(world, name)(*arguments)
            world.check_all()
