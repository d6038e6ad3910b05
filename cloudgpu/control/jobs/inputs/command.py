"""Checks that the program of a job is in its workdir: a misspelt one is refused before a machine is launched."""

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
_PROGRAM_IN_OPTIONS = {"-c", "-m", "-"}  # options of an interpreter after which no script file follows
_MAX_NAMES = 2000  # of files, that are compared with a misspelt one
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
_MIN_SIMILARITY = 0.8  # to a common program, of an unknown one that counts as misspelt: `pyhton`


def check_command(argv: Sequence[str], workdir: Path, runtime_dirs: Sequence[str] = (), *, has_setup: bool) -> None:
    """Raise InvalidRequest where the program, or the script of an interpreter, is not in the workdir.

    `runtime_dirs`, relative to the workdir, are filled only on the machine (data, results): what lies in them is not
    looked for, nor a program that a setup may build. A program without a path is the machine's own: it is refused only
    if this computer does not have it, and it is nearly the name of a common one.
    """
    if not has_setup:
        _check_spelling(argv[0])
    file = argv[0] if "/" in argv[0] else _script(argv)
    if file is None or (file is argv[0] and has_setup) or any(map(PurePosixPath(file).is_relative_to, runtime_dirs)):
        return
    path = _path_of(file, workdir)
    if path is None:
        return
    if not path.is_file():
        similar = closest_match(os.path.relpath(path, workdir), islice(_files(workdir, path.suffix), _MAX_NAMES))
        raise InvalidRequest(
            f"{shown(file)} is not in the workdir {workdir}{did_you_mean(similar, '.')}",
            field="CMD",
            value=shown(file),
            next="Correct the name, or name the directory that has it with --workdir.",
        )
    if file is argv[0] and not os.access(path, os.X_OK):
        raise InvalidRequest(
            f"{shown(file)} is not executable.",
            field="CMD",
            value=shown(file),
            next=f"Run: chmod +x {shown(file)}, or name its interpreter: -- bash {shown(file)}",
        )


def is_unknown_program(name: str) -> bool:
    """Say whether a name without a path is neither a common program nor one of this computer."""
    is_common = name in _COMMON_PROGRAMS or _INTERPRETER.fullmatch(name)
    return "/" not in name and not is_common and shutil.which(name) is None


def _check_spelling(name: str) -> None:
    """Raise InvalidRequest for an unknown program with nearly the name of a common one."""
    if not is_unknown_program(name):
        return
    from difflib import get_close_matches

    similar = get_close_matches(name, _COMMON_PROGRAMS, n=1, cutoff=_MIN_SIMILARITY)
    if similar:
        raise InvalidRequest(
            f"{shown(name)} is not a command of this computer{did_you_mean(similar[0])}",
            field="CMD",
            value=shown(name),
            next=f"If the machine has it all the same: -- sh -c '{shown(name)} ...'",
        )


def _script(argv: Sequence[str]) -> str | None:
    """Return the script that an interpreter is to run; None for another program, and without a script."""
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


def _path_of(file: str, workdir: Path) -> Path | None:
    """Return the path of a file in the workdir; None for an absolute path of the machine.

    Raises InvalidRequest for a relative path that leads out of the workdir, and for an absolute one into it.
    """
    if Path(file).is_absolute():
        if Path(file).is_relative_to(workdir):
            relative = Path(file).relative_to(workdir)
            raise InvalidRequest(
                f"{shown(file)} is a path of this computer: on the machine the workdir is elsewhere.",
                field="CMD",
                value=shown(file),
                next=f"Name it relative to the workdir: {relative if '/' in str(relative) else f'./{relative}'}",
            )
        return None
    path = Path(os.path.normpath(workdir / file))
    if path.is_relative_to(workdir):
        return path
    raise InvalidRequest(
        f"{shown(file)} is outside the working directory {workdir}, and only that directory is uploaded.",
        field="CMD",
        value=shown(file),
        next="Name a directory that has it inside with --workdir.",
    )


def _files(workdir: Path, suffix: str) -> Iterator[str]:
    """Yield files with this ending, those of the directory itself first, then those one directory below."""
    for pattern in (f"*{suffix}", f"*/*{suffix}"):
        yield from (str(path.relative_to(workdir)) for path in workdir.glob(pattern) if path.is_file())


_SETUP_COMMANDS = {  # by file of the workdir: the command that installs the packages it lists
    "requirements.txt": "pip install -r requirements.txt",
    "uv.lock": "uv sync",
    "environment.yml": "conda env update -n base -f environment.yml",
    "pyproject.toml": "pip install .",
}


def proposed_setup(workdir: Path) -> tuple[str, str] | None:
    """Return a file of the workdir that lists packages, and the command that installs them; None without one."""
    return next(((name, command) for name, command in _SETUP_COMMANDS.items() if (workdir / name).is_file()), None)
