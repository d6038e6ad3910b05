"""What a machine has of its own on the user's host: a Python, settings of Jupyter, a directory of work.

It is the second part of the program that is sent there. Nothing of the owner's is written to. All lies in ~/.cloudgpu
and goes with it, but for one directory: JupyterLab hides what begins with a dot, so what the template's script made
is moved to ~/cloudgpu-NAME when the script has ended. The list of what was moved there is written first. At the end
whatever is as it was moved goes, and whatever the owner changed or added stays.

python/       an environment, empty itself, in which the packages of the owner's Python are found behind its own
environments/ where templates make theirs
jupyter/      JupyterLab's settings, kernels and runtime files; ipython/ and cache/ likewise
work/         where the template's script runs; what was moved is a link from there
shown.json    what was moved: size and time of each file, as it was then
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloudgpu.providers.shared.python_environment import (
    has_module,
    jupyter_module,
    jupyter_requirements,
    kernel_spec,
    make_python,
)
from cloudgpu.providers.ssh.files import HOME, ROOT, Record, load, save, update_record

WORK_DIRECTORY, MOVED_FILES = ROOT / "work", ROOT / "shown.json"
CHECKPOINTS = ".ipynb_checkpoints"
DERIVED_DIRECTORIES = (CHECKPOINTS, "__pycache__")  # made by Jupyter and Python beside a file that is read
MOUNTS = Path("/proc/self/mountinfo")
MAX_NAMED_FILES = 20  # of the files that stay
IPYTHON_FILES = ("ipython_config.py", "ipython_config.json", "ipython_kernel_config.py", "ipython_kernel_config.json")

# Runs beside the agent at each start: installs JupyterLab where the owner's Python has none, then what the template
# does at each start. Its directory is the first word.
START_SCRIPT = r"""
# pip asks for the version of Rust, and rustup writes its settings when it is asked for the first time.
[ -e "${RUSTUP_HOME:-$HOME/.rustup}" ] || export RUSTUP_HOME="$0/cache/rustup"
if [ -s "$0/jupyter.pip" ] && ! [ -e "$0/jupyter.ready" ]; then
  echo installing >"$0/jupyter.status"
  "$0/python/bin/python3" -I -m pip install --quiet --disable-pip-version-check $(cat "$0/jupyter.pip") \
    >"$0/jupyter.log" 2>&1 && touch "$0/jupyter.ready"
  if [ -e "$0/jupyter.ready" ]; then echo ready; else echo failed; fi >"$0/jupyter.status"
fi
[ -e "$0/on_start.sh" ] || exit 0
# What its owner took away from where it was moved leaves a link that leads nowhere: the script would fall over it.
for made in "$0/work"/*; do [ -e "$made" ] || rm -f "$made"; done
(cd "$0/work" && exec sh -e "$0/on_start.sh") >"$0/on_start.log" 2>&1
status=$?
"$0/python/bin/python3" "$0/host.py" publish >>"$0/on_start.log" 2>&1
echo $status >"$0/on_start.status"
"""


# -- the environment


def variables() -> dict[str, str]:
    """Return the environment variables of each process of this machine, apart from MARK_VARIABLE."""
    directory, owner_directories = ROOT / "jupyter", os.pathsep.join(owner_jupyter_directories())
    owner_settings = os.environ.get("JUPYTER_CONFIG_DIR") or str(HOME / ".jupyter")
    python_directory = str(Path(sys.prefix) / "share" / "jupyter")
    return {
        "PATH": search_path(ROOT / "python" / "bin", os.environ.get("PATH", os.defpath)),
        "CLOUDGPU_ENVIRONMENTS": str(ROOT / "environments"),
        "JUPYTER_DATA_DIR": str(directory / "data"),
        "JUPYTER_CONFIG_DIR": str(directory / "config"),
        "JUPYTER_RUNTIME_DIR": str(directory / "runtime"),
        # What this machine's templates made first, then the owner's own kernels and settings.
        "JUPYTER_PATH": search_path(directory / "data", owner_directories, python_directory),
        "JUPYTER_CONFIG_PATH": search_path(
            directory / "config", os.environ.get("JUPYTER_CONFIG_PATH", ""), owner_settings
        ),
        "IPYTHONDIR": str(ROOT / "ipython"),
        "PIP_CACHE_DIR": str(ROOT / "cache" / "pip"),
        "npm_config_cache": str(ROOT / "cache" / "npm"),  # an extension of JupyterLab asks npm, which writes a log
    }


def owner_jupyter_directories() -> list[str]:
    """Return the owner's own directories of Jupyter's data, which have their kernels."""
    data = os.environ.get("XDG_DATA_HOME") or str(HOME / ".local" / "share")
    directories = [*os.environ.get("JUPYTER_PATH", "").split(os.pathsep), os.environ.get("JUPYTER_DATA_DIR", "")]
    return [path for path in (*directories, f"{data}/jupyter") if path and not path.startswith(str(ROOT))]


def search_path(first: Path, *other_paths: str) -> str:
    """Return a search path: `first`, then the directories of the other paths, each once."""
    directories = [
        str(first),
        *(directory for path in other_paths for directory in path.split(os.pathsep) if directory),
    ]
    return os.pathsep.join(dict.fromkeys(directories))


def make_environment(new_root: Path, body: dict[str, Any]) -> str:
    """Make the machine's own Python, IPython and Jupyter in `new_root`, which becomes ROOT.

    Returns the Python that runs Jupyter. That is the owner's Python where it has Jupyter; else the machine's, in which
    it is then installed.
    """
    make_python(new_root / "python")
    owner_ipython = os.environ.get("IPYTHONDIR") or str(HOME / ".ipython")
    link_ipython(Path(owner_ipython) / "profile_default", new_root / "ipython" / "profile_default")
    (new_root / "work").mkdir()
    module, _ = jupyter_module(body["jupyter"])
    if not module:
        return sys.executable
    make_kernel(new_root / "jupyter" / "data" / "kernels" / "python3")
    if has_module(module):
        return sys.executable
    (new_root / "jupyter.pip").write_text(jupyter_requirements(body["jupyter"]), encoding="utf-8")
    return str(ROOT / "python" / "bin" / "python3")


def make_kernel(directory: Path) -> None:
    """Let notebooks run in the environment, where the owner has no kernel of that name: theirs stays as it is."""
    if any(
        (Path(owner_directory) / "kernels" / directory.name).exists() for owner_directory in owner_jupyter_directories()
    ):
        return
    directory.mkdir(parents=True)
    kernel = kernel_spec(ROOT / "python" / "bin" / "python3")
    (directory / "kernel.json").write_text(kernel, encoding="utf-8")


def link_ipython(owner_profile: Path, profile: Path) -> None:
    """Have IPython here read the owner's settings and startup files; history and the rest is written to ours."""
    (profile / "startup").mkdir(parents=True)
    startup = sorted(owner_profile.glob("startup/*.*py"))
    for settings_file in (*(owner_profile / name for name in IPYTHON_FILES), *startup):
        if settings_file.is_file():
            (profile / settings_file.relative_to(owner_profile)).symlink_to(settings_file)


# -- the directory of work


def publish(record: Record) -> None:
    """Move what the template's script has made to the directory that the owner sees; a file that is there stays."""
    for new_file in sorted(WORK_DIRECTORY.iterdir()):
        if new_file.name.startswith(".") or (new_file.is_symlink() and not new_file.exists()):
            continue
        directory, record = visible_directory(record)
        target = directory / new_file.name
        if os.path.lexists(str(target)):
            continue
        save(MOVED_FILES, json.dumps({**load(MOVED_FILES), **file_stamps(new_file, new_file.name)}))
        new_file.rename(target)
        new_file.symlink_to(target)


def visible_directory(record: Record) -> tuple[Path, Record]:
    """Return the directory that the owner sees, made where it is not there; never one that was there before.

    Its inode number is recorded before it is renamed to its path: another directory there is not ours.
    """
    while not is_visible_directory(record):
        unplaced = ROOT / "shown"
        unplaced.mkdir(exist_ok=True)
        candidates = [
            HOME / ("cloudgpu-{}{}".format(record["name"], f"-{number}" * (number > 1))) for number in range(1, 99)
        ]
        directory = next(candidate for candidate in candidates if not os.path.lexists(str(candidate)))
        record = update_record(record, work={"path": str(directory), "inode": unplaced.stat().st_ino})
        unplaced.rename(directory)
    return Path(record["work"]["path"]), record


def is_visible_directory(record: Record) -> bool:
    """Tell whether the directory that the record names is there, and is the one that was made."""
    work = record.get("work") or {"path": "", "inode": 0}
    with contextlib.suppress(OSError):
        status = os.lstat(work["path"])
        return stat.S_ISDIR(status.st_mode) and status.st_ino == work["inode"]
    return False


def file_stamps(new_file: Path, name: str) -> dict[str, list[int]]:
    """Return the stamps (see `file_stamp`) of `new_file` and of all below it, by path below the work directory."""
    stamps = {name: file_stamp(new_file)}
    if new_file.is_dir() and not new_file.is_symlink():
        for path, relative_name in walk(new_file, name):
            stamps[relative_name] = file_stamp(path)
    return stamps


def walk(top: Path, name: str = "", mount_points: set[str] | None = None) -> Iterator[tuple[Path, str]]:
    """Yield each path below a directory with its relative name, deepest first; links are not followed.

    What may not be read, or is mounted there (`mount_points`), is yielded without its contents.
    """
    mount_points = mounts(top) if mount_points is None else mount_points
    if str(top) in mount_points or not os.access(str(top), os.R_OK | os.X_OK):
        return
    for entry in sorted(os.scandir(str(top)), key=lambda entry: entry.name):
        relative_name = f"{name}/{entry.name}" if name else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path), relative_name, mount_points)
        yield Path(entry.path), relative_name


def mounts(top: Path) -> set[str]:
    """Return the directories below this one on which something is mounted: their contents are not ours."""
    real_top, mount_points = os.path.realpath(str(top)), set()
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_bytes().splitlines():
            # A blank in a path stands there as \040.
            mount_point = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), line.split()[4])
            if os.fsdecode(mount_point).startswith(real_top + "/"):
                mount_points.add(str(top) + os.fsdecode(mount_point)[len(real_top) :])
    return mount_points


def file_stamp(path: Path) -> list[int]:
    """Return a file's size and modification time; [-1, 0] for a directory.

    [-1, -1] for what cannot be read (a mount whose server is gone).
    """
    try:
        status = path.lstat()
    except OSError:
        return [-1, -1]
    return [-1, 0] if stat.S_ISDIR(status.st_mode) else [status.st_size, status.st_mtime_ns]


def remove_unchanged(record: Record) -> dict[str, Any]:
    """Remove what the template made and nobody has changed since; return what stays: where, how many files, and which.

    `moved_stamps` are the stamps when the files were moved there. A git clone stays whole where its history has
    changed, or where the owner made it; so does what is mounted there. A second call changes nothing and
    returns the same.
    """
    if not is_visible_directory(record):
        return {}
    directory, moved_stamps = Path(record["work"]["path"]), load(MOVED_FILES)
    paths, mount_points = {relative_name: path for path, relative_name in walk(directory)}, mounts(directory)
    git_directories = [relative_name for relative_name in paths if relative_name.rpartition("/")[2] == ".git"]
    clone_prefixes = tuple(
        relative_name[: -len(".git")]
        for relative_name in git_directories
        if relative_name not in moved_stamps or has_changes(relative_name, paths, moved_stamps)
    )
    staying = {
        relative_name
        for relative_name, path in paths.items()
        if relative_name.startswith(clone_prefixes) or str(path) in mount_points
    }
    unchanged = [
        path
        for relative_name, path in paths.items()
        if relative_name not in staying and is_unchanged(path, relative_name, moved_stamps)
    ]
    # What was made from another goes before it: a second time still knows why it goes.
    for path in sorted(unchanged, key=lambda path: path.parent.name not in DERIVED_DIRECTORIES):
        try_remove(path)
    with contextlib.suppress(OSError):
        directory.rmdir()
        return {}
    remaining = {
        relative_name: path
        for relative_name, path in paths.items()
        if os.path.lexists(str(path)) and not relative_name.startswith(clone_prefixes)
    }
    names = (
        relative_name
        for relative_name, path in remaining.items()
        if str(path) in mount_points or not is_nonempty_directory(path)
    )
    staying_names = sorted([*(clone or "./" for clone in clone_prefixes), *names])
    return {"where": str(directory), "files": staying_names[:MAX_NAMED_FILES], "count": len(staying_names)}


def has_changes(git_directory: str, paths: dict[str, Path], moved_stamps: dict[str, Any]) -> bool:
    """Tell whether a git clone has changed since it was made; `git status` alone changes only its index."""
    return any(
        relative_name.startswith(git_directory + "/") and not is_unchanged(path, relative_name, moved_stamps)
        for relative_name, path in paths.items()
    )


def is_unchanged(path: Path, relative_name: str, moved_stamps: dict[str, Any]) -> bool:
    """Tell whether a file or directory is as the template made it, or was derived from one that is."""
    stamp, directory_name = file_stamp(path), path.parent.name
    if moved_stamps.get(relative_name) == stamp:
        return True
    if stamp[0] < 0:
        return path.name in DERIVED_DIRECTORIES
    if directory_name == "__pycache__":
        return path.suffix == ".pyc"
    if directory_name == ".git":
        return relative_name.rpartition("/")[0] in moved_stamps and path.name in ("index", "FETCH_HEAD")
    source = path.parent.parent / path.name.replace("-checkpoint", "")
    name = "/".join([*relative_name.split("/")[:-2], source.name])
    with contextlib.suppress(OSError):
        is_source_unchanged = moved_stamps.get(name) == file_stamp(source)
        return directory_name == CHECKPOINTS and is_source_unchanged and source.read_bytes() == path.read_bytes()
    return False


def is_nonempty_directory(path: Path) -> bool:
    """Tell whether this is a directory that is not empty: its contents are named instead."""
    with contextlib.suppress(OSError):
        return file_stamp(path)[0] < 0 and any(path.iterdir())
    return False


def try_remove(path: Path) -> None:
    """Remove a file or an empty directory, also from a read-only directory; no error where that fails.

    What cannot be deleted (a file of root's, made in a container) stays.
    """
    with contextlib.suppress(OSError):
        for parent in (path.parent, path):
            if file_stamp(parent)[0] < 0 and parent.stat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
                parent.chmod(stat.S_IRWXU)
        if file_stamp(path)[0] >= 0:
            path.unlink()
        else:
            path.rmdir()
