"""What all verbs share: one-line errors, progress on stderr, results on stdout, common options."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from superfeat.cli.completion import complete_weights
from superfeat.config import DEFAULT_WEIGHTS
from superfeat.errors import SuperfeatError

REPORT_EVERY = 10.0  # seconds between progress lines when stderr is not a terminal
ENTRIES_SHOWN = 5  # how many skipped photos are named on the terminal; --json has them all

SETTINGS = "assignments"  # the parameter of --set NAME=VALUE

Command = TypeVar("Command", bound=Callable[..., Any])
Told = Mapping[str, Any]  # what a verb has to say: plain values, which --json prints as they are


class VerbGroup(click.Group):
    """Verbs, also those below a verb: one line per error, exit 1; a traceback with --debug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SuperfeatError as error:
            if ctx.find_root().params.get("debug"):
                raise
            click.echo(f"superfeat: {error}{self._options(ctx, error.arguments)}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nsuperfeat: stopped; what is finished is kept, run the same command to go on", err=True)
            ctx.exit(130)

    def _options(self, ctx: click.Context, arguments: Iterable[str]) -> str:
        """What the verb calls the arguments that would help; nothing for those that it does not take."""
        verb = self.commands.get(ctx.invoked_subcommand or "")
        options = [one for one in verb.params if isinstance(one, click.Option)] if verb is not None else []
        flags = {str(option.name): max(option.opts, key=len) for option in options}
        found = []
        for argument in arguments:
            name, _, value = argument.partition("=")
            if "." in name and SETTINGS in flags:
                found.append(f"{flags[SETTINGS]} {argument}")
            elif name in flags:
                found.append(f"{flags[name]} {value}".rstrip())
        return f" ({', '.join(found)})" if found else ""


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")(command)


def weights_option(command: Command) -> Command:
    return click.option(
        "--weights",
        "-w",
        default=DEFAULT_WEIGHTS,
        shell_complete=complete_weights,
        show_default=True,
        help="A network: a folder, a released .pth, a trunk file, an .onnx file, or a name.",
    )(command)


def workers_option(command: Command) -> Command:
    help_text = "Threads that run the network. [default: one per core]"
    return click.option("--workers", type=click.IntRange(min=1), help=help_text)(command)


def limit_pixels(max_pixels: int | None) -> None:
    if max_pixels is not None:
        from PIL import Image

        Image.MAX_IMAGE_PIXELS = max_pixels // 2  # Pillow refuses above twice this number


def print_result(result: Told, as_json: bool, report: Callable[[Told], Iterable[str]]) -> None:
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        for line in report(result):
            click.echo(line)


def tree(facts: Told, indent: str = "") -> Iterable[str]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from tree(value, indent + "  ")
        elif value is not None and value != []:
            yield f"{indent}{name}: {value}"


class Progress:
    """How far a long job is, on stderr: one changing line on a terminal, a line now and then elsewhere."""

    def __init__(self, doing: str, total: int | None, unit: str = "", per_unit: float = 1) -> None:
        self.doing, self.total, self.unit, self.per_unit = doing, total, unit, per_unit
        self.position = 0
        self.terminal = sys.stderr.isatty()
        self.began = self.reported = time.monotonic()

    def step(self, name: str = "") -> None:
        """One more."""
        self.at(self.position + 1, name)

    def at(self, position: int, name: str = "") -> None:
        """`position` are done."""
        self.position = position
        now = time.monotonic()
        if now - self.reported >= (0.1 if self.terminal else REPORT_EVERY):
            self.reported = now
            self._show(now, name)

    def done(self) -> None:
        """Takes the line away."""
        if self.terminal:
            click.echo("\r\x1b[K", err=True, nl=False)

    def _show(self, now: float, name: str) -> None:
        total = "" if self.total is None else f" of {self.total / self.per_unit:.0f}"
        line = f"{self.doing} {self.position / self.per_unit:.0f}{total} {self.unit}".rstrip()
        if self.total and self.position:
            left = (now - self.began) / self.position * (self.total - self.position)
            line += f", about {left / 60:.0f} min left" if left > 90 else f", about {left:.0f} s left"
        line += f"  {name}"
        click.echo(f"\r\x1b[K{line[:100]}" if self.terminal else line, err=True, nl=not self.terminal)


class Follow:
    """Progress of one thing after another, each with its own line."""

    def __init__(self) -> None:
        self.what, self.progress = "", Progress("", None)

    def __call__(self, what: str, done: int, total: int | None, note: str = "") -> None:
        """`done` of `total` of what is going on."""
        if what != self.what or total != self.progress.total or done < self.progress.position:
            self.end()
            reported = self.progress.reported  # many short jobs report as often as one long job
            self.what, self.progress = what, Progress(what, total)
            self.progress.reported = reported
        self.progress.at(done, note)

    def end(self) -> None:
        """Takes the line away."""
        self.progress.done()
