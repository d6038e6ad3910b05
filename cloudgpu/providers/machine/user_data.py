"""User data: a MIME multipart for cloud-init, or a startup script for images without cloud-init. Pure.

The first part is a boot hook: cloud-init runs it first at each boot, and it starts the timer that ends the machine, so
that no later failure can keep a machine running. The second is our cloud-config: user, keys, host key, files. Parts of
the template follow; their lists are appended to ours, our keys stay.
Source: cloud-init's documentation, "User data formats" and "Merging user data sections".

The startup script is run by Google's guest agent as root at each boot, and does the same in the same order. It sets no
host key: such an image makes its own at its first boot, and publishes it by guest attributes. Parts of a template that
need cloud-init are left out when the launch is resolved.
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
from cloudgpu.providers.machine.boot_script import (
    LEASE_TIMER,
    boot_hook,
    boot_units,
    setup_lines,
    start_lines,
    write_lines,
)
from cloudgpu.providers.machine.files import INSTALL_DIR, BootOptions, files, packages

__all__ = [
    "INSTALL_DIR",
    "BootOptions",
    "boot_hook",
    "startup_script",
    "too_large_error",
    "user_data",
]

_MAX_FOUR_DIGITS = 0xFFFF  # the last character that YAML escapes with four digits
_BOUNDARY = "=-cloudgpu-part-="
# How cloud-init merges the parts: lists are appended, keys that are there stay.
_MERGE_TYPE = "list(append)+dict(no_replace,recurse_list)+str()"


def user_data(attempt: Attempt, options: BootOptions) -> str:
    """Return the user data as ASCII text, deterministic; the provider may compress it."""
    template_configs = [part.text for part in attempt.boot.parts if part.kind == "cloud_init"]
    configs = [_config(attempt, options), *template_configs]
    return _multipart(
        [("text/cloud-boothook", boot_hook(attempt, options)), *(("text/cloud-config", config) for config in configs)]
    )


def too_large_error(attempt: Attempt, size: int, limit: int, cloud_name: str) -> InvalidRequest:
    """Return the error for user data of `size` bytes where `cloud_name` accepts `limit`."""
    return InvalidRequest(
        f"The template {attempt.boot.template} makes {size:,} bytes of boot data; {cloud_name} takes {limit:,}.",
        field="template",
        value=attempt.boot.template,
        next="Make its cloud_init or on_start shorter: let it fetch the long part from somewhere.",
    )


def _multipart(parts: Iterable[tuple[str, str]]) -> str:
    """Return a MIME message with a fixed boundary and order.

    It is ASCII: cloud-init loses other characters that are not encoded (by its source, and tested).
    """
    lines = [f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"\nMIME-Version: 1.0\n\n']
    for number, (kind, text) in enumerate(parts):
        encoding = "7bit" if text.isascii() else "quoted-printable"
        headers = (
            f'Content-Type: {kind}; charset="utf-8"\nMerge-Type: {_MERGE_TYPE}\nContent-Transfer-Encoding: {encoding}\n'
        )
        name = f'Content-Disposition: attachment; filename="part-{number:03}"\n'
        body = text if text.isascii() else quopri.encodestring(text.encode()).decode()
        lines.append(f"--{_BOUNDARY}\n{headers}{name}\n{body.rstrip()}\n\n")
    return "".join([*lines, f"--{_BOUNDARY}--\n"])


def _config(attempt: Attempt, options: BootOptions) -> str:
    """Return our cloud-config as JSON, which cloud-init reads as YAML."""
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
            {"path": file.path, "content": file.text, "permissions": file.mode} for file in files(attempt, options)
        ],
    }
    package_names = packages(attempt)
    if package_names:
        config |= {"package_update": True, "packages": package_names}
    return "#cloud-config\n" + re.sub(r"[^ -~]", _yaml_escape, json.dumps(config, ensure_ascii=False))


def _yaml_escape(match: re.Match[str]) -> str:
    """Return the matched character as YAML escapes it; JSON would write surrogate pairs."""
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= _MAX_FOUR_DIGITS else f"\\U{code:08x}"


_START_UNIT_NAME = "cloudgpu-start.service"
_STATE_DIR = "/var/lib/cloudgpu"  # which launch's keys and packages are installed
_APT = "env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600"


def startup_script(attempt: Attempt, options: BootOptions) -> str:
    """Return the startup script; deterministic."""
    later_units = [unit for unit in boot_units(attempt, options) if unit not in (LEASE_TIMER, _START_UNIT_NAME)]
    lines = [
        *setup_lines(attempt, options),
        "touch /run/cloudgpu/began",
        *start_lines(LEASE_TIMER),
        *_user_lines(attempt, options.user),
        *write_lines(list(files(attempt, options))),
        *start_lines(*later_units),
        *_install_lines(attempt),
        # Without cloud-init nothing else starts this unit, which is wanted by a target of cloud-init.
        f"systemctl start --no-block {_START_UNIT_NAME}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _user_lines(attempt: Attempt, user: str) -> list[str]:
    """Return the lines that create the user; keys are written once per launch, so keys added later stay."""
    keys = shlex.quote("".join(f"{line.strip()}\n" for line in attempt.boot.client_public_keys))
    ssh = f"/home/{user}/.ssh"
    return [
        f"id -u {user} >/dev/null 2>&1 || useradd -m -d /home/{user} -s /bin/bash -c cloudgpu {user}",
        f"echo '{user} ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/90-cloudgpu && chmod 440 /etc/sudoers.d/90-cloudgpu",
        f'if [ "$(cat {_STATE_DIR}/prepared 2>/dev/null)" != {attempt.token} ]; then',
        f"  install -d -m 700 -o {user} -g {user} {ssh}",
        f"  printf %s {keys} >{ssh}/authorized_keys",
        f"  chown {user}: {ssh}/authorized_keys && chmod 600 {ssh}/authorized_keys",
        f"  mkdir -p {_STATE_DIR} && echo {attempt.token} >{_STATE_DIR}/prepared",
        "fi",
    ]


def _install_lines(attempt: Attempt) -> list[str]:
    """Return the lines that install the template's packages: once, and again at the next boot after a failure."""
    names = packages(attempt)
    if not names:
        return []
    install = f"{_APT} update; {_APT} install -y {shlex.join(names)} && echo {attempt.token} >{_STATE_DIR}/packages"
    return [f'[ "$(cat {_STATE_DIR}/packages 2>/dev/null)" = {attempt.token} ] || {{ {install}; }}']
