"""Asks a host over SSH: one connection per call, the program and its request on standard input, one answer.

The error for a login that was refused says nothing about what stands on the host.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.access.ssh.target import LoginRefused
from cloudgpu.access.ssh.user_hosts import confirmed_key, log_in
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, Address
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
    StopUnproved,
    Unreachable,
    WrongHostKey,
)
from cloudgpu.parallel import beat
from cloudgpu.providers.ssh import translate
from cloudgpu.providers.ssh.host import ANSWER

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Completed
    from cloudgpu.providers.ssh.options import Host


class LoginUnsure(AuthFailed):
    """Our login was refused, so that nothing is known; a launch may have been accepted earlier."""


SSH_PORT = 22
CONNECT_S = 10.0
AGENT_INTERVAL_S = 5
ANSWER_S = 75.0  # the lock, then the ending of Jupyter and of what does not obey
SWITCH_ON = "Switch it on, or fix the network path to it; then try again."
PARTS = ("files.py", "owned.py", "cards.py", "host.py")
# Runs what comes in. A file in the owner's home that has the name of one of Python's own modules is not for us.
_READ = "import sys; sys.path[:] = filter(None, sys.path); exec(sys.stdin.buffer.read())"
_OURS = re.compile(r"^from (?:__future__|cloudgpu)\S* import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)
_NOT_FOUND = (126, 127)  # a shell's word for a command that is not there or cannot be run


@cache
def program() -> str:
    """Return the text of the program that runs on the host: its parts in one file, each name before it is used."""
    here, head = Path(__file__).parent, "from __future__ import annotations\n"
    return head + "\n\n".join(_OURS.sub("", (here / part).read_text(encoding="utf-8")) for part in PARTS)


def address(host: Host) -> Address:
    """Return where the host's SSH server answers; without a user in the settings, as whoever runs us."""
    return Address(host.host, host.port, host.user or getpass.getuser())


def host_key(host: Host) -> str:
    """Return the host's key, from the settings or the user's known_hosts; raise InvalidRequest when neither has it."""
    found = host.host_key or confirmed_key(Path.home() / ".ssh" / "known_hosts", host.host, host.port)
    if found is not None:
        return found
    where = f"-p {host.port} {address(host).user}@{host.host}"
    raise InvalidRequest(
        f"The host key of {host.name} ({host.host}, port {host.port}) is not known, so it was not contacted.",
        field=f"{host.field}.host_key",
        value=None,
        next=f"Compare its fingerprint with that machine's and confirm it once: {_init(host)}, or ssh {where}; "
        "or write the line of its /etc/ssh/ssh_host_ed25519_key.pub as host_key into config.toml.",
    )


def ask(host: Host, verb: str, body: dict[str, Any], *, timeout: float = ANSWER_S) -> dict[str, Any]:
    """Return the host's answer. It has `timeout` seconds to let us in, CONNECT_S at most, and then as many to answer.

    Raises Unreachable, WrongHostKey and LoginRefused from the way there, InvalidRequest without a usable key, host
    key or Python, and for what the host says NoCapacity, InstanceNotFound, AuthFailed, StopUnproved,
    ProviderUnavailable.
    """
    known = host_key(host)
    try:
        connected = log_in(host.name, address(host), host_key=known, key=host.key, timeout=min(CONNECT_S, timeout))
    except WrongHostKey as error:
        error.next = (
            "Nothing was sent to it. If you reinstalled that machine, compare the new key's fingerprint there and "
            f"confirm it: {_init(host)}"
        )
        raise
    with connected as connection:
        beat()
        done = connection.capture(_command(host), timeout=timeout, input=_request(verb, body))
    beat()
    return _answer(host, done, body.get("tags", {}))


def _init(host: Host) -> str:
    """Return the command that shows a host's key and, once that is confirmed, pins it."""
    named = f"[{host.host}]" if ":" in host.host else host.host
    user, port = f"{host.user}@" if host.user else "", f":{host.port}" if host.port != SSH_PORT else ""
    return f"cloudgpu init --host {host.name}={user}{named}{port}"


def _command(host: Host) -> str:
    """Return the command for whatever shell logs in: only `sh` reads it."""
    python = host.python
    word = f'"$HOME"/{shlex.quote(python[2:])}' if python.startswith("~/") else shlex.quote(python)
    return "exec /bin/sh -c " + shlex.quote(f"exec {word} -c {shlex.quote(_READ)}")


def _request(verb: str, body: dict[str, Any]) -> bytes:
    """Return the program with the request in its last line: cut short on the way, it does nothing at all."""
    return f"{program()}\n\nmain({verb!r}, json.loads({json.dumps(body)!r}))\n".encode()


def _answer(host: Host, done: Completed, tags: Mapping[str, str]) -> dict[str, Any]:
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    answer_line = next((line for line in reversed(lines) if line.startswith(ANSWER)), None)
    if answer_line is None:
        raise _no_answer(host, done)
    answer: dict[str, Any] = json.loads(answer_line[len(ANSWER) :])
    if "fault" in answer:
        raise _fault(host, str(answer["fault"]), str(answer["said"]), tags)
    return answer


def _no_answer(host: Host, done: Completed) -> CloudgpuError:
    field, value = f"{host.field}.python", host.python
    if done.status in _NOT_FOUND:
        return InvalidRequest(
            f"There is no {host.python} on {host.name}.",
            field=field,
            value=value,
            next="Install Python 3.8 or newer there, or name one: python = ...",
        )
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = words[-1].strip().rstrip(".")[:200] if words else f"it ended with status {done.status}"
    return ProviderUnavailable(
        f"{host.name} gave an unexpected answer: {reason}.",
        field=field,
        value=value,
        next="cloudgpu needs Python 3.8 or newer there, and a shell that says nothing of its own; then try again.",
    )


def _fault(host: Host, kind: str, message: str, asked: Mapping[str, str]) -> CloudgpuError:
    """Return the error for what went wrong there; `asked` are the tags of the machine that was asked for."""
    name = host.name
    if kind == "busy":
        return _busy(name, json.loads(message), asked)
    make, sentence, remedy = _FAULTS.get(kind, _FAULTS["system"])
    return make(sentence.format(host=name, problem=message), field=host.field, value=name, next=remedy)


def _busy(host: str, machine: Mapping[str, Any], asked: Mapping[str, str]) -> NoCapacity:
    """Return the error for a host that has a machine already: whose that is, and who can end it."""
    name, tags = machine["name"], machine["tags"]
    owner = tags.get(TAG_OWNER)
    since = f"{datetime.fromtimestamp(machine['at'], UTC):%Y-%m-%d %H:%M} UTC"
    whose = f"{owner}'s " if owner and owner != asked.get(TAG_OWNER) else ""
    if tags.get(TAG_LEDGER) == asked.get(TAG_LEDGER):
        remedy = f"Use that one, or end it first: cloudgpu down {name}"
    elif whose:
        remedy = f"Ask {owner} to end it, or take another host: your ledger does not have that machine."
    else:
        remedy = f"End it from the home that launched it (cloudgpu down {name}), or take another host."
    message = f"{host} is in use by {whose}{name} ({machine['wanted']}, launched {since})."
    return NoCapacity(message, field="instance_type", value=host, next=remedy)


_FAULTS: Mapping[str, tuple[type[CloudgpuError], str, str]] = {
    "unknown": (InstanceNotFound, "On {host}, {problem}.", "See what is there: cloudgpu ls --refresh"),
    "elsewhere": (
        ProviderUnavailable,
        "On {host}, {problem}.",
        "Name that host in config.toml, or run this from there.",
    ),
    "foreign": (InvalidRequest, "On {host}, {problem}.", "Move it away there, then try again."),
    "full": (NoCapacity, "The disk of {host} is full: {problem}.", "Free some space there."),
    "forbidden": (AuthFailed, "You may not write on {host}: {problem}.", "Fix the permissions of your home there."),
    "taken": (
        NoCapacity,
        "On {host}, {problem}.",
        "Wait, request fewer, or leave --gpu out to share the machine.",
    ),
    "unseen": (NoCapacity, "Which GPUs of {host} are free is not known: {problem}.", "Ask for all of them, or none."),
    "unproved": (StopUnproved, "On {host}, {problem}.", "Look there at what they wait for, then try again."),
    "mounted": (StopUnproved, "On {host}, {problem}.", "Unmount it there, then end the machine again."),
    "filled": (
        ProviderUnavailable,
        "The disk of {host} is full: {problem}.",
        "Free some space there, then try again.",
    ),
    "system": (ProviderUnavailable, "{host} failed: {problem}.", "Try again."),
}


def uncertain_outcome(error: CloudgpuError) -> CloudgpuError:
    """Return the error for a call that has to be known about: a host that does not answer says nothing."""
    if isinstance(error, LoginRefused):
        return LoginUnsure(error.message, field=error.field, value=error.value, next=error.next)
    if type(error) is Unreachable:
        return ProviderUnavailable(error.message, field=error.field, value=error.value, next=SWITCH_ON)
    return error


def _requested_gpus(host: Host, attempt: Attempt) -> dict[str, Any] | None:
    """Return how many GPUs of the host the machine asks for, and of which name; None for all that it has."""
    gpus = attempt.offer.available.accelerators
    if attempt.request.want.gpu is None or not gpus:
        return None
    name = None if host.gpu else gpus[0].name  # the settings may call them otherwise than nvidia-smi does
    return {"name": name, "count": sum(gpu.count for gpu in gpus), "part": gpus[0].out_of is not None}


def launch_body(host: Host, attempt: Attempt) -> dict[str, Any]:
    """Return what host.py is given to make the machine and start its agent: files, tags, lease, keys."""
    from cloudgpu.access.jupyter import client as jupyter

    boot = attempt.boot
    files = {"agent.py": boot.agent_source, "own.py": boot.own_source}
    files |= {"lab.py": jupyter.program().decode(), "host.py": program()}
    script = "\n".join(part.text for part in boot.parts if part.kind == "on_start")
    if script.strip():
        files["on_start.sh"] = script
    return {
        "files": files,
        "gpus": _requested_gpus(host, attempt),
        "tags": dict(attempt.tags),
        "jupyter": list(boot.jupyter),
        "agent": {
            "id": attempt.machine,
            "made": attempt.made_at.timestamp(),  # a clock that shows less is wrong
            "lease": Lease(attempt.expires, attempt.renew_until).tags(),
            "interval": AGENT_INTERVAL_S,
            "gpus": sum(gpu.count for gpu in attempt.offer.available.accelerators),
            "warn": True,
            **({"policy": dict(boot.policy)} if boot.policy else {}),
        },
        "record": {
            "id": translate.instance_id(host.name, attempt.token),
            "token": attempt.token,
            "machine": attempt.machine,
            "name": attempt.request.name,
            "keys": list(boot.client_public_keys),
            "market": str(Market.ON_DEMAND),
            "gpus": [asdict(gpu) for gpu in attempt.offer.available.accelerators],
        },
    }
