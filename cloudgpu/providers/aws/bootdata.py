"""The user data of a machine: gzip over a MIME multipart for cloud-init, made of an attempt alone. Pure.

The first part is a boot hook: it runs before everything else of cloud-init, at each boot, and starts the timer that
ends the machine, so that nothing that fails later can keep a machine on. The second is the cloud-config of ours:
user, keys, host key, files. Parts of the template follow; lists of theirs are added to ours, keys of ours stay.
Source: cloud-init's documentation, "User data formats" and "Merging user data sections".
"""

from __future__ import annotations

import gzip
import json
import quopri
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from cloudgpu.core.facts import TAG_EXPIRES, TAG_RENEW_UNTIL, Attempt, Market
from cloudgpu.core.plan import Lease
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws.machine import source
from cloudgpu.providers.aws.request import call_of
from cloudgpu.providers.aws.translate import USER

LIMIT = 16_384  # bytes before they are encoded: EC2's user guide, "Run commands when you launch an EC2 instance"
HERE = "/usr/local/lib/cloudgpu"
USUAL_PORT = 22
AGENT_INTERVAL_S = 30
_LAST_OF_FOUR = 0xFFFF
_BOUNDARY = "=-cloudgpu-part-="
_END = "CLOUDGPU-END"
_MERGE = "list(append)+dict(no_replace,recurse_list)+str()"
_PIP = "jupyterlab>=4.4,<5"
_MODULES = {"lab": "jupyterlab", "notebook": "notebook", "server": "jupyter_server"}

_AGENT = '#!/bin/sh\nexec /usr/bin/python3 "$HOME/.cloudgpu/agent.py" "$@"\n'
# cloud-init's stage in which users and files are made bears another name since 24.3.
_AFTER_USERS = "After=cloud-init.service cloud-init-network.service\n"
_UNITS = {
    "cloudgpu-lease.service": (
        "[Unit]\nDescription=cloudgpu: end of the lease\n"
        f"[Service]\nType=oneshot\nTimeoutStartSec=55\nExecStart={HERE}/lease\n"
    ),
    "cloudgpu-lease.timer": (
        "[Unit]\nDescription=cloudgpu: end of the lease\n"
        "[Timer]\nOnBootSec=60\nOnUnitActiveSec=60\nAccuracySec=5\n[Install]\nWantedBy=timers.target\n"
    ),
    "cloudgpu-agent.service": (
        f"[Unit]\nDescription=cloudgpu: the agent\n{_AFTER_USERS}StartLimitIntervalSec=0\n"
        f"[Service]\nUser={USER}\nExecStartPre=+{HERE}/settle\nExecStart=/home/{USER}/.cloudgpu/agent run\n"
        "Restart=always\nRestartSec=5\n[Install]\nWantedBy=multi-user.target\n"
    ),
    "cloudgpu-start.service": (
        f"[Unit]\nDescription=cloudgpu: Jupyter and on_start\nAfter=cloud-final.service cloudgpu-agent.service\n"
        f"[Service]\nType=oneshot\nUser={USER}\nExecStart={HERE}/start\nTimeoutStartSec=infinity\n"
        "[Install]\nWantedBy=cloud-init.target\n"
    ),
}
_REPORT = "ExecStartPost=-/usr/bin/python3 {}/report.py\n"
_VOLUME = (
    f"[Unit]\nDescription=cloudgpu: the data volume\n{_AFTER_USERS}"
    f"[Service]\nType=oneshot\nExecStart={HERE}/volume {{}}\nTimeoutStartSec=infinity\n"
    "[Install]\nWantedBy=multi-user.target\n"
)


def user_data(attempt: Attempt) -> bytes:
    """Return the user data, the same bytes for the same attempt; raise InvalidRequest when they are too large."""
    templates = [part.text for part in attempt.boot.parts if part.kind == "cloud_init"]
    configs = [_config(attempt), *templates]
    message = _multipart(
        [("text/cloud-boothook", boot_hook(attempt)), *(("text/cloud-config", one) for one in configs)]
    )
    packed = gzip.compress(message.encode("ascii"), compresslevel=9, mtime=0)
    if len(packed) <= LIMIT:
        return packed
    raise InvalidRequest(
        f"The template {attempt.boot.template} makes {len(packed):,} bytes of boot data; EC2 takes {LIMIT:,}.",
        field="template",
        value=attempt.boot.template,
        next="Make its cloud_init or on_start shorter: let it fetch the long part from somewhere.",
    )


def _multipart(parts: Iterable[tuple[str, str]]) -> str:
    """Return a MIME message by hand: its boundary and order are always the same.

    It is ASCII: cloud-init loses every other character that is not encoded (read in its source, and tried).
    """
    lines = [f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"\nMIME-Version: 1.0\n\n']
    for number, (kind, text) in enumerate(parts):
        coding = "7bit" if text.isascii() else "quoted-printable"
        head = f'Content-Type: {kind}; charset="utf-8"\nMerge-Type: {_MERGE}\nContent-Transfer-Encoding: {coding}\n'
        name = f'Content-Disposition: attachment; filename="part-{number:03}"\n'
        body = text if text.isascii() else quopri.encodestring(text.encode()).decode()
        lines.append(f"--{_BOUNDARY}\n{head}{name}\n{body.rstrip()}\n\n")
    return "".join([*lines, f"--{_BOUNDARY}--\n"])


def boot_hook(attempt: Attempt) -> str:
    """Return the script that begins each boot: the lease and its timer first, then all else is told to start."""
    files = [(f"{HERE}/launch", _launch_file(attempt), "644"), (f"{HERE}/lease", source("lease.sh"), "755")]
    units = _units(attempt)
    files += [(f"/etc/systemd/system/{name}", text, "644") for name, text in units.items()]
    wanted = [name for name, text in units.items() if "[Install]" in text]
    lines = ["#!/bin/sh", "umask 022", f"mkdir -p {HERE} /run/cloudgpu"]
    for path, text, mode in files:
        lines += [f"cat >{path} <<'{_END}'", text.rstrip("\n"), _END, f"chmod {mode} {path}"]
    lines += _other_port(attempt)
    lines += [
        "touch /run/cloudgpu/began",
        "systemctl daemon-reload",
        f"systemctl enable {' '.join(wanted)}",
        f"systemctl start --no-block {' '.join(wanted)}",
    ]
    return "#cloud-boothook\n" + "".join(f"{line}\n" for line in lines)


def _launch_file(attempt: Attempt) -> str:
    """Return what the scripts know of the launch, as assignments of a shell."""
    tags = Lease(attempt.expires, attempt.renew_until).tags()
    spot = attempt.offer.available.market is Market.SPOT
    facts = {
        "token": attempt.token,
        "made": str(int(attempt.made_at.timestamp())),
        "expires": tags[TAG_EXPIRES],
        "renew_until": tags[TAG_RENEW_UNTIL],
        "spot": "yes" if spot else "",
        "jupyter": _pip(attempt.boot.jupyter),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items())


def _units(attempt: Attempt) -> Mapping[str, str]:
    units = dict(_UNITS)
    call = call_of(attempt)
    if call.profile:
        units["cloudgpu-lease.service"] += _REPORT.format(HERE)
    if attempt.request.setup.volume is not None:
        units["cloudgpu-volume.service"] = _VOLUME.format(call.volume or "").replace(" \n", "\n")
    return units


def _other_port(attempt: Attempt) -> list[str]:
    """Return what makes SSH listen on another port, before it is started; newer Ubuntus start it by a socket."""
    port = call_of(attempt).ssh_port
    if port == USUAL_PORT:
        return []
    own = "/etc/ssh/sshd_config.d/10-cloudgpu.conf"
    main = "/etc/ssh/sshd_config"
    reads_own = f"grep -qi '^include.*sshd_config.d' {main}"
    return [
        f"mkdir -p {main}.d; echo 'Port {port}' >{own}",
        f"{reads_own} || grep -q '^Port {port}$' {main} || sed -i '1i Port {port}' {main}",
        "systemctl daemon-reload; systemctl try-restart --no-block ssh.socket ssh.service sshd.service",
    ]


def _config(attempt: Attempt) -> str:
    """Return our cloud-config. JSON is YAML: nothing in it has to be quoted by hand."""
    boot = attempt.boot
    user = {
        "name": USER,
        "gecos": "cloudgpu",
        "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "lock_passwd": True,
        "ssh_authorized_keys": [line.strip() for line in boot.client_public_keys],
    }
    config: dict[str, Any] = {
        "users": [user],
        "disable_root": True,
        "ssh_pwauth": False,
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": boot.host_private_key, "ed25519_public": boot.host_public_key},
        "write_files": [_file(name, text, mode) for name, text, mode in _files(attempt)],
    }
    packages = [name for part in boot.parts if part.kind == "packages" for name in part.text.split()]
    if packages:
        config |= {"package_update": True, "packages": list(dict.fromkeys(packages))}
    text = json.dumps(config, ensure_ascii=False)
    return "#cloud-config\n" + re.sub(r"[^ -~]", _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """Return a character as YAML escapes it; JSON's pairs of surrogates mean nothing there."""
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= _LAST_OF_FOUR else f"\\U{code:08x}"


def _files(attempt: Attempt) -> Iterable[tuple[str, str, str]]:
    boot = attempt.boot
    yield "agent.py", boot.agent_source, "0644"
    yield "agent.json", json.dumps(_agent_settings(attempt)), "0644"
    yield "agent", _AGENT, "0755"
    yield "settle", source("settle.sh"), "0755"
    yield "start", source("start.sh"), "0755"
    if boot.jupyter:
        yield "jupyter", source("jupyter.sh"), "0755"
    script = "\n".join(part.text for part in boot.parts if part.kind == "on_start")
    if script.strip():
        yield "on_start.sh", script, "0644"
    if call_of(attempt).profile:
        yield "report.py", source("report.py"), "0644"
    if attempt.request.setup.volume is not None:
        yield "volume", source("volume.sh"), "0755"


def _file(name: str, text: str, mode: str) -> dict[str, str]:
    return {"path": f"{HERE}/{name}", "content": text, "permissions": mode}


def _agent_settings(attempt: Attempt) -> dict[str, Any]:
    """Return what the agent is told. Its lease and notices are those that the lease timer reads from the metadata."""
    policy = {"policy": dict(attempt.boot.policy)} if attempt.boot.policy else {}
    return {
        "id": attempt.machine,
        "made": attempt.made_at.timestamp(),  # a clock that shows less is wrong
        "lease": Lease(attempt.expires, attempt.renew_until).tags(),  # until the metadata can be read
        "jupyter": jupyter_command(attempt.boot.jupyter),
        "root": f"/home/{USER}",
        "metadata": {"kind": "file", "path": "/run/cloudgpu/tags.json"},
        "notice": {"kind": "file", "path": "/run/cloudgpu/notice.json"},
        "events": {"kind": "file", "path": "/run/cloudgpu/events.json"},
        "end": ["sudo", "-n", f"{HERE}/lease", "end"],
        "interval": AGENT_INTERVAL_S,
        "gpus": sum(gpu.count for gpu in attempt.offer.available.accelerators),
        "warn": True,
        **policy,
    }


def jupyter_command(words: tuple[str, ...]) -> list[str]:
    """Return a template's Jupyter command as it runs there: by the environment that the first start makes."""
    module, rest = _module(words)
    return [f"{HERE}/jupyter", module, *rest] if module else list(words)


def _module(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the module that a Jupyter command runs and its options; an empty one for any other command."""
    program, *rest = words or ("",)
    if program.startswith("jupyter-"):
        program, rest = "jupyter", [program.removeprefix("jupyter-"), *rest]
    if program != "jupyter":
        return "", ()
    if rest and rest[0] in _MODULES:
        return _MODULES[rest[0]], tuple(rest[1:])
    return "jupyter", tuple(rest)


def _pip(words: tuple[str, ...]) -> str:
    """Return what pip installs for a Jupyter command: names without spaces, separated by one."""
    module, _ = _module(words)
    return "" if not module else f"{_PIP} notebook" if module == "notebook" else _PIP
