"""Reads the facts of the node it runs on and manages Slurm there, as the login user.

This text is sent over SSH after `remote_facts.py`; the agent's interpreter, or `python3`, runs it. Standard library
only, Python 3.8+.

It answers requests one after the other and ends with its channel. In a request, `directory` is the node's, `socket_dir`
its directory for sockets, whose path has to be short, and `process_tag` the value of ENGINE_VARIABLE in its processes.
Between two requests it may listen on ports, so that nobody else takes them before the daemons do. The daemons outlive
it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import shutil
import socket
import struct
import subprocess
import time
from functools import partial
from pathlib import Path

from cloudgpu.access.slurm.remote_directories import (
    AS_ROOT_FILE,
    NODE_DIR_FILE,
    SUDO,
    absolute,
    as_root,
    end_as_root,
    home,
    make_directories,
    remove_stale_directories,
    write_shared_files,
)
from cloudgpu.access.slurm.remote_facts import (
    gpus,
    host_address,
    host_id,
    interfaces,
    is_first_boot,
    memory_mb,
    output,
    search_path,
    uid_of,
)
from cloudgpu.access.slurm.remote_processes import (
    ENGINE_VARIABLE,
    Fault,
    end_all,
    engine_processes,
    last_line,
    record_process,
    recorded_daemons,
    write_private,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NODE_VARIABLES = ("CLOUDGPU_MACHINE", "PATH", "TMPDIR", "VIRTUAL_ENV")  # of which `read_facts` answers the values
DAEMON_VARIABLES = ("HOME", "LANG", "TMPDIR", "TZ", "CLOUDGPU_MACHINE")  # for daemons
PLAN_FILE, KEY_FILE = "plan.json", "munge.key"
ANSWER_PREFIX = b"\x1ecloudgpu-slurm "
START_TIMEOUT_S, QUERY_TIMEOUT_S = 30.0, 25.0
DEFAULT_PORTS = (6818, 6817)  # of slurmd and slurmctld
SINFO = ("sinfo", "-h", "-N", "-o", "%N|%T|%E")
SQUEUE = ("squeue", "-h", "-a", "-r", "-o", "%i|%T|%r")
MAX_ERROR_CHARS = 300  # of the last line of an error


def main(read: Callable[[int], bytes]) -> int:
    """Answer requests until the channel ends; `read(size)` reads from standard input, and exits at its end."""
    write_out(ANSWER_PREFIX)
    held_sockets: list[socket.socket] = []
    while True:
        request = json.loads(read(int(read(8))))
        try:
            answer = VERBS[request.pop("verb")](held_sockets, **request)
        except (Fault, OSError) as error:
            answer = {"fault": str(error)[:1000]}
        body = json.dumps(answer).encode()
        write_out(struct.pack(">I", len(body)) + body + struct.pack(">I", 0))


def write_out(data: bytes) -> None:
    """Write all bytes to standard output."""
    while data:
        data = data[os.write(1, data) :]


def read_facts(_held_sockets: list[socket.socket], directory: str, people: list[str]) -> dict[str, Any]:
    """Answer with the facts of this node, as `core/clusters/nodes.py` reads them; `people` are names of users."""
    user = pwd.getpwuid(os.getuid())
    server_address = (os.environ.get("SSH_CONNECTION") or "- - 127.0.0.1 -").split()[2]
    address = server_address[7:] if server_address.startswith("::ffff:") else server_address
    addresses, plan = interfaces(), read_plan(directory)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": memory_mb(),
        "gpus": gpus(),
        "version": output(["slurmd", "-V"]) if shutil.which("slurmd", path=search_path()) else None,
        "munge": shutil.which("munged", path=search_path()) is not None,
        "now": time.time(),
        "user": user.pw_name,
        "uid": user.pw_uid,
        "people": {name: uid_of(name) for name in people},
        "root": bool(people) and output([*SUDO, "id", "-u"]) == "0",  # without a password; only for several people
        "hostname": socket.gethostname().split(".")[0],
        "host": host_id(),
        "address": address,
        "interface": next((name for name, ip in addresses.items() if ip == address), None),
        "interfaces": len(addresses),
        "named": host_address(),  # the address to which the host name resolves
        "home": home(),
        "environ": {name: os.environ[name] for name in NODE_VARIABLES if os.environ.get(name)},
        "planned": plan.get("digest", ""),  # the hash that `record_plan` wrote
        "ports": plan.get("ports"),
        "preparing": is_first_boot(),  # packages may still be installed
        "alive": sorted(name for name, pid in recorded_daemons(absolute(directory)).items() if pid),  # daemons
    }


def hold(held_sockets: list[socket.socket], *, controller: bool, shared: bool) -> dict[str, Any]:
    """Choose ports and hold them until `start`: Slurm's default ports, if free and the host is not `shared`."""
    release_ports(held_sockets)
    held_sockets.extend(listener(0 if shared else port) for port in DEFAULT_PORTS[: 2 if controller else 1])
    port_numbers = [held_socket.getsockname()[1] for held_socket in held_sockets]
    return {"ports": [port_numbers[0], port_numbers[1] if controller else None]}


def listener(port: int) -> socket.socket:
    """Return a socket that listens on this port, or on any if it is in use."""
    server_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server_socket.bind(("", port))
        server_socket.listen(1)
    except OSError:
        server_socket.close()
        if not port:
            raise
        return listener(0)
    return server_socket


def release_ports(held_sockets: list[socket.socket]) -> None:
    """Release the held ports."""
    while held_sockets:
        held_sockets.pop().close()


def write(
    _held_sockets: list[socket.socket],
    directory: str,
    socket_dir: str,
    texts: dict[str, str],
    programs: list[str],
    key: str,
    *,
    several: bool,
) -> dict[str, Any]:
    """Write the node's files, mode 0600 (programs 0700). `record_plan` writes the plan, last of all.

    `several`: several people use the node, so files without secrets are also copied to where they can read them.
    """
    remove_stale_directories(Path(socket_dir).parent)
    node_dir = make_directories(directory, Path(socket_dir), several=several)
    if several:
        write_shared_files(Path(socket_dir), texts, programs)
    write_private(Path(socket_dir) / NODE_DIR_FILE, str(node_dir).encode())
    for name, text in texts.items():
        write_private(node_dir / name, text.encode(), 0o700 if name in programs else 0o600)
    write_private(node_dir / KEY_FILE, base64.b64decode(key))
    return {}


def record_plan(_held_sockets: list[socket.socket], directory: str, digest: str, ports: list[int]) -> dict[str, Any]:
    """Record the hash of the plan, after all nodes have their files."""
    write_private(absolute(directory) / PLAN_FILE, json.dumps({"digest": digest, "ports": ports}).encode())
    return {}


def start(
    held_sockets: list[socket.socket],
    directory: str,
    socket_dir: str,
    process_tag: str,
    name: str,
    ports: list[int],
    names: list[str],
    at: str,
    *,
    several: bool,
) -> dict[str, Any]:
    """Start the daemons `names` that do not run, and wait until each listens at address `at`; `name` is the node's.

    `several`: several people use the node, and slurmd runs as root.
    """
    node_dir = make_directories(directory, Path(socket_dir), several=several)
    listening_checks = {
        "munged": partial(is_listening, socket.AF_UNIX, socket_dir + "/munge"),
        "slurmctld": partial(is_listening, socket.AF_INET, (at, ports[1])),
        "slurmd": partial(is_listening, socket.AF_INET, (at, ports[0])),
    }
    started = {}
    for daemon in names:
        if not recorded_daemons(node_dir).get(daemon):
            if daemon != "munged":  # which takes none, and for which the others wait
                release_ports(held_sockets)
            started[daemon] = launch(daemon, node_dir, Path(socket_dir), process_tag, name, several=several)
            record_process(node_dir, daemon, started[daemon].pid)
            if daemon == "munged":  # the others use it when they start
                wait_for(daemon, started[daemon], [node_dir, Path(socket_dir)], listening_checks[daemon])
    release_ports(held_sockets)  # also where all of them ran
    for daemon, process in started.items():
        wait_for(daemon, process, [node_dir, Path(socket_dir)], listening_checks[daemon])
    return {"began": sorted(started)}


def launch(
    daemon: str, node_dir: Path, socket_dir: Path, process_tag: str, name: str, *, several: bool
) -> subprocess.Popen[bytes]:
    """Start one daemon in its own session, with a small environment; slurmd as root if several people use the node."""
    program = shutil.which(daemon, path=search_path())
    if program is None:
        raise Fault(f"{daemon} is not installed")
    runs_as_root = several and daemon == "slurmd"
    conf_dir = socket_dir if runs_as_root else node_dir  # root may be unable to read a home on NFS
    conf, log = str(conf_dir / "slurm.conf"), str(conf_dir / (daemon + ".log"))
    command = [program, *arguments_of(daemon, conf_dir, socket_dir, name), *(["-L", log] if daemon != "munged" else [])]
    environ = {variable: os.environ[variable] for variable in DAEMON_VARIABLES if variable in os.environ}
    with os.fdopen(
        os.open(str(node_dir / (daemon + ".out")), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
    ) as out:
        return subprocess.Popen(  # noqa: S603  (the engine's own daemons)
            as_root(command, process_tag, conf_dir / "slurm.conf", search_path()) if runs_as_root else command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(environ, PATH=search_path(), SLURM_CONF=conf, **{ENGINE_VARIABLE: process_tag}),
            cwd="/",
            start_new_session=True,
        )


def arguments_of(daemon: str, node_dir: Path, socket_dir: Path, name: str) -> list[str]:
    """Return the arguments of a daemon, without the log of Slurm's daemons."""
    if daemon == "slurmctld":
        return ["-D", "-f", str(node_dir / "slurm.conf")]
    if daemon == "slurmd":
        return ["-D", "-f", str(node_dir / "slurm.conf"), "-N", name]
    files = {
        "socket": socket_dir / "munge",
        "pid-file": socket_dir / "munged.pid",
        "seed-file": socket_dir / "munge.seed",
    }
    files.update({"key-file": node_dir / KEY_FILE, "log-file": node_dir / "munged.log"})
    return ["--force", "--foreground", *(f"--{option}={file}" for option, file in files.items())]


def wait_for(daemon: str, process: subprocess.Popen[bytes], directories: list[Path], is_up: Callable[[], bool]) -> None:
    """Wait until a daemon listens. Raises Fault with its last line of output if it ends or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_up():
        if process.poll() is not None:
            raise Fault(f"{daemon} ended: {last_line(daemon, *directories)}")
        if time.monotonic() > deadline:
            raise Fault(f"{daemon} does not listen after {START_TIMEOUT_S:g} s: {last_line(daemon, *directories)}")
        time.sleep(0.02)


def is_listening(family: int, address: Any) -> bool:
    """Tell whether something listens at an address."""
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        return client.connect_ex(address) == 0


def stop(
    held_sockets: list[socket.socket], directory: str, socket_dir: str, process_tag: str, text: str
) -> dict[str, Any]:
    """End all processes of this node's Slurm, jobs too; munge last, because the others use it.

    `text` is the program that root runs if slurmd runs as root.
    """
    release_ports(held_sockets)
    node_dir = absolute(directory)
    munge_pid = recorded_daemons(node_dir).get("munged")
    running = engine_processes(node_dir, Path(socket_dir), process_tag)
    if (Path(socket_dir) / AS_ROOT_FILE).exists():
        end_as_root(text, node_dir, Path(socket_dir), process_tag, munge_pid)
    end_all(node_dir, Path(socket_dir), process_tag, munge_pid)
    return {"ended": len(running)}


def query_state(_held_sockets: list[socket.socket], directory: str) -> dict[str, Any]:
    """Answer with the output of `sinfo` and `squeue`, or why there is none."""
    if not recorded_daemons(absolute(directory)).get("slurmctld"):
        return {"alive": False, "why": "slurmctld does not run"}
    results = [
        wait_for_output(process) for process in [start_command(directory, SINFO), start_command(directory, SQUEUE)]
    ]
    failed = next((error for status, _, error in results if status), None)
    if failed is not None:
        return {"alive": False, "why": failed or "it does not answer"}
    return {"alive": True, "sinfo": results[0][1], "squeue": results[1][1]}


def resume(_held_sockets: list[socket.socket], directory: str, names: list[str]) -> dict[str, Any]:
    """Resume drained or down nodes."""
    command = ("scontrol", "update", "nodename=" + ",".join(names), "state=resume")
    status, _, error = wait_for_output(start_command(directory, command))
    return {"why": error if status else ""}


def start_command(directory: str, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start one of Slurm's commands."""
    environ = dict(os.environ, PATH=search_path(), SLURM_CONF=str(absolute(directory) / "slurm.conf"))
    out = subprocess.PIPE
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # noqa: S603


def wait_for_output(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Return a command's status, output and last line of stderr; it is killed when it takes too long."""
    try:
        out, error = process.communicate(timeout=QUERY_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 1, "", f"it did not answer within {QUERY_TIMEOUT_S:g} s"
    lines = error.decode("utf-8", "replace").strip().splitlines()
    return process.returncode, out.decode("utf-8", "replace"), lines[-1][-MAX_ERROR_CHARS:] if lines else ""


def remove(
    held_sockets: list[socket.socket], directory: str, socket_dir: str, process_tag: str, text: str
) -> dict[str, Any]:
    """End all processes and remove all files; directories above are removed when empty."""
    answer = stop(held_sockets, directory, socket_dir, process_tag, text)
    node_dir = absolute(directory)
    sockets = Path(socket_dir)
    for removed_dir, parents in ((node_dir, (node_dir.parent, node_dir.parent.parent)), (sockets, (sockets.parent,))):
        shutil.rmtree(str(removed_dir), ignore_errors=True)
        with contextlib.suppress(OSError):
            for directory_above in parents:
                directory_above.rmdir()
    return answer


def read_plan(directory: str) -> dict[str, Any]:
    """Return what `record_plan` wrote: the hash of the plan, and the ports; empty if there is none."""
    try:
        return dict(json.loads((absolute(directory) / PLAN_FILE).read_text()))
    except (OSError, ValueError):
        return {}


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "look": read_facts,
    "hold": hold,
    "write": write,
    "planned": record_plan,
    "start": start,
    "stop": stop,
    "ask": query_state,
    "resume": resume,
    "remove": remove,
}
