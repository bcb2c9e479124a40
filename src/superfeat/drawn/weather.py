"""Hour and weather of a view: where the sun is, what colour the light, how many clouds, how much haze, rain or snow."""

import dataclasses
import math

import numpy as np
from jaxtyping import Float32

from superfeat.drawn.canvas import noise
from superfeat.drawn.sky import Light

CLOUD_CELLS = 256
HOURS = {"day": 0.44, "golden": 0.17, "overcast": 0.21, "dusk": 0.11, "night": 0.07}


@dataclasses.dataclass(frozen=True)
class Weather:
    """The light, and what falls: drops or flakes per pixel of a picture."""

    hour: str
    light: Light
    rain: float
    snow: float


def choose_weather(rng: np.random.Generator, facing: float) -> Weather:
    """`facing` is the azimuth of the camera, so that the sun is seldom behind what is looked at."""
    hour = str(rng.choice(list(HOURS), p=list(HOURS.values())))
    azimuth = facing + rng.normal(0, 0.95)
    falling = rng.random()
    rain = float(rng.uniform(0.4, 1.0)) if hour in ("overcast", "dusk") and falling < 0.22 else 0.0
    snow = float(rng.uniform(0.3, 1.0)) if hour == "overcast" and falling > 0.84 else 0.0
    foggy = rng.random() < 0.07 or (rain + snow > 0 and rng.random() < 0.25)
    haze = float(rng.uniform(0.005, 0.011) if foggy else rng.uniform(0.0003, 0.0014))
    return Weather(hour, _make_light(rng, hour, azimuth, haze, 0.7 * (rain > 0)), rain, snow)


def _make_light(rng: np.random.Generator, hour: str, azimuth: float, haze: float, wetness: float) -> Light:
    lowest, highest = {"day": (28, 62), "golden": (7, 20), "overcast": (35, 65), "dusk": (3, 8), "night": (30, 50)}[
        hour
    ]
    elevation = math.radians(rng.uniform(lowest, highest))
    across = math.cos(elevation)
    toward = np.array([across * math.sin(azimuth), -across * math.cos(azimuth), math.sin(elevation)])
    colours = {name: np.asarray(value, np.float64) for name, value in _colours(rng, hour).items()}
    cover = {
        "day": (0.2, 0.62),
        "golden": (0.25, 0.6),
        "overcast": (0.85, 1.1),
        "dusk": (0.25, 0.6),
        "night": (0.1, 0.5),
    }
    return Light(
        toward,
        **colours,
        glare={"day": 0.12, "golden": 0.5, "overcast": 0.0, "dusk": 0.9, "night": 0.0}[hour],
        cover=float(rng.uniform(*cover[hour])),
        drift_x=float(rng.uniform(0, 8)),
        drift_y=float(rng.uniform(0, 8)),
        haze=haze,
        wetness=wetness,
    )


def _colours(rng: np.random.Generator, hour: str) -> dict[str, tuple[float, float, float]]:
    """Sun, sky, clouds and lamps in linear light."""
    dark = (0.0, 0.0, 0.0)
    warm = (1.5, 0.95, 0.45)
    if hour == "day":
        deep = rng.uniform(0.75, 1.15)
        sky = {"zenith": (0.13 * deep, 0.30 * deep, 0.72 * deep), "horizon": (0.62, 0.76, 0.92)}
        sun = {"sun": (2.5, 2.3, 1.95), "ambient": (0.5, 0.62, 0.82), "bounce": (0.34, 0.3, 0.25)}
        clouds = {"cloud": (1.25, 1.22, 1.18), "cloud_shade": (0.6, 0.66, 0.76)}
    elif hour == "golden":
        sky = {"zenith": (0.17, 0.27, 0.52), "horizon": (0.98, 0.68, 0.42)}
        sun = {"sun": (2.5, 1.45, 0.65), "ambient": (0.38, 0.4, 0.52), "bounce": (0.3, 0.22, 0.15)}
        clouds = {"cloud": (1.3, 0.85, 0.55), "cloud_shade": (0.42, 0.36, 0.44)}
    elif hour == "overcast":
        sky = {"zenith": (0.5, 0.55, 0.62), "horizon": (0.74, 0.77, 0.8)}
        sun = {"sun": (0.3, 0.3, 0.3), "ambient": (0.92, 0.96, 1.02), "bounce": (0.34, 0.33, 0.31)}
        clouds = {"cloud": (0.95, 0.97, 1.0), "cloud_shade": (0.48, 0.52, 0.58)}
    elif hour == "dusk":
        sky = {"zenith": (0.06, 0.1, 0.26), "horizon": (0.6, 0.36, 0.3)}
        sun = {"sun": (0.5, 0.22, 0.1), "ambient": (0.2, 0.23, 0.38), "bounce": (0.09, 0.08, 0.09)}
        clouds = {"cloud": (0.62, 0.36, 0.34), "cloud_shade": (0.12, 0.12, 0.2)}
        return {**sky, **sun, **clouds, "lamps": (0.5, 0.34, 0.18), "windows": (1.1, 0.75, 0.36)}
    else:
        sky = {"zenith": (0.008, 0.012, 0.03), "horizon": (0.05, 0.05, 0.075)}
        sun = {"sun": (0.05, 0.06, 0.09), "ambient": (0.045, 0.055, 0.09), "bounce": (0.04, 0.033, 0.025)}
        clouds = {"cloud": (0.06, 0.06, 0.08), "cloud_shade": (0.025, 0.025, 0.04)}
        return {**sky, **sun, **clouds, "lamps": (1.0, 0.68, 0.36), "windows": warm}
    return {**sky, **sun, **clouds, "lamps": dark, "windows": (0.1, 0.08, 0.05)}


def cloud_map() -> Float32[np.ndarray, "cells cells"]:
    """Lumps of many sizes, stretched to the whole of 0 to 1; the same for all views, which look at different parts."""
    lumps = noise(np.random.default_rng(7), (CLOUD_CELLS, CLOUD_CELLS), 48.0, 6)
    low, high = np.quantile(lumps, [0.02, 0.98])
    return np.asarray(np.clip((lumps - low) / (high - low), 0, 1), np.float32)
