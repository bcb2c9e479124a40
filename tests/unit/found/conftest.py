"""An engine to ask."""

from pathlib import Path

import pytest

from fixtures_found import small_engine
from superfeat.engine import Engine
from superfeat.weights import Network


@pytest.fixture
def engine(tmp_path: Path, tiny_network: Network) -> Engine:
    return small_engine(tmp_path, tiny_network)
