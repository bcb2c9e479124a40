"""Damage anywhere in a stranger's file: it loads, or it is refused with a word; no other error, and no surprise."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_recipe import MEAN_STD, released_checkpoint, released_state
from superfeat import Network, load_network
from superfeat.errors import SuperfeatError, UnpickleError
from superfeat.storage.unpickle import read_pickle

MODEST = settings(deadline=None, max_examples=60)
PLACES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4)


def damage(whole: bytes, places: list[tuple[float, int]], window: range) -> bytes:
    """Some bytes inside the window replaced; places are fractions of it."""
    damaged = bytearray(whole)
    for fraction, byte in places:
        damaged[window[int(fraction * len(window))]] = byte
    return bytes(damaged)


def refusal(read: Callable[[], object], kind: type[Exception]) -> int:
    """How long the word is with which it is refused; nothing if it is read."""
    try:
        read()
    except kind as error:
        return len(str(error))
    return 0


@pytest.fixture(scope="module")
def checkpoints(tiny_network: Network) -> dict[bool, bytes]:
    """The same small checkpoint in both forms of torch.save."""
    parameters = {"lit": {"T": 3, "N": 8, "dim": 16}, "runtime": {"mean_std": MEAN_STD}}
    contents = released_checkpoint(released_state(tiny_network.module), "fire/2021", parameters)
    files = {}
    for zipped in (False, True):
        file = io.BytesIO()
        torch.save(contents, file, _use_new_zipfile_serialization=zipped)
        files[zipped] = file.getvalue()
    return files


@pytest.mark.parametrize("zipped", [False, True])
@MODEST
@given(places=PLACES)
def test_damaged_checkpoints(
    zipped: bool,
    places: list[tuple[float, int]],
    checkpoints: dict[bool, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    whole = checkpoints[zipped]
    start = whole.index(b"state_dict") - 400  # where the names and shapes are; the rest is numbers
    path = tmp_path_factory.mktemp("damage") / "fire.pth"
    path.write_bytes(damage(whole, places, range(max(0, start), start + 12_000)))
    assert refusal(lambda: load_network(path), SuperfeatError) < 5000


PLAIN = {"a": np.arange(9).reshape(3, 3), "b": [1, "two", 3.5, None, (True, {4, 5})], "c": {"d": np.float64(2)}}


@pytest.mark.parametrize("protocol", [0, 2, 4])
@MODEST
@given(places=PLACES)
def test_damaged_pickles(
    protocol: int, places: list[tuple[float, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = pickle.dumps(PLAIN, protocol)
    path: Path = tmp_path_factory.mktemp("damage") / "values.pkl"
    path.write_bytes(damage(whole, places, range(len(whole))))
    assert refusal(lambda: read_pickle(path), UnpickleError) < 5000
