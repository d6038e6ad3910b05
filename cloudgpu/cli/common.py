"""What the verbs share: the options they have in common, reading what was typed, asking before acting."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloudgpu.cli.output import Format, colour_for, emit, tell
from cloudgpu.cli.terminal import step_listeners
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.parts import Gap

__all__ = ["Format", "colour_for", "emit", "tell"]  # they need no parser, and are imported with the options


def _complete_name(incomplete: str) -> list[str]:
    from cloudgpu.cli.completion import machine_names

    return machine_names(incomplete)


PLACE = "{providers}"  # in an option's help: what is installed is put here when the help is printed
Output = Annotated[Format, typer.Option("-o", "--output", help="text, or json: exactly one document on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed without a terminal.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show details, reasons and sources.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The machine's name or id.", autocompletion=_complete_name)]
MaybeName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="May be left out when there is only one.", autocompletion=_complete_name),
]


def without_name(args: list[str]) -> list[str]:
    """Return the arguments of a verb that takes NAME and a command, with an empty NAME where the command begins first.

    Options of the verb itself stand before both.
    """
    first = next((place for place, word in enumerate(args) if word == "--" or not word.startswith("-")), len(args))
    return [*args[:first], "", *args[first:]] if args[first : first + 1] == ["--"] else args


def open_session(*, warn: bool = True) -> Session:
    """Return the session of this environment; stages are told on stderr.

    So is, unless `warn` is false, that no run has succeeded for too long: by every verb but those that make runs.
    """
    from cloudgpu.control.outage.opening import open_session

    session = open_session(os.environ, tell=tell)
    if warn:
        _warn_overdue(session)
    return session


def warn_if_overdue() -> None:
    """Say so for a verb that needs no session: where the settings or the ledger cannot be read, it goes on without."""
    with suppress(CloudgpuError):
        open_session()


def _warn_overdue(session: Session) -> None:
    from cloudgpu.control.session.last_run import overdue_sentence, unguarded_sentence

    with suppress(LedgerUnavailable):  # a verb that needs the ledger says so itself
        message = session.moved_away() or unguarded_sentence(session) or overdue_sentence(session)
        if message:
            tell(message)


def exit_if_unanswered(gaps: Sequence[Gap], says: Callable[[str, str], str] = unanswered_text) -> None:
    """Say who did not answer and why, and leave with the exit code of that; return where everybody has answered."""
    for gap in gaps:
        tell(says(gap["scope"], gap["why"]))
    if gaps:
        raise typer.Exit(ProviderUnavailable.exit_code)


class Declined(Exception):
    """The user was asked and said no; the message is the one sentence that says what that means."""


def on_terminal() -> bool:
    """Say whether somebody can be asked: both input and stderr are a terminal, and neither is closed."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirm(
    question: str,
    *,
    yes: bool,
    why: str = "This spends or destroys something",
    no: str = "Nothing was done.",
    about: str = "",
) -> None:
    """Ask once on a terminal; raise InvalidRequest without one unless --yes was given, Declined for any other answer.

    `no` says how things stand then. `about` is shown before the question: what it does, in lines.
    """
    if yes:
        return
    if not on_terminal():
        raise InvalidRequest(
            f"{why}, and there is no terminal to ask on.",
            field="--yes",
            value=None,
            next="Add --yes to skip the question.",
        )
    from cloudgpu.cli.render import wrapped

    if about:
        sys.stderr.write(f"{colour_for(about, sys.stderr)}\n")
    if answered(f"{wrapped(f'{question} [y/N]')} ").lower() not in ("y", "yes"):
        raise Declined(no)


def answered(question: str) -> str:
    """Ask on stderr and return the line that was typed; raise InvalidRequest at the end of input."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    for notify in step_listeners:
        notify("")
    if not line:
        sys.stderr.write("\n")
        raise InvalidRequest(
            "The question was not answered, because the input ended.",
            field="--yes",
            value=None,
            next="Answer on a terminal, or add --yes to skip the question.",
        )
    return line.strip()


def complete_kind(incomplete: str) -> list[str]:
    """Return the installed providers that begin so."""
    return [kind for kind in _installed() if kind.startswith(incomplete)]


def name_installed(params: Sequence[Any]) -> None:
    """Put the names of the installed providers into the help of these options."""
    for param in params:
        if PLACE in (getattr(param, "help", None) or ""):
            installed = _installed() or ("none is installed",)  # a copy of the source that nobody has installed
            param.help = param.help.replace(
                PLACE, " or ".join(filter(None, (", ".join(installed[:-1]), installed[-1])))
            )


def _installed() -> tuple[str, ...]:
    from cloudgpu.control.session.accounts import provider_kinds

    return provider_kinds()


def kind_option(says: str) -> Any:
    """Return the option --provider of a verb, with this help."""
    return typer.Option(metavar="KIND", help=says, autocompletion=complete_kind)
