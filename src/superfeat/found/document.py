"""An HTML file that needs nothing else: its style and photos are in it; it loads nothing, and runs our script alone."""

import base64
import hashlib
import io
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

import superfeat
from superfeat.errors import SuperfeatError
from superfeat.found.templates import template
from superfeat.storage.store import as_json, write_file, write_json

QUALITY = 82  # of JPEG
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write_document(path: Path, title: str, body: str, footer: str, *, script: str = "") -> None:
    """Writes a page around `body`, which is HTML; title and footer are text. No script but this one may run."""
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{POLICY}; script-src 'sha256-{allowed}'" if script else POLICY
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{template('results.css')}</style>\n</head>\n<body><main>"
        f"{body}<footer><p>Made by superfeat {superfeat.__version__}. {escape(footer)}</p></footer>"
        f"</main>{f'<script>{script}</script>' if script else ''}</body>\n</html>\n"
    )
    write_file(path, page.encode(errors="replace"))


def save_shown(path: str | Path, title: str, body: str | Callable[[], str], facts: Mapping[str, object]) -> None:
    """What can be shown, as a page (.html) or for programs (.json), by the file's ending; whole or not at all."""
    kind = Path(path).suffix.lower()
    if kind == ".json":
        write_json(Path(path), as_json(dict(facts)))
    elif kind in (".html", ".htm"):
        write_document(Path(path), title, body if isinstance(body, str) else body(), "")
    else:
        raise SuperfeatError(f"cannot save {path}: this is saved as .html or .json")


def embed(pixels: np.ndarray | Image.Image, side: int) -> str:
    """A photo as an address that holds it whole, `side` pixels along its longer side at most."""
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels.convert("RGB")
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
