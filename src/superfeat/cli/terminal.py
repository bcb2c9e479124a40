"""What all verbs share: one-line errors, results on stdout, common options."""

import errno
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from superfeat.addresses.text import is_remote
from superfeat.cli.accounts import with_account
from superfeat.cli.completion import complete_weights
from superfeat.cli.lines import printable, say
from superfeat.config import DEFAULT_WEIGHTS
from superfeat.errors import STOPPED, SuperfeatError

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
            say(f"superfeat: {error}{self._options(ctx, error.arguments)}")
            ctx.exit(1)
        except OSError as error:
            if ctx.find_root().params.get("debug") or error.errno == errno.EPIPE:  # click knows what to do then
                raise
            say(f"superfeat: {_system_error(error)}")
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nsuperfeat: stopped; what is finished is kept, run the same command to go on", err=True)
            ctx.exit(STOPPED)

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


def _system_error(error: OSError) -> str:
    """What the system refused, in one line with the next step."""
    reason = error.strerror or str(error) or type(error).__name__
    what = f"cannot use {error.filename}: {reason}" if error.filename is not None else reason
    denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    return f"{what}; ask its owner for the right to it, or choose another place" if denied else what


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


def device_option(command: Command) -> Command:
    return click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps.")(command)


def exclude_option(command: Command) -> Command:
    help_text = "Leave out files and folders of this name or pattern, besides what other programs keep (@eaDir, …)."
    return click.option("--exclude", multiple=True, metavar="PATTERN", help=help_text)(command)


def max_pixels_option(command: Command) -> Command:
    help_text = "Refuse photos that need more pixels than this in memory. [default: Pillow's 179 million]"
    return click.option("--max-pixels", type=click.IntRange(min=1), help=help_text)(command)


def limit_pixels(max_pixels: int | None) -> None:
    if max_pixels is not None:
        from PIL import Image

        Image.MAX_IMAGE_PIXELS = max_pixels // 2  # Pillow refuses above twice this number


def place_of(image: Told) -> str:
    """How an image of an index is shown: its file, from here if it is below; its name where no file is known."""
    if image["path"] is None or is_remote(image["path"]):
        return str(image["path"] or image["name"])
    path = Path(image["path"])
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def print_result(result: Told, as_json: bool, report: Callable[[Told], Iterable[str]]) -> None:
    whole, lines = with_account(result, report)
    if as_json:
        click.echo(json.dumps(whole, indent=2))
    else:
        for line in lines:
            click.echo(printable(line))


def tree(facts: Told, indent: str = "") -> Iterable[str]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from tree(value, indent + "  ")
        elif value is not None and value != []:
            yield f"{indent}{name}: {value}"
