"""What a contract's container is given: the body of the call that rents it, and what it does about its own end.

`CONTAINER_API_KEY` and `CONTAINER_ID` are in every container, and that key can stop this one contract (OpenAPI files of
vast.ai). That it can read its own label as well is our belief, and none of it was tried: so nothing relies on it. Where
it cannot, nobody tells the container that its lease was extended: then only its renew-until ends it. The user's own key
never goes there.
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
    """Return the body of the call that rents the offer of an attempt: the same for the same attempt.

    Raises InvalidRequest where the template is too large for a container's environment.
    """
    call = Call(**attempt.call)
    container = ContainerSpec(end=own_end(call.base), ask=tags_now(call.base), keep=request.KEEP, port=request.SSH_PORT)
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
    made: dict[str, Any] = {
        "client_id": "me",
        "image": image_of(attempt, call.image),
        "disk": call.disk_gb,
        "label": f"{LABEL}{attempt.token}"[:MAX_LABEL],
        "runtype": "args",
        "onstart": "/bin/sh",  # with `args`, what begins in place of the image's own program (as dstack does)
        "args": ["-c", script.command],
        "env": env,
        "target_state": "running",
        "cancel_unavail": True,
    }
    return made if call.bid is None else {**made, "price": float(call.bid)}


def own_end(base: str) -> str:
    """Return a command for sh that stops this container's contract: its disk stays, and costs on."""
    return _shell(_program(base, "PUT", b'{"state": "stopped"}'))


def tags_now(base: str) -> str:
    """Return a command for sh that prints the machine's tags as they are now, as a JSON object; nothing on a fault."""
    return _shell(_program(base, "GET", None) + _TAGS)


def _program(base: str, method: str, sent: bytes | None) -> str:
    return _CALL.replace("BASE", repr(base)).replace("METHOD", repr(method)).replace("BODY", repr(sent))


def _shell(program: str) -> str:
    find = 'for one in "$python" python3 /opt/conda/bin/python3 /usr/bin/python3; do'
    look = 'if [ -n "$one" ] && command -v "$one" >/dev/null; then'
    return f'{find} {look} exec "$one" -c {shlex.quote(program.strip())}; fi; done; exit 127'
