"""superfeat reproduce: the paper's tables and figures, measured again."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from superfeat.cli.accounts import accounts_for_files
from superfeat.cli.completion import complete_weights
from superfeat.cli.lines import Follow
from superfeat.cli.terminal import Told, device_option, json_option, print_result, workers_option
from superfeat.errors import SuperfeatError

if TYPE_CHECKING:
    from superfeat.studies.reproduce.catalogue import Failed, Reproduced

PATH = click.Path(path_type=Path)


class Given(NamedTuple):
    """What the command was given to work with, by the names of its options."""

    images: Path | None
    imagenet: Path | None
    weights: str | None


@click.command()
@click.argument("names", nargs=-1)
@click.option("--size", type=click.Choice(["mini", "paper"]), default="mini", show_default=True)
@click.option(
    "--images", type=PATH, help="mini: photos, one sub-folder per thing, or scenes; paper: the benchmarks' folder."
)
@click.option("--imagenet", type=PATH, help="paper: ImageNet, one sub-folder per class, for variants of LIT.")
@click.option(
    "--weights",
    "-w",
    shell_complete=complete_weights,
    help="Begin with this pretrained network. [default: pretrain one]",
)
@click.option("--output", "-o", type=PATH, help="Folder for numbers and pictures; what is made is used again.")
@click.option("--list", "list_names", is_flag=True, help="Name all tables and figures.")
@device_option
@workers_option
@json_option
@accounts_for_files
def reproduce(
    names: tuple[str, ...],
    size: str,
    images: Path | None,
    imagenet: Path | None,
    weights: str | None,
    output: Path | None,
    list_names: bool,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Measure tables and figures of the paper again: NAMES of them, or `all`.

    `--size mini` takes minutes on drawn landmarks (or your photos); `--size paper` is the real recipe and data.
    """
    if list_names:
        print_result(_catalogue(), as_json, _list)
        return
    if not names or output is None:
        raise click.UsageError("give NAMES (or 'all') and --output; --list names them")
    from superfeat.extraction.extract import keep_memory
    from superfeat.pages.reproduction import write_reproduced, write_reproduction_page
    from superfeat.studies.reproduce.catalogue import Failed

    keep_memory()
    given = Given(images, imagenet, weights)
    made, failed = [], []
    for found in _measured(names, size, given, output, workers=workers, device=device):
        if isinstance(found, Failed):
            failed.append(found)
            continue
        folder = output / size / found.name
        record = write_reproduced(found, folder, _command(found.name, size, given, output))
        made.append({**record, "folder": str(folder)})
        write_reproduction_page(output / size)
        if not as_json:
            click.echo("\n".join(_lines(made[-1])))
    reasons = {one.name: str(one.error) for one in failed}
    print_result({"output": str(output / size), "made": made, "failed": reasons}, as_json, _end)
    if failed:
        raise SuperfeatError(
            "; ".join(f"{name} failed: {reason}" for name, reason in reasons.items()),
            arguments=list(dict.fromkeys(argument for one in failed for argument in one.error.arguments)),
        )


def _measured(
    names: Sequence[str], size: str, given: Given, output: Path, **how: Any
) -> "Iterator[Reproduced | Failed]":
    """Each table or figure as it is done; shows how far it is. `how` is what changes no result: workers, device."""
    from superfeat.studies.reproduce.catalogue import reproduce as measure

    follow = Follow()
    work = measure(names, output / f"work-{size}", size=size, on_progress=follow, **given._asdict(), **how)
    try:
        for found in work:
            follow.end()
            yield found
    finally:
        follow.end()


def _command(name: str, size: str, given: Given, output: Path) -> str:
    options = {**given._asdict(), "output": output}
    parts = ["superfeat", "reproduce", name, "--size", size]
    parts += [text for option, value in options.items() if value is not None for text in (f"--{option}", str(value))]
    return shlex.join(parts)


def _lines(record: Told) -> Iterable[str]:
    yield f"{record['name']}: {record['title']}"
    yield f"  the paper: {record['claim']}"
    yield f"  here: {record['finding']} ({'as' if record['agrees'] else 'not as'} in the paper)"
    yield f"  {record['folder']}/picture.png"


def _end(result: Told) -> Iterable[str]:
    agree = sum(record["agrees"] for record in result["made"])
    yield f"{agree} of {len(result['made'])} as in the paper; all together: {result['output']}/index.html"


def _catalogue() -> Told:
    from superfeat.studies.reproduce.catalogue import BY_NAME, NAMES, NOT_MEASURED
    from superfeat.studies.reproduce.outcome import published

    return {"measured": {name: published(name)["title"] for name in (*NAMES, *BY_NAME)}, "not measured": NOT_MEASURED}


def _list(result: Told) -> Iterable[str]:
    for name, title in result["measured"].items():
        yield f"{name:24} {title}"
    for name, reason in result["not measured"].items():
        yield f"{name:24} (not measured: {reason})"
