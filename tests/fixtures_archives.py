"""Archives as people pack them, and as nobody should."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from fixtures_recipe import noise


def photo_bytes(seed: int, size: tuple[int, int] = (48, 64), kind: str = "PNG") -> bytes:
    """A small photo that no other seed gives."""
    file = io.BytesIO()
    Image.fromarray(noise(*size, seed)).save(file, kind)
    return file.getvalue()


def tar_bytes(members: Mapping[str, bytes], mtime: int = 0) -> bytes:
    """A tar as WebDataset writes it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in members.items():
            add_member(tar, name, data, mtime)
    return file.getvalue()


def add_member(tar: tarfile.TarFile, name: str, data: bytes, mtime: int = 0) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(data), mtime
    tar.addfile(info, io.BytesIO(data))


def zip_bytes(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def pack(path: Path, members: Mapping[str, bytes]) -> Path:
    """Writes an archive of the kind that its ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((zip_bytes if path.suffix == ".zip" else tar_bytes)(members))
    return path
