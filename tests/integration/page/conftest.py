"""A calibrated index for all files, services over it, and a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fixtures_service import Served, make_index, serving
from superfeat.service.limits import Limits

if TYPE_CHECKING:  # a test that imports it is skipped where there is no browser; a conftest cannot be
    from fixtures_page import Visit


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("page"), calibrated=True)


@pytest.fixture(scope="module")
def reader(made: Path) -> Iterator[Served]:
    """A service that no test changes."""
    with serving(made, Limits(max_upload=2_000_000, max_pixels=1_000_000), read_only=True) as served:
        yield served


@pytest.fixture
def writer(made: Path, tmp_path: Path) -> Iterator[Served]:
    with serving(Path(shutil.copytree(made, tmp_path / "index"))) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from fixtures_page import CHROMIUM, sync_api

    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any) -> Iterator["Visit"]:
    from fixtures_page import Visit

    one = Visit(browser)
    yield one
    one.context.close()
    assert one.troubles == []


@pytest.fixture
def phone(browser: Any) -> Iterator["Visit"]:
    from fixtures_page import PHONE, Visit

    one = Visit(browser, viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2)
    yield one
    one.context.close()
    assert one.troubles == []
