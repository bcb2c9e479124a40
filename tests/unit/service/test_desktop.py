"""Commands that show a file: those of each system, the first that works, names that are not taken for options."""

from pathlib import Path

import pytest

from superfeat.errors import ConfigError
from superfeat.service.limits import require_near

pytest.importorskip("fastapi", reason="the service needs its extra: pip install 'superfeat[serve]'")

from superfeat.service.desktop import opening, revealing, run_first
from superfeat.service.problems import Problem

PHOTO = Path("/photos/a, b/-c & d.jpg")


@pytest.mark.parametrize(
    ("platform", "opened", "revealed"),
    [
        ("linux", ["xdg-open", str(PHOTO)], "array:string:file:///photos/a%2C%20b/-c%20%26%20d.jpg"),
        ("darwin", ["open", str(PHOTO)], str(PHOTO)),
        ("win32", ["explorer", str(PHOTO)], f"/select,{PHOTO}"),
    ],
)
def test_each_system_has_its_commands(platform: str, opened: list[str], revealed: str) -> None:
    assert opening(PHOTO, platform) == [opened]
    assert revealed in revealing(PHOTO, platform)[0]


def test_the_first_that_works_is_enough(tmp_path: Path) -> None:
    def program(name: str, code: int) -> list[str]:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "$0" >> {tmp_path}/ran\nexit {code}\n')
        path.chmod(0o755)
        return [str(path)]

    run_first([["no-such-program"], program("fails", 3), program("works", 0), program("never", 0)])
    assert [Path(line).name for line in (tmp_path / "ran").read_text().split()] == ["fails", "works"]
    with pytest.raises(Problem, match="is there a desktop"):
        run_first([program("fails", 3)])


def test_files_are_for_this_machine_alone() -> None:
    assert require_near("127.0.0.1", True)
    assert not require_near("0.0.0.0", False)
    with pytest.raises(ConfigError, match=r"'0.0.0.0' can be reached from other machines"):
        require_near("0.0.0.0", True)
