"""Files shown by the programs of this machine: opened, or pointed out in their folder."""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from superfeat.service.problems import Problem

PATIENCE = 3.0  # seconds after which a program that has not failed is taken to show the file
FILES = "org.freedesktop.FileManager1"  # what file managers of Linux desktops answer to


def opening(path: Path, platform: str = sys.platform) -> list[list[str]]:
    """Commands that open a file with whatever this machine opens such files with; the first that works is enough."""
    opener = {"darwin": "open", "win32": "explorer"}.get(platform, "xdg-open")
    return [[opener, str(path)]]


def revealing(path: Path, platform: str = sys.platform) -> list[list[str]]:
    """Commands that show a file in its folder, or at least the folder."""
    if platform == "darwin":
        return [["open", "-R", str(path)]]
    if platform == "win32":
        return [["explorer", f"/select,{path}"]]
    show = ["dbus-send", "--session", "--print-reply", f"--dest={FILES}", f"/{FILES.replace('.', '/')}"]
    return [[*show, f"{FILES}.ShowItems", f"array:string:{path.as_uri()}", "string:"], ["xdg-open", str(path.parent)]]


def run_first(commands: Iterable[Sequence[str]]) -> None:
    """Runs the first of the commands that is there and does not fail; a Problem if there is none."""
    for command in commands:
        if shutil.which(command[0]) is not None and _run(command):
            return
    message = "no program of this machine could show the file; is there a desktop on it?"
    raise Problem(501, "no_desktop", message)


def _run(command: Sequence[str]) -> bool:
    """Whether it works. Explorer says 1 when it does."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        return process.wait(PATIENCE) in ((0, 1) if command[0] == "explorer" else (0,))
    except subprocess.TimeoutExpired:
        return True
