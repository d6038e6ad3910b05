"""Starts and stops JupyterLab on a machine, and reads its port and token, over an SSH connection."""

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
_READ_TOKEN = 'cat "$HOME"/.cloudgpu/jupyter/token'  # noqa: S105  (the command that reads it)
_TOKEN_PATTERN = re.compile(r"[0-9A-Za-z_-]{16,}")
_MARGIN_S = 15.0  # for the connection, in addition to the wait on the machine
_STOP_TIMEOUT_S = 30.0
_NOT_FOUND = (126, 127)  # a shell's status for a command that is missing or not executable


@dataclass(frozen=True, slots=True)
class JupyterServer:
    """A running JupyterLab on the machine's loopback. `root` is its directory of notebooks there.

    `started`: it was not running before.
    """

    port: int
    token: str = field(repr=False)
    root: str
    started: bool


class NotReadyYet(Unreachable):
    """The agent or JupyterLab is missing, and may be installed soon, while the machine is being set up.

    `is_installing`: the machine reports that JupyterLab is being installed.
    """

    is_installing = False


def ensure(
    connection: Connection, *, wait_s: float = 30, retry: Callable[[NotReadyYet], bool] = lambda _error: False
) -> JupyterServer:
    """Return the machine's JupyterLab, started if it was not running; it has `wait_s` seconds to answer.

    NotReadyYet is retried while `retry` returns True for it. Raises Unreachable with the machine's message.
    """
    started = False
    while True:
        try:
            answer = _send_request(connection, "ensure", wait_s)
        except NotReadyYet as error:
            if not retry(error):
                raise
            started = True  # an earlier try may have started it
            continue
        return JupyterServer(
            int(answer["port"]), _token(connection), str(answer["root"]), started or bool(answer["started"])
        )


def stop(connection: Connection) -> bool:
    """End the machine's JupyterLab with its kernels; return whether it was running. Raises Unreachable."""
    return bool(_send_request(connection, "stop", _STOP_TIMEOUT_S)["stopped"])


def program() -> bytes:
    """Return the program that runs on the machine; it is sent on standard input."""
    return Path(__file__).with_name("remote_lab.py").read_bytes()


def _send_request(connection: Connection, verb: str, wait_s: float) -> dict[str, Any]:
    command = f"{_AGENT} python -IS - {verb} --wait {wait_s:g}"
    completed = connection.capture(command, timeout=wait_s + _MARGIN_S, input=program())
    name = connection.target.name
    try:
        answer = json.loads(completed.stdout)
    except ValueError:
        raise _no_answer_error(name, completed) from None
    if not isinstance(answer, dict):
        raise _no_answer_error(name, completed)
    if "error" in answer:
        raise _error_of(name, answer)
    return answer


def _token(connection: Connection) -> str:
    completed = connection.capture(_READ_TOKEN, timeout=_MARGIN_S)
    token = completed.stdout.decode("ascii", "replace").strip()
    if not _TOKEN_PATTERN.fullmatch(token):
        name = connection.target.name
        raise Unreachable(
            f"The token of JupyterLab on {name} cannot be read.",
            field="name",
            value=name,
            next=f"Make a new one: cloudgpu exec {name} -- rm .cloudgpu/jupyter/token; then end JupyterLab there "
            "and open the tunnel again.",
        )
    return token


def _error_of(name: str, answer: dict[str, Any]) -> Unreachable:
    message = _sentence_part(str(answer["error"]))
    if answer.get("missing"):
        return Unreachable(
            f"There is no JupyterLab on {name}: {message}.",
            field="name",
            value=name,
            next=_remedy(name, str(answer["missing"])),
        )
    if answer.get("installing"):
        error = NotReadyYet(
            f"There is no JupyterLab on {name} yet: {message}.",
            field="name",
            value=name,
            next=f"Follow its log: cloudgpu exec {name} -- tail -f .cloudgpu/jupyter.log",
        )
        error.is_installing = True
        return error
    return (NotReadyYet if answer.get("starting") else Unreachable)(
        f"JupyterLab on {name} did not start: {message}.",
        field="name",
        value=name,
        next=f"Its log: cloudgpu exec {name} -- tail -n 50 .cloudgpu/jupyter/log",
    )


def _remedy(name: str, missing: str) -> str:
    if missing == "template":  # it has no Jupyter, so it would not be started there
        return "Launch a machine that has it: cloudgpu up --template jupyter"
    if missing == "installation":
        restart = f"cloudgpu stop {name}; cloudgpu start {name}"
        return f"Its log: cloudgpu exec {name} -- cat .cloudgpu/jupyter.log. Fix that, then try again: {restart}"
    relaunch = f"Launch it again with --template jupyter (cloudgpu down {name}): cloudgpu installs JupyterLab there"
    return f"{relaunch}. A local machine uses the one next to cloudgpu: install jupyterlab into cloudgpu's environment."


def _no_answer_error(name: str, completed: Completed) -> Unreachable:
    if completed.status in _NOT_FOUND:
        return NotReadyYet(
            f"{name} has no cloudgpu agent, or not yet.",
            field="name",
            value=name,
            next="A machine that is still being set up has it within minutes: try again.",
        )
    message = _sentence_part(completed.stderr.decode("utf-8", "replace")) or f"it ended with status {completed.status}"
    return Unreachable(
        f"JupyterLab could not be started on {name}: {message}.",
        field="name",
        value=name,
        next=f"Look there: cloudgpu ssh {name}",
    )


def _sentence_part(text: str) -> str:
    """Return the last line, as a part of a sentence."""
    lines = text.strip().splitlines()
    return lines[-1].strip().rstrip(".")[:300] if lines else ""
