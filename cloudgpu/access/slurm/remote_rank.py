"""The batch script of a Slurm job, and each of its ranks: unpacks files, sets the environment, runs the command.

`remote_submit.py` passes this text to sbatch on the submitting node; the batch script passes it to srun. Nodes that do
not share the file system of that node get the files by sbcast, and the submitter collects output and results from them
(`collect`) before the batch script ends. Secrets are in a private file, which the batch script reads and removes; ranks
get them on standard input. Standard library only, Python 3.8+.

`attempt_dir` is the directory of the job's attempt, with the same path on each node. It has a file `origin` where it is
on the file system of the submitting node. Of the options of `control/jobs/slurm/submission.py`, `spread` means that
nodes may not share it, `once` that only the first node runs the command, `sealed` that there are secrets; `token` is
random, in the names of the files that sbcast sends. An element is one job of a Slurm job array.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

FAILED_TASK = re.compile(rb"task (\d+)\S*: Exited with exit code (\d+)")
# How long the batch script waits for its files, and for a sign of the process that collects its results.
FILES_TIMEOUT_S, COLLECT_TIMEOUT_S = 900.0, 60.0
MAX_PARALLEL = 8  # nodes whose results are fetched at once
FRAME = struct.Struct(">BI")  # number of the stream, length of what follows
STDOUT, STDERR, RESULTS, END = 1, 2, 3, 4


def report(text: str) -> None:
    """Write a message to the job's stderr."""
    sys.stderr.write(f"cloudgpu: {text}\n")
    sys.stderr.flush()


def save(path: Path, value: Any) -> None:
    """Replace a JSON file atomically."""
    new_file = path.with_name(f".{path.name}.{os.getpid()}")
    new_file.write_text(json.dumps(value))
    new_file.replace(path)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(descriptor, data) :]


# -- files sent by sbcast


def sbcast_path(attempt_dir: Path, token: str) -> Path:
    """Return the path, without suffix, to which sbcast sends files: in the home, because /tmp may be small."""
    cloudgpu_dirs = [directory for directory in attempt_dir.parents if directory.name == ".cloudgpu"]
    return (cloudgpu_dirs[-1].parent if cloudgpu_dirs else attempt_dir.parent) / f".cloudgpu-{token}"


def unpack(tar: tarfile.TarFile, attempt_dir: Path) -> None:
    """Unpack files below `attempt_dir`, and none elsewhere."""
    for member in tar:
        path = os.path.normpath(str(attempt_dir / member.name))
        if path.startswith(f"{attempt_dir}/") and (member.isfile() or member.isdir() or member.issym()):
            tar.extract(member, str(attempt_dir), set_attrs=not member.isdir())


def wait_for_files(attempt_dir: Path, token: str) -> None:
    """Wait for the job's files on this node; the first rank that needs them unpacks them."""
    if (attempt_dir / "origin").exists():
        return
    path, deadline = sbcast_path(attempt_dir, token), time.monotonic() + FILES_TIMEOUT_S
    while not (attempt_dir / "arrived").exists() and not Path(f"{path}.ready").exists():
        if time.monotonic() > deadline:
            sys.exit("cloudgpu: the files of the job did not arrive: the sending process has ended")
        time.sleep(0.1)
    attempt_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    import fcntl

    with (attempt_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (attempt_dir / "arrived").exists():
            with tarfile.open(f"{path}.tar") as tar:
                unpack(tar, attempt_dir)
            (attempt_dir / "arrived").touch()
    for suffix in ("ready", "tar"):
        with contextlib.suppress(OSError):
            Path(f"{path}.{suffix}").unlink()


# -- secrets


def store_secrets(attempt_dir: Path, job_id: str) -> int:
    """Write standard input to a private file, for the batch script of this array element."""
    attempt_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    new_file = attempt_dir / f".secrets-{job_id}"
    with os.fdopen(os.open(str(new_file), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(sys.stdin.buffer.read())
    new_file.replace(attempt_dir / f"secrets-{job_id}")
    return 0


def take_secrets(attempt_dir: Path, job_id: str, options: Any) -> bytes:
    """Return the secrets and remove their file, unless the elements of an array share it."""
    if not options.get("sealed"):
        return b""
    has_shared_files = (attempt_dir / "origin").exists()
    path, deadline = (
        attempt_dir / ("secrets" if has_shared_files else f"secrets-{job_id}"),
        time.monotonic() + FILES_TIMEOUT_S,
    )
    while not path.exists():
        if time.monotonic() > deadline:
            sys.exit("cloudgpu: the secrets of the job did not arrive: the sending process has ended")
        time.sleep(0.1)
    data = path.read_bytes()
    if not has_shared_files or not options.get("array"):
        path.unlink()
    return data


# -- on the nodes


def batch() -> int:
    """Run as the batch script: run the command on each node, or only here; return the status of the first failure."""
    options = json.loads(os.environ["CLOUDGPU_SLURM"])
    attempt_dir, job_id = Path(options["place"]), os.environ["SLURM_JOB_ID"]
    wait_for_files(attempt_dir, options.get("token", ""))
    secrets = take_secrets(attempt_dir, job_id, options)
    has_shared_files = (attempt_dir / "origin").exists()
    show_hosts = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
    hosts = subprocess.run(show_hosts, stdout=subprocess.PIPE, check=True).stdout.decode().split()  # noqa: S603
    prolog_variables = (
        ("MASTER_PORT", "CLOUDGPU_HOSTFILE") if "_CLOUDGPU_PORT_OF" in os.environ else ()
    )  # set by the task prolog
    prolog_values = {name: os.environ[name] for name in prolog_variables if name in os.environ}
    os.environ.update({**cluster_environment(hosts, attempt_dir / f"hosts-{job_id}"), **prolog_values})
    signal.signal(signal.SIGTERM, lambda *_: None)  # the child gets it too, and ends first
    out_file, err_file = (attempt_dir / f"slurm-{job_id}.{stream}" for stream in ("out", "err"))
    with out_file.open("ab") as out, err_file.open("ab") as err:
        status = run(command_line(options, hosts), out.fileno(), err.fileno(), secrets)
        for error in fetch_results(attempt_dir, hosts) if options.get("spread") else ():
            write_all(err.fileno(), f"cloudgpu: {error}\n".encode())
    save(attempt_dir / f"slurm-{job_id}.exit", status)
    if not has_shared_files:
        wait_for_collector(attempt_dir, job_id)
    return status


def command_line(options: Any, hosts: list[str]) -> list[str]:
    """Return the command of the batch script: srun with a rank on each node, or a single task."""
    task = [sys.executable, "-IS", "-c", Path(__file__).read_text(), "task"]
    if len(hosts) == 1 or options.get("once"):
        return task
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    min_cores = min(map(int, re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", "1"))))
    srun = [
        "srun",
        "--export=ALL",
        "--kill-on-bad-exit=1",
        f"--nodes={len(hosts)}",
        f"--ntasks={len(hosts)}",
        "--ntasks-per-node=1",
    ]
    return [*srun, f"--cpus-per-task={cores or min_cores}", "--chdir=/", "python3", *task[1:]]


def run(argv: list[str], out_fd: int, err_fd: int, stdin: bytes) -> int:
    """Run a command and return its status; of several ranks, that of the first failure that srun reports."""
    stdin_mode = subprocess.PIPE if stdin else subprocess.DEVNULL
    process = subprocess.Popen(argv, stdin=stdin_mode, stdout=out_fd, stderr=subprocess.PIPE)  # noqa: S603
    if process.stdin:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(stdin)
    first_status: int | None = None
    line = b""
    while data := os.read(process.stderr.fileno(), 65536) if process.stderr else b"":
        write_all(err_fd, data)
        line = (line + data)[-65536:]
        if first_status is None and (match := FAILED_TASK.search(line)) and argv[0] == "srun":
            first_status = int(match[2])
        line = line.rpartition(b"\n")[2]
    status = process.wait()
    if first_status is not None and status:
        return first_status
    return 128 - status if status < 0 else status


def cluster_environment(hosts: list[str], hostfile: Path) -> dict[str, str]:
    """Return the environment of the command on every node: number of nodes, addresses, rendezvous."""
    completed = subprocess.run(["scontrol", "show", "node", "-o", ",".join(hosts)], stdout=subprocess.PIPE, check=False)  # noqa: S603, S607
    nodes = [dict(re.findall(r"(?:^|\s)([A-Za-z]+)=(\S*)", line)) for line in completed.stdout.decode().splitlines()]
    node_addresses = {node.get("NodeName", ""): node.get("NodeAddr") for node in nodes}
    addresses = [str(node_addresses.get(host) or host) for host in hosts]
    gpus = int(os.environ.get("SLURM_GPUS_ON_NODE") or len(list(filter(None, gpu_ids()))))
    hostfile_text = "".join(f"{host} slots={max(1, gpus)}\n" for host in hosts)
    with contextlib.suppress(OSError):
        hostfile.write_text(hostfile_text)
    return {
        "CLOUDGPU_NUM_NODES": str(len(hosts)),
        "CLOUDGPU_GPUS_PER_NODE": str(gpus),
        "CLOUDGPU_NODE_IPS": "\n".join(addresses),
        "CLOUDGPU_HOSTFILE": str(hostfile),
        "CLOUDGPU_HOSTS": hostfile_text,
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(free_port()),
    }


def gpu_ids() -> list[str]:
    """Return the GPUs that Slurm allocated."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")


def free_port() -> int:
    """Return a free port of this node."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def task() -> int:
    """Execute the command on this node."""
    options = json.loads(os.environ.pop("CLOUDGPU_SLURM"))
    attempt_dir, argv = Path(options["place"]), list(map(str, options["argv"]))
    wait_for_files(attempt_dir, options.get("token", ""))
    hostfile_text = os.environ.pop("CLOUDGPU_HOSTS", "")
    hostfile = Path(os.environ["CLOUDGPU_HOSTFILE"])
    if not hostfile.exists():
        hostfile.write_text(hostfile_text)
    if options.get("sealed"):
        os.environ.update(json.loads(sys.stdin.buffer.read()))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["CLOUDGPU_NODE_RANK"] = "0" if options.get("once") else os.environ.get("SLURM_PROCID", "0")
    for name in ("CLOUDGPU_RESULTS", "CLOUDGPU_CHECKPOINT"):
        with contextlib.suppress(OSError, KeyError):
            Path(os.environ[name]).mkdir(parents=True, exist_ok=True)
    os.chdir(str(attempt_dir / "work"))
    setup_status = set_up(attempt_dir, options.get("setup"))
    if setup_status:
        report(f"--setup ended with {setup_status} on {socket.gethostname()}")
        return setup_status
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        report(f"{argv[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def set_up(attempt_dir: Path, command: str | None) -> int:
    """Run the setup on this node, once for the job; return its status."""
    if not command:
        return 0
    import fcntl

    done_file = attempt_dir / f"set-up-{os.environ.get('SLURMD_NODENAME', '')}"
    with (attempt_dir / ".setup").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done_file.exists():
            return 0
        status = subprocess.call(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=2)  # noqa: S603
        if not status:
            done_file.touch()
        return status


# -- results


def fetch_results(attempt_dir: Path, hosts: list[str]) -> list[str]:
    """Fetch the results of the other ranks to this node, each to its own directory; return an error for each failure.

    A rank that shares the file system sends nothing.
    """
    ranks, errors = list(range(1, len(hosts))), []
    while ranks:
        next_ranks, ranks = ranks[:MAX_PARALLEL], ranks[MAX_PARALLEL:]
        for rank, process in [(rank, start_sender(attempt_dir, hosts[rank], rank)) for rank in next_ranks]:
            error = receive_results(attempt_dir, process)
            if error is not None:
                errors.append(f"the results of rank {rank} on {hosts[rank]} are incomplete{error}")
    return errors


def start_sender(attempt_dir: Path, host: str, rank: int) -> Any:
    """Start the process that sends the results of one rank."""
    command = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--input=none", "--gres=none"]
    command += ["--mem=0", "--chdir=/", "python3", "-IS", "-c", Path(__file__).read_text()]
    command += ["results", str(attempt_dir), os.environ["CLOUDGPU_RESULTS"], str(rank)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603


def receive_results(attempt_dir: Path, process: Any) -> str | None:
    """Unpack what a sender writes; return the error, None for none."""
    error_text = None
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            unpack(tar, attempt_dir)
    except (OSError, EOFError, tarfile.TarError) as error:
        error_text = f": {error}"
    process.stdout.close()
    return "" if process.wait() and error_text is None else error_text


def write_results(attempt_dir: Path, directory: Path, rank: str) -> int:
    """Write a rank's results to stdout as a tar, below `rank-N` in the results of the first rank."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        if directory.is_dir() and not (attempt_dir / "origin").exists():
            tar.add(str(directory), f"{directory.relative_to(attempt_dir)}/rank-{rank}")
    return 0


def wait_for_collector(attempt_dir: Path, job_id: str) -> None:
    """Wait until output and results are collected: when the batch script ends, Slurm releases the nodes.

    A change of the file's time is a sign of the collector. How long ago that was, the monotonic clock says.
    """
    collected, collecting = (attempt_dir / f"slurm-{job_id}.{suffix}" for suffix in ("collected", "collecting"))
    collector_time, collector_seen_at = 0.0, time.monotonic()
    while not collected.exists():
        with contextlib.suppress(OSError):
            latest = collecting.stat().st_mtime
            if latest != collector_time:
                collector_time, collector_seen_at = latest, time.monotonic()
        if time.monotonic() - collector_seen_at > COLLECT_TIMEOUT_S:
            return
        time.sleep(0.1)


def collect(attempt_dir: Path, job_id: str, names: list[str]) -> int:
    """Write an element's output as it grows, then its results, for the submitter."""
    exit_file, collecting = attempt_dir / f"slurm-{job_id}.exit", attempt_dir / f"slurm-{job_id}.collecting"
    offsets = {STDOUT: 0, STDERR: 0}
    while True:
        is_over = exit_file.exists()
        if attempt_dir.is_dir():
            collecting.touch()
        for stream, suffix in ((STDOUT, "out"), (STDERR, "err")):
            with contextlib.suppress(OSError), (attempt_dir / f"slurm-{job_id}.{suffix}").open("rb") as file:
                file.seek(offsets[stream])
                while data := file.read(1 << 16):
                    offsets[stream] += len(data)
                    write_all(1, FRAME.pack(stream, len(data)) + data)
        if is_over:
            break
        time.sleep(0.2)
    if not (attempt_dir / "origin").exists():
        send_results(attempt_dir, names)
    write_all(1, FRAME.pack(END, 0))
    (attempt_dir / f"slurm-{job_id}.collected").touch()
    return 0


class FrameWriter:
    """A file object that writes each chunk as a frame."""

    def write(self, data: bytes) -> int:
        """Write a chunk."""
        write_all(1, FRAME.pack(RESULTS, len(data)) + data)
        return len(data)


def send_results(attempt_dir: Path, names: list[str]) -> None:
    """Write results and checkpoints as one tar."""
    with tarfile.open(fileobj=FrameWriter(), mode="w|") as tar:  # type: ignore[call-overload]
        for name in names:
            if (attempt_dir / name).is_dir():
                tar.add(str(attempt_dir / name), name)


def main(argv: list[str]) -> int:
    """Run the verb of the first argument."""
    if argv[0] == "collect":
        return collect(Path(argv[1]), argv[2], argv[3:])
    if argv[0] == "seal":
        return store_secrets(Path(argv[1]), argv[2])
    if argv[0] == "results":
        return write_results(Path(argv[1]), Path(argv[2]), argv[3])
    return batch() if argv[0] == "batch" else task()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
