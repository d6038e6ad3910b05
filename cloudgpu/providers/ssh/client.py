"""Calls a host over SSH: one connection per call, the program and its request on standard input, one answer.

A refused login says nothing about the machine on the host.
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
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.ssh import translate
from cloudgpu.providers.ssh.host import ANSWER_PREFIX

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Completed
    from cloudgpu.providers.ssh.options import Host


class LoginUnsure(AuthFailed):
    """The login was refused, so nothing is known of the machine; a launch may have been accepted earlier."""


SSH_PORT = 22
CONNECT_TIMEOUT_S = 10.0
AGENT_INTERVAL_S = 5
ANSWER_TIMEOUT_S = 75.0  # for the lock, then for ending Jupyter and what does not obey
UNREACHABLE_REMEDY = "Switch it on, or fix the network path to it; then try again."
PROGRAM_PARTS = (
    "access/computer.py",
    "providers/shared/python_environment.py",
    "providers/ssh/files.py",
    "providers/ssh/owned.py",
    "providers/ssh/cards.py",
    "providers/ssh/host.py",
)
# Runs the program on standard input, without the working directory on sys.path: a file there could hide a module.
_RUN_STDIN = "import sys; sys.path[:] = filter(None, sys.path); exec(sys.stdin.buffer.read())"
_OWN_IMPORTS = re.compile(r"^from (?:__future__|cloudgpu)\S* import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)
_NO_COMMAND_STATUSES = (126, 127)  # exit statuses of a shell for a command that is not there or cannot be run


@cache
def program() -> str:
    """Return the text of the program that runs on the host: its parts in one file, each name before it is used."""
    directory, first_line = Path(__file__).parents[2], "from __future__ import annotations\n"
    return first_line + "\n\n".join(
        _OWN_IMPORTS.sub("", (directory / part).read_text(encoding="utf-8")) for part in PROGRAM_PARTS
    )


def address(host: Host) -> Address:
    """Return where the host's SSH server answers, and the login name: of the settings, else of this process."""
    return Address(host.host, host.port, host.user or getpass.getuser())


def host_key(host: Host) -> str:
    """Return the host's key, from the settings or the user's known_hosts; raise InvalidRequest when neither has it."""
    known_key = host.host_key or confirmed_key(Path.home() / ".ssh" / "known_hosts", host.host, host.port)
    if known_key is not None:
        return known_key
    ssh_arguments = f"-p {host.port} {address(host).user}@{host.host}"
    raise InvalidRequest(
        f"The host key of {host.name} ({host.host}, port {host.port}) is not known, so it was not contacted.",
        field=f"{host.field}.host_key",
        value=None,
        next=f"Compare its fingerprint with that machine's and confirm it once: "
        f"{_init_command(host)}, or ssh {ssh_arguments}; "
        "or write the line of its /etc/ssh/ssh_host_ed25519_key.pub as host_key into config.toml.",
    )


def call_host(host: Host, verb: str, body: dict[str, Any], *, timeout: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
    """Return the host's answer to a request (`verb`, `body`).

    The login has `timeout` seconds, CONNECT_TIMEOUT_S at most, and the answer again as many.
    Raises Unreachable, WrongHostKey and LoginRefused of the connection, InvalidRequest without a usable key, host
    key or Python, and for a Fault of the host NoCapacity, InstanceNotFound, AuthFailed, StopUnproved,
    ProviderUnavailable.
    """
    known_key = host_key(host)
    try:
        connected = log_in(
            host.name, address(host), host_key=known_key, key=host.key, timeout=min(CONNECT_TIMEOUT_S, timeout)
        )
    except WrongHostKey as error:
        error.next = (
            "Nothing was sent to it. If you reinstalled that machine, compare the new key's fingerprint there and "
            f"confirm it: {_init_command(host)}"
        )
        raise
    with connected as connection:
        send_heartbeat()
        completed = connection.capture(_shell_command(host), timeout=timeout, input=_request(verb, body))
    send_heartbeat()
    return _parse_answer(host, completed, body.get("tags", {}))


def _init_command(host: Host) -> str:
    """Return the command that shows a host's key and, once that is confirmed, pins it."""
    host_text = f"[{host.host}]" if ":" in host.host else host.host
    user, port = f"{host.user}@" if host.user else "", f":{host.port}" if host.port != SSH_PORT else ""
    return f"cloudgpu init --host {host.name}={user}{host_text}{port}"


def _shell_command(host: Host) -> str:
    """Return the command for whatever shell logs in: only `sh` reads it."""
    python = host.python
    python_word = f'"$HOME"/{shlex.quote(python[2:])}' if python.startswith("~/") else shlex.quote(python)
    return "exec /bin/sh -c " + shlex.quote(f"exec {python_word} -c {shlex.quote(_RUN_STDIN)}")


def _request(verb: str, body: dict[str, Any]) -> bytes:
    """Return the program with the request in its last line: cut short on the way, it does nothing at all."""
    return f"{program()}\n\nmain({verb!r}, json.loads({json.dumps(body)!r}))\n".encode()


def _parse_answer(host: Host, completed: Completed, tags: Mapping[str, str]) -> dict[str, Any]:
    lines = completed.stdout.decode("utf-8", "replace").splitlines()
    answer_line = next((line for line in reversed(lines) if line.startswith(ANSWER_PREFIX)), None)
    if answer_line is None:
        raise _no_answer_error(host, completed)
    answer: dict[str, Any] = json.loads(answer_line[len(ANSWER_PREFIX) :])
    if "fault" in answer:
        raise _host_error(host, str(answer["fault"]), str(answer["said"]), tags)
    return answer


def _no_answer_error(host: Host, completed: Completed) -> CloudgpuError:
    field, value = f"{host.field}.python", host.python
    if completed.status in _NO_COMMAND_STATUSES:
        return InvalidRequest(
            f"There is no {host.python} on {host.name}.",
            field=field,
            value=value,
            next="Install Python 3.8 or newer there, or name one: python = ...",
        )
    lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = lines[-1].strip().rstrip(".")[:200] if lines else f"it ended with status {completed.status}"
    return ProviderUnavailable(
        f"{host.name} gave an unexpected answer: {reason}.",
        field=field,
        value=value,
        next="cloudgpu needs Python 3.8 or newer there, and a shell that says nothing of its own; then try again.",
    )


def _host_error(host: Host, kind: str, message: str, request_tags: Mapping[str, str]) -> CloudgpuError:
    """Return the error for a Fault of the host; `request_tags` are the tags of the machine in the request."""
    name = host.name
    if kind == "busy":
        return _busy_error(name, json.loads(message), request_tags)
    error_class, sentence, remedy = _ERRORS_BY_KIND.get(kind, _ERRORS_BY_KIND["system"])
    return error_class(sentence.format(host=name, problem=message), field=host.field, value=name, next=remedy)


def _busy_error(host: str, machine: Mapping[str, Any], request_tags: Mapping[str, str]) -> NoCapacity:
    """Return the error for a host that has a machine already: whose that is, and who can end it."""
    name, tags = machine["name"], machine["tags"]
    owner = tags.get(TAG_OWNER)
    since = f"{datetime.fromtimestamp(machine['at'], UTC):%Y-%m-%d %H:%M} UTC"
    owner_text = f"{owner}'s " if owner and owner != request_tags.get(TAG_OWNER) else ""
    if tags.get(TAG_LEDGER) == request_tags.get(TAG_LEDGER):
        remedy = f"Use that one, or end it first: cloudgpu down {name}"
    elif owner_text:
        remedy = f"Ask {owner} to end it, or take another host: your ledger does not have that machine."
    else:
        remedy = f"End it from the home that launched it (cloudgpu down {name}), or take another host."
    message = f"{host} is in use by {owner_text}{name} ({machine['wanted']}, launched {since})."
    return NoCapacity(message, field="instance_type", value=host, next=remedy)


# By the kind of a Fault (`host.py`): the class of the error, its message and its `next`.
_ERRORS_BY_KIND: Mapping[str, tuple[type[CloudgpuError], str, str]] = {
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
    """Return the error for a call whose outcome has to be known: a silent host does not prove that nothing is there."""
    if isinstance(error, LoginRefused):
        return LoginUnsure(error.message, field=error.field, value=error.value, next=error.next)
    if type(error) is Unreachable:
        return ProviderUnavailable(error.message, field=error.field, value=error.value, next=UNREACHABLE_REMEDY)
    return error


def _requested_gpus(host: Host, attempt: Attempt) -> dict[str, Any] | None:
    """Return which GPUs of the host the machine is to have (see `choose_gpus`); None where it shares all of them."""
    gpus = attempt.offer.configuration.accelerators
    if attempt.request.requirements.gpu is None or not gpus:
        return None
    name = None if host.gpu else gpus[0].name  # the settings may call them otherwise than nvidia-smi does
    return {"name": name, "count": sum(gpu.count for gpu in gpus), "part": gpus[0].out_of is not None}


def launch_body(host: Host, attempt: Attempt) -> dict[str, Any]:
    """Return what host.py is given to make the machine and start its agent: files, tags, lease, keys."""
    from cloudgpu.access.jupyter import client as jupyter

    boot = attempt.boot
    files = {"agent.py": boot.agent_source, "own.py": boot.own_meter_source}
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
            "gpus": sum(gpu.count for gpu in attempt.offer.configuration.accelerators),
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
            "gpus": [asdict(gpu) for gpu in attempt.offer.configuration.accelerators],
        },
    }
