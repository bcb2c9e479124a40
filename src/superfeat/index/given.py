"""Images of an index as people give them: by name, or by file as results show it."""

from collections.abc import Sequence

from superfeat.addresses.address import address_of
from superfeat.errors import SuperfeatError
from superfeat.index.index import Index


def names_of(index: Index, given: Sequence[str]) -> list[str]:
    """The names of images that are given by name or by file, from here or from the root; SuperfeatError if one is not
    there, or if it may be two."""
    files = {one: str(address_of(one).resolve()) for one in given if "\0" not in one}
    named, filed = index.meta(given), index.find("path", list(files.values()))
    found = []
    for one in given:
        names = {entry.name for entry in filed.get(files.get(one, ""), [])} | ({one} & named.keys())
        if not names:
            raise SuperfeatError(f"{index.path} has no image called {one}, and none of such a file")
        if len(names) > 1:
            raise SuperfeatError(f"{one} is the name of one image and the file of another; give the whole path of one")
        found.append(names.pop())
    return found
