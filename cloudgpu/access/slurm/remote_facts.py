"""Reads what the node it runs on has: its memory, GPUs, addresses and users.

This text is sent before `remote_node.py`, which answers with these facts. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import shutil
import socket
import struct
import subprocess
from pathlib import Path

from cloudgpu.access.slurm.remote_directories import home

DAEMON_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
DEVICES = ".cloudgpu/gpu-devices"  # device files, one per line, for GPUs that are not /dev/nvidia0, 1, ...
CLOUD_INIT_DIR = Path("/run/cloud-init")
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
SIOCGIFADDR = 0x8915  # linux/sockios.h


def search_path() -> str:
    """Return the PATH for programs, with the directories of daemons, which Debian leaves out for users."""
    return os.pathsep.join([os.environ.get("PATH", ""), *DAEMON_PATH])


def is_first_boot() -> bool:
    """Tell whether cloud-init still installs packages at the first boot."""
    return CLOUD_INIT_DIR.is_dir() and not any((CLOUD_INIT_DIR / name).exists() for name in ("result.json", "disabled"))


def memory_mb(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the memory that processes here may use, in MiB: the computer's, or the limit of their container."""
    with (proc / "meminfo").open() as file:
        total_kib = int(file.readline().split()[1])
    return max(1, min([total_kib, *memory_limits_kib(proc, cgroups)]) // 1024)


def memory_limits_kib(proc: Path, cgroups: Path) -> list[int]:
    """Return the limits of memory that this process is under: those of its control group and of all above it."""
    limits = []
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (proc / "self/cgroup").read_text().splitlines()
    for line in lines:  # hierarchy:controllers:path
        _, controllers, path = line.split(":", 2)
        root, name = (cgroups / "memory", "memory.limit_in_bytes") if controllers else (cgroups, "memory.max")
        if controllers and "memory" not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                limits.append(int(root.joinpath(*parts[:depth], name).read_text()) // 1024)
    return limits


def gpus() -> list[str]:
    """Return the device files of the GPUs that this user may use here, and that CUDA_VISIBLE_DEVICES lets it see."""
    has_program = shutil.which("nvidia-smi", path=search_path())
    # It also creates the device files if no GPU was used since the boot.
    listing = output(["nvidia-smi", "-L"]) if has_program else ""
    try:
        lines = (Path(home()) / DEVICES).read_text().splitlines()
        device_files = [Path(line.strip()) for line in lines if line.strip()]
    except OSError:
        devices = [device for device in Path("/dev").iterdir() if re.fullmatch("nvidia[0-9]+", device.name)]
        device_files = sorted(devices, key=lambda device: int(device.name[6:]))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        indexes = visible_indexes(visible, listing, len(device_files))
        device_files = [device for index, device in enumerate(device_files) if index in indexes]
    return [str(device) for device in device_files if device.is_char_device()]


def visible_indexes(visible: str, listing: str, count: int) -> set[int]:
    """Return which of `count` GPUs the value of CUDA_VISIBLE_DEVICES names, by index or by UUID or its begin.

    As in CUDA, an entry that names none (-1, a part of a GPU) ends the list. `listing` is what `nvidia-smi -L` printed.
    """
    uuids = re.findall(r"^GPU ([0-9]+): .*\(UUID: (\S+)\)$", listing, re.MULTILINE)
    indexes: set[int] = set()
    for entry in map(str.strip, visible.split(",")):
        is_index = re.fullmatch("[0-9]+", entry)
        named = [int(entry)] if is_index else [int(index) for index, uuid in uuids if entry and uuid.startswith(entry)]
        if len(named) != 1 or named[0] >= count:
            break
        indexes.add(named[0])
    return indexes


def host_id() -> str:
    """Return an id that nodes on one host share: boot id, network namespace, host name."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return " ".join([boot_id, os.readlink("/proc/self/ns/net"), socket.gethostname()])


def interfaces() -> dict[str, str]:
    """Return the IPv4 addresses of the network interfaces by name, without loopback."""
    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                addresses[name] = socket.inet_ntoa(answer[20:24])
    return {name: address for name, address in addresses.items() if not address.startswith("127.")}


def host_address() -> str:
    """Return the IPv4 address of this host's name, as Slurm resolves it; empty for none."""
    try:
        return str(socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)[0][4][0])
    except OSError:
        return ""


def uid_of(name: str) -> int | None:
    """Return the uid of a user, None for an unknown one."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def output(command: list[str]) -> str:
    """Return what a command prints; empty if it fails."""
    environ = dict(os.environ, PATH=search_path())
    try:
        completed = subprocess.run(  # noqa: S603
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return completed.stdout.decode("utf-8", "replace").strip()
