"""Submits one job to Slurm, once, and follows it to its end; `remote_rank.py` is its batch script.

This text is sent over SSH and runs as the command of a job's attempt on the node that has sbatch. Standard library
only, Python 3.8+.

Each job has a unique name. Before sbatch is called, and after it failed, the queue is searched for that name: a job
that was submitted although the answer was lost is followed, and not submitted again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

from cloudgpu.access.slurm.remote_rank import (
    END,
    FRAME,
    RESULTS,
    STDERR,
    STDOUT,
    report,
    save,
    sbcast_path,
    unpack,
    write_all,
)

ENDED_STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
)  # fmt: skip
LOST_STATES = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED")
RETRY_ON = re.compile(r"timed out|unable to contact|connect|communicat|temporar|try again|transport", re.IGNORECASE)
TRIES, CALL_S = 6, 60  # of one command of Slurm: tries, and its time-out
MIN_WAIT_S, MAX_WAIT_S = 0.5, 15.0  # between two queries of the job
COLLECT_TIMEOUT_S = 60.0
RANK_FILE = "remote_rank.py"  # the file in the attempt's directory
# Variables of the environment that the job gets, and those that Slurm's commands do not get
KEEP_ENV = re.compile(r"(CLOUDGPU_(?!ATTEMPT$|MACHINE$)|PYTHONUNBUFFERED$|PATH$|HOME$|USER$|LOGNAME$|SHELL$|LANG$|LC_)")
DROP_ENV = re.compile(r"SLURM_|SBATCH_|CLOUDGPU_ATTEMPT$")


class Submission:
    """One job in Slurm; `options` are those of `control/jobs/slurm/submission.py`, `elements` records of its array."""

    def __init__(self, attempt_dir: Path, spec: dict[str, Any]) -> None:
        self.dir, self.spec, self.options = attempt_dir, spec, spec["slurm"]
        self.job_dir = attempt_dir  # the directory of the job in the queue: it may be that of an earlier attempt
        self.environ = engine_environment(self.options)
        self.offsets: dict[str, int] = {}
        self.partial_lines: dict[str, bytes] = {}
        self.collectors: dict[str, threading.Thread] = {}
        self.lock = threading.Lock()
        self.last_state: Any = None
        self.has_unsent_files = False  # files or secrets could not be sent to a node

    def call(self, *argv: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm."""
        try:
            return subprocess.run(  # noqa: S603
                argv, env=self.environ, input=stdin, capture_output=True, text=True, timeout=CALL_S, check=False
            )
        except FileNotFoundError:
            return subprocess.CompletedProcess(argv, 127, "", f"{argv[0]} is not on this machine")
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, "", f"{argv[0]} timed out")

    def find_job(self) -> str | None:
        """Return Slurm's id of the job with this name, empty for none; None if Slurm does not answer."""
        completed = self.call("squeue", "-h", "-a", "-t", "all", "--name", self.options["name"], "-o", "%F|%T|%k")
        if completed.returncode:
            return None
        for line in reversed(completed.stdout.splitlines()):
            job_id, state, comment = [*line.strip().split("|", 2), "", ""][:3]
            if state not in LOST_STATES:
                self.job_dir = Path(comment) if comment.startswith("/") and Path(comment).is_dir() else self.dir
                return job_id
        return self.find_record()

    def find_record(self) -> str:
        """Return the id of a job of this name that has left the queue, by Slurm's job records; empty for none."""
        path = self.options.get("records")
        with contextlib.suppress(OSError):
            for line in Path(path).expanduser().read_text(errors="replace").splitlines() if path else ():
                record = dict(field.partition("=")[::2] for field in line.split())
                if record.get("Name") == self.options["name"] and record.get("JobState") not in LOST_STATES:
                    return record.get("JobId", "")
        return ""

    def submit(self) -> str:
        """Return the id of the job, submitted if it does not exist; empty if Slurm refuses it, with a report."""
        problem = "Slurm does not answer"
        for tries in range(TRIES):
            time.sleep(min(2.0 * tries, 10.0))
            job_id = self.find_job()
            if job_id:
                return job_id
            if job_id is None:  # unknown whether the job exists: do not submit
                continue
            completed = self.call("sbatch", *self.sbatch_options(), str(self.dir / RANK_FILE), "batch")
            if not completed.returncode and completed.stdout.strip():
                return completed.stdout.strip().split(";")[0]
            problem = completed.stderr.strip() or f"sbatch ended with {completed.returncode}"
            if not RETRY_ON.search(problem):
                break
        else:  # Slurm may have the job although the last answer was lost
            if job_id := self.find_job():
                return job_id
        report(problem)
        return ""

    def sbatch_options(self) -> list[str]:
        """Return the command-line options of sbatch."""
        options = self.options
        spread = options.get("spread")
        names = sorted(key for key in self.environ if KEEP_ENV.match(key) or key in self.spec.get("env", {}))
        arguments = ["--parsable", f"--job-name={options['name']}", f"--comment={self.dir}", "--no-requeue"]
        arguments += [f"--chdir={'/' if spread else self.dir}", f"--export={','.join(names)}", "--input=/dev/null"]
        arguments += [f"--output={'/dev/null' if spread else self.dir / 'slurm-%j.log'}", "--open-mode=append"]
        arguments += [f"--nodes={options['nodes']}", "--ntasks-per-node=1", f"--time={options['minutes']}"]
        if options.get("gpus_per_node"):
            arguments.append(f"--gpus-per-node={options['gpus_per_node']}")
        if options.get("whole"):  # the job gets nodes to itself
            arguments.append("--exclusive")
        for name in ("array", "partition", "account"):
            if options.get(name):
                arguments.append(f"--{name}={options[name]}")
        if options.get("after"):
            arguments += [f"--dependency=afterok:{options['after']}", "--kill-on-invalid-dep=yes"]
        return arguments

    def elements(self, job_id: str) -> list[dict[str, str]] | None:
        """Return Slurm's records of the job, one per array element; empty for none, None without an answer."""
        completed = self.call("scontrol", "show", "job", "-o", job_id)
        if completed.returncode:
            return [] if "Invalid job id" in completed.stderr else None
        lines = (line for line in completed.stdout.splitlines() if line.startswith("JobId="))
        return [dict(re.findall(r"(?:^|\s)([A-Za-z]+)=(\S*)", line)) for line in lines]

    def follow(self, job_id: str) -> tuple[str, int]:
        """Follow the job to its end; return the reason (empty: by itself) and its exit status."""
        pause_s, last_states, elements = MIN_WAIT_S, "", []  # type: float, str, list[dict[str, str]]
        while True:
            latest = self.elements(job_id)
            if latest:
                elements = latest
            self.write_state(job_id, elements)
            for element in elements:
                if self.options.get("spread") and element["JobState"] in ("RUNNING", "COMPLETING"):
                    self.start_collector(element)
            self.print_output(elements)
            if latest == [] or (elements and all(element["JobState"] in ENDED_STATES for element in elements)):
                break
            states = str([element["JobState"] for element in elements])
            pause_s = MIN_WAIT_S if states != last_states else min(pause_s * 1.1, MAX_WAIT_S)
            last_states = states
            time.sleep(pause_s)
        for thread in self.collectors.values():
            thread.join(COLLECT_TIMEOUT_S)
        self.print_output(elements, final=True)
        return self.outcome(elements)

    def write_state(self, job_id: str, elements: list[dict[str, str]]) -> None:
        """Write the state to engine.json."""
        tasks = []
        for element in elements:
            nodes = self.hosts(element.get("NodeList", ""))
            begin, end = (to_epoch(element.get(name, "")) for name in ("StartTime", "EndTime"))
            state, is_pending = element["JobState"], element["JobState"] == "PENDING"
            tasks.append(
                {
                    "id": element["JobId"],
                    "task": element.get("ArrayTaskId", ""),
                    "state": state,
                    "reason": element.get("Reason", "").replace("_", " ") if is_pending else "",
                    "nodes": nodes,
                    "begin": None if is_pending or not nodes else begin,
                    "end": end if state in ENDED_STATES and nodes else None,
                }
            )
        job_state = {"id": job_id, "name": self.options["name"], "tasks": tasks}
        if job_state != self.last_state:
            save(self.dir / "engine.json", job_state)
            self.last_state = job_state

    def hosts(self, nodes: str) -> list[str]:
        """Return the host names of Slurm's node list, such as train-[0-3]."""
        if nodes in ("", "(null)"):
            return []
        if not re.search(r"[\[,]", nodes):
            return [nodes]
        return self.call("scontrol", "show", "hostnames", nodes).stdout.split()

    def outcome(self, elements: list[dict[str, str]]) -> tuple[str, int]:
        """Return the reason (empty: it ended by itself) and the status of the first failed element."""
        if not elements:
            report("Slurm does not know this job any more, so its end is unknown")
            return "lost", 255
        elements = sorted(elements, key=lambda element: (to_epoch(element.get("EndTime", "")) or 0, element["JobId"]))
        failed = next((element for element in elements if element["JobState"] != "COMPLETED"), elements[0])
        state = failed["JobState"]
        if self.has_unsent_files:
            return "start", 1
        code, _, signal_number = failed.get("ExitCode", "0:0").partition(":")
        if state not in ("COMPLETED", "FAILED"):
            report(f"Slurm job {failed['JobId']} ended as {state} {failed.get('Reason', '')}".rstrip())
        if state in ("TIMEOUT", "DEADLINE"):
            return "timeout", 143
        if state in LOST_STATES:
            return "lost", 143
        if state == "CANCELLED":
            return "cancelled", 143
        status = int(code) or (128 + int(signal_number) if int(signal_number or 0) else 0)
        return "", status if state == "COMPLETED" else status or 1

    # -- its output

    def print_output(self, elements: list[dict[str, str]], *, final: bool = False) -> None:
        """Print new output from files on this node; at the end (`final`) an incomplete last line too."""
        for element in elements:
            job_id = element["JobId"]
            if job_id in self.collectors:
                continue
            for stream, suffix in ((STDOUT, "out"), (STDERR, "err"), (STDERR, "log")):
                path = self.job_dir / f"slurm-{job_id}.{suffix}"
                with contextlib.suppress(OSError), path.open("rb") as file:
                    file.seek(self.offsets.get(str(path), 0))
                    while data := file.read(1 << 20):
                        self.offsets[str(path)] = file.tell()
                        self.print_data(element, stream, data)
            if final:
                for stream in (STDOUT, STDERR):
                    self.print_data(element, stream, b"", final=True)

    def print_data(self, element: dict[str, str], stream: int, data: bytes, *, final: bool = False) -> None:
        """Print output; of an array in lines that begin with the element's number."""
        task = element.get("ArrayTaskId")
        with self.lock:
            if task:
                key = f"{element['JobId']}-{stream}"
                lines = (self.partial_lines.pop(key, b"") + data).split(b"\n")
                partial_line = lines.pop()
                if partial_line and not final:
                    self.partial_lines[key] = partial_line
                elif partial_line:
                    lines.append(partial_line)
                data = b"".join(b"[%s] %s\n" % (task.encode(), line) for line in lines)
            write_all(1 if stream == STDOUT else 2, data)

    # -- files for nodes without a shared file system

    def start_collector(self, element: dict[str, str]) -> None:
        """Send an element its files, and collect its output and results, if its nodes do not share this file system."""
        job_id = element["JobId"]
        hosts = self.hosts(element.get("NodeList", ""))
        if job_id in self.collectors or not element.get("BatchHost") or set(hosts) <= {str(self.options.get("own"))}:
            return
        thread = threading.Thread(target=self._send_and_collect, args=(element,), daemon=True)
        self.collectors[job_id] = thread
        thread.start()

    def _send_and_collect(self, element: dict[str, str]) -> None:
        job_id, token = element["JobId"], self.token()
        bundle, ready = self.dir / "bundle.tar", self.dir / "ready"
        if not self.send_secrets(element):
            return None
        with self.lock:
            if not bundle.exists():
                pack(self.dir, bundle)
                ready.write_text(token)
        for file, suffix in ((bundle, "tar"), (ready, "ready")):
            send = ("sbcast", "--force", f"--jobid={job_id}", str(file), f"{sbcast_path(self.job_dir, token)}.{suffix}")
            completed = self.call(*send)
            for _ in range(TRIES):
                if completed.returncode:
                    time.sleep(1)
                    completed = self.call(*send)
            if completed.returncode:
                return self._cancel_element(element, "files", completed.stderr)
        argv = [*self.step_prefix(element), "--input=none", "--unbuffered", *self.rank_command(), "collect"]
        argv += [str(self.job_dir), job_id, f"work/{self.spec['results']}"]
        argv += [f"work/{checkpoint_dir}" if (checkpoint_dir := self.spec.get("checkpoint")) else "checkpoint"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        process = subprocess.Popen(argv, env=self.environ, **pipes)  # noqa: S603
        if process.stdout is None or process.stderr is None:
            return None
        if not self._receive(element, process.stdout):
            report(
                f"output and results of {element['NodeList']} are incomplete: {process.stderr.read().decode().strip()}"
            )
        process.wait()
        return None

    def token(self) -> str:
        """Return the token in the names of sent files; that of an earlier attempt if it submitted the job."""
        spec = self.spec if self.job_dir == self.dir else json.loads((self.job_dir / "spec.json").read_text())
        return str(spec["slurm"]["token"])

    def step_prefix(self, element: dict[str, str]) -> list[str]:
        """Return the srun prefix of a command that runs beside an element, on its first node."""
        argv = [
            "srun",
            f"--jobid={element['JobId']}",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--gres=none",
            "--mem=0",
        ]
        return [*argv, f"--nodelist={element['BatchHost']}", "--chdir=/"]

    def rank_command(self) -> list[str]:
        """Return the command that runs `remote_rank.py` on a node, for a rank or a verb of it."""
        return ["python3", "-IS", "-c", (self.dir / RANK_FILE).read_text()]

    def send_secrets(self, element: dict[str, str]) -> bool:
        """Send an element its secrets if its first node does not share this file system; return whether it has them."""
        secrets = self.dir / "secrets"
        if not secrets.exists() or element["BatchHost"] == self.options.get("own"):
            return True
        send = [*self.step_prefix(element), *self.rank_command(), "seal", str(self.job_dir), element["JobId"]]
        for tries in range(TRIES):
            time.sleep(min(tries, 1))
            completed = self.call(*send, stdin=secrets.read_text())
            if not completed.returncode:
                return True
        self._cancel_element(element, "secrets", completed.stderr)
        return False

    def _cancel_element(self, element: dict[str, str], content: str, reason: str) -> None:
        """Cancel an element: its nodes would wait for files, and cost money."""
        self.has_unsent_files = True
        self.call("scancel", element["JobId"])
        report(f"the {content} could not be sent to {element['NodeList']}: {reason.strip()}")

    def _receive(self, element: dict[str, str], source: Any) -> bool:
        """Read what `collect` writes; return whether it was complete."""
        tar_file = self.dir / f"coming-{element['JobId']}.tar"
        while True:
            stream, size = FRAME.unpack(head) if len(head := source.read(FRAME.size)) == FRAME.size else (0, 0)
            if stream in (STDOUT, STDERR):
                self.print_data(element, stream, source.read(size))
            elif stream == RESULTS:
                with tar_file.open("ab") as file:
                    file.write(source.read(size))
            else:
                break
        for output_stream in (STDOUT, STDERR):
            self.print_data(element, output_stream, b"", final=True)
        if stream == END and tar_file.exists():
            with tarfile.open(str(tar_file)) as tar:
                unpack(tar, self.dir)
        with contextlib.suppress(OSError):
            tar_file.unlink()
        return bool(stream == END)


def to_epoch(text: str) -> float | None:
    """Return Slurm's local time as epoch seconds; None for none."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def engine_environment(options: Any) -> dict[str, str]:
    """Return the environment in which sbatch finds its cluster: this one, or that of a login shell."""
    environ = {name: value for name, value in os.environ.items() if not DROP_ENV.match(name)}
    conf = options.get("conf") or os.environ.get("SLURM_CONF")
    if conf:
        environ["SLURM_CONF"] = str(Path(conf) if conf.startswith("/") else Path.home() / conf)
    elif not shutil.which("sbatch") or not Path("/etc/slurm/slurm.conf").exists():
        environ.update(login_environment())
    return environ


def login_environment() -> dict[str, str]:
    """Return what a login shell sets for Slurm: PATH, SLURM_CONF, libraries."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run([shell, "-lc", "env -0"], capture_output=True, timeout=CALL_S, check=True).stdout  # noqa: S603
        pairs = dict(line.partition("=")[::2] for line in output.decode(errors="replace").split("\0") if "=" in line)
        return {name: value for name, value in pairs.items() if re.match(r"(PATH|SLURM_CONF|LD_LIBRARY_PATH)$", name)}
    return {}


def write_stop_reason(attempt_dir: Path, reason: str) -> None:
    """Write the reason of the end for the attempt's supervisor; an earlier request to stop keeps its reason."""
    path = attempt_dir / "stop.json"
    earlier_request = json.loads(path.read_text()) if path.exists() else {}
    save(path, {"mono": time.monotonic(), "reason": reason, **earlier_request, "grace": 10.0})


def submit() -> int:
    """Submit the job, once, and follow it; return its exit status."""
    attempt_dir = Path(os.environ["CLOUDGPU_ATTEMPT"])
    spec = json.loads((attempt_dir / "spec.json").read_text())
    spec["slurm"].pop("program", None)
    job, stop_requested = Submission(attempt_dir, spec), threading.Event()
    (attempt_dir / "origin").write_text(socket.gethostname())
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.set())
    job.options["sealed"] = (attempt_dir / "secrets").exists()
    job.environ["CLOUDGPU_SLURM"] = json.dumps({**job.options, "place": str(attempt_dir), "argv": spec["argv"]})
    job_id = job.submit()
    if not job_id:
        remove_secrets(attempt_dir)
        write_stop_reason(attempt_dir, "start")
        return 1
    threading.Thread(target=cancel_when_stopped, args=(job, job_id, stop_requested), daemon=True).start()
    reason, status = job.follow(job_id)
    remove_secrets(attempt_dir, job.job_dir)
    for name in {spec["results"], spec.get("checkpoint")} - {None} if job.job_dir != attempt_dir else ():
        if (job.job_dir / "work" / name).is_dir():
            shutil.copytree(str(job.job_dir / "work" / name), str(attempt_dir / "work" / name), dirs_exist_ok=True)
    if reason:
        write_stop_reason(attempt_dir, reason)
    return status


def remove_secrets(*directories: Path) -> None:
    """Remove secrets that no batch script has removed."""
    for path in directories:
        with contextlib.suppress(OSError):
            (path / "secrets").unlink()


def cancel_when_stopped(job: Submission, job_id: str, stop_requested: threading.Event) -> None:
    """Cancel the job when `stop_requested` is set; repeat until Slurm accepts it."""
    stop_requested.wait()
    while job.call("scancel", job_id).returncode:
        time.sleep(1)


def pack(attempt_dir: Path, bundle: Path) -> None:
    """Pack the working directory into one tar."""
    with tarfile.open(str(bundle) + ".new", "w") as tar:
        tar.add(str(attempt_dir / "work"), "work")
    Path(str(bundle) + ".new").replace(bundle)
    bundle.chmod(0o600)
