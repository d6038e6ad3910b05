"""Reads the file of `--env-file`: KEY=VALUE lines. No error repeats a value of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cloudgpu.core.events.job_events import JobSpec
from cloudgpu.errors import CloudgpuError, InvalidRequest

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_PREFIX = "CLOUDGPU_"  # of the variables that cloudgpu itself sets for the command
_OPTION = "--env-file"
_EXPORT = re.compile(r"^export\s+")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}  # after a backslash in double quotes; any other character is itself
_QUOTED_VALUES = {
    "'": re.compile(r"'([^']*)'\s*(?:#.*)?"),
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?'),
}


def read_env_file(path: Path) -> dict[str, str]:
    """Return what a file of KEY=VALUE lines sets; raise InvalidRequest where it cannot be read.

    Empty lines and comments (`#`) are left out, and so is the word `export` before a key. A value may stand in single
    quotes, where every character is itself, or in double quotes, where a backslash begins an escape. Without quotes it
    ends before ` #`.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise _env_file_error(
            f"{path} cannot be read: {why}.", path, "Name a readable file of KEY=VALUE lines."
        ) from None
    return parse_env_file(text, path)


def parse_env_file(text: str, path: Path) -> dict[str, str]:
    """Return what the lines set, the last of each key; raise InvalidRequest that names file and line for a bad one."""
    variables = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            key, value = _parse_line(line, number, path)
            variables[key] = value
    return variables


def check_variable(key: str, option: str) -> None:
    """Raise InvalidRequest for what cannot be the name of an environment variable, or is one of cloudgpu's own."""
    if not VARIABLE.fullmatch(key):
        raise InvalidRequest(
            f"{key!r} cannot be the name of an environment variable.",
            field=option,
            value=key,
            next="Use letters, digits and _, not beginning with a digit.",
        )
    if key.startswith(RESERVED_PREFIX):
        raise InvalidRequest(
            f"{key} cannot be set: names that begin with {RESERVED_PREFIX} are cloudgpu's own.",
            field=option,
            value=key,
            next="Choose another name.",
        )


def _parse_line(line: str, number: int, path: Path) -> tuple[str, str]:
    key, equals, value = _EXPORT.sub("", line.strip(), count=1).partition("=")
    if not equals or not VARIABLE.fullmatch(key.strip()):  # the line itself is not repeated: it may be a secret
        raise _env_file_error(f"Line {number} of {path} is not KEY=VALUE.", path, "For example WANDB_MODE=offline")
    check_variable(key.strip(), _OPTION)
    return key.strip(), _parse_value(value.strip(), number, path)


def _parse_value(text: str, number: int, path: Path) -> str:
    quote = text[:1]
    if quote not in _QUOTED_VALUES:
        return "" if quote == "#" else re.split(r"\s#", text, maxsplit=1)[0].rstrip()
    match = _QUOTED_VALUES[quote].fullmatch(text)
    if match is None:
        remedy = "Close the quotes on the same line, and write nothing but a comment behind them."
        raise _env_file_error(f"Line {number} of {path} has a quoted value that does not end.", path, remedy)
    return match[1] if quote == "'" else re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), match[1])


def _env_file_error(message: str, path: Path, remedy: str) -> CloudgpuError:
    return InvalidRequest(message, field=_OPTION, value=str(path), next=remedy)


def missing_secrets(spec: JobSpec, environ: Mapping[str, str]) -> list[str]:
    """Return the names of a job's secrets that this environment lacks, and its --env-file if that cannot be read."""
    missing = [name for name in spec["secrets"] if name not in environ]
    if spec["env_file"] is not None:
        try:
            read_env_file(Path(spec["env_file"]))
        except InvalidRequest:
            missing.append(spec["env_file"])
    return missing


def secret_values(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a job's secrets and of its --env-file, read now; they are written nowhere.

    Raises InvalidRequest for a secret that this environment does not have, and for a file that cannot be read.
    """
    missing = [name for name in spec["secrets"] if name not in environ]
    if missing:
        raise InvalidRequest(
            f"{missing[0]} is not set in this environment, and the job needs it (--secret {missing[0]}).",
            field="--secret",
            value=missing[0],
            next=f"Set it: export {missing[0]}=..., then run it again.",
        )
    file_values = {} if spec["env_file"] is None else read_env_file(Path(spec["env_file"]))
    return {**file_values, **{name: environ[name] for name in spec["secrets"]}}
