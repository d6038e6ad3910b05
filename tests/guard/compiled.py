"""Runs what a host of the tests is sent to its Python's stdin: compiled once, and not at each of two thousand starts.

What runs is the text that was sent, to the byte; the request, its last line, is compiled each time. Python itself then
reads an stdin that has ended. No import here is one that costs time.
"""

import _imp
import marshal
import os
import sys

PLACE = "CLOUDGPU_TEST_COMPILED"  # the directory for what was compiled; a host without it reads its stdin itself
REQUEST = b"\n\nmain("


def run(place):
    """Run the program on stdin as Python would."""
    text = b"".join(iter(lambda: os.read(0, 1 << 20), b""))
    program, begins, request = text.rpartition(REQUEST)
    names = sys.modules["__main__"].__dict__
    try:
        if begins:
            exec(_kept(program, place), names)  # noqa: S102  (this is what was sent)
        exec(compile(begins + request, "<stdin>", "exec"), names)  # noqa: S102  (the same)
    except SystemExit as end:
        _end(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException:  # noqa: BLE001  (as Python does at its top)
        sys.excepthook(*sys.exc_info())
        _end(1)


def _kept(program, place):
    hashed = _imp.source_hash(sys.hexversion, program).hex()
    file = os.path.join(place, f"{hashed}-{len(program)}.code")  # noqa: PTH118  (before pathlib)
    try:
        with open(file, "rb") as kept:  # noqa: PTH123  (the same)
            return marshal.load(kept)  # noqa: S302  (ours)
    except FileNotFoundError:
        code = compile(program, "<stdin>", "exec")
    with open(f"{file}.{os.getpid()}", "wb") as new:  # noqa: PTH123  (the same)
        marshal.dump(code, new)
    os.replace(new.name, file)  # noqa: PTH105  (the same)
    return code


def _end(code):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
