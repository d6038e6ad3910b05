"""Makes the boot hook, a script that writes and starts the systemd units, the lease's timer first. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_RENEW_UNTIL
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.providers.machine import source
from cloudgpu.providers.machine.files import (
    DEFAULT_PORT,
    INSTALL_DIR,
    BootOptions,
    File,
    container_image,
)
from cloudgpu.providers.shared.python_environment import jupyter_requirements

LEASE_TIMER = "cloudgpu-lease.timer"
_HEREDOC_END = "CLOUDGPU-END"
# Keeps other agents from making host keys. Google's would replace cloud-init's at the first boot (guest-agent, cfg.go:
# this is the last file that it reads). Azure's waits half an hour for an RSA key that cloud-init does not make, and
# reports the machine as not ready meanwhile (WALinuxAgent, pa/provision/cloudinit.py).
_GOOGLE_AGENT_CONFIG, _AZURE_AGENT_CONFIG = "/etc/default/instance_configs.cfg.template", "/etc/waagent.conf"
_KEEP_HOST_KEY = {
    "gcp": f"grep -qs set_host_keys {_GOOGLE_AGENT_CONFIG} || "
    f"printf '[InstanceSetup]\\nset_host_keys = false\\n' >>{_GOOGLE_AGENT_CONFIG}",
    "azure": f"sed -i 's/^\\(Provisioning.SshHostKeyPairType\\)=.*/\\1=ed25519/' {_AZURE_AGENT_CONFIG}",
}
# Lambda's image runs a JupyterLab as root, and a tunnel that makes it public: masked first, at each boot. Public set-up
# scripts for these machines mask the same units.
_PUBLIC_UNITS = "lambda-jupyter.service cloudflared.service cloudflared-update.service cloudflared-update.timer"
_MASK_UNITS = {"lambda": f"for unit in {_PUBLIC_UNITS}; do systemctl mask --now $unit >/dev/null 2>&1; done"}
# cloud-init's stage that creates users and files has another name since 24.3.
_AFTER_USERS = "After=cloud-init.service cloud-init-network.service\n"
# Texts of systemd units; `_units` has their names.
_LEASE_UNIT = (
    "[Unit]\nDescription=cloudgpu: end of the lease\n"
    f"[Service]\nType=oneshot\nTimeoutStartSec=55\nExecStart={INSTALL_DIR}/lease\n"
)
_REPORT_LINE = f"ExecStartPost=-{INSTALL_DIR}/lease report\n"
_REPORT_LINE_AWS = f"ExecStartPost=-/usr/bin/python3 {INSTALL_DIR}/report.py\n"
# The lease's timer runs once a minute, which is too seldom for a notice: AWS gives two minutes, the others 30 seconds.
_NOTICE_UNIT = (
    "[Unit]\nDescription=cloudgpu: the notice of a spot machine\n"
    f"[Service]\nExecStart={INSTALL_DIR}/lease watch\nRestart=on-failure\nRestartSec=5\n"
    "[Install]\nWantedBy=multi-user.target\n"
)
_TIMER_UNIT = (
    "[Unit]\nDescription=cloudgpu: end of the lease\n"
    "[Timer]\nOnBootSec=60\nOnUnitActiveSec=60\nAccuracySec=5\n[Install]\nWantedBy=timers.target\n"
)
_AGENT_UNIT = (
    f"[Unit]\nDescription=cloudgpu: the agent\n{_AFTER_USERS}StartLimitIntervalSec=0\n"
    f"[Service]\nUser={{user}}\nExecStartPre=+{INSTALL_DIR}/settle\nExecStart=/home/{{user}}/.cloudgpu/agent run\n"
    "Restart=always\nRestartSec=5\n[Install]\nWantedBy=multi-user.target\n"
)
_START_UNIT = (
    "[Unit]\nDescription=cloudgpu: Jupyter and on_start\nAfter=cloud-final.service cloudgpu-agent.service\n"
    f"[Service]\nType=oneshot\nUser={{user}}\nExecStart={INSTALL_DIR}/start\nTimeoutStartSec=infinity\n"
    "[Install]\nWantedBy=cloud-init.target\n"
)
_VOLUME_UNIT = (
    f"[Unit]\nDescription=cloudgpu: the data volume\n{_AFTER_USERS}"
    f"[Service]\nType=oneshot\nExecStart={INSTALL_DIR}/volume{{volume}}\nTimeoutStartSec=infinity\n"
    "[Install]\nWantedBy=multi-user.target\n"
)
_CONTAINER_UNIT = (
    "[Unit]\nDescription=cloudgpu: the container\nAfter=network-online.target docker.service cloudgpu-agent.service\n"
    f"[Service]\nType=oneshot\nExecStart={INSTALL_DIR}/container\nTimeoutStartSec=infinity\n"
    "[Install]\nWantedBy=multi-user.target\n"
)


def boot_hook(attempt: Attempt, options: BootOptions) -> str:
    """Return the boot hook, which cloud-init runs first at each boot."""
    lines = [
        "#cloud-boothook",
        *setup_lines(attempt, options),
        *filter(None, [_KEEP_HOST_KEY.get(options.cloud), _MASK_UNITS.get(options.cloud)]),
        "touch /run/cloudgpu/began",
        *start_lines(*boot_units(attempt, options)),
    ]
    return "".join(f"{line}\n" for line in lines)


def setup_lines(attempt: Attempt, options: BootOptions) -> list[str]:
    """Return the first lines of a shell script, which write the lease's files and all systemd units."""
    files = [
        File(f"{INSTALL_DIR}/launch", _launch_file(attempt, options), "644"),
        File(f"{INSTALL_DIR}/cloud", source(f"cloud_{options.cloud}.sh"), "644"),
        File(f"{INSTALL_DIR}/lease", source("lease.sh"), "755"),
        *(File(f"/etc/systemd/system/{name}", text, "644") for name, text in _units(attempt, options).items()),
    ]
    return [
        "#!/bin/sh",
        "umask 022",
        f"mkdir -p {INSTALL_DIR} /run/cloudgpu",
        *write_lines(files),
        *_ssh_port_lines(options.ssh_port),
    ]


def boot_units(attempt: Attempt, options: BootOptions) -> list[str]:
    """Return the names of the units that start at boot, the lease's timer first."""
    units = _units(attempt, options)
    return sorted((name for name, text in units.items() if "[Install]" in text), key=lambda name: name != LEASE_TIMER)


def start_lines(*units: str) -> list[str]:
    """Return the lines that enable and start units."""
    names = " ".join(units)
    return ["systemctl daemon-reload", f"systemctl enable {names}", f"systemctl start --no-block {names}"]


def write_lines(files: list[File]) -> list[str]:
    """Return the lines that write files, each with a final newline."""
    lines = []
    for path, text, mode in files:
        delimiter = _HEREDOC_END
        while delimiter in text:
            delimiter += "-"
        lines += [f"cat >{path} <<'{delimiter}'", text.rstrip("\n"), delimiter, f"chmod {mode} {path}"]
    return lines


def _launch_file(attempt: Attempt, options: BootOptions) -> str:
    """Return the launch's values for the scripts, as shell assignments."""
    tags = Lease(attempt.expires, attempt.renew_until).tags()
    is_spot = attempt.offer.configuration.market is Market.SPOT
    assignments = {
        "token": attempt.token,
        "made": str(int(attempt.made_at.timestamp())),
        "expires": tags[TAG_EXPIRES],
        "renew_until": tags[TAG_RENEW_UNTIL],
        "spot": "yes" if is_spot else "",
        "jupyter": jupyter_requirements(attempt.boot.jupyter),
        "user": options.user,
        "deallocates": "yes" if options.can_deallocate else "",
        **({"container": image} if (image := container_image(attempt)) else {}),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in assignments.items())


def _units(attempt: Attempt, options: BootOptions) -> Mapping[str, str]:
    report_line = _REPORT_LINE_AWS if options.cloud == "aws" else _REPORT_LINE
    units = {
        "cloudgpu-lease.service": _LEASE_UNIT + (report_line if options.reports else ""),
        "cloudgpu-lease.timer": _TIMER_UNIT,
        "cloudgpu-agent.service": _AGENT_UNIT.format(user=options.user),
        "cloudgpu-start.service": _START_UNIT.format(user=options.user),
    }
    if attempt.offer.configuration.market is Market.SPOT:
        units["cloudgpu-notice.service"] = _NOTICE_UNIT
    if container_image(attempt):
        units["cloudgpu-container.service"] = _CONTAINER_UNIT
    if attempt.request.setup.volume is not None:
        units["cloudgpu-volume.service"] = _VOLUME_UNIT.format(volume=f" {options.volume}".rstrip())
    return units


def _ssh_port_lines(port: int) -> list[str]:
    """Return the lines that set another SSH port, before SSH starts; newer Ubuntu versions use socket activation."""
    if port == DEFAULT_PORT:
        return []
    own_config = "/etc/ssh/sshd_config.d/10-cloudgpu.conf"
    main_config = "/etc/ssh/sshd_config"
    includes_own = f"grep -qi '^include.*sshd_config.d' {main_config}"
    return [
        f"mkdir -p {main_config}.d; echo 'Port {port}' >{own_config}",
        f"{includes_own} || grep -q '^Port {port}$' {main_config} || sed -i '1i Port {port}' {main_config}",
        "systemctl daemon-reload; systemctl try-restart --no-block ssh.socket ssh.service sshd.service",
    ]
