"""The home of somebody who has worked on their computer for years, and all that can be seen of a home."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from pathlib import Path

from cloudgpu.config.templates.find import load_template
from cloudgpu.config.templates.render import render_parts
from tests.config.values import VALUES

OLD_S = 1_600_000_000
KERNEL = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Mine"}
OWN = {
    ".local/share/jupyter/kernels/python3/kernel.json": json.dumps(KERNEL),
    ".local/share/jupyter/nbsignatures.db": "signed",
    ".jupyter/jupyter_server_config.py": "c = get_config()\n",
    ".jupyter/lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings": '{"theme": "dark"}',
    ".ipython/profile_default/history.sqlite": "what was typed",
    ".ipython/profile_default/ipython_config.py": "c = get_config()\n",
    ".ipython/profile_default/startup/00-mine.py": "mine = 42\n",
    ".venvs/d2l/prepared": "years ago",
    ".venvs/pytorch/bin/python": "#!/bin/sh\nexit 1\n",
    ".cache/pip/http/one": "cached",
    ".local/bin/jupyter": "#!/bin/sh\nexit 1\n",
    ".gitconfig": "[user]\n\tname = Ada\n",
    "hello.ipynb": "my own notebook",
    "d2l/notes.txt": "my own notes",
    "cloudgpu-one/thesis.txt": "a directory that has the machine's name already",
}


def furnish(home: Path) -> None:
    """Put into a home what its owner has there."""
    for name, text in OWN.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if "bin/" in name else 0o640)
        os.utime(path, (OLD_S, OLD_S))


def everything(home: Path) -> dict[str, tuple[object, ...]]:
    """Return all that is in a home: kind and mode of each path, of a file also its bytes and when it was written."""
    return {str(path.relative_to(home)): facts(path, home) for path in sorted(home.rglob("*"))}


def facts(path: Path, home: Path) -> tuple[object, ...]:
    seen = path.lstat()
    mode = stat.filemode(seen.st_mode)
    if path.is_symlink():
        return mode, str(path.readlink())
    if not path.is_file():
        return (mode,)
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    listed = path == home / ".ssh" / "authorized_keys"  # the plan says that a line is added there
    return mode, content, None if listed else seen.st_mtime_ns


def parts_of(template: str, **settings: str):
    """Return a shipped template's parts, as a launch sends them."""
    return render_parts(load_template(template, search=(), settings={template: settings}), VALUES)
