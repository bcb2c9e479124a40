"""superfeat demo: the main job on sample photos, as one would do it oneself."""

import shlex
import shutil
import sys
from pathlib import Path

import click

from superfeat.errors import SuperfeatError

THINGS, VIEWS, SIDE, SEED = 10, 4, 480, 2026
DEMO_QUERIES = ("landmark_0000/view_00.jpg", "landmark_0003/view_01.jpg", "landmark_0007/view_02.jpg")


@click.command()
@click.option(
    "--output", "-o", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder for all of it."
)
@click.pass_context
def demo(context: click.Context, output: Path) -> None:
    """Draw sample photos, index them, search, and write a page that shows what was found and why.

    Every step is a command that is printed before it runs. What is there already is not done again.
    """
    photos, index, page = output / "photos", output / "index", output / "results.html"
    if output.exists() and not photos.is_dir() and any(output.iterdir()):
        raise SuperfeatError(f"{output} holds something else; choose another folder with -o")
    if not photos.is_dir():
        _run(context, f"draw -o {_quote(photos)} --things {THINGS} --views {VIEWS} --side {SIDE} --seed {SEED}")
    _run(context, f"index {_quote(photos)} -o {_quote(index)}")
    _run(context, f"search {_quote(index)} {' '.join(DEMO_QUERIES)} --top 8 --html {_quote(page)}")
    _run(context, f"duplicates {_quote(index)}")
    right, count = _count_right(index)
    click.echo(f"\nFor {right} of {count} photos the best match shows the same landmark.")
    click.echo(f"Look at {page.absolute()} in a browser: what was found for three photos, where, and why.")
    click.echo(f"To search by yourself:  {next_command(index, output)}")


def _count_right(index: Path) -> tuple[int, int]:
    """How many photos have another view of their landmark as their best match, and of how many."""
    from superfeat.engine import Engine, Named

    engine = Engine.open(index)
    names = list(engine.index.names())
    best = [next((hit.name for hit in engine.search(Named(name), top=1).hits), "") for name in names]
    return sum(Path(name).parent == Path(other).parent for name, other in zip(names, best, strict=True)), len(names)


def next_command(index: Path, output: Path) -> str:
    """What works with what is installed: the page in a browser, or a search that writes one."""
    try:
        import superfeat.service.app  # noqa: F401 - to see whether it could be served
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("superfeat"):
            raise
        own = f"{_program()} search {_quote(index)} PHOTO --html {_quote(output / 'found.html')}"
        return f"{own}  (in a browser: pip install 'superfeat[serve]', then {_program()} serve {_quote(index)})"
    return f"{_program()} serve {_quote(index)}"


def _program() -> str:
    """How to call superfeat: it may not be on the path."""
    called = Path(sys.argv[0])
    here = "python -m superfeat" if called.name == "__main__.py" else _quote(called)
    return "superfeat" if shutil.which("superfeat") else here


def _quote(path: Path) -> str:
    return shlex.quote(str(path))


def _run(context: click.Context, command: str) -> None:
    click.secho(f"\n$ superfeat {command}", bold=True)
    group = context.find_root().command
    assert isinstance(group, click.Group)
    name, *arguments = shlex.split(command)
    verb = group.commands[name]
    with verb.make_context(name, arguments, parent=context) as inner:
        verb.invoke(inner)
