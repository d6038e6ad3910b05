"""`cloudgpu demo`: the main job on this machine, to watch."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.cli import interrupt
from cloudgpu.cli.common import Format, Output, emit
from cloudgpu.cli.render import dollars, price, wrapped
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.errors import CloudgpuError, StopUnproved

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.parts import DesktopLine
    from cloudgpu.views.documents.setup.doctor import DemoDocument, DemoRemains

SPAN = timedelta(minutes=15)  # how long its machine lives at most, whatever becomes of the demo
CELL = """\
import math, platform
pi = 4e-5 * sum(math.sqrt(1 - (i / 1e5) ** 2) for i in range(100_000))
print(f"pi is about {pi:.4f}, by Python {platform.python_version()}")
print(f"in a notebook on {platform.node()}")
"""


def command(*, output: Output = Format.TEXT) -> None:
    """Run the whole job on this computer: everything is real except the cloud.

    Launches a local machine, verifies its SSH key, opens Jupyter through the tunnel and runs a notebook cell. Shows
    activity, and cost compared with an owned desktop. Then it stops the machine, ends it, and proves that nothing is
    left. Your settings and your ledger are not touched.
    """
    from cloudgpu.control.outage.opening import open_session

    root = Path(tempfile.mkdtemp(prefix="cloudgpu-demo-"))
    environ = {**os.environ, "CLOUDGPU_HOME": str(root)}
    environ.pop("CLOUDGPU_LEDGER", None)
    story = _Story(output)
    session = open_session(environ, tell=story.detail)
    for number in _ENDS:
        signal.signal(number, _interrupted)
    try:
        result = _play(session, story)
    finally:
        _clean(session, root)
    story.say(_AWS)
    emit(output, result, "")


_AWS = """
The same on AWS, on your own account:
  pip install '.[aws]'
  cloudgpu up --provider aws --gpu v100 --spot --dry-run
  cloudgpu up --provider aws --gpu v100 --spot
  cloudgpu tunnel
  cloudgpu down"""


_ENDS = (signal.SIGTERM, signal.SIGHUP)


def _interrupted(_number: int, _frame: Any) -> None:
    _end_in_peace()
    raise KeyboardInterrupt  # whoever ends the demo means its machine, too


def _end_in_peace() -> None:
    """Let no further signal of that kind cut the end of the machine short: a window that closes may send several."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)


def _heed() -> None:
    """Raise KeyboardInterrupt where a signal's own was lost: Python ignores one that is raised in a finalizer."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        raise KeyboardInterrupt


class _Story:
    """Tells what happens, step by step, with the seconds each took; on stderr when stdout is for JSON."""

    def __init__(self, output: Format) -> None:
        self._stream = sys.stdout if output is Format.TEXT else sys.stderr
        self._began = time.monotonic()
        self._step = 0

    def step(self, sentence: str) -> None:
        _heed()
        self._step += 1
        self.say(f"\n{self._step}. {sentence}")

    def detail(self, sentence: str) -> None:
        at = f"   {time.monotonic() - self._began:5.1f}s  "
        self.say(wrapped(sentence, at, " " * len(at)))

    def block(self, text: str) -> None:
        self.say("\n".join(f"          {line}" for line in text.splitlines()))

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


def _play(session: Session, story: _Story) -> DemoDocument:
    from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one

    story.say("cloudgpu demo: launch, notebook, cost, stop, proof. All on this computer.")
    machine = _launch(session, story)
    cell, activity = _work(session, machine, story)
    story.step("What it has cost, compared with a desktop of your own.")
    spent, desktop = _cost(session, story)
    story.step("Stop it: programs end, the disk stays, and the provider confirms it.")
    machine = stop(session, machine, why="the demo is over")
    story.detail(f"{machine.name} is {machine.state}, billed: {'yes' if machine.billed else 'no'}")
    story.step("End it, and prove it.")
    machine = terminate_one(session, machine, why="the demo is over")
    proof = _prove(session, story)
    return {
        "machine": machine.name,
        "cell_output": cell,
        "activity": activity,
        "spent_usd": spent,
        "desktop": desktop,
        "remaining": proof,
    }


def _launch(session: Session, story: _Story) -> Machine:
    from cloudgpu.cli.launch.planned import glance
    from cloudgpu.control.inputs.launch_request import UpRequest
    from cloudgpu.control.launch.budget_preview import plan_document
    from cloudgpu.control.launch.launch import launch
    from cloudgpu.control.launch.plan import prepare
    from cloudgpu.core.model.offers import Requirements

    story.step("Plan a launch. Nothing happens before you have seen this.")
    prepared = prepare(
        session, UpRequest(Requirements(), provider="local", project="demo", lease=SPAN, renew_until=SPAN)
    )
    story.say(glance(plan_document(session, prepared)["plan"], session.clock()))
    story.step("Launch it: recorded first, tagged, its host key known before SSH connects.")
    machine = launch(session, prepared).machine
    address = not_none(machine.address)
    story.detail(f"{machine.name} runs at {address.host} port {address.port}; its tags:")
    tags = session.provider_of(machine).get(not_none(machine.provider_id)).tags
    story.block("\n".join(f"{key} = {value}" for key, value in sorted(tags.items())))
    return machine


def _work(session: Session, machine: Machine, story: _Story) -> tuple[str, str]:
    from cloudgpu.access.jupyter.notebook import run_cell
    from cloudgpu.control.access.jupyter import JupyterTunnel, agent_status

    story.step("Open Jupyter through the tunnel and run one notebook cell.")
    with JupyterTunnel(session, machine) as tunnel:
        story.detail(f"http://127.0.0.1:{tunnel.port}/lab (with a token that stays in 0600 files)")
        story.block(CELL)
        result = run_cell(tunnel.port, tunnel.notebook.token, CELL)
        story.detail("its output:")
        story.block(result.text)
        if not result.ok:
            raise CloudgpuError(f"The notebook cell failed: {result.text[:200]}")
        story.step("Activity, as the agent on the machine sees it.")
        status = _until_active(lambda: agent_status(session, machine))
    story.detail(f"{status['activity']}: {status['why']}")
    return result.text, status["activity"]


def _until_active(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while True:
        status = look()
        if status["activity"] == "ACTIVE" or time.monotonic() > deadline:
            return status
        time.sleep(0.2)


def _cost(session: Session, story: _Story) -> tuple[str, DesktopLine | None]:
    from cloudgpu.control.cost.cost import costs
    from cloudgpu.views.machines import machine_value

    value = costs(session)
    machine = machine_value(session.ledger.machines()[0], session.clock())
    story.detail(f"{machine['name']}: {dollars(machine['spent_usd'], 6)} so far, at {price(machine['price'])}")
    if value["desktop"] is not None:
        story.detail(value["desktop"]["sentence"])
    return value["total_usd"], value["desktop"]


def _prove(session: Session, story: _Story) -> DemoRemains:
    """Look for what could be left: a machine, a directory, a process. Raises StopUnproved when there is something."""
    machines = len(session.provider("local").list().instances)
    home = session.home.provider("local", "local")
    files = sum(path.is_file() for path in home.glob("*/**/*"))  # of machines: beside them is what numbers the place
    processes = _processes(str(home))
    checked = session.ledger.verify()
    story.detail(f"left at the provider: {machines} machines, {files} files, {processes} processes")
    story.detail(f"the ledger's chain: {checked.lines} lines, {len(checked.faults)} faults")
    if machines or files or processes or checked.faults:
        raise StopUnproved("The demo left something behind.", field="demo", next="Please report this.")
    return {"machines": machines, "files": files, "processes": processes, "ledger_lines": checked.lines}


def _processes(place: str) -> int:
    """Count the processes that were started in this directory, whatever their parent is by now; 0 without /proc."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):  # another user's, or gone
            text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            found += place.encode() in text
    return found


def _told_if_anybody_listens(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return the same where a terminal that was closed, or a pipe that nobody reads, is no fault."""

    def announce(sentence: str) -> None:
        with contextlib.suppress(OSError):
            tell(sentence)

    return announce


def _clean(session: Session, root: Path) -> None:
    """End whatever a demo that failed or was interrupted has left running, and remove its home."""
    from cloudgpu import underway
    from cloudgpu.control.lifecycle.lifecycle import terminate_one
    from cloudgpu.control.session.session import living_machines

    interrupt.cancel_repeats()
    _end_in_peace()
    session.report = _told_if_anybody_listens(session.report)
    try:
        for machine in living_machines(session.ledger.machines()):
            terminate_one(session, machine, why="the demo is over")
    except BaseException:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"The demo's machine may still run. To end it: CLOUDGPU_HOME={root} cloudgpu down --all\n")
        raise
    shutil.rmtree(root, ignore_errors=True)
    underway.settled("Interrupted. The demo's machine is ended, and nothing of it is left.")
