"""Turns what the parser, the operating system or a defect raised into the error that a user sees."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from cloudgpu.core.values.printable import printable
from cloudgpu.errors import CloudgpuError, InvalidRequest

_TYPED_TEXT = re.compile(
    r"'([^']*)' is |arguments?(?:\(s\))? \((.*)\)"
)  # how the parser's messages quote what was typed
# Flags of cp and scp for what `cloudgpu cp` always does.
_UNNEEDED_CP_FLAGS = {"-r", "-R", "-a", "-p", "-f", "--recursive", "--archive", "--preserve", "--force"}


def as_cloudgpu_error(error: Exception, args: Sequence[str]) -> CloudgpuError:
    """Return a usage error of the parser or of the system as ours; anything else is a defect, and said to be one."""
    if hasattr(error, "format_message"):
        return _usage_error(error, args)
    if os.environ.get("CLOUDGPU_TRACEBACK"):
        raise error
    if isinstance(error, OSError):
        return _os_error(error)
    return CloudgpuError(
        f"A defect in cloudgpu: {type(error).__name__}: {error}",
        next="Please report it with the output of the same command under CLOUDGPU_TRACEBACK=1.",
    )


def _usage_error(error: Any, args: Sequence[str]) -> InvalidRequest:
    from cloudgpu.cli.verbs import VERBS

    if args and args[0] == "cp" and type(error).__name__ == "NoSuchOption":
        unneeded = _unneeded_option(args, error.option_name)
        if unneeded is not None:
            return unneeded
    if getattr(error, "possibilities", None):
        error.possibilities = _similar_options(error.option_name, error.possibilities)
    param = getattr(error, "param", None)
    field = _param_name(param) if param is not None else getattr(error, "option_name", None)
    command_name = getattr(getattr(error, "ctx", None), "info_name", None)  # also where another word was typed for it
    verb = next(
        (f" {candidate}" for candidate in (command_name, " ".join(args[:2]), *args[:1]) if candidate in VERBS), ""
    )
    sentence = " ".join(error.format_message().split()).replace("is not a valid int", "is not a whole number")
    if type(error).__name__ == "MissingParameter" and field:
        sentence = f"{field} is missing{_choices_text(param, verb)}"
    elif param is not None and param.param_type_name == "argument" and hasattr(param.type, "choices"):
        sentence = f"There is no 'cloudgpu{verb} {printable(_typed_value(error) or '')}'{_choices_text(param, verb)}"
    return InvalidRequest(
        sentence if sentence.endswith((".", "?", "!")) else f"{sentence}.",
        field=field or "arguments",
        value=_typed_value(error),
        next=f"Run: cloudgpu{verb} --help",
    )


def _similar_options(typed: str, options: Sequence[str]) -> list[str]:
    """Return the options that are like the one that was typed; the parser's own search counts the dashes, too."""
    from difflib import get_close_matches

    option_by_bare_name = {option.lstrip("-"): option for option in options}
    return [option_by_bare_name[name] for name in get_close_matches(typed.lstrip("-"), option_by_bare_name)]


def _choices_text(param: Any, verb: str) -> str:
    """Return a clause with the words that a verb takes here, including those that are verbs themselves; or nothing."""
    from cloudgpu.cli.verbs import VERBS

    if param.param_type_name != "argument" or not hasattr(param.type, "choices"):
        return ""
    choices = [str(getattr(choice, "value", choice)) for choice in param.type.choices]
    choices += [words.split()[-1] for words in VERBS if words.startswith(f"{verb.strip()} ")]
    return f": it takes {', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else f": it takes {choices[0]}"


def _unneeded_option(args: Sequence[str], option: str) -> InvalidRequest | None:
    """Return the error for a flag of cp or scp that asks for what is always done here; None for another option."""
    if option not in _UNNEEDED_CP_FLAGS:
        return None
    paths = [word for previous, word in pairwise(args) if not (word.startswith("-") or previous in ("-o", "--output"))]
    paths_text = " ".join(shlex.quote(word) if word.isprintable() else printable(word) for word in paths)
    return InvalidRequest(
        f"{option} is not needed: cp copies directories whole, and keeps permissions and times.",
        field=option,
        value=None,
        next=f"Run: cloudgpu cp {paths_text}",
    )


def _param_name(param: Any) -> str:
    """Return an option's long name, or what --help calls an argument."""
    if param.param_type_name == "argument":
        display_name = str(param.human_readable_name)
        return display_name if display_name.isupper() else str(param.name).upper()
    return str(max(param.opts, key=len))


def _typed_value(error: Any) -> str | None:
    """Return what was typed, as far as the parser's sentence repeats it; never a guess."""
    match = _TYPED_TEXT.search(error.format_message())
    if match:
        return match[1] if match[1] is not None else match[2]
    return getattr(error, "option_name", None)


def _os_error(error: OSError) -> CloudgpuError:
    file_text = f" ({error.filename})" if error.filename else ""
    return CloudgpuError(
        f"The operating system refused: {error.strerror or error}{file_text}.",
        field="file",
        value=str(error.filename) if error.filename else None,
        next="Free space or correct the permissions, then run it again: cloudgpu continues where it stopped.",
    )
