"""superfeat completion: a shell completes verbs, options, index folders and names of weights."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

import superfeat
from superfeat.errors import SuperfeatError

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "superfeat", "_SUPERFEAT_COMPLETE"  # what click looks for when a shell asks
FETCHED = ("imagenet-resnet50", "imagenet-efficientnet-lite0")  # weights that superfeat.weights.named can bring
MOST_LOOKED_AT = 500  # folders per key press
MANIFEST_BYTES = 1 << 22  # a larger file is none of ours


class IndexFolder(click.Path):
    """A folder that holds an index, for arguments."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The indexes here and one folder further down; any folder where there is none, to go on from."""
        found = sorted(_index_folders(incomplete))
        return [CompletionItem(name) for name in found] or [CompletionItem(incomplete, type="dir")]


INDEX_FOLDER = IndexFolder()


def _index_folders(incomplete: str) -> Iterator[str]:
    typed, begun = os.path.split(incomplete)  # the text as it was typed, "~" and "./" kept
    for name, folder in _folders(Path(typed or ".").expanduser(), begun):
        if _is_index(folder):
            yield os.path.join(typed, name)  # noqa: PTH118
        else:
            below = _folders(folder, "")
            yield from (os.path.join(typed, name, deep) for deep, inner in below if _is_index(inner))  # noqa: PTH118


def _folders(folder: Path, begun: str) -> list[tuple[str, Path]]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(MOST_LOOKED_AT), strict=False) if entry.is_dir()]
    except OSError:
        return []
    shown = [name for name in names if name.startswith(begun) and (begun.startswith(".") or not name.startswith("."))]
    return [(name, folder / name) for name in shown]


def _is_index(folder: Path) -> bool:
    """Whether its manifest says so; the rest of it is not looked at, as a key press must not wait."""
    manifest = folder / "manifest.json"
    try:
        if manifest.stat().st_size > MANIFEST_BYTES:
            return False
        facts = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and facts.get("format") == "superfeat-index"


def complete_weights(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of weights; files and folders where what is typed begins no name."""
    names = [name for name in weights_names() if name.startswith(incomplete)]
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def weights_names() -> list[str]:
    """What superfeat.weights.named knows, without importing it: that would load torch at each key press."""
    shipped = Path(superfeat.__file__).parent / "shipped"
    return sorted({*FETCHED, *(path.parent.name for path in shipped.glob("*/config.json"))})


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the script with which SHELL (default: the one of $SHELL) completes superfeat's commands.

    \b
    bash:  superfeat completion bash >> ~/.bashrc
    zsh:   superfeat completion zsh >> ~/.zshrc      (below the line with compinit)
    fish:  superfeat completion fish > ~/.config/fish/completions/superfeat.fish

    Then open a new terminal. Bash needs version 4.4 or later.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    made = get_completion_class(name) if name in SHELLS else None
    if made is None:
        raise SuperfeatError(f"which shell? '{name}' is not one of {', '.join(SHELLS)}; name it")
    complete = made(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    # The class's own `source` for bash starts a bash to learn its version, which need not be there.
    click.echo(complete.source_template % complete.source_vars(), nl=False)
