"""The methods: one file each, with all that is to be known of it beyond its modules. A new one is a new file here."""

import dataclasses

from superfeat.config import DEFAULT_PROFILE, ExtractConfig
from superfeat.errors import ConfigError
from superfeat.methods.apgem import APGEM
from superfeat.methods.delf import DELF
from superfeat.methods.delg import DELG
from superfeat.methods.fire import FIRE
from superfeat.methods.gem import GEM
from superfeat.methods.how import HOW
from superfeat.methods.mac import MAC
from superfeat.methods.method import Method
from superfeat.methods.rmac import RMAC
from superfeat.methods.solar import SOLAR
from superfeat.methods.spoc import SPOC
from superfeat.settings import nearest_name

ALL = (FIRE, HOW, MAC, SPOC, RMAC, GEM, APGEM, SOLAR, DELG, DELF)
METHODS: dict[str, Method] = {method.name: method for method in ALL}


def method_of(name: str) -> Method:
    """The method that settings call by this name."""
    if name not in METHODS:
        raise ConfigError(f"unknown method '{name}'; {nearest_name(name, METHODS)}")
    return METHODS[name]


def profile_for(method: str, name: str = DEFAULT_PROFILE) -> ExtractConfig:
    """A profile of settings, with the scales of the method's paper where it has its own."""
    config, scales = ExtractConfig.profile(name), method_of(method).scales
    return config if scales is None else dataclasses.replace(config, scales=scales)
