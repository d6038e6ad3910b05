"""The boot data of an image without cloud-init: a script that Google's guest agent runs as root at each boot. Pure.

It does what the multipart has cloud-init do, in the same order: the lease's timer first. It brings no host key: such an
image makes its own at its first boot, before this runs, and tells it by guest attributes. Parts of a template that only
cloud-init understands are left out by whoever resolves the launch.
Source: Compute Engine's page "Use startup scripts on Linux VMs".
"""

from __future__ import annotations

import shlex

from cloudgpu.core.model.launch import Attempt
from cloudgpu.providers.machine.boot_script import FIRST, beginning, starting, wanted, written
from cloudgpu.providers.machine.files import BootOptions, files, packages

_LAST = "cloudgpu-start.service"
_STATE = "/var/lib/cloudgpu"
_APT = "env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600"


def startup_script(attempt: Attempt, given: BootOptions) -> str:
    """Return the script as text, the same for the same attempt."""
    rest = [unit for unit in wanted(attempt, given) if unit not in (FIRST, _LAST)]
    lines = [
        *beginning(attempt, given),
        "touch /run/cloudgpu/began",
        *starting(FIRST),
        *_user(attempt, given.user),
        *written(list(files(attempt, given))),
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
