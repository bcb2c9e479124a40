"""The methods: one file each, with all that is to be known of it beyond its modules. A new one is a new file here."""

from superfeat.errors import ConfigError
from superfeat.methods.fire import FIRE
from superfeat.methods.how import HOW
from superfeat.methods.method import Method
from superfeat.settings import nearest_name

METHODS: dict[str, Method] = {method.name: method for method in (FIRE, HOW)}


def method_of(name: str) -> Method:
    """The method that settings call by this name."""
    if name not in METHODS:
        raise ConfigError(f"unknown method '{name}'; {nearest_name(name, METHODS)}")
    return METHODS[name]
