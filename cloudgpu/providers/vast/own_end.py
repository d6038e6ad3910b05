"""What a container does about its own end, with the key that vast.ai itself puts into it. Text for sh.

`CONTAINER_API_KEY` and `CONTAINER_ID` are in every container, and that key can stop this one contract (OpenAPI files of
vast.ai). That it can read its own label as well is our belief, and none of it was tried: so nothing relies on it. The
user's own key never goes there.
"""

from __future__ import annotations

import shlex

REMARK = (
    "it tries to stop itself at its lease's end with the key that vast.ai puts into it, which was never seen to work: "
    "rely on cloudgpu reap or watch"
)
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


def command(base: str) -> str:
    """Return a command for sh that stops this container's contract: its disk stays, and costs on."""
    return _shell(_program(base, "PUT", b'{"state": "stopped"}'))


def tags_command(base: str) -> str:
    """Return a command for sh that prints the machine's tags as they are now, as a JSON object; nothing on a fault."""
    return _shell(_program(base, "GET", None) + _TAGS)


def _program(base: str, method: str, sent: bytes | None) -> str:
    return _CALL.replace("BASE", repr(base)).replace("METHOD", repr(method)).replace("BODY", repr(sent))


def _shell(program: str) -> str:
    find = 'for one in "$python" python3 /opt/conda/bin/python3 /usr/bin/python3; do'
    look = 'if [ -n "$one" ] && command -v "$one" >/dev/null; then'
    return f'{find} {look} exec "$one" -c {shlex.quote(program.strip())}; fi; done; exit 127'
