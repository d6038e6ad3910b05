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
    from cloudgpu.views.documents.parts import UnansweredScope

__all__ = ["Format", "colour_for", "emit", "tell"]  # they need no parser, and are imported with the options


def _complete_name(incomplete: str) -> list[str]:
    from cloudgpu.cli.completion import machine_names

    return machine_names(incomplete)


PROVIDERS_PLACEHOLDER = (
    "{providers}"  # in an option's help: replaced by the installed providers when the help is printed
)
Output = Annotated[Format, typer.Option("-o", "--output", help="text, or json: exactly one document on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed without a terminal.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show details, reasons and sources.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The machine's name or id.", autocompletion=_complete_name)]
MaybeName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="May be left out when there is only one.", autocompletion=_complete_name),
]


NO_NAME = "\0"  # stands for a NAME that was left out: nobody can type it


def with_no_name(args: list[str]) -> list[str]:
    """Return the arguments of a verb that takes NAME and a command, with NO_NAME where the command begins first.

    Options of the verb itself stand before both.
    """
    command_index = next(
        (index for index, word in enumerate(args) if word == "--" or not word.startswith("-")), len(args)
    )
    return (
        [*args[:command_index], NO_NAME, *args[command_index:]]
        if args[command_index : command_index + 1] == ["--"]
        else args
    )


def open_session(*, warn_overdue: bool = True) -> Session:
    """Return the session of this environment; its steps are printed on stderr.

    With `warn_overdue`, a warning is printed if no run of the reaper has succeeded for too long.
    """
    from cloudgpu.control.outage.opening import open_session

    session = open_session(os.environ, tell=tell)
    if warn_overdue:
        _warn_overdue(session)
    return session


def warn_if_overdue() -> None:
    """Print the warning of `open_session` for a verb that needs no session; nothing if its files cannot be read."""
    with suppress(CloudgpuError):
        open_session()


def _warn_overdue(session: Session) -> None:
    from cloudgpu.control.session.last_run import overdue_sentence, unguarded_sentence

    with suppress(LedgerUnavailable):  # a verb that needs the ledger says so itself
        message = session.moved_sentence() or unguarded_sentence(session) or overdue_sentence(session)
        if message:
            tell(message)


def exit_if_unanswered(
    unanswered: Sequence[UnansweredScope], text_of: Callable[[str, str], str] = unanswered_text
) -> None:
    """Print who did not answer and why, and exit with the code for that; return if everybody has answered."""
    for unanswered_scope in unanswered:
        tell(text_of(unanswered_scope["scope"], unanswered_scope["why"]))
    if unanswered:
        raise typer.Exit(ProviderUnavailable.exit_code)


class Declined(Exception):
    """The user answered a question with no; the message says in one sentence what was done."""


def on_terminal() -> bool:
    """Return whether somebody can be asked: both input and stderr are a terminal, and neither is closed."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirm(
    question: str,
    *,
    yes: bool,
    why: str = "This spends or destroys something",
    declined: str = "Nothing was done.",
    about: str = "",
) -> None:
    """Ask once on a terminal; raise InvalidRequest without one unless --yes was given, Declined for any other answer.

    `declined` is the message of Declined. `about` is shown before the question: what the action does, in lines.
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
    if read_answer(f"{wrapped(f'{question} [y/N]')} ").lower() not in ("y", "yes"):
        raise Declined(declined)


def read_answer(question: str) -> str:
    """Ask on stderr and return the line that was typed; raise InvalidRequest at the end of input."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    for notify in step_listeners:  # an empty step: the spinner waits for output again
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


def complete_provider(incomplete: str) -> list[str]:
    """Return the names of installed providers (aws, gcp and so on) that begin with `incomplete`."""
    return [provider for provider in _installed_providers() if provider.startswith(incomplete)]


def insert_provider_names(params: Sequence[Any]) -> None:
    """Put the names of the installed providers into the help of these options."""
    for param in params:
        if PROVIDERS_PLACEHOLDER in (getattr(param, "help", None) or ""):
            installed = _installed_providers() or (
                "none is installed",
            )  # a copy of the source that nobody has installed
            param.help = param.help.replace(
                PROVIDERS_PLACEHOLDER, " or ".join(filter(None, (", ".join(installed[:-1]), installed[-1])))
            )


def _installed_providers() -> tuple[str, ...]:
    from cloudgpu.control.session.accounts import provider_kinds

    return provider_kinds()


def provider_option(help_text: str) -> Any:
    """Return the option --provider of a verb, with this help."""
    return typer.Option(metavar="KIND", help=help_text, autocompletion=complete_provider)
