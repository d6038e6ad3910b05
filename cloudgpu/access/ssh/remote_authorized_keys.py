"""Lets a public key in to the machine it runs on, or out again: lines of ~/.ssh/authorized_keys that bear our mark.

This file's text is sent over SSH and run there by the agent's interpreter (by `authorized_keys.py`). Standard
library only, Python 3.8+. Our lines stand first, so that every other line stays byte for byte as it is. The lock is
on the home directory, as the ssh provider has it: it leaves no file behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

HOME = Path.home()


def change(mark: str, key: str, *, let_in: bool) -> dict[str, bool]:
    """Put a line for `key` first, or take it out (every one with the mark, for no key); say whether that changed it."""
    keys = HOME / ".ssh" / "authorized_keys"
    keys.parent.mkdir(mode=0o700, exist_ok=True)
    path = Path(os.path.realpath(str(keys)))  # a link stays one
    before = path.read_bytes() if path.exists() else b""
    lines = before.splitlines(keepends=True)
    rest = b"".join(line for line in lines if not shared(line, mark, key))
    after = options(lines, mark) + f"{key} {mark} shared\n".encode() + rest if let_in else rest
    if after != before:
        write(path, after, path.stat().st_mode & 0o777 if path.exists() else 0o600)
    return {"changed": len(after) != len(before)}


def options(lines: list[bytes], mark: str) -> bytes:
    """Return what stands before the key in the launch's own line: whoever is let in gets the same environment."""
    found = [line.strip() for line in lines if line.split()[-1:] == [mark.encode()]]
    return found[0][: -len(b" ".join(found[0].split()[-3:]))] if found else b""


def shared(line: bytes, mark: str, key: str) -> bool:
    """Tell whether a line was added by us, for this key (any, for none)."""
    words = line.split()
    return words[-2:] == [mark.encode(), b"shared"] and (not key or words[-4:-2] == key.encode().split())


def write(path: Path, content: bytes, mode: int) -> None:
    """Write the file whole: a reader, or a crash, finds the old or the new."""
    fresh = path.with_name(f".cloudgpu-new-{os.getpid()}")
    handle = os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        fresh.chmod(mode)
        fresh.replace(path)
    except BaseException:
        fresh.unlink()
        raise


def main(mark: str, key: str, *, let_in: bool) -> None:
    """Carry out one request and print its answer."""
    home = os.open(str(HOME), os.O_RDONLY)
    try:
        fcntl.flock(home, fcntl.LOCK_EX)
        answer: dict[str, object] = {**change(mark, key, let_in=let_in)}
    except OSError as error:
        answer = {"error": f"{error.strerror or error} ({error.filename or HOME})"}
    finally:
        os.close(home)
    sys.stdout.write(json.dumps(answer) + "\n")
