"""A cluster of Ray's: one that runs somewhere, or one that is started on this machine for as long as it is needed."""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from typing import Any

from superfeat.errors import MissingExtraError, SuperfeatError
from superfeat.threads import all_cores

AUTO = "auto"  # the one that RAY_ADDRESS names, or else one of our own
# Ray reports its use to its makers unless told not to, warns of a change in how it hides accelerators, and prints what
# it has to say of processes that died among our results.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
OPTIONS = {"namespace": "superfeat", "log_to_driver": False, "logging_level": "ERROR"}


def import_ray() -> Any:
    """Ray, or an error that says how to install it."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("a cluster", "cluster") from error
    return ray


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray with a cluster: at an address, or with "auto" the one that RAY_ADDRESS names, or else one of our own.

    What was connected before stays connected; what was started here is stopped at the end.
    """
    wanted = os.environ.get("RAY_ADDRESS") if address == AUTO else address
    if wanted is None:
        with own_cluster(all_cores()) as ray:
            yield ray
        return
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=wanted, **OPTIONS)
    except ConnectionError as error:
        raise SuperfeatError(
            f"no cluster answers at {wanted}; is it running, and may this machine connect to it?"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def own_cluster(cores: int, **options: Any) -> Iterator[Any]:
    """A cluster on this machine, or the one that is connected already.

    Ray listens to every network: nobody is let in who has not the token made for it. Ray wants to know that before it
    is imported; who has imported it has decided for himself.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    ray.init(address="local", num_cpus=cores, include_dashboard=False, **OPTIONS, **options)
    try:
        yield ray
    finally:
        ray.shutdown()
