"""Photos in tar shards in a bucket, indexed by a cluster, beside the same photos in a folder, indexed plainly.

    python -m benchmarks.buckets PHOTOS -o WORK [--photos 2000] [--set max_side=160] [--json FILE]

Takes the first photos below PHOTOS, packs them into tar shards, puts these into an S3 server on this machine, and lets
`superfeat index --cluster auto --shards` read them from there. Every word and code of every photo, and the answers to
some searches, must be those of the folder to the last bit; else it ends with an error.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bucket_server import s3_server
from superfeat import Index
from superfeat.engine import Engine, Named
from superfeat.sources.listing import list_photos

BUCKET, SEARCHES = "photos", 20


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--per-tar", type=int, default=250)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], help="of the extraction, e.g. max_side=160")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    plain, tars = pack(args.source, args.output, args.photos, args.per_tar)
    options = [part for text in args.set for part in ("--set", text)]
    seconds = {"folder": run_index([str(plain)], args.output / "folder-index", options, {})}
    with s3_server() as address:
        keys = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "us-east-1"}
        given = {**keys, "AWS_ENDPOINT_URL": address}
        upload(tars, given)
        more = [*options, "--cluster", "auto", "--shards", str(args.shards)]
        seconds["bucket"] = run_index([f"s3://{BUCKET}/tars"], args.output / "bucket-index", more, given)
    facts = {**compare(args.output), "tars": len(list(tars.iterdir())), "shards": args.shards, "settings": args.set}
    facts["seconds"] = {name: round(value, 1) for name, value in seconds.items()}
    print(json.dumps(facts, indent=1))
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


def pack(source: Path, output: Path, photos: int, per_tar: int) -> tuple[Path, Path]:
    """The photos under plain names, as a folder with a sub-folder for each tar, and as these tars."""
    plain, tars = output / "folder", output / "tars"
    tars.mkdir(parents=True)
    for number, photo in enumerate(list_photos([source]).photos[:photos]):
        target = plain / f"{number // per_tar:05}" / f"{number:09}{photo.path.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(photo.path, target)
    for folder in sorted(plain.iterdir()):
        with tarfile.open(tars / f"{folder.name}.tar", "w") as tar:
            for file in sorted(folder.iterdir()):
                tar.add(file, file.name)
    return plain, tars


def upload(tars: Path, given: dict[str, str]) -> None:
    import s3fs

    bucket = s3fs.S3FileSystem(
        key=given["AWS_ACCESS_KEY_ID"], secret=given["AWS_SECRET_ACCESS_KEY"], endpoint_url=given["AWS_ENDPOINT_URL"]
    )
    bucket.mkdir(BUCKET)
    bucket.put(str(tars), f"{BUCKET}/tars", recursive=True)


def run_index(photos: list[str], index: Path, options: list[str], given: dict[str, str]) -> float:
    """Seconds that it takes."""
    began = time.monotonic()
    command = [sys.executable, "-m", "superfeat", "index", *photos, "-o", str(index), *options]
    subprocess.run(command, check=True, env={**os.environ, **given}, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def compare(output: Path) -> dict[str, Any]:
    """Word by word, code by code, and search by search."""
    one, other = (Index.open(output / name) for name in ("folder-index", "bucket-index"))
    names = {name: in_tar(name) for name in one.names()}
    assert set(other.names()) == set(names.values())
    for name, theirs in names.items():
        mine, found = one.words_of(name), other.words_of(theirs)
        assert np.array_equal(mine.words, found.words), name
        assert np.array_equal(mine.codes, found.codes), name
    engines, asked = (Engine(one), Engine(other)), sorted(names)[:: max(1, len(names) // SEARCHES)]
    for name in asked:
        hits = engines[0].search(Named(name)), engines[1].search(Named(names[name]))
        assert [(names[hit.name], hit.score) for hit in hits[0]] == [(hit.name, hit.score) for hit in hits[1]], name
    return {"photos": len(names), "equal": True, "searches": len(asked)}


def in_tar(name: str) -> str:
    """What a photo of the folder is called in the bucket."""
    folder, file = name.split("/")
    return f"{folder}.tar/{file}"


if __name__ == "__main__":
    main()
