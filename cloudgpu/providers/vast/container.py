"""The call that rents an offer, and the commands with which its container reads its tags and stops itself.

`CONTAINER_API_KEY` and `CONTAINER_ID` are in every container, and that key can stop this one contract (OpenAPI files of
vast.ai). That it can also read its own label is unverified, so nothing relies on it: a container that cannot read its
label does not see an extended lease, and then only its renew-until ends it. The user's own key is never sent there.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.machine.container_start import TAGS, ContainerSpec, image_of, packed
from cloudgpu.providers.vast import request
from cloudgpu.providers.vast.client import CLOUD
from cloudgpu.providers.vast.request import LABEL, Call

MAX_ENV, MAX_LABEL = 32_768, 256  # characters (OpenAPI files)
_CALL = """
import json, os, urllib.request
base, method, body = BASE, METHOD, BODY
url = "%s/api/v0/instances/%d/" % (base, int(os.environ["CONTAINER_ID"]))
login = {"Authorization": "Bearer " + os.environ["CONTAINER_API_KEY"], "Content-Type": "application/json"}
call = urllib.request.Request(url, data=body, headers=login, method=method)
said = json.load(urllib.request.urlopen(call, timeout=20))
"""
_TAGS = """
found = said.get("instances") or {}
tags = json.loads(os.environ["CLOUDGPU_TAGS"])
rest = str(found.get("label") or "").partition(" ")[2]
tags.update({"cloudgpu-" + name: value for name, value in json.loads(rest or "{}").items()})
if found:
    print(json.dumps(tags))
"""


def body(attempt: Attempt) -> dict[str, Any]:
    """Return the body of the call that rents the offer of an attempt; deterministic.

    Raises InvalidRequest if the template is too large for a container's environment.
    """
    call = Call(**attempt.call)
    container = ContainerSpec(
        end=stop_command(call.base), ask=tags_command(call.base), keep=request.KEEP, port=request.SSH_PORT
    )
    script = packed(attempt, container)
    env = {
        f"-p {request.SSH_PORT}:{request.SSH_PORT}": "1",
        TAGS: json.dumps(dict(attempt.tags), sort_keys=True),
        **script.env,
    }
    size = sum(len(name) + len(value) for name, value in env.items())
    if size > MAX_ENV:
        message = f"The template {attempt.boot.template} is too large for {CLOUD}: {size:,} of {MAX_ENV:,} characters."
        remedy = "Take a smaller template, and copy the rest with cloudgpu cp."
        raise InvalidRequest(message, field="template", value=attempt.boot.template, next=remedy)
    request_body: dict[str, Any] = {
        "client_id": "me",
        "image": image_of(attempt, call.image),
        "disk": call.disk_gb,
        "label": f"{LABEL}{attempt.token}"[:MAX_LABEL],
        "runtype": "args",
        "onstart": "/bin/sh",  # with `args`, this replaces the entrypoint of the image (as dstack does)
        "args": ["-c", script.command],
        "env": env,
        "target_state": "running",
        "cancel_unavail": True,
    }
    return request_body if call.bid is None else {**request_body, "price": float(call.bid)}


def stop_command(base: str) -> str:
    """Return a shell command that stops this container's contract; its disk stays and is billed."""
    return _shell(_program(base, "PUT", b'{"state": "stopped"}'))


def tags_command(base: str) -> str:
    """Return a shell command that prints the machine's current tags as a JSON object; nothing on an error."""
    return _shell(_program(base, "GET", None) + _TAGS)


def _program(base: str, method: str, request_body: bytes | None) -> str:
    return _CALL.replace("BASE", repr(base)).replace("METHOD", repr(method)).replace("BODY", repr(request_body))


def _shell(program: str) -> str:
    find = 'for one in "$python" python3 /opt/conda/bin/python3 /usr/bin/python3; do'
    look = 'if [ -n "$one" ] && command -v "$one" >/dev/null; then'
    return f'{find} {look} exec "$one" -c {shlex.quote(program.strip())}; fi; done; exit 127'
