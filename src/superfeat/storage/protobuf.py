"""Protocol buffers as they lie on disk, without their definitions: numbers of fields, and their values."""

from collections.abc import Iterator


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of as many bytes as it needs, and where it ends. ValueError or IndexError if there is none."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("a number without end")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields in the order in which they lie: a whole number, or the bytes of anything else."""
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        kind = tag & 7
        if kind == 0:
            value, place = varint(data, place)
            yield tag >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            length, place = varint(data, place)
        if place + length > len(data) or kind not in (1, 2, 5):
            raise ValueError("a field goes beyond the end")
        yield tag >> 3, data[place : place + length]
        place += length
