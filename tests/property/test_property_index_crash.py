"""Killed at any moment, an index holds exactly what was acknowledged, and the next run finishes the work."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# One process compiles the kernel and forks a child for each attempt. A child writes a line after each acknowledged
# step; `steps[:n]` of the plan is what an index must hold after n of them. A batch, or the one step in flight, may be
# in as well: its records go to the disk in order.
DRIVER = r"""
import json, os, random, shutil, signal, sys, time
from pathlib import Path

import numpy as np

from superfeat.index import contents
from superfeat.index import journal
from superfeat.index.codebook import Codebook
from superfeat.config import IndexConfig
from superfeat.index.index import Index
from superfeat.index.splitting import create_shards, rebalance_shards

contents.SMALL, contents.MIDDLE, contents.FAN = 3, 9, 3
folder, how, most, seed, kernel = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
shards = int(sys.argv[6])  # 0: an index that is one
rng = random.Random(seed)
CODEBOOK = Codebook(np.random.default_rng(0).standard_normal((16, 128)).astype(np.float32))
problems, kills, wanted_words, rankings = [], 0, {}, {}


def vectors(name, version):
    seed = int.from_bytes(f"{name} {version}".encode(), "little")
    return np.random.default_rng(seed).standard_normal((version % 5, 128)).astype(np.float32)


def secret(name, version):
    return f"secret of {name} {version}."


def item(step):
    return step["name"], vectors(step["name"], step["version"]), {"note": secret(step["name"], step["version"])}


def plan(length):
    # Names and versions such that every state of the index is different from the one before.
    steps, held, version = [], [], 0
    while len(steps) < length:
        kind = rng.choices(["add", "many", "delete", "compact"], [5, 3, 4 if shards else 2, 1])[0]
        if kind in ("add", "many"):
            # The images of a batch are in order within a shard alone.
            count, batch = (1, None) if kind == "add" else (rng.randint(1, 9), 1 if shards else rng.randint(1, 5))
            end = len(steps) + count
            for _ in range(count):
                version += 1
                name = f"image-{rng.randint(0, 15):02}"
                steps.append({"do": "add", "name": name, "version": version, "batch": batch, "end": end})
                held = [*(one for one in held if one != name), name]
        elif kind == "delete" and held:
            names = rng.sample(held, rng.randint(1, min(3, len(held))))
            held = [name for name in held if name not in names]
            steps.append({"do": "delete", "names": names})
        elif kind == "compact":
            steps.append({"do": "compact"})
    return steps


def state_after(steps):
    held = {}
    for step in steps:
        if step["do"] == "add":
            held.pop(step["name"], None)
            held[step["name"]] = step["version"]
        elif step["do"] == "delete":
            for name in step["names"]:
                del held[name]
    return list(held.items())


# -- The child


def work(path, steps, first, acks):
    handle = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC)
    index = Index.open(path)
    number = first
    while number < len(steps):
        step = steps[number]
        if step["do"] == "add" and step["batch"] is not None:
            rest = steps[number : step["end"]]
            for added in index.add_many(map(item, rest), batch=step["batch"]):
                os.write(handle, f"{number} {added.id}\n".encode())
                number += 1
            continue
        if step["do"] == "add":
            image = index.add(*item(step)).id
        elif step["do"] == "delete":
            image = -index.delete(step["names"])
        elif shards and number % 2:
            rebalance_shards(path, 2 + number % 3)
            index.refresh()
            image = -1
        else:
            index.compact()
            image = -1
        os.write(handle, f"{number} {image}\n".encode())
        number += 1


def killing(left):
    # The process dies before the call number `left` that changes the disk; a journal's write is cut in the middle.
    count = [0]

    def due():
        count[0] += 1
        return count[0] > left

    def guard(function):
        def call(*arguments, **options):
            if due():
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    write = journal._write_all

    def cut(file, data):
        if due():
            file.write(data[: rng.randint(0, len(data))])
            os.kill(os.getpid(), signal.SIGKILL)
        write(file, data)

    journal._write_all = cut
    for name in ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir"):
        setattr(os, name, guard(getattr(os, name)))
    return count


def attempt(job, left=None):
    child = os.fork()
    if child:
        return child
    try:
        count = killing(left) if left is not None else [0]
        job()
        (folder / "count").write_text(str(count[0]))
        os._exit(0)
    except BaseException as error:
        print("child:", repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def ended(child):
    global kills
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        kills += 1
        return True
    if os.WEXITSTATUS(status):
        problems.append(f"a child failed with {os.WEXITSTATUS(status)}")
    return False


# -- The checks


def check(condition, *what):
    if not condition:
        problems.append(" ".join(map(str, what)))


def words_of(name, version):
    if (name, version) not in wanted_words:
        words = reference.query(vectors(name, version), assignments=1)
        wanted_words[name, version] = (words.words.tobytes(), words.codes.tobytes())
    return wanted_words[name, version]


QUERY = vectors("query", 4)


def fresh_ranking(state):
    key = tuple(state)
    if key not in rankings:
        shutil.rmtree(folder / "fresh", ignore_errors=True)
        fresh = Index.create(folder / "fresh", CODEBOOK, IndexConfig(kernel=kernel))
        for name, version in state:
            fresh.add(name, vectors(name, version))
        found = fresh.search(QUERY, None)
        rankings[key] = found.names, found.scores.tobytes()
    return rankings[key]


def inspect(path, steps, first, acks, ids):
    # Returns how many steps are in.
    lines = acks.read_text().splitlines() if acks.exists() else []
    done = first + len(lines)
    check([int(line.split()[0]) for line in lines] == list(range(first, done)), "odd acknowledgements", lines)
    for line, step in zip(lines, steps[first:done]):
        if step["do"] == "add":
            ids[step["name"]] = int(line.split()[1]), step["version"]
    index = Index.open(path)
    list(index.verify())
    state = [(name, int(index.meta([name])[name]["note"].split()[-1][:-1])) for name in index.names()]
    flight = 1
    if done < len(steps) and steps[done]["do"] == "add" and steps[done]["batch"] is not None:
        flight = steps[done]["batch"]
    able = [n for n in range(done, min(done + flight, len(steps)) + 1) if state == state_after(steps[:n])]
    if not able:
        check(False, "after", done, "steps", state, "is not", state_after(steps[:done]))
        raise SystemExit(json.dumps({"problems": problems}))
    check(len(index) == len(state), "it counts", len(index), "images and names", len(state))
    order = [index.id(name) for name, _ in state]
    check(order == sorted(set(order)), "ids are not in order", order)
    for name, version in state:
        if ids.get(name, (0, 0))[1] == version:
            check(index.id(name) == ids[name][0], name, "has another id than was acknowledged")
        check(index.meta([name])[name] == {"note": secret(name, version)}, name, "has another note")
        words = index.words_of(name)
        check((words.words.tobytes(), words.codes.tobytes()) == words_of(name, version), name, "has other words")
    found = index.search(QUERY, None)
    check((found.names, found.scores.tobytes()) == fresh_ranking(state), "another ranking than a new index has")
    return able[0]


def check_compacted(path, steps):
    # Of what is deleted or replaced no byte is left, nor a file that nothing names.
    index = Index.open(path)
    index.compact()
    held = state_after(steps)
    living = b"".join(words_of(*one)[1] for one in held)
    for file in path.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        for name in {step["name"] for step in steps if step["do"] == "add"} - {name for name, _ in held}:
            check(name.encode() not in data, file.name, "still names", name)
        for step in steps:
            if step["do"] == "add" and (step["name"], step["version"]) not in held:
                check(secret(step["name"], step["version"]).encode() not in data, file.name, "still tells", step)
                codes, width = words_of(step["name"], step["version"])[1], 16 if kernel == "binary" else 512
                for place in range(0, len(codes), width):
                    code = codes[place : place + width]
                    check(code in living or code not in data, file.name, "still has a code of", step)
    if shards:
        names = {*json.loads((path / "manifest.json").read_text())["shards"], "manifest.json", ".lock"}
        check({file.name for file in path.iterdir()} - {"across.json"} == names, "left over or missing", path)
    for part in [one for one in path.iterdir() if one.name.isdigit()] if shards else [path]:
        check_files(part)
    list(index.verify())


def check_files(path):
    manifest = json.loads((path / "manifest.json").read_text())
    named = {path / "manifest.json", path / ".lock", path / manifest["journal"]}
    named |= {path / "codebook" / file for file in ("manifest.json", "centroids.npy")}
    for facts in manifest["segments"]:
        named |= {path / "segments" / facts["folder"] / file for file in facts["files"]}
    check(shards or (path / manifest["journal"]).stat().st_size == 16, "the journal is not empty")
    check(manifest["dead"] is None, "there are dead images", manifest["dead"])
    there = {file for file in path.rglob("*") if file.is_file()}
    check(there == named, "left over or missing:", there ^ named)
    check({one.name for one in (path / "segments").iterdir()} == {facts["folder"] for facts in manifest["segments"]},
          "left over folders")


reference = Index.create(folder / "reference", CODEBOOK, IndexConfig(kernel=kernel))
reference.add("warm", vectors("warm", 4))
for _ in range(2):
    reference.search(QUERY, None)
    reference.compact()


def start(path):
    shutil.rmtree(path, ignore_errors=True)
    return make(path)


def make(path):
    if shards:
        return create_shards(path, shards, CODEBOOK, IndexConfig(kernel=kernel))
    return Index.create(path, CODEBOOK, IndexConfig(kernel=kernel))


def run_until_whole(path, steps, moments, acks):
    # `moments` says when to kill; at the end the work is finished without one.
    first, ids = 0, {}
    for moment in moments:
        acks.unlink(missing_ok=True)
        killed = moment(lambda: work(path, steps, first, acks))
        first = inspect(path, steps, first, acks, ids)
        if not killed:
            break
    else:
        acks.unlink(missing_ok=True)
        check(not ended(attempt(lambda: work(path, steps, first, acks))), "the last attempt was killed")
        first = inspect(path, steps, first, acks, ids)
    check(first == len(steps) or all(step["do"] == "compact" for step in steps[first:]), "unfinished:", first)
    check_compacted(path, steps)


def at_call(number):
    return lambda job: ended(attempt(job, left=number))


def at_time(seconds):
    def moment(job):
        child = attempt(job)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        return ended(child)

    return moment


path, acks = folder / "index", folder / "acks"
if how == "call":
    steps = plan(20 if shards and most < 1000 else 40)
    start(path)
    ended(attempt(lambda: work(path, steps, 0, acks), left=1 << 60))
    calls = int((folder / "count").read_text())
    for number in sorted({round(place * calls / most) for place in range(most)} if most < calls else range(calls)):
        start(path)
        run_until_whole(path, steps, [at_call(number)], acks)
elif how == "create":
    def create():
        make(path)

    ended(attempt(create, left=1 << 60))
    calls = int((folder / "count").read_text())
    for number in range(calls):
        shutil.rmtree(path, ignore_errors=True)
        check(at_call(number)(create), "not killed at call", number)
        if not path.exists():
            create()
        list(Index.open(path).verify())
        Index.open(path).add("one", vectors("one", 4))
else:
    while kills < most:
        steps = plan(30 if shards and most < 50 else 60)
        start(path)
        began = time.monotonic()
        ended(attempt(lambda: work(path, steps, 0, acks)))
        length = time.monotonic() - began
        start(path)
        run_until_whole(path, steps, [at_time(rng.uniform(0, length / 2)) for _ in range(5)], acks)
print(json.dumps({"kills": kills, "problems": problems}))
"""


def drive(folder: Path, how: str, most: int, seed: int, kernel: str, shards: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-c", DRIVER, str(folder), how, str(most), str(seed), kernel, str(shards)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    assert found["problems"] == [], run.stderr
    return found


@pytest.mark.parametrize(
    ("most", "seed", "kernel"),
    [
        (5, 0, "binary"),
        (3, 1, "real"),
        pytest.param(10_000, 2, "binary", marks=pytest.mark.long),
        pytest.param(10_000, 3, "real", marks=pytest.mark.long),
    ],
)
def test_killed_before_a_change_of_the_disk(most: int, seed: int, kernel: str, tmp_path: Path) -> None:
    """Each sync, rename, removal and write that the index relies on is a place to die; in the long run all of them."""
    found = drive(tmp_path, "call", most, seed, kernel)
    assert most <= found["kills"] if most < 1000 else found["kills"] >= 100


@pytest.mark.parametrize(
    ("most", "seed", "kernel"),
    [
        (8, 0, "binary"),
        pytest.param(150, 1, "binary", marks=pytest.mark.long),
        pytest.param(50, 2, "real", marks=pytest.mark.long),
    ],
)
def test_killed_at_random_moments(most: int, seed: int, kernel: str, tmp_path: Path) -> None:
    assert drive(tmp_path, "time", most, seed, kernel)["kills"] >= most


@pytest.mark.parametrize(
    ("most", "seed"), [(5, 0), pytest.param(10_000, 2, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_shards_are_killed_before_a_change_of_the_disk(most: int, seed: int, tmp_path: Path) -> None:
    """Deletions touch several shards: all of them or none. Half of the compactions are a rebalancing."""
    found = drive(tmp_path, "call", most, seed, "binary", shards=3)
    assert most <= found["kills"] if most < 1000 else found["kills"] >= 100


@pytest.mark.parametrize(("most", "seed"), [(4, 0), pytest.param(150, 1, marks=pytest.mark.long)], ids=["few", "many"])
def test_shards_are_killed_at_random_moments(most: int, seed: int, tmp_path: Path) -> None:
    assert drive(tmp_path, "time", most, seed, "binary", shards=3)["kills"] >= most


def test_shards_are_killed_while_being_made(tmp_path: Path) -> None:
    assert drive(tmp_path, "create", 0, 0, "binary", shards=2)["kills"] >= 10


def test_killed_while_being_made(tmp_path: Path) -> None:
    """It is there whole or not at all, and can be made again."""
    assert drive(tmp_path, "create", 0, 0, "binary")["kills"] >= 10
