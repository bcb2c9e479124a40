"""python -m superfeat, and the program superfeat."""

import os
import sys

from superfeat.errors import STOPPED


def run() -> None:
    """The command line, from the first import on: Ctrl-C ends it with one line, whatever it is doing."""
    try:
        from superfeat.cli import main

        main()
    except KeyboardInterrupt:
        print("superfeat: stopped", file=sys.stderr)
        _end()
    except SystemExit as end:
        if end.code == STOPPED:
            _end()
        raise


def _end() -> None:
    """Python would end as if killed where Ctrl-C came while it ran code that was made up by exec()."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


if __name__ == "__main__":
    run()
