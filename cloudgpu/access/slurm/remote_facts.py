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
PROC, CGROUPS, DEV = Path("/proc"), Path("/sys/fs/cgroup"), Path("/dev")
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


def gpus(dev: Path = DEV) -> list[str]:
    """Return the device files of the GPUs that this user may use here, and that CUDA_VISIBLE_DEVICES lets it see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    has_program = shutil.which("nvidia-smi", path=search_path())
    # It also creates the device files if no GPU was used since the boot.
    listing = output(["nvidia-smi", "-L" if visible is None else "-q"]) if has_program else ""
    listed = listed_gpus(listing)
    try:
        lines = (Path(home()) / DEVICES).read_text().splitlines()
        in_order = device_files = [Path(line.strip()) for line in lines if line.strip()]
    except OSError:
        devices = [device for device in dev.iterdir() if re.fullmatch("nvidia[0-9]+", device.name)]
        device_files = sorted(devices, key=lambda device: int(device.name[6:]))
        # nvidia-smi lists GPUs in the order of the PCI bus, which need not be that of these numbers.
        in_order = [dev / f"nvidia{minor}" for _, minor in listed] or device_files
    if visible is not None:
        indexes = visible_indexes(visible, [uuid for uuid, _ in listed], len(in_order))
        visible_files = {in_order[index] for index in indexes}
        device_files = [device for device in device_files if device in visible_files]
    return [str(device) for device in device_files if device.is_char_device()]


def listed_gpus(text: str) -> list[tuple[str, str]]:
    """Return UUID and number of the device file of each GPU in what `nvidia-smi -q` printed; empty for an unknown one.

    The number is its "Minor Number", by which the manual of nvidia-smi names the device file.
    """
    sections = re.split("^GPU ", text, flags=re.MULTILINE)[1:]
    patterns = (r"^ +GPU UUID +: (\S+)$", r"^ +Minor Number +: ([0-9]+)$")
    found = [[re.search(pattern, section, re.MULTILINE) for pattern in patterns] for section in sections]
    return [(uuid[1] if uuid else "", minor[1] if minor else "") for uuid, minor in found]


def visible_indexes(visible: str, uuids: list[str], count: int) -> set[int]:
    """Return which of `count` GPUs the value of CUDA_VISIBLE_DEVICES names, by index or by UUID or its begin.

    As in CUDA, an entry that names none (-1, a part of a GPU) ends the list. `uuids` are those of the GPUs, in order.
    """
    indexes: set[int] = set()
    for entry in map(str.strip, visible.split(",")):
        is_index = re.fullmatch("[0-9]+", entry)
        named = [int(entry)] if is_index else [n for n, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
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
