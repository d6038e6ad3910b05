"""The boot data of a machine: a MIME multipart for cloud-init, made of an attempt and of what its cloud says. Pure.

The first part is a boot hook: it runs before everything else of cloud-init, at each boot, and starts the timer that
ends the machine, so that nothing that fails later can keep a machine on. The second is the cloud-config of ours:
user, keys, host key, files. Parts of the template follow; lists of theirs are added to ours, keys of ours stay.
Source: cloud-init's documentation, "User data formats" and "Merging user data sections".

The boot data of an image without cloud-init: a script that Google's guest agent runs as root at each boot. Pure.

It does what the multipart has cloud-init do, in the same order: the lease's timer first. It brings no host key: such an
image makes its own at its first boot, before this runs, and tells it by guest attributes. Parts of a template that only
cloud-init understands are left out by whoever resolves the launch.
Source: Compute Engine's page "Use startup scripts on Linux VMs".
"""

from __future__ import annotations

import json
import quopri
import re
import shlex
from collections.abc import Iterable
from typing import Any

from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.machine.boot_script import FIRST, beginning, boot_hook, starting, wanted, written
from cloudgpu.providers.machine.files import HERE, BootOptions, files, jupyter_command, packages

__all__ = ["HERE", "BootOptions", "boot_hook", "jupyter_command", "startup_script", "too_large", "user_data"]

_LAST_OF_FOUR = 0xFFFF
_BOUNDARY = "=-cloudgpu-part-="
_MERGE = "list(append)+dict(no_replace,recurse_list)+str()"


def user_data(attempt: Attempt, options: BootOptions) -> str:
    """Return the user data as ASCII text, the same for the same attempt; how it is packed is the cloud's matter."""
    templates = [part.text for part in attempt.boot.parts if part.kind == "cloud_init"]
    configs = [_config(attempt, options), *templates]
    return _multipart(
        [("text/cloud-boothook", boot_hook(attempt, options)), *(("text/cloud-config", one) for one in configs)]
    )


def too_large(attempt: Attempt, size: int, limit: int, who: str) -> InvalidRequest:
    """Return the refusal of boot data of `size` bytes where `who` takes `limit`."""
    return InvalidRequest(
        f"The template {attempt.boot.template} makes {size:,} bytes of boot data; {who} takes {limit:,}.",
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


def _config(attempt: Attempt, options: BootOptions) -> str:
    """Return our cloud-config. JSON is YAML: nothing in it has to be quoted by hand."""
    boot = attempt.boot
    user = {
        "name": options.user,
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
        "write_files": [
            {"path": one.path, "content": one.text, "permissions": one.mode} for one in files(attempt, options)
        ],
    }
    wanted = packages(attempt)
    if wanted:
        config |= {"package_update": True, "packages": wanted}
    text = json.dumps(config, ensure_ascii=False)
    return "#cloud-config\n" + re.sub(r"[^ -~]", _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """Return a character as YAML escapes it; JSON's pairs of surrogates mean nothing there."""
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= _LAST_OF_FOUR else f"\\U{code:08x}"


_LAST = "cloudgpu-start.service"
_STATE = "/var/lib/cloudgpu"
_APT = "env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600"


def startup_script(attempt: Attempt, options: BootOptions) -> str:
    """Return the script as text, the same for the same attempt."""
    rest = [unit for unit in wanted(attempt, options) if unit not in (FIRST, _LAST)]
    lines = [
        *beginning(attempt, options),
        "touch /run/cloudgpu/began",
        *starting(FIRST),
        *_user(attempt, options.user),
        *written(list(files(attempt, options))),
        *starting(*rest),
        *_installed(attempt),
        # On such an image nobody else starts this one: it is wanted by a target of cloud-init's.
        f"systemctl start --no-block {_LAST}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _user(attempt: Attempt, user: str) -> list[str]:
    """Return the lines that make the user; keys are written once per launch, and those added later stay."""
    keys = shlex.quote("".join(f"{line.strip()}\n" for line in attempt.boot.client_public_keys))
    ssh = f"/home/{user}/.ssh"
    return [
        f"id -u {user} >/dev/null 2>&1 || useradd -m -d /home/{user} -s /bin/bash -c cloudgpu {user}",
        f"echo '{user} ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/90-cloudgpu && chmod 440 /etc/sudoers.d/90-cloudgpu",
        f'if [ "$(cat {_STATE}/prepared 2>/dev/null)" != {attempt.token} ]; then',
        f"  install -d -m 700 -o {user} -g {user} {ssh}",
        f"  printf %s {keys} >{ssh}/authorized_keys",
        f"  chown {user}: {ssh}/authorized_keys && chmod 600 {ssh}/authorized_keys",
        f"  mkdir -p {_STATE} && echo {attempt.token} >{_STATE}/prepared",
        "fi",
    ]


def _installed(attempt: Attempt) -> list[str]:
    """Return the lines that install the template's packages: once, and at the next boot again where that failed."""
    names = packages(attempt)
    if not names:
        return []
    install = f"{_APT} update; {_APT} install -y {shlex.join(names)} && echo {attempt.token} >{_STATE}/packages"
    return [f'[ "$(cat {_STATE}/packages 2>/dev/null)" = {attempt.token} ] || {{ {install}; }}']
