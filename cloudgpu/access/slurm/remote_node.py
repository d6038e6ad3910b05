"""The program that looks at a node and runs its engine, as the login user.

This file's text is sent over SSH behind that of `remote_processes.py` and run there by the agent's interpreter, or by
`python3`. Standard library only, Python 3.8+.

It answers one request after the other and ends with its channel. Between two requests it may hold ports: nobody else
takes what was chosen while the other nodes choose. The daemons that it starts live on without it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pwd
import re
import shutil
import socket
import struct
import subprocess
import time
from functools import partial
from pathlib import Path

from cloudgpu.access.slurm.remote_place import OF, ROOTED, absolute, home, make_directories, publish, sweep
from cloudgpu.access.slurm.remote_processes import (
    ENGINE_VARIABLE,
    Fault,
    daemons,
    end_all,
    engine_processes,
    last_line,
    note,
    write_private,
)
from cloudgpu.access.slurm.remote_root import as_root, end_as_root, may_be_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MORE_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
NODE_VARIABLES = ("CLOUDGPU_MACHINE", "PATH", "TMPDIR", "VIRTUAL_ENV")
DAEMON_VARIABLES = ("HOME", "LANG", "TMPDIR", "TZ", "CLOUDGPU_MACHINE")  # for daemons
DEVICES = ".cloudgpu/gpu-devices"  # device files, one a line, where GPUs are not /dev/nvidia0, 1, ...
FIRST_BOOT = Path("/run/cloud-init")
PLAN, KEY = "plan.json", "munge.key"
ANSWER_PREFIX = b"\x1ecloudgpu-slurm "
START_S, ASK_S = 30.0, 25.0
SLURMS_PORTS = (6818, 6817)  # of a node, of the controller
SIOCGIFADDR = 0x8915  # linux/sockios.h
SINFO = ("sinfo", "-h", "-N", "-o", "%N|%T|%E")
SQUEUE = ("squeue", "-h", "-a", "-r", "-o", "%i|%T|%r")
MOST_SAID = 300  # characters of an error


def main(take: Callable[[int], bytes]) -> int:
    """Answer requests until the channel ends."""
    write_out(ANSWER_PREFIX)
    held: list[socket.socket] = []
    while True:
        request = json.loads(take(int(take(8))))
        try:
            answer = VERBS[request.pop("verb")](held, **request)
        except (Fault, OSError) as error:
            answer = {"fault": str(error)[:1000]}
        body = json.dumps(answer).encode()
        write_out(struct.pack(">I", len(body)) + body + struct.pack(">I", 0))


def write_out(data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(1, data) :]


def look(_held: list[socket.socket], directory: str, people: list[str]) -> dict[str, Any]:
    """Say what this node is. Changes nothing."""
    me = pwd.getpwuid(os.getuid())
    reached = (os.environ.get("SSH_CONNECTION") or "- - 127.0.0.1 -").split()[2]
    address = reached[7:] if reached.startswith("::ffff:") else reached
    cards, plan = interfaces(), read_plan(directory)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": memory_mb(),
        "gpus": gpus(),
        "version": output(["slurmd", "-V"]) if shutil.which("slurmd", path=path()) else None,
        "munge": shutil.which("munged", path=path()) is not None,
        "now": time.time(),
        "user": me.pw_name,
        "uid": me.pw_uid,
        "people": {name: uid_of(name) for name in people},
        "root": bool(people) and may_be_root(path()),
        "hostname": socket.gethostname().split(".")[0],
        "host": host(),
        "address": address,
        "interface": next((name for name, its in cards.items() if its == address), None),
        "interfaces": len(cards),
        "named": host_address(),
        "home": home(),
        "environ": {name: os.environ[name] for name in NODE_VARIABLES if os.environ.get(name)},
        "planned": plan.get("digest", ""),
        "ports": plan.get("ports"),
        "preparing": prepares(),
        "alive": sorted(name for name, pid in daemons(absolute(directory)).items() if pid),
    }


def hold(held: list[socket.socket], *, controller: bool, shared: bool) -> dict[str, Any]:
    """Choose ports and hold them until `start`: Slurm's own where they are free and no other node is on this host."""
    let_go(held)
    held.extend(listener(0 if shared else port) for port in SLURMS_PORTS[: 2 if controller else 1])
    numbers = [one.getsockname()[1] for one in held]
    return {"ports": [numbers[0], numbers[1] if controller else None]}


def listener(port: int) -> socket.socket:
    """Return a socket that listens at this port, or at any where it is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("", port))
        made.listen(1)
    except OSError:
        made.close()
        if not port:
            raise
        return listener(0)
    return made


def let_go(held: list[socket.socket]) -> None:
    """Close the sockets that were held."""
    while held:
        held.pop().close()


def write(
    _held: list[socket.socket],
    directory: str,
    short: str,
    texts: dict[str, str],
    programs: list[str],
    key: str,
    *,
    several: bool,
) -> dict[str, Any]:
    """Write the node's files: mode 0600 (programs 0700), directories 0700. The plan comes last, with `planned`.

    For `several` people, copies of all but the key are where they can read them.
    """
    sweep(Path(short).parent)
    whole = make_directories(directory, Path(short), several=several)
    if several:
        publish(Path(short), texts, programs)
    write_private(Path(short) / OF, str(whole).encode())
    for name, text in texts.items():
        write_private(whole / name, text.encode(), 0o700 if name in programs else 0o600)
    write_private(whole / KEY, base64.b64decode(key))
    return {}


def planned(_held: list[socket.socket], directory: str, digest: str, ports: list[int]) -> dict[str, Any]:
    """Note by which plan the files were written, once all nodes have theirs."""
    write_private(absolute(directory) / PLAN, json.dumps({"digest": digest, "ports": ports}).encode())
    return {}


def start(
    held: list[socket.socket],
    directory: str,
    short: str,
    mark: str,
    name: str,
    ports: list[int],
    names: list[str],
    at: str,
    *,
    several: bool,
) -> dict[str, Any]:
    """Start the daemons that are named and do not run, and wait until each listens at this address."""
    whole = make_directories(directory, Path(short), several=several)
    let_go(held)
    listens = {
        "munged": partial(answers, socket.AF_UNIX, short + "/munge"),
        "slurmctld": partial(answers, socket.AF_INET, (at, ports[1])),
        "slurmd": partial(answers, socket.AF_INET, (at, ports[0])),
    }
    began = {}
    for daemon in names:
        if not daemons(whole).get(daemon):
            began[daemon] = launch(daemon, whole, Path(short), mark, name, several=several)
            note(whole, daemon, began[daemon].pid)
            if daemon == "munged":  # the others ask it as soon as they begin
                wait_for(daemon, began[daemon], [whole, Path(short)], listens[daemon])
    for daemon, process in began.items():
        wait_for(daemon, process, [whole, Path(short)], listens[daemon])
    return {"began": sorted(began)}


def launch(daemon: str, whole: Path, short: Path, mark: str, name: str, *, several: bool) -> subprocess.Popen[bytes]:
    """Start one daemon in a session of its own, with a small environment: slurmd for several people as root."""
    program = shutil.which(daemon, path=path())
    if program is None:
        raise Fault(f"{daemon} is not installed")
    rooted = several and daemon == "slurmd"
    place = short if rooted else whole  # root may not read a home that another host shares
    conf, log = str(place / "slurm.conf"), str(place / (daemon + ".log"))
    words = [program, *arguments_of(daemon, place, short, name), *(["-L", log] if daemon != "munged" else [])]
    kept = {one: os.environ[one] for one in DAEMON_VARIABLES if one in os.environ}
    with os.fdopen(os.open(str(whole / (daemon + ".out")), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        return subprocess.Popen(  # noqa: S603  (the engine's own daemons)
            as_root(words, mark, place / "slurm.conf", path()) if rooted else words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(kept, PATH=path(), SLURM_CONF=conf, **{ENGINE_VARIABLE: mark}),
            cwd="/",
            start_new_session=True,
        )


def arguments_of(daemon: str, whole: Path, short: Path, name: str) -> list[str]:
    """Return the arguments of a daemon, without where Slurm's write their log."""
    if daemon == "slurmctld":
        return ["-D", "-f", str(whole / "slurm.conf")]
    if daemon == "slurmd":
        return ["-D", "-f", str(whole / "slurm.conf"), "-N", name]
    files = {"socket": short / "munge", "pid-file": short / "munged.pid", "seed-file": short / "munge.seed"}
    files.update({"key-file": whole / KEY, "log-file": whole / "munged.log"})
    return ["--force", "--foreground", *(f"--{option}={file}" for option, file in files.items())]


def wait_for(daemon: str, process: subprocess.Popen[bytes], places: list[Path], is_up: Callable[[], bool]) -> None:
    """Wait until a daemon listens. Raises Fault with its last words where it ended, or took too long."""
    until = time.monotonic() + START_S
    while not is_up():
        if process.poll() is not None:
            raise Fault(f"{daemon} ended: {last_line(daemon, *places)}")
        if time.monotonic() > until:
            raise Fault(f"{daemon} does not listen after {START_S:g} s: {last_line(daemon, *places)}")
        time.sleep(0.02)


def answers(family: int, address: Any) -> bool:
    """Tell whether something listens there."""
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.settimeout(1.0)
        return made.connect_ex(address) == 0


def stop(held: list[socket.socket], directory: str, short: str, mark: str, text: str) -> dict[str, Any]:
    """End everything that runs for this engine, jobs too; munge, which the others ask, comes last.

    `text` is what root runs where slurmd is root's.
    """
    let_go(held)
    whole = absolute(directory)
    munge = daemons(whole).get("munged")
    found = engine_processes(whole, Path(short), mark)
    if (Path(short) / ROOTED).exists():
        end_as_root(text, whole, Path(short), mark, munge)
    end_all(whole, Path(short), mark, munge)
    return {"ended": len(found)}


def ask(_held: list[socket.socket], directory: str) -> dict[str, Any]:
    """Say what `sinfo` and `squeue` say; without them, why."""
    if not daemons(absolute(directory)).get("slurmctld"):
        return {"alive": False, "why": "slurmctld does not run"}
    said = [finish(one) for one in [slurm(directory, SINFO), slurm(directory, SQUEUE)]]
    failed = next((error for status, _, error in said if status), None)
    if failed is not None:
        return {"alive": False, "why": failed or "it does not answer"}
    return {"alive": True, "sinfo": said[0][1], "squeue": said[1][1]}


def resume(_held: list[socket.socket], directory: str, names: list[str]) -> dict[str, Any]:
    """Take nodes into use again."""
    command = ("scontrol", "update", "nodename=" + ",".join(names), "state=resume")
    status, _, error = finish(slurm(directory, command))
    return {"why": error if status else ""}


def slurm(directory: str, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Begin one of Slurm's commands."""
    environ = dict(os.environ, PATH=path(), SLURM_CONF=str(absolute(directory) / "slurm.conf"))
    out = subprocess.PIPE
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # noqa: S603


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Return a command's status, output and last line of errors; it is ended when it takes too long."""
    try:
        out, error = process.communicate(timeout=ASK_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 1, "", f"it did not answer within {ASK_S:g} s"
    lines = error.decode("utf-8", "replace").strip().splitlines()
    return process.returncode, out.decode("utf-8", "replace"), lines[-1][-MOST_SAID:] if lines else ""


def remove(held: list[socket.socket], directory: str, short: str, mark: str, text: str) -> dict[str, Any]:
    """End everything and remove every file; the directories above go when they are empty."""
    answer = stop(held, directory, short, mark, text)
    whole = absolute(directory)
    for one, above in ((whole, (whole.parent, whole.parent.parent)), (Path(short), (Path(short).parent,))):
        shutil.rmtree(str(one), ignore_errors=True)
        with contextlib.suppress(OSError):
            for directory_above in above:
                directory_above.rmdir()
    return answer


def path() -> str:
    """Return where programs are: Debian keeps daemons out of a user's path."""
    return os.pathsep.join([os.environ.get("PATH", ""), *MORE_PATH])


def read_plan(directory: str) -> dict[str, Any]:
    """Return what was noted of the plan."""
    try:
        return dict(json.loads((absolute(directory) / PLAN).read_text()))
    except (OSError, ValueError):
        return {}


def prepares() -> bool:
    """Tell whether cloud-init, which installs packages at a first boot, is still at work."""
    return FIRST_BOOT.is_dir() and not any((FIRST_BOOT / name).exists() for name in ("result.json", "disabled"))


def memory_mb() -> int:
    """Return all memory of this computer in MiB."""
    with Path("/proc/meminfo").open() as file:
        return max(1, int(file.readline().split()[1]) // 1024)


def gpus() -> list[str]:
    """Return the device files of the GPUs that this user may use here."""
    if shutil.which("nvidia-smi", path=path()):
        output(["nvidia-smi", "-L"])  # makes the device files where nobody has used a GPU yet
    try:
        lines = (Path(home()) / DEVICES).read_text().splitlines()
        named = [Path(line.strip()) for line in lines if line.strip()]
    except OSError:
        found = [one for one in Path("/dev").iterdir() if re.fullmatch("nvidia[0-9]+", one.name)]
        named = sorted(found, key=lambda one: int(one.name[6:]))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and re.fullmatch("[0-9,]*", visible):
        chosen = {int(word) for word in visible.split(",") if word}
        named = [one for place, one in enumerate(named) if place in chosen]
    return [str(one) for one in named if one.is_char_device()]


def host() -> str:
    """Return what is the same for nodes on one host: one boot, one network, one name."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return " ".join([boot, os.readlink("/proc/self/ns/net"), socket.gethostname()])


def interfaces() -> dict[str, str]:
    """Return the network cards with an IPv4 address, without loopback."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                said = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                found[name] = socket.inet_ntoa(said[20:24])
    return {name: address for name, address in found.items() if not address.startswith("127.")}


def host_address() -> str:
    """Return the IPv4 address that this host's name means here, as Slurm looks it up; nothing for none."""
    try:
        return str(socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)[0][4][0])
    except OSError:
        return ""


def uid_of(name: str) -> int | None:
    """Return the number of a user, None for one who is not known here."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def output(command: list[str]) -> str:
    """Return what a command prints; nothing where it fails."""
    environ = dict(os.environ, PATH=path())
    try:
        done = subprocess.run(  # noqa: S603
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
    return done.stdout.decode("utf-8", "replace").strip()


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "look": look,
    "hold": hold,
    "write": write,
    "planned": planned,
    "start": start,
    "stop": stop,
    "ask": ask,
    "resume": resume,
    "remove": remove,
}
