"""Recipes: everything that decides how a network is trained, as TOML, by name or as a file of one's own."""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from superfeat.config import Recipe
from superfeat.errors import ConfigError
from superfeat.methods import method_of
from superfeat.settings import nearest_name, overlay, parse_assignment, read_toml


def recipe_names() -> list[str]:
    """The recipes that come with superfeat."""
    files = resources.files("superfeat.recipes").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_recipe(source: str | Path, assignments: Iterable[str] = (), weights: str | None = None) -> Recipe:
    """A recipe by name, or a TOML file, with weights and 'training.negatives=10' and the like laid over it."""
    path = Path(source)
    if not path.is_file():
        if str(source) not in recipe_names():
            raise ConfigError(
                f"no recipe '{source}': give a TOML file or a name; {nearest_name(str(source), recipe_names())}"
            )
        path = Path(str(resources.files("superfeat.recipes") / f"{source}.toml"))
    changes = read_toml(path)
    network = changes.get("network", {})
    name = network.get("method", Recipe().network.method) if isinstance(network, dict) else Recipe().network.method
    recipe = overlay(overlay(Recipe(), method_of(str(name)).recipe), changes)
    recipe = overlay(recipe, {} if weights is None else {"weights": weights})
    return overlay(recipe, dict(parse_assignment(text) for text in assignments))
