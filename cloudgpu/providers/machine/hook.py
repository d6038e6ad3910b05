"""The script that begins each boot: the timer that ends the machine first, then all else is told to start. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from cloudgpu.core.facts import TAG_EXPIRES, TAG_RENEW_UNTIL, Attempt, Market
from cloudgpu.core.plan import Lease
from cloudgpu.providers.machine import source
from cloudgpu.providers.machine.files import File
from cloudgpu.providers.machine.given import HERE, USUAL_PORT, Given
from cloudgpu.providers.machine.notebooks import pip

_END = "CLOUDGPU-END"
# cloud-init's stage in which users and files are made bears another name since 24.3.
_AFTER_USERS = "After=cloud-init.service cloud-init-network.service\n"
_LEASE = (
    "[Unit]\nDescription=cloudgpu: end of the lease\n"
    f"[Service]\nType=oneshot\nTimeoutStartSec=55\nExecStart={HERE}/lease\n"
)
_REPORT = f"ExecStartPost=-/usr/bin/python3 {HERE}/report.py\n"
_TIMER = (
    "[Unit]\nDescription=cloudgpu: end of the lease\n"
    "[Timer]\nOnBootSec=60\nOnUnitActiveSec=60\nAccuracySec=5\n[Install]\nWantedBy=timers.target\n"
)
_AGENT = (
    f"[Unit]\nDescription=cloudgpu: the agent\n{_AFTER_USERS}StartLimitIntervalSec=0\n"
    f"[Service]\nUser={{user}}\nExecStartPre=+{HERE}/settle\nExecStart=/home/{{user}}/.cloudgpu/agent run\n"
    "Restart=always\nRestartSec=5\n[Install]\nWantedBy=multi-user.target\n"
)
_START = (
    "[Unit]\nDescription=cloudgpu: Jupyter and on_start\nAfter=cloud-final.service cloudgpu-agent.service\n"
    f"[Service]\nType=oneshot\nUser={{user}}\nExecStart={HERE}/start\nTimeoutStartSec=infinity\n"
    "[Install]\nWantedBy=cloud-init.target\n"
)
_VOLUME = (
    f"[Unit]\nDescription=cloudgpu: the data volume\n{_AFTER_USERS}"
    f"[Service]\nType=oneshot\nExecStart={HERE}/volume{{volume}}\nTimeoutStartSec=infinity\n"
    "[Install]\nWantedBy=multi-user.target\n"
)


def boot_hook(attempt: Attempt, given: Given) -> str:
    """Return the hook as cloud-init takes it, at each boot, before it does anything else."""
    lines = ["#cloud-boothook", *beginning(attempt, given), *starting(attempt, given)]
    return "".join(f"{line}\n" for line in lines)


def beginning(attempt: Attempt, given: Given) -> list[str]:
    """Return the lines of a shell script that put the lease and all units in their places."""
    files = [
        File(f"{HERE}/launch", _launch_file(attempt, given), "644"),
        File(f"{HERE}/cloud", source(f"cloud_{given.cloud}.sh"), "644"),
        File(f"{HERE}/lease", source("lease.sh"), "755"),
        *(File(f"/etc/systemd/system/{name}", text, "644") for name, text in _units(attempt, given).items()),
    ]
    return ["#!/bin/sh", "umask 022", f"mkdir -p {HERE} /run/cloudgpu", *written(files), *_other_port(given.ssh_port)]


def starting(attempt: Attempt, given: Given) -> list[str]:
    """Return the lines that start the units, and see to it that systemd starts them by itself later."""
    wanted = " ".join(name for name, text in _units(attempt, given).items() if "[Install]" in text)
    return [
        "touch /run/cloudgpu/began",
        "systemctl daemon-reload",
        f"systemctl enable {wanted}",
        f"systemctl start --no-block {wanted}",
    ]


def written(files: list[File]) -> list[str]:
    """Return the lines that write files, each of which ends with a newline then."""
    lines = []
    for path, text, mode in files:
        lines += [f"cat >{path} <<'{_END}'", text.rstrip("\n"), _END, f"chmod {mode} {path}"]
    return lines


def _launch_file(attempt: Attempt, given: Given) -> str:
    """Return what the scripts know of the launch, as assignments of a shell."""
    tags = Lease(attempt.expires, attempt.renew_until).tags()
    spot = attempt.offer.available.market is Market.SPOT
    facts = {
        "token": attempt.token,
        "made": str(int(attempt.made_at.timestamp())),
        "expires": tags[TAG_EXPIRES],
        "renew_until": tags[TAG_RENEW_UNTIL],
        "spot": "yes" if spot else "",
        "jupyter": pip(attempt.boot.jupyter),
        "user": given.user,
        "deallocates": "yes" if given.can_deallocate else "",
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items())


def _units(attempt: Attempt, given: Given) -> Mapping[str, str]:
    units = {
        "cloudgpu-lease.service": _LEASE + (_REPORT if given.reports else ""),
        "cloudgpu-lease.timer": _TIMER,
        "cloudgpu-agent.service": _AGENT.format(user=given.user),
        "cloudgpu-start.service": _START.format(user=given.user),
    }
    if attempt.request.setup.volume is not None:
        units["cloudgpu-volume.service"] = _VOLUME.format(volume=f" {given.volume}".rstrip())
    return units


def _other_port(port: int) -> list[str]:
    """Return what makes SSH listen on another port, before it is started; newer Ubuntus start it by a socket."""
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
