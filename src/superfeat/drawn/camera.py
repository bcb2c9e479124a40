"""Where a view is taken from: azimuth, height, distance, lens, what part is framed, roll."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from superfeat.drawn.raster import Camera

Array = npt.NDArray[np.float64]
SMALL_HEIGHT = 13.0  # metres: what is lower is seen whole
SHADOW_SIDE = 576  # texels of the shadow map


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The box around a landmark: half its width and depth, its height, and how far around it may be seen from."""

    half_width: float
    half_depth: float
    height: float
    swing: float  # radians to each side of its front

    @property
    def radius(self) -> float:
        """From its axis to the farthest corner of its foot."""
        return math.hypot(self.half_width, self.half_depth)


@dataclasses.dataclass(frozen=True)
class Viewpoint:
    """Azimuth (0: from the front), the eye, what it looks at, half the angle of view over the longer side, roll."""

    azimuth: float
    eye: Array
    target: Array
    half_angle: float
    roll: float


def choose_viewpoint(rng: np.random.Generator, bounds: Bounds, portrait: bool) -> Viewpoint:
    """Mostly from the street and from the front half, the whole in the frame; sometimes from above, or a detail."""
    azimuth = (
        float(bounds.swing * rng.triangular(-1, 0, 1)) if rng.random() < 0.75 else rng.uniform(-1, 1) * bounds.swing
    )
    half_angle = math.radians(rng.choice([rng.uniform(14, 22), rng.uniform(20, 30), rng.uniform(28, 36)]))
    across = abs(math.cos(azimuth)) * bounds.half_width + abs(math.sin(azimuth)) * bounds.half_depth
    small = bounds.height < SMALL_HEIGHT
    fill = rng.uniform(0.75, 1.05) if small else rng.uniform(0.85, 1.3)
    detail = rng.random() < (0.05 if small else 0.17)
    if detail:
        fill *= rng.uniform(1.4, 2.0)
    wide, high = (0.75, 1.0) if portrait else (1.0, 0.75)
    tangent = math.tan(half_angle)
    depth = abs(math.sin(azimuth)) * bounds.half_width + abs(math.cos(azimuth)) * bounds.half_depth
    needed = max(across / (tangent * wide * fill), 0.56 * bounds.height / (tangent * high * fill))
    distance = max(needed + depth * 0.6, depth + 4.0)
    eye_height = _choose_height(rng, bounds, distance)
    eye = np.array([distance * math.sin(azimuth), -distance * math.cos(azimuth), eye_height])
    side = np.array([math.cos(azimuth), math.sin(azimuth), 0.0])
    shift = rng.normal(0, 0.5 if detail else 0.16) * across
    middle = bounds.height * (rng.uniform(0.3, 0.75) if detail else rng.uniform(0.4, 0.54))
    target = np.array([0, 0, middle]) + np.clip(shift, -0.7 * across, 0.7 * across) * side
    return Viewpoint(azimuth, eye, target, half_angle, float(rng.normal(0, 0.022)))


def _choose_height(rng: np.random.Generator, bounds: Bounds, distance: float) -> float:
    kind = rng.random()
    if kind < 0.66:
        return float(rng.uniform(1.5, 2.2))
    if kind < 0.9:
        return float(rng.uniform(3, 9))
    return float(min(rng.uniform(0.5, 0.9) * bounds.height, 0.45 * distance) + 2)


def aim(view: Viewpoint, width: int, height: int) -> Camera:
    """The camera for a picture of this size."""
    forward = _unit(view.target - view.eye)
    right = _unit(np.cross(forward, (0.0, 0.0, 1.0)))
    up = np.cross(right, forward)
    cosine, sine = math.cos(view.roll), math.sin(view.roll)
    right, up = cosine * right + sine * up, cosine * up - sine * right
    focal = max(width, height) / 2 / math.tan(view.half_angle)
    return Camera(view.eye.astype(np.float64), right, up, forward, focal, width / 2, height / 2)


def aim_sun(toward_sun: Array, bounds: Bounds) -> Camera:
    """The sun's own view: parallel, wide enough for the landmark and its shadow's first metres."""
    reach = max(bounds.radius * 1.25, bounds.height * 0.62) + 6.0
    forward = -toward_sun
    right = _unit(np.cross(forward, (0.0, 0.0, 1.0)))
    up = np.cross(right, forward)
    eye = np.array([0.0, 0.0, bounds.height * 0.4]) + toward_sun * 300.0
    return Camera(eye, right, up, forward, SHADOW_SIDE / 2 / reach, SHADOW_SIDE / 2, SHADOW_SIDE / 2)


def _unit(vector: Array) -> Array:
    return np.asarray(vector / (np.linalg.norm(vector) + 1e-12))
