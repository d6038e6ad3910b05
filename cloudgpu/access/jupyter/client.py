"""JupyterLab on a machine: started there when it is not running, its port and token read over the connection."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.access.ssh.connection import Completed, Connection

_AGENT = '"$HOME"/.cloudgpu/agent'
_TOKEN = 'cat "$HOME"/.cloudgpu/jupyter/token'  # noqa: S105  (where it is, not what it is)
_TOKEN_SHAPE = re.compile(r"[0-9A-Za-z_-]{16,}")
_MARGIN_S = 15.0  # for the way there and back, beyond what the machine itself waits
_STOP_S = 30.0
_NOT_FOUND = (126, 127)  # a shell's word for a command that is not there or cannot be run


@dataclass(frozen=True, slots=True)
class JupyterServer:
    """A running JupyterLab, on the machine's own loopback. `started`: it was not running before."""

    port: int
    token: str = field(repr=False)
    root: str
    started: bool


class NotReadyYet(Unreachable):
    """A machine whose agent or JupyterLab is not there, and may come while the machine is being set up.

    `surely`: the machine itself says that JupyterLab is being installed.
    """

    surely = False


def do_not_wait(_fault: NotReadyYet) -> bool:
    """Wait for nothing that is not there yet."""
    return False


def ensure(
    connection: Connection, *, wait_s: float = 30, retry: Callable[[NotReadyYet], bool] = do_not_wait
) -> JupyterServer:
    """Return the machine's JupyterLab, started when it was not running; it has `wait_s` seconds to answer.

    What is not there yet is tried again as long as `retry` says so. Raises Unreachable when it cannot be had, with
    what the machine said.
    """
    started = False
    while True:
        try:
            answer = _send_request(connection, "ensure", wait_s)
        except NotReadyYet as error:
            if not retry(error):
                raise
            started = True  # by the try before, where it runs already when it answers
            continue
        return JupyterServer(
            int(answer["port"]), _token(connection), str(answer["root"]), started or bool(answer["started"])
        )


def stop(connection: Connection) -> bool:
    """End the machine's JupyterLab with its kernels; return whether it was running. Raises Unreachable."""
    return bool(_send_request(connection, "stop", _STOP_S)["stopped"])


def program() -> bytes:
    """Return the program that does it on the machine: it travels on standard input, never in an argument list."""
    return Path(__file__).with_name("remote_lab.py").read_bytes()


def _send_request(connection: Connection, verb: str, wait_s: float) -> dict[str, Any]:
    command = f"{_AGENT} python -IS - {verb} --wait {wait_s:g}"
    done = connection.capture(command, timeout=wait_s + _MARGIN_S, input=program())
    name = connection.target.name
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise _no_answer(name, done) from None
    if not isinstance(answer, dict):
        raise _no_answer(name, done)
    if "error" in answer:
        raise _fault(name, answer)
    return answer


def _token(connection: Connection) -> str:
    done = connection.capture(_TOKEN, timeout=_MARGIN_S)
    token = done.stdout.decode("ascii", "replace").strip()
    if not _TOKEN_SHAPE.fullmatch(token):
        name = connection.target.name
        raise Unreachable(
            f"The token of JupyterLab on {name} cannot be read.",
            field="name",
            value=name,
            next=f"Make a new one: cloudgpu exec {name} -- rm .cloudgpu/jupyter/token; then end JupyterLab there "
            "and open the tunnel again.",
        )
    return token


def _fault(name: str, answer: dict[str, Any]) -> Unreachable:
    message = _sentence_part(str(answer["error"]))
    if answer.get("missing"):
        return Unreachable(
            f"There is no JupyterLab on {name}: {message}.",
            field="name",
            value=name,
            next=_remedy(name, message),
        )
    if answer.get("installing"):
        fault = NotReadyYet(
            f"There is no JupyterLab on {name} yet: {message}.",
            field="name",
            value=name,
            next=f"Follow its log: cloudgpu exec {name} -- tail -f .cloudgpu/jupyter.log",
        )
        fault.surely = True
        return fault
    return (NotReadyYet if answer.get("starting") else Unreachable)(
        f"JupyterLab on {name} did not start: {message}.",
        field="name",
        value=name,
        next=f"Its log: cloudgpu exec {name} -- tail -n 50 .cloudgpu/jupyter/log",
    )


def _remedy(name: str, message: str) -> str:
    if "launched without" in message:  # its template has no Jupyter: what is installed there would not be started
        return "Launch a machine that has it: cloudgpu up --template jupyter"
    if "could not be installed" in message:
        again = f"cloudgpu stop {name}; cloudgpu start {name}"
        return f"Its log: cloudgpu exec {name} -- cat .cloudgpu/jupyter.log. Fix that, then try again: {again}"
    anew = f"Launch it again with --template jupyter (cloudgpu down {name}): cloudgpu installs JupyterLab there"
    return f"{anew}. A local machine uses the one next to cloudgpu: install jupyterlab into cloudgpu's environment."


def _no_answer(name: str, done: Completed) -> Unreachable:
    if done.status in _NOT_FOUND:
        return NotReadyYet(
            f"{name} has no cloudgpu agent, or not yet.",
            field="name",
            value=name,
            next="A machine that is still being set up has it within minutes: try again.",
        )
    message = _sentence_part(done.stderr.decode("utf-8", "replace")) or f"it ended with status {done.status}"
    return Unreachable(
        f"JupyterLab could not be started on {name}: {message}.",
        field="name",
        value=name,
        next=f"Look there: cloudgpu ssh {name}",
    )


def _sentence_part(text: str) -> str:
    """Return the last line, fit to stand in a sentence."""
    lines = text.strip().splitlines()
    return lines[-1].strip().rstrip(".")[:300] if lines else ""
