"""A shell script that moves copies away, for people to read and run: superfeat itself touches no photo.

A file name may hold anything: it stands in the script inside single quotes alone, where the shell takes every byte as
it is, and never in a comment, which a line break would end. Paths are whole, so none begins with a dash.
"""

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import superfeat
from superfeat.duplicates.review import ReviewedGroup

HEAD = r"""#!/bin/sh
# Moves copies of photos away, into the folder named below, each with the whole path that it had.
# Nothing is deleted. As it stands it only says what it would do:
#     sh SCRIPT           says it
#     sh SCRIPT --move    does it
# Take out the lines of photos that you want to keep where they are.
# Afterwards `superfeat index FOLDER -o INDEX --sync` drops from the index what has gone.
set -eu
act=no
case "${1-}" in
    "") ;;
    --move) act=yes ;;
    *) echo "only --move is understood: it moves, and without it nothing is done" >&2; exit 2 ;;
esac
count=0 left=0

say() { # control characters of a name are not sent to the terminal
    printf '%s: ' "$1"
    printf '%s' "$2" | LC_ALL=C tr '\000-\037\177' '?'
    echo
}

same() { # same KEPT COPY: they have the same bytes
    if cmp -s -- "$1" "$2"; then move "$1" "$2"; else leave 'not the same bytes any more' "$2"; fi
}

like() { # like KEPT COPY: they are nearly the same picture
    if [ -f "$1" ]; then move "$1" "$2"; else leave 'the copy to keep has gone' "$2"; fi
}

leave() {
    left=$((left + 1))
    say "left alone, $1" "$2"
}

move() {
    target=$trash$2
    if [ ! -f "$2" ]; then leave 'no longer there' "$2"; return; fi
    if [ -e "$target" ] || [ -L "$target" ]; then leave 'the trash holds one of this path' "$2"; return; fi
    if [ "$act" = yes ]; then
        mkdir -p -- "${target%/*}"
        mv -- "$2" "$target"
        if [ ! -f "$1" ]; then mv -- "$target" "$2"; leave 'it is the one to keep, by another path' "$2"; return; fi
        say moved "$2"
    else
        say 'would move' "$2"
    fi
    count=$((count + 1))
}

"""
TAIL = r"""
if [ "$act" = yes ]; then echo "$count moved, $left left alone"; exit; fi
echo "$count would be moved, $left left alone; nothing was done: --move does it"
"""


def tidy_script(groups: Iterable[ReviewedGroup], trash: Path) -> bytes:
    """The script: copies that can go are moved below the folder `trash`, if the copy to keep is still there."""
    text = f"{HEAD}# Written by superfeat {superfeat.__version__}.\ntrash={_quote(str(trash.absolute()))}\n"
    return os.fsencode(text + "".join(_lines(groups)) + TAIL)


def _lines(groups: Iterable[ReviewedGroup]) -> Iterator[str]:
    for number, group in enumerate(groups, 1):
        if group.moved:
            yield f"\n# group {number}\n"
        for photo in group.moved:
            assert photo.file is not None
            assert photo.kept is not None
            verb = "same" if photo.same_bytes else "like"
            yield f"{verb} {_quote(photo.kept.path)} {_quote(photo.file.path)}\n"


def _quote(path: str) -> str:
    """A word of the shell. A path without its root would be looked for wherever the script is run."""
    assert Path(path).is_absolute(), path
    return shlex.quote(path)
