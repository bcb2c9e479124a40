"""The calibration of an index on disk: what it came with, and what its user has fitted since."""

from collections.abc import Iterator

from superfeat.config import CALIBRATION
from superfeat.errors import StoreError, SuperfeatError
from superfeat.index.index import Index
from superfeat.probability.apply import require_fitting
from superfeat.probability.model import Calibration
from superfeat.storage.store import explained, read_json, sync_folder, write_json

SHIPPED_CALIBRATION = "calibration.shipped.json"  # in an index calibrated by its user: what it came with, or null


def shipped_calibration(index: Index) -> Calibration | None:
    """What an index came with, and not what its user has fitted since; None if there is none that fits."""
    shipped, current = index.path / SHIPPED_CALIBRATION, index.path / CALIBRATION
    source = shipped if shipped.is_file() else current
    values = read_json(source) if source.is_file() else None
    if values is None:
        return None
    found = Calibration.from_dict(values)
    try:
        require_fitting(found, index, index.config.search)
    except SuperfeatError:  # it would be of no use in a search either
        return None
    return found


def store_calibration(index: Index, calibration: Calibration) -> None:
    """Makes an index answer with it from now on; what it came with is kept."""
    shipped, current = index.path / SHIPPED_CALIBRATION, index.path / CALIBRATION
    with index.writing():
        if not shipped.is_file():
            write_json(shipped, read_json(current) if current.is_file() else None)
        write_json(current, calibration.to_dict())


def verify_calibrations(index: Index) -> Iterator[str]:
    """Reads what an index makes probabilities from; yields each file found whole, StoreError at one that is not."""
    for name in (CALIBRATION, SHIPPED_CALIBRATION):
        file = index.path / name
        values = read_json(file) if file.is_file() else None
        if values is not None:
            try:
                Calibration.from_dict(values)
            except SuperfeatError as error:
                raise StoreError(f"{file} is damaged: {error}; restore it from a copy, or calibrate again") from error
            yield name


def reset_calibration(index: Index) -> bool:
    """Back to what an index came with; False if it has nothing else."""
    shipped, current = index.path / SHIPPED_CALIBRATION, index.path / CALIBRATION
    with index.writing(), explained(current):
        if not shipped.is_file():
            return False
        values = read_json(shipped)
        if values is None:
            current.unlink(missing_ok=True)
        else:
            write_json(current, values)
        shipped.unlink()
        sync_folder(index.path)
    return True
