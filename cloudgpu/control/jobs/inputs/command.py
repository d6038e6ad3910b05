"""Checks that the program of a job is in its workdir: a misspelt one is refused before a machine is paid for it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from cloudgpu.config.files.user_files import shown
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

_INTERPRETER = re.compile(r"(?:python[0-9.]*|bash|sh|zsh|torchrun)")
_SCRIPT = re.compile(r"[^-].*\.(?:py|sh)", re.DOTALL)
_PROGRAM_IN_OPTIONS = {"-c", "-m", "-"}  # of an interpreter: what follows is no file
_MAX_NAMES = 2000  # that are compared with a misspelt one
_COMMON_PROGRAMS = (
    "python",
    "python3",
    "bash",
    "torchrun",
    "accelerate",
    "deepspeed",
    "jupyter",
    "nvidia-smi",
    "make",
    "conda",
    "uv",
)
_MIN_SIMILARITY = 0.8  # from which on a word that nobody has is a misspelt one: `pyhton`


def check_command(argv: Sequence[str], workdir: Path, runtime_dirs: Sequence[str] = (), *, has_setup: bool) -> None:
    """Raise InvalidRequest where the program, or the script of an interpreter, is not in the workdir.

    `runtime_dirs`, relative to the workdir, are filled only on the machine (data, results): what lies in them is not
    looked for, nor a program that a setup may build. Programs by a bare name are the machine's own: only one that this
    computer does not have, and that is nearly the name of a usual one, is refused.
    """
    if not has_setup:
        _check_spelling(argv[0])
    word = argv[0] if "/" in argv[0] else _script(argv)
    if word is None or (word is argv[0] and has_setup) or any(map(PurePosixPath(word).is_relative_to, runtime_dirs)):
        return
    path = _path_of(word, workdir)
    if path is None:
        return
    if not path.is_file():
        similar = closest_match(os.path.relpath(path, workdir), islice(_files(workdir, path.suffix), _MAX_NAMES))
        raise InvalidRequest(
            f"{shown(word)} is not in the workdir {workdir}{did_you_mean(similar, '.')}",
            field="CMD",
            value=shown(word),
            next="Correct the name, or name the directory that has it with --workdir.",
        )
    if word is argv[0] and not os.access(path, os.X_OK):
        raise InvalidRequest(
            f"{shown(word)} is not executable.",
            field="CMD",
            value=shown(word),
            next=f"Run: chmod +x {shown(word)}, or name its interpreter: -- bash {shown(word)}",
        )


def is_unknown_program(word: str) -> bool:
    """Say whether a bare name is no program of this computer: the machine's own may be others."""
    is_common = word in _COMMON_PROGRAMS or _INTERPRETER.fullmatch(word)
    return "/" not in word and not is_common and shutil.which(word) is None


def _check_spelling(word: str) -> None:
    if not is_unknown_program(word):
        return
    from difflib import get_close_matches

    similar = get_close_matches(word, _COMMON_PROGRAMS, n=1, cutoff=_MIN_SIMILARITY)
    if similar:
        raise InvalidRequest(
            f"{shown(word)} is not a command of this computer{did_you_mean(similar[0])}",
            field="CMD",
            value=shown(word),
            next=f"If the machine has it all the same: -- sh -c '{shown(word)} ...'",
        )


def _script(argv: Sequence[str]) -> str | None:
    """Return the script that an interpreter is to run; None where there is none such."""
    if not _INTERPRETER.fullmatch(argv[0]):
        return None
    for word in argv[1:]:
        if word in _PROGRAM_IN_OPTIONS:
            return None
        if _SCRIPT.fullmatch(word):
            return word
        if not word.startswith("-"):  # the value of an option, or a script without an ending
            return None
    return None


def _path_of(word: str, workdir: Path) -> Path | None:
    """Return where a file of the workdir is; None for one of the machine. Raises InvalidRequest for one outside."""
    if Path(word).is_absolute():
        if Path(word).is_relative_to(workdir):
            inner = Path(word).relative_to(workdir)
            raise InvalidRequest(
                f"{shown(word)} is a path of this computer: on the machine the workdir is elsewhere.",
                field="CMD",
                value=shown(word),
                next=f"Name it relative to the workdir: {inner if '/' in str(inner) else f'./{inner}'}",
            )
        return None
    path = Path(os.path.normpath(workdir / word))
    if path.is_relative_to(workdir):
        return path
    raise InvalidRequest(
        f"{shown(word)} is outside the working directory {workdir}, and only that directory is uploaded.",
        field="CMD",
        value=shown(word),
        next="Name a directory that has it inside with --workdir.",
    )


def _files(workdir: Path, suffix: str) -> Iterator[str]:
    """Yield files with this ending, those of the directory itself first, then those one directory below."""
    for pattern in (f"*{suffix}", f"*/*{suffix}"):
        yield from (str(one.relative_to(workdir)) for one in workdir.glob(pattern) if one.is_file())


_SETUPS = {  # file: what would install what it names
    "requirements.txt": "pip install -r requirements.txt",
    "uv.lock": "uv sync",
    "environment.yml": "conda env update -n base -f environment.yml",
    "pyproject.toml": "pip install .",
}


def proposed_setup(workdir: Path) -> tuple[str, str] | None:
    """Return a file of the workdir that names packages, and a command that installs them; None for none such."""
    return next(((name, command) for name, command in _SETUPS.items() if (workdir / name).is_file()), None)
