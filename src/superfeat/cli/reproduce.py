"""superfeat reproduce: the paper's tables and figures, measured again."""

import csv
import html
import io
import json
import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.completion import complete_weights
from superfeat.cli.terminal import Follow, json_option, print_result, workers_option
from superfeat.errors import SuperfeatError

if TYPE_CHECKING:
    from superfeat.studies.reproduce.catalogue import Reproduced

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--size", type=click.Choice(["mini", "paper"]), default="mini", show_default=True)
@click.option("--images", type=PATH, help="mini: photos, one sub-folder per thing; paper: the benchmarks' folder.")
@click.option("--imagenet", type=PATH, help="paper: ImageNet, one sub-folder per class, for variants of LIT.")
@click.option(
    "--weights",
    "-w",
    shell_complete=complete_weights,
    help="Begin with this pretrained network. [default: pretrain one]",
)
@click.option("--output", "-o", type=PATH, help="Folder for numbers and pictures; what is made is used again.")
@click.option("--list", "list_names", is_flag=True, help="Name all tables and figures.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps.")
@workers_option
@json_option
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
    from superfeat.studies.reproduce.catalogue import choose

    if list_names:
        print_result(_catalogue(), as_json, _list)
        return
    chosen = choose(names)
    if not chosen or output is None:
        raise click.UsageError("give NAMES (or 'all') and --output; --list names them")
    from superfeat.extraction.extract import keep_memory
    from superfeat.studies.reproduce.catalogue import reproduce as measure
    from superfeat.studies.reproduce.sizes import read_size
    from superfeat.studies.reproduce.study import Study

    keep_memory()
    follow = Follow()
    sources = {"images": images, "imagenet": imagenet, "weights": weights}
    how = {"workers": workers, "device": device, "on_progress": follow}
    study = Study(read_size(size), output / f"work-{size}", **sources, **how)  # type: ignore[arg-type]
    made, failed = [], {}
    for name in chosen:
        try:
            found = measure(name, study)
        except SuperfeatError as error:
            failed[name] = str(error)
            continue
        finally:
            follow.end()
        made.append(_write(found, output / size / name, _command(name, size, images, imagenet, weights, output)))
        _write_page(output / size)
        if not as_json:
            click.echo("\n".join(_lines(made[-1])))
    print_result({"output": str(output / size), "made": made, "failed": failed}, as_json, _end)
    if failed:
        raise SuperfeatError("; ".join(f"{name} failed: {reason}" for name, reason in failed.items()))


def _command(
    name: str, size: str, images: Path | None, imagenet: Path | None, weights: str | None, output: Path
) -> str:
    given = {"--images": images, "--imagenet": imagenet, "--weights": weights, "--output": output}
    parts = ["superfeat", "reproduce", name, "--size", size]
    parts += [text for option, value in given.items() if value is not None for text in (option, str(value))]
    return shlex.join(parts)


def _write(found: "Reproduced", folder: Path, command: str) -> dict[str, Any]:
    """numbers.json, numbers.csv and picture.png; the paper's values stand beside ours."""
    from superfeat.storage.store import write_file, write_json

    folder.mkdir(parents=True, exist_ok=True)
    outcome = found.outcome
    record = {
        "name": found.name,
        "title": found.paper["title"],
        "command": command,
        "claim": found.paper["claim"],
        "finding": outcome.finding,
        "agrees": bool(outcome.agrees),
        "seconds": round(found.seconds, 1),
        "ours": {"columns": list(outcome.columns), "rows": [list(row) for row in outcome.rows]},
        "paper": found.paper,
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["source", *outcome.columns])
    writer.writerows(["ours", *row] for row in outcome.rows)
    if "columns" in found.paper:
        writer.writerow(["source", *found.paper["columns"]])
        writer.writerows(["paper", *row] for row in found.paper["rows"])
    record = _without_nan(json.loads(json.dumps(record)))
    write_json(folder / "numbers.json", record)
    write_file(folder / "numbers.csv", text.getvalue().encode())
    _draw(found, folder / "picture.png")
    return {**record, "folder": str(folder)}


def _without_nan(value: Any) -> Any:
    """Not-a-number as null: JSON has no other way to say it."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _draw(found: "Reproduced", path: Path) -> None:
    from superfeat.pages.plots import draw_bars, draw_curves, draw_matrices, draw_photos

    outcome = found.outcome
    if outcome.photos:
        rows, columns = outcome.photo_titles
        draw_photos(outcome.photos, path, row_titles=rows, column_titles=columns, note=outcome.finding)
    elif outcome.matrices:
        draw_matrices(outcome.matrices, path, note=outcome.finding)
    elif outcome.bars:
        draw_bars(outcome.panels, path)
    else:
        draw_curves(outcome.panels, path)


def _lines(record: Mapping[str, Any]) -> Iterable[str]:
    yield f"{record['name']}: {record['title']}"
    yield f"  the paper: {record['claim']}"
    yield f"  here: {record['finding']} ({'as' if record['agrees'] else 'not as'} in the paper)"
    yield f"  {record['folder']}/picture.png"


def _write_page(folder: Path) -> None:
    """A page with all pictures that are there, what the paper says and what was found."""
    from superfeat.pages.templates import template
    from superfeat.storage.store import read_json, write_file
    from superfeat.studies.reproduce.catalogue import NAMES

    parts = []
    for record in (read_json(file) for name in NAMES if (file := folder / name / "numbers.json").is_file()):
        verdict = "As in the paper" if record["agrees"] else "Not as in the paper"
        title, claim, finding, command, name = (
            html.escape(str(record[key])) for key in ("title", "claim", "finding", "command", "name")
        )
        parts.append(
            f'<section id="{name}"><h2>{name}: {title}</h2><p><b>The paper:</b> {claim}.</p>'
            f'<p><b>Here:</b> {finding}. <span class="{"yes" if record["agrees"] else "no"}">{verdict}.</span></p>'
            f'<img src="{name}/picture.png" alt="{title}: {finding}"><p><code>{command}</code> · <a '
            f'href="{name}/numbers.csv">numbers.csv</a> · <a href="{name}/numbers.json">numbers.json</a></p></section>'
        )
    write_file(folder / "index.html", template("reproduction.html").replace("PARTS", "\n".join(parts)).encode())


def _end(result: Mapping[str, Any]) -> Iterable[str]:
    agree = sum(record["agrees"] for record in result["made"])
    yield f"{agree} of {len(result['made'])} as in the paper; all together: {result['output']}/index.html"


def _catalogue() -> dict[str, Any]:
    from superfeat.studies.reproduce.catalogue import NAMES, NOT_MEASURED
    from superfeat.studies.reproduce.outcome import published

    return {"measured": {name: published(name)["title"] for name in NAMES}, "not measured": NOT_MEASURED}


def _list(result: Mapping[str, Any]) -> Iterable[str]:
    for name, title in result["measured"].items():
        yield f"{name:24} {title}"
    for name, reason in result["not measured"].items():
        yield f"{name:24} (not measured: {reason})"
