"""A Python environment of a machine's own on somebody's computer, and a template's Jupyter command there.

The environment is empty and finds the packages of the Python that runs this behind its own: pip, and what Jupyter's
kernels need, are there at once, without a download. What is installed there goes with the machine.

It is also a part of the program that the ssh provider sends to a host: standard library only, Python 3.8+.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

JUPYTER_REQUIREMENT = "jupyterlab>=4.4,<5"
JUPYTER_MODULES = {
    "lab": "jupyterlab",
    "notebook": "notebook",
    "server": "jupyter_server",
}  # by subcommand


def make_python(environment: Path) -> None:
    """Make the environment that is first on PATH, which may be moved.

    It needs neither `ensurepip`, which Debian leaves out, nor root.
    """
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    version = Path(sysconfig.get_path("stdlib")).name
    packages = environment / "lib" / version / "site-packages"
    for directory in (environment / "bin", packages):
        directory.mkdir(parents=True)
    links = (("bin/python3", base), ("bin/python", "python3"), (f"bin/{version}", "python3"), ("lib64", "lib"))
    for link_path, target in links:
        (environment / link_path).symlink_to(target)
    settings = "home = {}\ninclude-system-site-packages = false\nversion = {}.{}.{}\n"
    (environment / "pyvenv.cfg").write_text(settings.format(Path(base).parent, *sys.version_info[:3]), encoding="utf-8")
    package_directories = [path for path in sys.path if path.endswith("-packages")]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in package_directories]  # with the .pth files there
    if not has_module("pip"):
        lines += [f"{wheel}\n" for wheel in pip_of_python()]
    (packages / "of-the-owner.pth").write_text("".join(lines), encoding="utf-8")
    for name in ("pip", "pip3"):
        pip_script = environment / "bin" / name
        pip_script.write_text('#!/bin/sh\nexec "$(dirname "$0")/python3" -m pip "$@"\n', encoding="utf-8")
        pip_script.chmod(0o755)


def has_module(module: str) -> bool:
    """Tell whether the Python that runs this has a module."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def pip_of_python() -> list[Path]:
    """Return the pip that comes with Python, for where its packages have none (uv makes such environments).

    It runs from its wheel, as `ensurepip` has it do; to install it would take seconds at each launch. Debian keeps the
    wheel elsewhere.
    """
    ensurepip_spec, wheel_dir = importlib.util.find_spec("ensurepip"), sysconfig.get_config_var("WHEEL_PKG_DIR")
    directories = [Path(ensurepip_spec.origin).parent / "_bundled"] if ensurepip_spec and ensurepip_spec.origin else []
    directories += [Path(wheel_dir)] if wheel_dir else []
    return [wheel for directory in directories for wheel in sorted(directory.glob("pip-*.whl"))][:1]


def kernel_spec(python: Path) -> str:
    """Return the kernel.json that lets notebooks run in the environment of this interpreter."""
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python", "metadata": {"debugger": True}}
    return json.dumps(spec, indent=1) + "\n"


def jupyter_module(command: Sequence[str]) -> tuple[str, list[str]]:
    """Return the module that a template's Jupyter command runs, and its arguments; an empty one for another command."""
    program, arguments = (command or [""])[0], list(command[1:])
    if program.startswith("jupyter-"):
        program, arguments = "jupyter", [program[len("jupyter-") :], *arguments]
    if program != "jupyter":
        return "", arguments
    module = JUPYTER_MODULES.get((arguments or [""])[0])
    return (module, arguments[1:]) if module else ("jupyter", arguments)


def jupyter_command(command: Sequence[str], *python: str) -> list[str]:
    """Return a template's Jupyter command as this Python (the words before the module) runs it, whatever PATH says.

    Any other command is returned as it is.
    """
    module, arguments = jupyter_module(command)
    return [*python, module, *arguments] if module else list(command)


def jupyter_requirements(command: Sequence[str]) -> str:
    """Return the requirements that pip installs for a Jupyter command, separated by spaces; empty for another one."""
    module, _ = jupyter_module(command)
    return module and JUPYTER_REQUIREMENT + " notebook" * (module == "notebook")


def remove_tree(tree: Path) -> None:
    """Remove a directory; what was made read-only in it (git and Go's module cache do that) goes, too."""
    try:
        shutil.rmtree(str(tree))
    except PermissionError:
        tree.chmod(stat.S_IRWXU)
        for directory, directories, _ in os.walk(str(tree)):
            for path in (Path(directory, name) for name in directories):
                if not path.is_symlink():
                    path.chmod(stat.S_IRWXU)
        shutil.rmtree(str(tree))
