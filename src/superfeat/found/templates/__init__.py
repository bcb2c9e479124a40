"""Styles, scripts and pages as files; what is written into a page is read from here."""

from importlib import resources


def template(name: str) -> str:
    """The text of a file of this folder."""
    return (resources.files("superfeat.found.templates") / name).read_text(encoding="utf-8")
