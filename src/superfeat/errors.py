"""The exceptions a user can act on: each message gives the value, the reason and the next step."""

from collections.abc import Sequence

STOPPED = 130  # how a program ends that Ctrl-C has stopped


class SuperfeatError(Exception):
    """Anything superfeat refuses or cannot do; the command line prints it as one line.

    `arguments` are those of the call that would help, and settings, as "name" or "name=value": the message speaks of
    the thing, and the command line adds what it calls it.
    """

    def __init__(self, message: str = "", *, arguments: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.arguments = tuple(arguments)


class ConfigError(SuperfeatError):
    """A setting that does not exist or has an impossible value."""


class ImageError(SuperfeatError):
    """A photo that cannot be read; a run reports it and goes on."""


class DatasetError(SuperfeatError):
    """A training or test set that is missing, damaged, contradicts itself, or cannot be trained on."""


class WeightsError(SuperfeatError):
    """A weights file that is missing, damaged, hostile, or does not fit the network."""


class UnpickleError(SuperfeatError):
    """A pickle or torch file that is damaged, or that names anything but plain data."""


class StoreError(SuperfeatError):
    """An artefact on disk that is damaged, in use, made by something else, or cannot be written."""


class MissingExtraError(SuperfeatError):
    """An optional dependency that is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs an optional part: pip install 'superfeat[{extra}]'")
