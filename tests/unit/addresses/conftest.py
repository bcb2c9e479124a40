"""What one file of tests makes up, no other knows of."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _own_secrets() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("superfeat.addresses.text._given", {})
        patch.setattr("superfeat.addresses.text._logins", {})
        yield
