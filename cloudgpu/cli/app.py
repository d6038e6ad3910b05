"""The command line: a table of verbs, each imported only when it is used, and the one place where errors are shown."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from cloudgpu import __version__
from cloudgpu.cli import interrupt
from cloudgpu.cli.terminal import filled, is_coloured, is_terminal, paint, prose_columns
from cloudgpu.cli.verbs import ACTIONS, SAYS, VERBS
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class VerbCommand(TyperCommand):
    """A verb; its help names the providers that are installed, which costs time only when it is printed.

    A verb's module may have GROUPS, the options under titles, and `arranged`, which puts arguments in order first.
    """

    groups: Mapping[str, Sequence[str]] = MappingProxyType({})
    arranged: Callable[[list[str]], list[str]] | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, in the order that the verb gives them."""
        return super().parse_args(ctx, args if self.arranged is None else self.arranged(args))

    def get_help(self, ctx: Any) -> str:
        """Return the page of --help."""
        from cloudgpu.cli.help import page_of

        return page_of(self, ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, with what is installed in their texts."""
        from cloudgpu.cli.help import write_options
        from cloudgpu.cli.kinds import name_installed

        name_installed(self.params)
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
        found: Any = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        found.groups = getattr(module, "GROUPS", {})
        found.arranged = getattr(module, "arranged", None)
        if "_CLOUDGPU_COMPLETE" in os.environ:
            from cloudgpu.cli.completion import complete_values

            complete_values(cmd_name, found.params)
        return found

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
        """Run the verb; Ctrl-C passes the parser, which would say nothing of it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as told:
            raise interrupt.Interrupted from told

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb that was typed, by its own name or another; raise InvalidRequest for a word that is none."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            args = self._understood(ctx, args)
        if tuple(args[:2]) in ACTIONS:
            args = [args[0], ACTIONS[args[0], args[1]], *args[2:]]
        if " ".join(args[:2]) in VERBS and len(args) > 1:
            args = [" ".join(args[:2]), *args[2:]]
        return super().resolve_command(ctx, args)

    def _understood(self, ctx: Any, args: list[str]) -> list[str]:
        from cloudgpu.cli.aliases import understood

        found = understood(args)
        if not found:  # `help` alone
            sys.stdout.write(f"{ctx.get_help()}\n")
            raise typer.Exit
        if found[0] == "--version":
            _version(value=True)
        return found


app = typer.Typer(
    cls=VerbGroup,
    rich_markup_mode=None,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=SAYS,
    epilog="Start with: cloudgpu demo. Settings, ledger and keys are kept in CLOUDGPU_HOME.",
)


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"cloudgpu {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_version),
) -> None:
    """Take the options that stand before the verb."""
    del version


def main() -> None:
    """Run the command line and leave with the exit code of the contract."""
    interrupt.heed()
    try:
        code = _ended(sys.argv[1:])
        interrupt.over()
    except KeyboardInterrupt:  # a second one
        code = interrupt.CODE
        interrupt.over()
    sys.exit(code)


def _ended(args: list[str]) -> int:
    try:
        code = run(args)
    except KeyboardInterrupt:
        code = interrupt.CODE
    if code == interrupt.CODE:
        interrupt.take_time()
        interrupt.let_go()
    return code


def run(args: list[str]) -> int:
    """Run one command and return its exit code; every error is shown here, as text or as one JSON document."""
    try:
        return _shown(args)
    except KeyboardInterrupt:
        interrupt.take_time()
        interrupt.say()
        return interrupt.CODE


def _shown(args: list[str]) -> int:
    try:
        if not args and "_CLOUDGPU_COMPLETE" not in os.environ:
            from cloudgpu.cli.help import front_page

            sys.stdout.write(front_page())
            return 0
        code = _run_verb(args)
    except CloudgpuError as fault:
        return _show(fault, args)
    except interrupt.Interrupted as told:
        raise KeyboardInterrupt from told
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as fault:  # noqa: BLE001  (the last place where a defect can become a sentence)
        from cloudgpu.cli.common import Declined
        from cloudgpu.cli.errors import as_ours

        return _declined(fault, args) if isinstance(fault, Declined) else _show(as_ours(fault, args), args)
    return code if isinstance(code, int) else 0


def _run_verb(args: list[str]) -> Any:
    """Let the parser run a verb; on a terminal, show that it goes on."""

    def go() -> Any:
        return app(args=args, prog_name="cloudgpu", standalone_mode=False, color=is_coloured(sys.stdout))

    if not is_terminal(sys.stderr):
        return go()
    from cloudgpu.cli import progress

    with progress.shown(" ".join(args[:1])):
        return go()


def _show(fault: CloudgpuError, args: list[str]) -> int:
    if wants_json(args):
        import json  # --help does without

        sys.stdout.write(json.dumps({"error": fault.as_dict()}, indent=2) + "\n")
    else:
        # A sentence that begins with what was typed says where it was typed.
        where = f"{fault.field}: " if fault.field and fault.message.startswith(("'", '"')) else ""
        lines = [f"error: {where}{fault.message}"]
        lines += [f"  {fault.next}"] if fault.next else []
        if is_terminal(sys.stderr):
            lines = [filled(line.strip(), prose_columns(), "  " * number, "  ") for number, line in enumerate(lines)]
        text = "\n".join(lines)
        if is_coloured(sys.stderr):
            text = paint("error:", "bold red") + text.removeprefix("error:")
        sys.stderr.write(f"{text}\n")
    return 255 if args and args[0] in ("exec", "run") else fault.exit_code


def _declined(answer: Exception, args: list[str]) -> int:
    """Say that the user said no, which is no error."""
    if wants_json(args):
        import json

        sys.stdout.write(json.dumps({"declined": str(answer)}, indent=2) + "\n")
    else:
        sys.stderr.write(f"{answer}\n")
    return 0


def wants_json(args: list[str]) -> bool:
    """Say whether the command line asks for JSON, whatever else is wrong with it."""
    before = args[: args.index("--")] if "--" in args else args
    if before and before[0] in ("exec", "ssh", "run"):
        return False
    pairs = pairwise(before)
    return any(a in ("-o", "--output") and b == "json" for a, b in pairs) or any(
        word in ("-ojson", "-o=json", "--output=json") for word in before
    )
