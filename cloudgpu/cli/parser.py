"""The parser: a group whose verbs are modules, each imported only when it is used. `ls` alone can do without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from cloudgpu import __version__
from cloudgpu.cli import interrupt
from cloudgpu.cli.verbs import ACTIONS, SLOGAN, VERBS


class VerbCommand(TyperCommand):
    """A verb; the installed providers are put into its help only when that is printed, as finding them takes time.

    A verb's module may have GROUPS (its options under titles), CONTEXT (settings of the parser), and `order_arguments`,
    which reorders arguments first.
    """

    groups: Mapping[str, Sequence[str]] = MappingProxyType({})
    order_arguments: Callable[[list[str]], list[str]] | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, in the order that the verb gives them."""
        return super().parse_args(ctx, args if self.order_arguments is None else self.order_arguments(args))

    def get_help(self, ctx: Any) -> str:
        """Return the page of --help."""
        from cloudgpu.cli.help import page_of

        return page_of(self, ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, with the installed providers in their texts."""
        from cloudgpu.cli.common import insert_provider_names
        from cloudgpu.cli.help import write_options

        insert_provider_names(self.params)
        write_options(self, ctx, formatter, self.groups)


class VerbGroup(TyperGroup):
    """A group whose commands are modules, imported when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the verbs, in the order of --help."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Import one verb and return it as a command; None when there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module_name, summary = VERBS[cmd_name]
        module = import_module(f"cloudgpu.cli.{module_name}")
        info = CommandInfo(
            cmd_name,
            cls=VerbCommand,
            callback=module.command,
            short_help=summary,
            help=module.command.__doc__,
            context_settings=getattr(module, "CONTEXT", None),
        )
        command: Any = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        command.groups = getattr(module, "GROUPS", {})
        command.order_arguments = getattr(module, "order_arguments", None)
        if "_CLOUDGPU_COMPLETE" in os.environ:
            from cloudgpu.cli.completion import complete_values

            complete_values(cmd_name, command.params)
        return command

    def get_help(self, ctx: Any) -> str:
        """Return the page of --help."""
        from cloudgpu.cli.help import page_of

        return page_of(self, ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the verbs in parts, without importing one."""
        from cloudgpu.cli.help import write_verbs

        write_verbs(formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, and below them the options that stand before a verb."""
        from cloudgpu.cli.help import write_options

        self.format_commands(ctx, formatter)
        write_options(self, ctx, formatter, {})

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete a verb without importing one."""
        from cloudgpu.cli.completion import verbs

        return verbs(ctx, incomplete, {verb: summary for verb, (_, summary) in VERBS.items()})

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; Ctrl-C is passed through the parser, which would hide it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise interrupt.Interrupted from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the typed verb by its name or a synonym; raise InvalidRequest for another word."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            args = self._resolve(ctx, args)
        if tuple(args[:2]) in ACTIONS:
            args = [args[0], ACTIONS[args[0], args[1]], *args[2:]]
        if " ".join(args[:2]) in VERBS and len(args) > 1:
            args = [" ".join(args[:2]), *args[2:]]
        return super().resolve_command(ctx, args)

    def _resolve(self, ctx: Any, args: list[str]) -> list[str]:
        from cloudgpu.cli.aliases import resolve_verb

        resolved = resolve_verb(args)
        if not resolved:  # `help` alone
            sys.stdout.write(f"{ctx.get_help()}\n")
            raise typer.Exit
        if resolved[0] == "--version":
            _version(shows_version=True)
        return resolved


app = typer.Typer(
    cls=VerbGroup,
    rich_markup_mode=None,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=SLOGAN,
    epilog="Start with: cloudgpu demo. Settings, ledger and keys are kept in CLOUDGPU_HOME.",
)


def _version(shows_version: bool) -> None:
    if shows_version:
        sys.stdout.write(f"cloudgpu {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_version),
) -> None:
    """Take the options that stand before the verb."""
    del version
