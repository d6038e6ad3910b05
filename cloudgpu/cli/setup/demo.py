"""`cloudgpu demo`: launch, use and end a machine on this computer, to watch."""

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
from cloudgpu.cli.render import dollars, price_text, wrapped
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.errors import CloudgpuError, StopUnproved

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.parts import DesktopLine
    from cloudgpu.views.documents.setup.doctor import DemoDocument, DemoRemains

MAX_LIFETIME = timedelta(minutes=15)  # of its machine, even if the demo is killed
NOTEBOOK_CELL = """\
import math, platform
pi = 4e-5 * sum(math.sqrt(1 - (i / 1e5) ** 2) for i in range(100_000))
print(f"pi is about {pi:.4f}, by Python {platform.python_version()}")
print(f"in a notebook on {platform.node()}")
"""


def command(*, output: Output = Format.TEXT) -> None:
    """Show a launch from beginning to end on this computer: everything is real except the cloud.

    Launches a local machine, verifies its SSH key, opens Jupyter through the tunnel and runs a notebook cell. Shows
    whether the machine is in use, and what it has cost, compared with a desktop of your own. Then it stops the machine,
    ends it, and checks that no machine, file or process of it is left. Your settings and your ledger are not touched.
    """
    from cloudgpu.control.outage.opening import open_session

    root = Path(tempfile.mkdtemp(prefix="cloudgpu-demo-"))
    environ = {**os.environ, "CLOUDGPU_HOME": str(root)}
    environ.pop("CLOUDGPU_LEDGER", None)
    narrator, keeps_files = _Narrator(output), False
    try:
        session = open_session(environ, tell=narrator.detail)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    for signal_number in _END_SIGNALS:
        signal.signal(signal_number, _on_end_signal)
    try:
        result = _run_demo(session, narrator)
    except StopUnproved as error:
        keeps_files, error.next = True, f"Please report this, with what is in {root}."
        raise
    finally:
        _clean_up(session, root, keep_files=keeps_files)
    narrator.say(_AWS_COMMANDS)
    emit(output, result, "")


_AWS_COMMANDS = """
The same on AWS, on your own account:
  pip install '.[aws]'
  cloudgpu up --provider aws --gpu v100 --spot --dry-run
  cloudgpu up --provider aws --gpu v100 --spot
  cloudgpu tunnel
  cloudgpu down"""


_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def _on_end_signal(_number: int, _frame: Any) -> None:
    _ignore_end_signals()
    raise KeyboardInterrupt  # so that a signal that ends the demo also ends its machine


def _ignore_end_signals() -> None:
    """Ignore further signals of that kind until the machine has ended: a closing window may send several."""
    for signal_number in _END_SIGNALS:
        signal.signal(signal_number, signal.SIG_IGN)


def _raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if that of a signal was lost: Python ignores one that is raised in a finalizer."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        raise KeyboardInterrupt


class _Narrator:
    """Prints what happens, step by step, with the seconds; on stderr when stdout is for JSON."""

    def __init__(self, output: Format) -> None:
        self._stream = sys.stdout if output is Format.TEXT else sys.stderr
        self._begun_at = time.monotonic()
        self._step = 0

    def step(self, sentence: str) -> None:
        _raise_if_interrupted()
        self._step += 1
        self.say(f"\n{self._step}. {sentence}")

    def detail(self, sentence: str) -> None:
        prefix = f"   {time.monotonic() - self._begun_at:5.1f}s  "
        self.say(wrapped(sentence, prefix, " " * len(prefix)))

    def block(self, text: str) -> None:
        self.say("\n".join(f"          {line}" for line in text.splitlines()))

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


def _run_demo(session: Session, narrator: _Narrator) -> DemoDocument:
    from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one

    narrator.say("cloudgpu demo: launch, notebook, cost, stop, proof. All on this computer.")
    machine = _plan_and_launch(session, narrator)
    cell_output, activity = _run_notebook(session, machine, narrator)
    narrator.step("What it has cost, compared with a desktop of your own.")
    spent_usd, desktop = _show_cost(session, narrator)
    narrator.step("Stop it: programs end, the disk stays, and the provider confirms it.")
    machine = stop(session, machine, why="the demo is over")
    narrator.detail(f"{machine.name} is {machine.state}, billed: {'yes' if machine.billed else 'no'}")
    narrator.step("End it, and prove it.")
    machine = terminate_one(session, machine, why="the demo is over")
    remains = _check_nothing_left(session, narrator)
    return {
        "machine": machine.name,
        "cell_output": cell_output,
        "activity": activity,
        "spent_usd": spent_usd,
        "desktop": desktop,
        "remaining": remains,
    }


def _plan_and_launch(session: Session, narrator: _Narrator) -> Machine:
    from cloudgpu.cli.launch.planned import brief_plan_text
    from cloudgpu.control.inputs.launch_request import UpRequest
    from cloudgpu.control.launch.budget_preview import build_plan_document
    from cloudgpu.control.launch.launch import launch
    from cloudgpu.control.launch.plan import prepare
    from cloudgpu.core.model.offers import Requirements

    narrator.step("Plan a launch. Nothing happens before you have seen this.")
    prepared = prepare(
        session,
        UpRequest(Requirements(), provider="local", project="demo", lease=MAX_LIFETIME, renew_until=MAX_LIFETIME),
    )
    narrator.say(brief_plan_text(build_plan_document(session, prepared)["plan"], session.clock()))
    narrator.step("Launch it: recorded first, tagged, its host key known before SSH connects.")
    machine = launch(session, prepared).machine
    address = not_none(machine.address)
    narrator.detail(f"{machine.name} runs at {address.host} port {address.port}; its tags:")
    tags = session.provider_of(machine).get(not_none(machine.provider_id)).tags
    narrator.block("\n".join(f"{key} = {value}" for key, value in sorted(tags.items())))
    return machine


def _run_notebook(session: Session, machine: Machine, narrator: _Narrator) -> tuple[str, str]:
    from cloudgpu.access.jupyter.notebook import run_cell
    from cloudgpu.control.access.jupyter import JupyterTunnel, agent_status

    narrator.step("Open Jupyter through the tunnel and run one notebook cell.")
    with JupyterTunnel(session, machine) as tunnel:
        narrator.detail(f"http://127.0.0.1:{tunnel.port}/lab (with a token that stays in 0600 files)")
        narrator.block(NOTEBOOK_CELL)
        result = run_cell(tunnel.port, tunnel.notebook.token, NOTEBOOK_CELL)
        narrator.detail("its output:")
        narrator.block(result.text)
        if not result.ok:
            raise CloudgpuError(f"The notebook cell failed: {result.text[:200]}")
        narrator.step("Activity, as the agent on the machine sees it.")
        status = _wait_until_active(lambda: agent_status(session, machine))
    narrator.detail(f"{status['activity']}: {status['why']}")
    return result.text, status["activity"]


def _wait_until_active(get_status: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the agent's status once it is ACTIVE, else that after 20 seconds: the demo shows it as it is."""
    deadline = time.monotonic() + 20
    while True:
        status = get_status()
        if status["activity"] == "ACTIVE" or time.monotonic() > deadline:
            return status
        time.sleep(0.2)


def _show_cost(session: Session, narrator: _Narrator) -> tuple[str, DesktopLine | None]:
    from cloudgpu.control.cost.cost import cost_document
    from cloudgpu.views.machines import machine_document

    costs = cost_document(session)
    machine = machine_document(session.ledger.machines()[0], session.clock())
    narrator.detail(f"{machine['name']}: {dollars(machine['spent_usd'], 6)} so far, at {price_text(machine['price'])}")
    if costs["desktop"] is not None:
        narrator.detail(costs["desktop"]["sentence"])
    return costs["total_usd"], costs["desktop"]


def _check_nothing_left(session: Session, narrator: _Narrator) -> DemoRemains:
    """Look for machines, files and processes that are left; raise StopUnproved if there are any."""
    machine_count = len(session.provider("local").list().instances)
    home = session.home.provider_dir("local", "local")
    file_count = sum(path.is_file() for path in home.glob("*/**/*"))  # of machines only
    process_count = _count_processes(str(home))
    verification = session.ledger.verify()
    narrator.detail(f"left at the provider: {machine_count} machines, {file_count} files, {process_count} processes")
    narrator.detail(f"the ledger's chain: {verification.line_count} lines, {len(verification.faults)} faults")
    if machine_count or file_count or process_count or verification.faults:
        raise StopUnproved("The demo left something behind.", field="demo")
    return {
        "machines": machine_count,
        "files": file_count,
        "processes": process_count,
        "ledger_lines": verification.line_count,
    }


def _count_processes(directory: str) -> int:
    """Count other processes with this directory in their environment or command line: programs of a demo's machine.

    Whatever their parent is by now. 0 without /proc.
    """
    count = 0
    for process_directory in Path("/proc").glob("[0-9]*"):
        if process_directory.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):  # another user's, or gone
            environ_and_command = (process_directory / "environ").read_bytes() + (
                process_directory / "cmdline"
            ).read_bytes()
            count += directory.encode() in environ_and_command
    return count


def _ignoring_closed_output(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return `tell` without its errors about a closed terminal or a pipe that nobody reads."""

    def announce(sentence: str) -> None:
        with contextlib.suppress(OSError):
            tell(sentence)

    return announce


def _clean_up(session: Session, root: Path, *, keep_files: bool) -> None:
    """End what a failed or interrupted demo has left running, and remove its home, unless `keep_files`."""
    from cloudgpu import underway
    from cloudgpu.control.lifecycle.lifecycle import terminate_one
    from cloudgpu.control.session.session import living_machines

    interrupt.stop_reraising_interrupt()
    _ignore_end_signals()
    session.report = _ignoring_closed_output(session.report)
    try:
        for machine in living_machines(session.ledger.machines()):
            terminate_one(session, machine, why="the demo is over")
    except BaseException:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"The demo's machine may still run. To end it: CLOUDGPU_HOME={root} cloudgpu down --all\n")
        raise
    if not keep_files:
        shutil.rmtree(root, ignore_errors=True)
    remains = f"its files are in {root}" if keep_files else "nothing of it is left"
    underway.set_final_message(f"Interrupted. The demo's machine is ended, and {remains}.")
