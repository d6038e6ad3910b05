"""Is the batch script of a job of Slurm, and each rank of it: files, what the command finds, its exit status.

`remote_submit.py` hands this file's text to sbatch on the node where jobs are submitted; the batch script hands it to
srun. Nodes that do not see the files of that node are sent them, and somebody takes output and results from there
(`collect`) before the batch script ends. Secrets come in a private file, which the batch script reads and removes; the
ranks have them on standard input. Standard library only, Python 3.8+.
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
ARRIVE_S, COLLECT_S = (
    900.0,
    60.0,
)  # how long a batch script waits for its files, and for a sign of who takes its results
MAX_PARALLEL = 8  # nodes whose results are brought
FRAME = struct.Struct(">BI")
OUT, ERR, RESULTS, END = 1, 2, 3, 4


def report(text: str) -> None:
    """Say something on the job's own errors."""
    sys.stderr.write(f"cloudgpu: {text}\n")
    sys.stderr.flush()


def save(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)


def write_all(number: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(number, data) :]


# -- files that travel by sbcast


def arrived(place: Path, token: str) -> Path:
    """Return where files that travel arrive on a node: in the home, for /tmp may be small; without an ending."""
    own = [one for one in place.parents if one.name == ".cloudgpu"]
    return (own[-1].parent if own else place.parent) / f".cloudgpu-{token}"


def unpack(tar: tarfile.TarFile, place: Path) -> None:
    """Put files of ours where they belong; nothing leaves the directory."""
    for one in tar:
        path = os.path.normpath(str(place / one.name))
        if path.startswith(f"{place}/") and (one.isfile() or one.isdir() or one.issym()):
            tar.extract(one, str(place), set_attrs=not one.isdir())


def arrive(place: Path, token: str) -> None:
    """Have the files on this node: they are there, or come; the first who needs them unpacks them."""
    if (place / "origin").exists():
        return
    path, end = arrived(place, token), time.monotonic() + ARRIVE_S
    while not (place / "arrived").exists() and not Path(f"{path}.ready").exists():
        if time.monotonic() > end:
            sys.exit("cloudgpu: the files of the job did not come: who sends them has ended")
        time.sleep(0.1)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    import fcntl

    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "arrived").exists():
            with tarfile.open(f"{path}.tar") as tar:
                unpack(tar, place)
            (place / "arrived").touch()
    for ending in ("ready", "tar"):
        with contextlib.suppress(OSError):
            Path(f"{path}.{ending}").unlink()


# -- secrets


def seal(place: Path, number: str) -> int:
    """Write what comes on standard input to a file that only we may read, for the batch script of this element."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = place / f".secrets-{number}"
    with os.fdopen(os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(sys.stdin.buffer.read())
    fresh.replace(place / f"secrets-{number}")
    return 0


def unsealed(place: Path, number: str, options: Any) -> bytes:
    """Return the secrets, and remove their file; the elements of an array share it where they share files."""
    if not options.get("sealed"):
        return b""
    shared = (place / "origin").exists()
    path, end = place / ("secrets" if shared else f"secrets-{number}"), time.monotonic() + ARRIVE_S
    while not path.exists():
        if time.monotonic() > end:
            sys.exit("cloudgpu: the secrets of the job did not come: who sends them has ended")
        time.sleep(0.1)
    data = path.read_bytes()
    if not shared or not options.get("array"):
        path.unlink()
    return data


# -- on the nodes


def batch() -> int:
    """Be the batch script: run the command on each node, or here alone; return the status of what failed first."""
    asked = json.loads(os.environ["CLOUDGPU_SLURM"])
    place, number = Path(asked["place"]), os.environ["SLURM_JOB_ID"]
    arrive(place, asked.get("token", ""))
    given_us = unsealed(place, number, asked)
    shared = (place / "origin").exists()
    words = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
    hosts = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode().split()  # noqa: S603
    given = ("MASTER_PORT", "CLOUDGPU_HOSTFILE") if "_CLOUDGPU_PORT_OF" in os.environ else ()  # by our task prolog
    known = {name: os.environ[name] for name in given if name in os.environ}
    os.environ.update({**cluster_environment(hosts, place / f"hosts-{number}"), **known})
    signal.signal(signal.SIGTERM, lambda *_: None)  # who runs the command gets it, too, and ends before us
    with (place / f"slurm-{number}.out").open("ab") as out, (place / f"slurm-{number}.err").open("ab") as err:
        status = run(command_line(asked, hosts), out.fileno(), err.fileno(), given_us)
        for why in gather(place, hosts) if asked.get("spread") else ():
            write_all(err.fileno(), f"cloudgpu: {why}\n".encode())
    save(place / f"slurm-{number}.exit", status)
    if not shared:
        wait_for_collector(place, number)
    return status


def command_line(options: Any, hosts: list[str]) -> list[str]:
    """Return what the batch script starts: a rank on each node, by srun, or the command itself."""
    me = [sys.executable, "-IS", "-c", Path(__file__).read_text(), "task"]
    if len(hosts) == 1 or options.get("once"):
        return me
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    least = min(map(int, re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", "1"))))
    words = [
        "srun",
        "--export=ALL",
        "--kill-on-bad-exit=1",
        f"--nodes={len(hosts)}",
        f"--ntasks={len(hosts)}",
        "--ntasks-per-node=1",
    ]
    return [*words, f"--cpus-per-task={cores or least}", "--chdir=/", "python3", *me[1:]]


def run(argv: list[str], out: int, err: int, given: bytes) -> int:
    """Run it to its end; of several ranks, the status is that of the one that failed first, as srun tells it."""
    comes = subprocess.PIPE if given else subprocess.DEVNULL
    process = subprocess.Popen(argv, stdin=comes, stdout=out, stderr=subprocess.PIPE)  # noqa: S603
    if process.stdin:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(given)
    first: int | None = None
    line = b""
    while data := os.read(process.stderr.fileno(), 65536) if process.stderr else b"":
        write_all(err, data)
        line = (line + data)[-65536:]
        if first is None and (seen := FAILED_TASK.search(line)) and argv[0] == "srun":
            first = int(seen[2])
        line = line.rpartition(b"\n")[2]
    status = process.wait()
    if first is not None and status:
        return first
    return 128 - status if status < 0 else status


def cluster_environment(hosts: list[str], file: Path) -> dict[str, str]:
    """Return what every node's command finds: how many nodes, their addresses, where they meet."""
    said = subprocess.run(["scontrol", "show", "node", "-o", ",".join(hosts)], stdout=subprocess.PIPE, check=False)  # noqa: S603, S607
    rows = [dict(re.findall(r"(?:^|\s)([A-Za-z]+)=(\S*)", line)) for line in said.stdout.decode().splitlines()]
    places = {one.get("NodeName", ""): one.get("NodeAddr") for one in rows}
    addresses = [str(places.get(host) or host) for host in hosts]
    gpus = int(os.environ.get("SLURM_GPUS_ON_NODE") or len(list(filter(None, devices()))))
    slots = "".join(f"{host} slots={max(1, gpus)}\n" for host in hosts)
    with contextlib.suppress(OSError):
        file.write_text(slots)
    return {
        "CLOUDGPU_NUM_NODES": str(len(hosts)),
        "CLOUDGPU_GPUS_PER_NODE": str(gpus),
        "CLOUDGPU_NODE_IPS": "\n".join(addresses),
        "CLOUDGPU_HOSTFILE": str(file),
        "CLOUDGPU_HOSTS": slots,
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(free_port()),
    }


def devices() -> list[str]:
    """Return the GPUs that Slurm has given."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")


def free_port() -> int:
    """Return a port that nobody listens on here."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def task() -> int:
    """Become the command on this node."""
    asked = json.loads(os.environ.pop("CLOUDGPU_SLURM"))
    place, words = Path(asked["place"]), list(map(str, asked["argv"]))
    arrive(place, asked.get("token", ""))
    hosts = os.environ.pop("CLOUDGPU_HOSTS", "")
    file = Path(os.environ["CLOUDGPU_HOSTFILE"])
    if not file.exists():
        file.write_text(hosts)
    if asked.get("sealed"):
        os.environ.update(json.loads(sys.stdin.buffer.read()))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["CLOUDGPU_NODE_RANK"] = "0" if asked.get("once") else os.environ.get("SLURM_PROCID", "0")
    for name in ("CLOUDGPU_RESULTS", "CLOUDGPU_CHECKPOINT"):
        with contextlib.suppress(OSError, KeyError):
            Path(os.environ[name]).mkdir(parents=True, exist_ok=True)
    os.chdir(str(place / "work"))
    failed = set_up(place, asked.get("setup"))
    if failed:
        report(f"--setup ended with {failed} on {socket.gethostname()}")
        return failed
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)  # noqa: S606
    except OSError as error:
        report(f"{words[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def set_up(place: Path, command: str | None) -> int:
    """Run the setup on this node, once for the job; return its status."""
    if not command:
        return 0
    import fcntl

    done = place / f"set-up-{os.environ.get('SLURMD_NODENAME', '')}"
    with (place / ".setup").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return 0
        status = subprocess.call(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=2)  # noqa: S603
        if not status:
            done.touch()
        return status


# -- results


def gather(place: Path, hosts: list[str]) -> list[str]:
    """Bring what the other ranks have in their results to this node, each in a directory of its own.

    Returns what went wrong, a sentence for each rank. A rank that sees the files of this node has nothing to bring.
    """
    ranks, found = list(range(1, len(hosts))), []
    while ranks:
        some, ranks = ranks[:MAX_PARALLEL], ranks[MAX_PARALLEL:]
        for rank, process in [(rank, sender(place, hosts[rank], rank)) for rank in some]:
            why = receive_results(place, process)
            if why is not None:
                found.append(f"the results of rank {rank} on {hosts[rank]} did not come whole{why}")
    return found


def sender(place: Path, host: str, rank: int) -> Any:
    """Begin what sends the results of one rank."""
    words = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--input=none", "--gres=none"]
    words += ["--mem=0", "--chdir=/", "python3", "-IS", "-c", Path(__file__).read_text()]
    words += ["results", str(place), os.environ["CLOUDGPU_RESULTS"], str(rank)]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603


def receive_results(place: Path, process: Any) -> str | None:
    """Take what a sender writes; return what went wrong, None for nothing."""
    why = None
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            unpack(tar, place)
    except (OSError, EOFError, tarfile.TarError) as error:
        why = f": {error}"
    process.stdout.close()
    return "" if process.wait() and why is None else why


def results(place: Path, own: Path, rank: str) -> int:
    """Write a rank's results as one file, in a directory of its own beside those of the first rank."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        if own.is_dir() and not (place / "origin").exists():
            tar.add(str(own), f"{own.relative_to(place)}/rank-{rank}")
    return 0


def wait_for_collector(place: Path, number: str) -> None:
    """Wait until somebody has taken output and results: with the end of this script, Slurm takes the nodes away."""
    done, alive, since = place / f"slurm-{number}.collected", place / f"slurm-{number}.collecting", time.time()
    while not done.exists():
        with contextlib.suppress(OSError):
            since = max(since, alive.stat().st_mtime)
        if time.time() - since > COLLECT_S:
            return
        time.sleep(0.1)


def collect(place: Path, number: str, names: list[str]) -> int:
    """Write an element's output as it comes, then its results, for whoever submitted it."""
    over, alive = place / f"slurm-{number}.exit", place / f"slurm-{number}.collecting"
    offsets = {OUT: 0, ERR: 0}
    while True:
        is_over = over.exists()
        if place.is_dir():
            alive.touch()
        for stream, ending in ((OUT, "out"), (ERR, "err")):
            with contextlib.suppress(OSError), (place / f"slurm-{number}.{ending}").open("rb") as file:
                file.seek(offsets[stream])
                while data := file.read(1 << 16):
                    offsets[stream] += len(data)
                    write_all(1, FRAME.pack(stream, len(data)) + data)
        if is_over:
            break
        time.sleep(0.2)
    if not (place / "origin").exists():
        send_results(place, names)
    write_all(1, FRAME.pack(END, 0))
    (place / f"slurm-{number}.collected").touch()
    return 0


class Framed:
    """Takes one file in pieces, and writes each as a frame."""

    def write(self, data: bytes) -> int:
        """Write a piece."""
        write_all(1, FRAME.pack(RESULTS, len(data)) + data)
        return len(data)


def send_results(place: Path, names: list[str]) -> None:
    """Write the results, and the checkpoints beside them, as one file."""
    with tarfile.open(fileobj=Framed(), mode="w|") as tar:  # type: ignore[call-overload]
        for name in names:
            if (place / name).is_dir():
                tar.add(str(place / name), name)


def main(argv: list[str]) -> int:
    """Do what the first word says."""
    if argv[0] == "collect":
        return collect(Path(argv[1]), argv[2], argv[3:])
    if argv[0] == "seal":
        return seal(Path(argv[1]), argv[2])
    if argv[0] == "results":
        return results(Path(argv[1]), Path(argv[2]), argv[3])
    return batch() if argv[0] == "batch" else task()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
