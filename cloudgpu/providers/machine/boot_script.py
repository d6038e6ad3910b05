"""The script that begins each boot: the timer that ends the machine first, then all else is told to start. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_RENEW_UNTIL
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.providers.machine import source
from cloudgpu.providers.machine.files import DEFAULT_PORT, HERE, BootOptions, File, container, is_watched, pip

FIRST = "cloudgpu-lease.timer"
_END = "CLOUDGPU-END"
# What else on an image makes host keys: Google's guest agent would replace cloud-init's at the first boot unless it is
# told not to (the last file that it reads; guest-agent, cfg.go); Azure's waits half an hour for an RSA key that
# cloud-init does not make, and says so long that the machine is not ready (WALinuxAgent, pa/provision/cloudinit.py).
_GOOGLES, _AZURES = "/etc/default/instance_configs.cfg.template", "/etc/waagent.conf"
_OUR_HOST_KEY = {
    "gcp": f"grep -qs set_host_keys {_GOOGLES} || printf '[InstanceSetup]\\nset_host_keys = false\\n' >>{_GOOGLES}",
    "azure": f"sed -i 's/^\\(Provisioning.SshHostKeyPairType\\)=.*/\\1=ed25519/' {_AZURES}",
}
# Lambda's image runs a JupyterLab of its own, with root's rights, and a tunnel that makes it public: off before all
# else, and at each boot. The units are those that public set-up scripts for these machines switch off.
_PUBLIC = "lambda-jupyter.service cloudflared.service cloudflared-update.service cloudflared-update.timer"
_OFF = {"lambda": f"for unit in {_PUBLIC}; do systemctl mask --now $unit >/dev/null 2>&1; done"}
# cloud-init's stage in which users and files are made bears another name since 24.3.
_AFTER_USERS = "After=cloud-init.service cloud-init-network.service\n"
_LEASE = (
    "[Unit]\nDescription=cloudgpu: end of the lease\n"
    f"[Service]\nType=oneshot\nTimeoutStartSec=55\nExecStart={HERE}/lease\n"
)
_REPORT = f"ExecStartPost=-{HERE}/lease report\n"
_REPORT_OF_AWS = f"ExecStartPost=-/usr/bin/python3 {HERE}/report.py\n"
# Half a minute of notice is over before the lease's timer would look again, and half of two minutes.
_WATCH = (
    "[Unit]\nDescription=cloudgpu: the notice of a spot machine\n"
    f"[Service]\nExecStart={HERE}/lease watch\nRestart=on-failure\nRestartSec=5\n"
    "[Install]\nWantedBy=multi-user.target\n"
)
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
_CONTAINER = (
    "[Unit]\nDescription=cloudgpu: the container\nAfter=network-online.target docker.service cloudgpu-agent.service\n"
    f"[Service]\nType=oneshot\nExecStart={HERE}/container\nTimeoutStartSec=infinity\n"
    "[Install]\nWantedBy=multi-user.target\n"
)


def boot_hook(attempt: Attempt, options: BootOptions) -> str:
    """Return the hook as cloud-init takes it, at each boot, before it does anything else."""
    lines = [
        "#cloud-boothook",
        *beginning(attempt, options),
        *filter(None, [_OUR_HOST_KEY.get(options.cloud), _OFF.get(options.cloud)]),
        "touch /run/cloudgpu/began",
        *starting(*wanted(attempt, options)),
    ]
    return "".join(f"{line}\n" for line in lines)


def beginning(attempt: Attempt, options: BootOptions) -> list[str]:
    """Return the lines of a shell script that put the lease and all units in their places."""
    files = [
        File(f"{HERE}/launch", _launch_file(attempt, options), "644"),
        File(f"{HERE}/cloud", source(f"cloud_{options.cloud}.sh"), "644"),
        File(f"{HERE}/lease", source("lease.sh"), "755"),
        *(File(f"/etc/systemd/system/{name}", text, "644") for name, text in _units(attempt, options).items()),
    ]
    return ["#!/bin/sh", "umask 022", f"mkdir -p {HERE} /run/cloudgpu", *written(files), *_other_port(options.ssh_port)]


def wanted(attempt: Attempt, options: BootOptions) -> list[str]:
    """Return the units that start by themselves, the one that ends the machine first."""
    units = _units(attempt, options)
    return sorted((name for name, text in units.items() if "[Install]" in text), key=lambda name: name != FIRST)


def starting(*units: str) -> list[str]:
    """Return the lines that start units, and see to it that systemd starts them by itself later."""
    names = " ".join(units)
    return ["systemctl daemon-reload", f"systemctl enable {names}", f"systemctl start --no-block {names}"]


def written(files: list[File]) -> list[str]:
    """Return the lines that write files, each of which ends with a newline then."""
    lines = []
    for path, text, mode in files:
        end = _END
        while end in text:
            end += "-"
        lines += [f"cat >{path} <<'{end}'", text.rstrip("\n"), end, f"chmod {mode} {path}"]
    return lines


def _launch_file(attempt: Attempt, options: BootOptions) -> str:
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
        "user": options.user,
        "deallocates": "yes" if options.can_deallocate else "",
        **({"container": image} if (image := container(attempt)) else {}),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items())


def _units(attempt: Attempt, options: BootOptions) -> Mapping[str, str]:
    report = _REPORT_OF_AWS if options.cloud == "aws" else _REPORT
    units = {
        "cloudgpu-lease.service": _LEASE + (report if options.reports else ""),
        "cloudgpu-lease.timer": _TIMER,
        "cloudgpu-agent.service": _AGENT.format(user=options.user),
        "cloudgpu-start.service": _START.format(user=options.user),
    }
    if is_watched(attempt):
        units["cloudgpu-notice.service"] = _WATCH
    if container(attempt):
        units["cloudgpu-container.service"] = _CONTAINER
    if attempt.request.setup.volume is not None:
        units["cloudgpu-volume.service"] = _VOLUME.format(volume=f" {options.volume}".rstrip())
    return units


def _other_port(port: int) -> list[str]:
    """Return what makes SSH listen on another port, before it is started; newer Ubuntus start it by a socket."""
    if port == DEFAULT_PORT:
        return []
    own = "/etc/ssh/sshd_config.d/10-cloudgpu.conf"
    main = "/etc/ssh/sshd_config"
    reads_own = f"grep -qi '^include.*sshd_config.d' {main}"
    return [
        f"mkdir -p {main}.d; echo 'Port {port}' >{own}",
        f"{reads_own} || grep -q '^Port {port}$' {main} || sed -i '1i Port {port}' {main}",
        "systemctl daemon-reload; systemctl try-restart --no-block ssh.socket ssh.service sshd.service",
    ]
