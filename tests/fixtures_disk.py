"""A disk that can be filled."""

import os
from pathlib import Path


class Disk:
    """A small file system in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, pages: int) -> None:
        """Leaves so many pages."""
        room = os.statvfs(self.path)
        with (self.path / "ballast").open("wb") as file:
            file.write(bytes(max(0, room.f_bavail - pages) * room.f_frsize))

    def free(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)
