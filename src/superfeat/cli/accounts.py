"""Every file accounted for: what verbs that read folders say of what they did not take, and how they then end."""

import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from superfeat.cli.lines import say

if TYPE_CHECKING:
    from superfeat.sources.listing import Listing

ENTRIES_SHOWN = 5  # how many files are named on the terminal; --verbose and --json name them all
TOO_LARGE = "too many pixels"  # how the reason begins for which a photo was refused
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclasses.dataclass
class Account:
    """The listings that a verb made, and whether all names are to be told."""

    listings: "list[Listing]"
    verbose: bool

    def told(self) -> dict[str, list[dict[str, str]]]:
        """Files that are no photos, and folders that could not be listed, each once."""
        return {
            kind: as_told(dict.fromkeys(one for listing in self.listings for one in getattr(listing, kind)))
            for kind in ("left_out", "unlisted")
        }


_account: contextvars.ContextVar[Account | None] = contextvars.ContextVar("account", default=None)


def as_told(some: Iterable[Any]) -> list[dict[str, str]]:
    """Names and reasons as --json prints them."""
    return [{"name": one.name, "reason": one.reason} for one in some]


def verbose_option(command: Command) -> Command:
    return click.option("--verbose", "-v", is_flag=True, help="Name every file that was left out.")(command)


def accounts_for_files(command: Callable[..., None]) -> Callable[..., None]:
    """For a verb that reads folders: its result also says which files were not taken, and it takes --verbose.

    It ends with exit code 1 if a folder could not be listed.
    """

    @verbose_option
    @functools.wraps(command)
    def accounted(*arguments: Any, verbose: bool, **options: Any) -> None:
        from superfeat.sources.listing import listings

        with listings() as made:
            before = _account.set(Account(made, verbose))
            try:
                command(*arguments, **options)
            finally:
                _account.reset(before)
        require_listed([one for listing in made for one in listing.unlisted])

    return accounted


def with_account(
    result: Mapping[str, Any], report: Callable[[Mapping[str, Any]], Iterable[str]]
) -> tuple[Mapping[str, Any], Iterable[str]]:
    """A result and its report with what is to be said of the files, if the verb accounts for them and there are any."""
    account = _account.get()
    if account is None or not (account.listings or result.get("skipped")):
        return result, report(result)
    whole = {**result, **account.told()}
    return whole, [*report(result), *account_for(whole, account.verbose)]


def require_listed(unlisted: Sequence[Any]) -> None:
    """Ends the program with exit code 1, in one line, if a folder or an archive could not be listed."""
    if unlisted:
        what = "1 folder or archive" if len(unlisted) == 1 else f"{len(unlisted)} folders or archives"
        say(f"superfeat: {what} could not be listed; what is in there was not looked at")
        raise click.exceptions.Exit(1)


def account_for(result: Mapping[str, Any], verbose: bool) -> Iterable[str]:
    """What became of every file that is not in: skipped photos, files that are none, folders that stayed closed.

    Also of photos that were taken with a note, and of images that were dropped or may be on a disk somewhere else.
    """
    for entry in result["unlisted"]:
        yield f"  not looked into: {entry['name']} {entry['reason']}"
    for kind in ("skipped", "noted"):
        lines = [f"{one['name']}: {one['reason']}" for one in result.get(kind, ())]
        yield from name_some(kind, lines, verbose, apart=True)
    context = click.get_current_context(silent=True)
    large = any(one["reason"].startswith(TOO_LARGE) for one in result.get("skipped", ()))
    if large and context is not None and "max_pixels" in context.params:
        yield "  (larger photos are allowed with --max-pixels)"
    reasons: dict[str, list[str]] = {}
    for one in result["left_out"]:
        reasons.setdefault(one["reason"], []).append(one["name"])
    for reason, names in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
        yield from name_some(f"left out {len(names)} ({reason})", names, verbose)
    unsure: dict[str, int] = {}
    for one in result.get("unsure", ()):
        unsure[one["reason"]] = unsure.get(one["reason"], 0) + 1
    yield from name_some("dropped", result.get("dropped", ()), verbose)
    for reason, count in unsure.items():
        yield f"  kept {count} {'photo' if count == 1 else 'photos'} that cannot be seen: {reason}"


def name_some(what: str, names: Sequence[str], verbose: bool, apart: bool = False) -> Iterable[str]:
    """A few of these names, or all of them; each on a line of its own if they are long."""
    shown = names if verbose else names[:ENTRIES_SHOWN]
    more = len(names) - len(shown)
    if apart:
        yield from (f"  {what} {name}" for name in shown)
        yield from ([f"  … and {more} more (--verbose names them)"] if more else [])
    elif names:
        yield f"  {what}: {', '.join(shown)}{', …' if more else ''}"
