"""Adds a shared key, a colleague's public one, to ~/.ssh/authorized_keys of the machine it runs on, or removes it.

The comment of such a line is `machine_tag`, which is `cloudgpu:ID`, and the word shared.

`authorized_keys.py` sends this text over SSH; the agent's interpreter runs it. Standard library only, Python 3.8+. Our
lines come first, so that all other lines stay byte for byte as they are. The lock is on the home directory, as in the
ssh provider: it leaves no file behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

HOME = Path.home()


def change(machine_tag: str, key: str, *, add: bool) -> dict[str, bool]:
    """Add a line for the shared key at the top, or remove it; return whether a line was added or removed.

    A line that was there and only moves is no change. An empty key removes every shared key with the tag.
    """
    keys_file = HOME / ".ssh" / "authorized_keys"
    keys_file.parent.mkdir(mode=0o700, exist_ok=True)
    path = Path(os.path.realpath(str(keys_file)))  # a symbolic link stays
    content = path.read_bytes() if path.exists() else b""
    lines = content.splitlines(keepends=True)
    other_lines = b"".join(line for line in lines if not is_shared_key(line, machine_tag, key))
    new_content = (
        key_options(lines, machine_tag) + f"{key} {machine_tag} shared\n".encode() + other_lines if add else other_lines
    )
    if new_content != content:
        replace_file(path, new_content, path.stat().st_mode & 0o777 if path.exists() else 0o600)
    return {"changed": len(new_content) != len(content)}


def key_options(lines: list[bytes], machine_tag: str) -> bytes:
    """Return the options before the key in the line that the launch wrote: a shared key gets the same environment."""
    launch_lines = [line.strip() for line in lines if line.split()[-1:] == [machine_tag.encode()]]
    return launch_lines[0][: -len(b" ".join(launch_lines[0].split()[-3:]))] if launch_lines else b""


def is_shared_key(line: bytes, machine_tag: str, key: str) -> bool:
    """Tell whether this line is one that `change` added for this shared key (for any, if `key` is empty)."""
    fields = line.split()
    return fields[-2:] == [machine_tag.encode(), b"shared"] and (not key or fields[-4:-2] == key.encode().split())


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Replace the file atomically."""
    new_file = path.with_name(f".cloudgpu-new-{os.getpid()}")
    handle = os.open(str(new_file), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        new_file.chmod(mode)
        new_file.replace(path)
    except BaseException:
        new_file.unlink()
        raise


def main(machine_tag: str, key: str, *, add: bool) -> None:
    """Do what was asked, and print the answer as JSON."""
    home_fd = os.open(str(HOME), os.O_RDONLY)
    try:
        fcntl.flock(home_fd, fcntl.LOCK_EX)
        answer: dict[str, object] = {**change(machine_tag, key, add=add)}
    except OSError as error:
        answer = {"error": f"{error.strerror or error} ({error.filename or HOME})"}
    finally:
        os.close(home_fd)
    sys.stdout.write(json.dumps(answer) + "\n")
