"""The command line: runs one command, and is the one place where errors are shown."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from cloudgpu.cli import interrupt
from cloudgpu.cli.terminal import filled, is_coloured, is_terminal, paint, prose_columns
from cloudgpu.errors import CloudgpuError

# The options of `ls` that are read without the parser, whose import takes longer than the answer, each with the
# parameter of `list_machines` that it sets. With any other option the parser is loaded.
_LS_OPTIONS = {
    "-a": "ended",
    "--all": "ended",
    "--mine": "mine",
    "-v": "verbose",
    "--verbose": "verbose",
    "--nodes": "nodes",
}
_JSON_OPTIONS = (["-o", "json"], ["--output", "json"])


def main() -> None:
    """Run the command line and leave with the exit code that the documentation names."""
    interrupt.install_handlers()
    try:
        code = _run_and_clean_up(sys.argv[1:])
        interrupt.ignore_interrupts()
    except KeyboardInterrupt:  # a second Ctrl-C
        code = interrupt.EXIT_CODE
        interrupt.ignore_interrupts()
    gc.freeze()  # a last garbage collection would be half a second of silence, with the SDK of a cloud
    sys.exit(code)


def _run_and_clean_up(args: list[str]) -> int:
    try:
        code = run(args)
    except KeyboardInterrupt:
        code = interrupt.EXIT_CODE
    if code == interrupt.EXIT_CODE:
        interrupt.stop_reraising_interrupt()
        interrupt.drop_output_and_threads()
    return code


def run(args: list[str]) -> int:
    """Run one command and return its exit code; every error is shown here, as text or as one JSON document."""
    try:
        return _run_or_show_error(args)
    except KeyboardInterrupt:
        interrupt.stop_reraising_interrupt()
        interrupt.report_leftovers()
        return interrupt.EXIT_CODE


def _run_or_show_error(args: list[str]) -> int:
    try:
        if not args and not _is_completing():
            from cloudgpu.cli.help import front_page

            sys.stdout.write(front_page())
            return 0
        code = _run_verb(args)
    except CloudgpuError as error:
        return _show_error(error, args)
    except interrupt.Interrupted as interrupted:
        raise KeyboardInterrupt from interrupted
    except BrokenPipeError:
        _drop_stdout()
        return 141
    except Exception as error:  # noqa: BLE001  (the last place where a defect can become a sentence)
        from cloudgpu.cli.common import Declined
        from cloudgpu.cli.errors import as_cloudgpu_error

        return (
            _report_declined(error, args)
            if isinstance(error, Declined)
            else _show_error(as_cloudgpu_error(error, args), args)
        )
    return code if isinstance(code, int) else 0


def _drop_stdout() -> None:
    """Send what is still in stdout's buffer to /dev/null, so that flushing it at the exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_completing() -> bool:
    return "_CLOUDGPU_COMPLETE" in os.environ


def _run_verb(args: list[str]) -> Any:
    """Let the parser run a verb; on a terminal, show progress."""

    def call_parser() -> Any:
        if args[:1] == ["ls"] and not _is_completing() and _answer_ls(args[1:]):
            return 0
        from cloudgpu.cli.parser import app

        return app(args=args, prog_name="cloudgpu", standalone_mode=False, color=is_coloured(sys.stdout))

    if _is_completing() or not is_terminal(sys.stderr):  # zsh and fish leave stderr the line that is being typed
        return call_parser()
    from cloudgpu.cli import progress

    with progress.show_spinner(" ".join(args[:1])):
        return call_parser()


def _answer_ls(words: list[str]) -> bool:
    """Answer `ls` from the ledger without the parser, which takes longer; return False where a word needs it."""
    json = words[-2:] in _JSON_OPTIONS
    options = words[:-2] if json else words
    if not all(word in _LS_OPTIONS for word in options):
        return False
    from cloudgpu.cli.machines.listing import list_machines
    from cloudgpu.cli.output import Format, emit

    document, text = list_machines(**{_LS_OPTIONS[word]: True for word in options})
    emit(Format.JSON if json else Format.TEXT, document, text)
    return True


def _show_error(error: CloudgpuError, args: list[str]) -> int:
    if wants_json(args):
        import json  # --help does without

        document_text = json.dumps({"error": error.as_dict()}, indent=2)
        try:
            sys.stdout.write(f"{document_text}\n")
            sys.stdout.flush()
        except OSError:  # stdout takes nothing: a full disk
            sys.stderr.write(f"{document_text}\n")
            _drop_stdout()
    else:
        # A sentence that begins with what was typed says where it was typed.
        field_text = f"{error.field}: " if error.field and error.message.startswith(("'", '"')) else ""
        lines = [f"error: {field_text}{error.message}"]
        lines += [f"  {error.next}"] if error.next else []
        if is_terminal(sys.stderr):
            lines = [filled(line.strip(), prose_columns(), "  " * number, "  ") for number, line in enumerate(lines)]
        text = "\n".join(lines)
        if is_coloured(sys.stderr):
            text = paint("error:", "bold red") + text.removeprefix("error:")
        sys.stderr.write(f"{text}\n")
    return 255 if args and args[0] == "exec" else error.exit_code


def _report_declined(error: Exception, args: list[str]) -> int:
    """Say that the user said no, which is no error."""
    if wants_json(args):
        import json

        sys.stdout.write(json.dumps({"declined": str(error)}, indent=2) + "\n")
    else:
        sys.stderr.write(f"{error}\n")
    return 0


def wants_json(args: list[str]) -> bool:
    """Return whether the command line asks for JSON, whatever else is wrong with it."""
    own_args = args[: args.index("--")] if "--" in args else args
    if own_args and own_args[0] in ("exec", "ssh", "run"):
        return False
    import re  # --help does without

    # Also as the last of several letters: `-yo json`.
    option = r"(?:--output[=\0]|-[a-zA-Z]*o[=\0]?)"
    return re.search(rf"(?:^|\0){option}json(?:\0|$)", "\0".join(own_args)) is not None
