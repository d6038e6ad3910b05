"""Counts a walk through the code: the files of cloudgpu that `stop`, `up`, `cost` and a pass of `reap` go through.

It measures no time. The same walk on the same code has the same figures, so two checkouts can be compared:

    python benchmarks/walks.py [-o json] [--checkout DIRECTORY]

Each verb is called once, as a method of `cloudgpu.connect()`, on a fake cloud whose clock this script moves; the four
walks follow each other in one fresh process. `up` launches `fox` without waiting for SSH. `cost` is asked two hours
later, for all machines. `stop` stops a second machine, `owl`, which is then ended. `reap` finds that `fox` is shut
down from inside and billed on, which is idle without asking anybody, and stops it.

What counts is each call of a function in a file of cloudgpu and each return from one. A generator is called each time
that it goes on; a comprehension is part of its function. What runs while a module is imported does not count, nor does
`cloudgpu/testing`, the fake cloud. A layer is the first folder below `cloudgpu`; nothing else depends on where a file
lies.

    files    files with at least one function that ran; of them those of control, core and ledger
    changes  how often the walk goes from one file of control to another one, by a call or a return, whatever other
             layers are in between
    climbs   how often a call goes to a higher layer than the call before it: cli, then report (or views), then control,
             then all others, which are one floor; a return is no climb

For changes and climbs three things are set aside, as if whoever called them had made their calls: the classes of what
`connect()` returns and of its capabilities, the session with its bases, and files of no layer. What runs in a thread of
its own is a walk of its own, without the file that runs the thread.

At 6c48726 this gives 39 changes for `stop`, 165 for `up`, 23 for `cost` and 220 for `reap`, and 25 climbs for `stop`.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve()
FLOORS = {"cli": 3, "report": 2, "views": 2, "control": 1}  # any other layer: 0
LAYERS = ("control", "core", "ledger")  # whose files are counted apart
HEADS = ("verb", "files", *LAYERS, "changes", "climbs")
INSIDE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # parts of the function around them
HOUR_S = 3600.0
SETTINGS = """
provider = "fake"
owner = "ada"
[accounts.lab]
provider = "fake"
timer = "moves"
"""
Walks = dict[str, dict[str, int]]


@dataclass
class _Thread:
    """Where one thread is and has been."""

    alone: bool  # begun by cloudgpu, not by this script
    frames: list[FrameType] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # of those frames
    importing: list[FrameType] = field(default_factory=list)  # bodies of modules and classes
    control: str = ""  # where it stood at last in control
    floor: int | None = None  # of its last call


@dataclass
class Walk:
    """Counts one walk while it runs, as the trace function of its threads.

    `root` is the package's folder, `aside` are the files that changes and climbs are blind to.
    """

    root: str
    aside: frozenset[str]
    files: set[str] = field(default_factory=set)
    changes: int = 0
    climbs: int = 0

    def __post_init__(self) -> None:
        self._threads = {threading.get_ident(): _Thread(alone=False)}
        self._names: dict[CodeType, str] = {}

    def of(self, do: Callable[[], Any]) -> dict[str, int]:
        """Do it, and return the figures of its walk."""
        threading.settrace(self)
        sys.settrace(self)
        try:
            do()
        finally:
            sys.settrace(None)
            threading.settrace(None)
        by_layer = {layer: sum(_layer(name) == layer for name in self.files) for layer in LAYERS}
        return {"files": len(self.files), **by_layer, "changes": self.changes, "climbs": self.climbs}

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Walk | None:
        """Take one step: a call or a return of a function of the package."""
        code = frame.f_code
        name = self._name(code)
        if not name or code.co_name in INSIDE:
            return None
        frame.f_trace_lines = False
        if event in ("call", "return"):
            self._step(frame, event, name)
        return self

    def _step(self, frame: FrameType, event: str, name: str) -> None:
        thread = self._threads.setdefault(threading.get_ident(), _Thread(alone=True))
        if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            _turn(thread.importing, frame, event)
        elif not thread.importing and _turn(thread.frames, frame, event):
            self._call(thread, name) if event == "call" else thread.files.pop()
            self._stand(thread)

    def _call(self, thread: _Thread, name: str) -> None:
        self.files.add(name)
        thread.files.append(name)
        if self._is_shown(thread, name):
            floor = FLOORS.get(_layer(name), 0)
            self.climbs += thread.floor is not None and floor > thread.floor
            thread.floor = floor

    def _stand(self, thread: _Thread) -> None:
        """Note on which file the thread stands now."""
        name = next((name for name in reversed(thread.files) if self._is_shown(thread, name)), "")
        if not name and thread.alone:  # what it does next is another piece of work
            thread.control, thread.floor = "", None
        if _layer(name) == "control":
            self.changes += thread.control not in ("", name)
            thread.control = name

    def _is_shown(self, thread: _Thread, name: str) -> bool:
        return "/" in name and name not in self.aside and not (thread.alone and name == thread.files[0])

    def _name(self, code: CodeType) -> str:
        """Return the path of a file below the package; empty for another file, and for the fake cloud's."""
        if code not in self._names:
            name = code.co_filename.removeprefix(self.root)
            is_ours = name != code.co_filename and not name.startswith("testing" + os.sep)
            self._names[code] = Path(name).as_posix() if is_ours else ""
        return self._names[code]


def _turn(frames: list[FrameType], frame: FrameType, event: str) -> bool:
    """Keep the stack of frames; return False for one that goes on without a call, as an error thrown into it does."""
    if event == "call":
        frames.append(frame)
        return True
    if not frames or frames[-1] is not frame:
        return False
    frames.pop()
    return True


def _layer(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def walked(place: Path) -> Walks:
    """Walk in this process, with a new home in `place`; return the figures by verb."""
    import cloudgpu
    from cloudgpu.testing import FAKE, ManualClock, write_plugin

    gc.disable()  # else a generator may be closed in the midst of something else
    sys.path.insert(0, str(write_plugin(place / "plugin", {"fake": FAKE})))
    home = place / "home"
    home.mkdir()
    (home / "config.toml").write_text(SETTINGS)
    clock = ManualClock()
    gpu = cloudgpu.connect(home=home, environ={"USER": "ada"}, clock=clock)
    session: Any = gpu._session  # noqa: SLF001  (its pause and its provider are what tests reach, too)
    session.pause = clock.advance
    root = str(Path(cloudgpu.__file__).parent) + os.sep
    clients = (gpu, gpu.machines, gpu.money, gpu.automation)
    classes = [one for each in (*clients, session) for one in type(each).__mro__[:-1]]
    aside = frozenset(Path(inspect.getfile(one).removeprefix(root)).as_posix() for one in classes)

    def walk(do: Callable[[], Any]) -> dict[str, int]:
        return Walk(root, aside).of(do)

    found = {"up": walk(lambda: gpu.machines.up(gpu="v100", name="fox", wait=False))}
    clock.advance(2 * HOUR_S)
    found["cost"] = walk(gpu.money.cost)
    gpu.machines.up(gpu="v100", name="owl", wait=False)
    found["stop"] = walk(lambda: gpu.machines.stop("owl"))
    gpu.machines.down("owl")
    cloud = session.provider("lab")
    (fox,) = [one for one in cloud.list().instances if one.billed]
    cloud.shut_down(fox.id)
    clock.advance(HOUR_S / 6)
    found["reap"] = walk(gpu.automation.reap)
    assert [row["billed"] for row in gpu.machines.ls()["machines"]] == [False], "the pass did not stop fox"
    gpu.close()
    return {verb: found[verb] for verb in ("stop", "up", "cost", "reap")}


def walks(checkout: Path = HERE.parent.parent) -> Walks:
    """Walk through the code of a checkout, in a process of its own; return the figures by verb."""
    paths = [str(checkout.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as place:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0", "HOME": place}
        argv = [sys.executable, str(HERE), "--in", place]
        done = subprocess.run(argv, env=environ, cwd=place, stdout=subprocess.PIPE, text=True, check=True)
    found: Walks = json.loads(done.stdout)
    return found


def measure() -> dict[str, list[dict[str, Any]]]:
    """Return a row for each figure of each walk; they have no aim, and nothing stands beside them."""
    rows = [
        {"what": f"the walk of {verb}", "unit": name, "ours": figures[name]}
        for verb, figures in walks().items()
        for name in ("files", "changes", "climbs")
    ]
    return {"rows": rows}


def table(found: Walks) -> str:
    """Return the figures under their heads, in columns."""
    rows = [HEADS, *[(verb, *map(str, figures.values())) for verb, figures in found.items()]]
    return "\n".join("  ".join(cell.rjust(len(head)) for cell, head in zip(row, HEADS, strict=True)) for row in rows)


def main() -> None:
    """Print the figures of this checkout, or of another one."""
    options = argparse.ArgumentParser(description="Count the files that verbs go through.")
    options.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options.add_argument("--checkout", type=Path, default=HERE.parent.parent, help="the code to walk through")
    options.add_argument("--in", dest="place", type=Path, help=argparse.SUPPRESS)  # walk in this very process
    asked = options.parse_args()
    if asked.place is not None:
        print(json.dumps(walked(asked.place)))
        return
    if not (asked.checkout / "cloudgpu").is_dir():
        options.error(f"{asked.checkout} is no checkout of cloudgpu")
    found = walks(asked.checkout)
    print(json.dumps(found, indent=2) if asked.output == "json" else table(found))


if __name__ == "__main__":
    main()
