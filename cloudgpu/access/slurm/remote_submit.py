"""Takes one job through Slurm: submits it once, follows it to its end, and is the batch script and each rank of it.

This file's text is sent over SSH and runs as the command of a job's attempt on the node that has sbatch. It hands
itself to sbatch as the batch script, and to srun as what each node runs. Standard library only, Python 3.8+.

A job has a name that no other has. Before sbatch is called, and after it failed, the name is looked for: a job whose
submission was taken, and whose answer was lost, is followed and not submitted again.
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

from cloudgpu.access.slurm.remote_rank import END, ERR, FRAME, OUT, RESULTS, arrived, report, save, unpack, write_all

ENDED_STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
)  # fmt: skip
LOST_STATES = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED")
RETRY_ON = re.compile(r"timed out|unable to contact|connect|communicat|temporar|try again|transport", re.IGNORECASE)
TRIES, CALL_S, SHORTEST_S, LONGEST_S = 6, 60, 0.5, 15.0
COLLECT_TIMEOUT_S = 60.0
RANK = "remote_rank.py"  # in the attempt's directory
KEEP_ENV = re.compile(r"(CLOUDGPU_(?!ATTEMPT$|MACHINE$)|PYTHONUNBUFFERED$|PATH$|HOME$|USER$|LOGNAME$|SHELL$|LANG$|LC_)")
DROP_ENV = re.compile(r"SLURM_|SBATCH_|CLOUDGPU_ATTEMPT$")


# -- where sbatch is


class Submission:
    """One job in Slurm's hands; `asked` is what was asked of it, `place` the attempt's directory."""

    def __init__(self, place: Path, spec: dict[str, Any]) -> None:
        self.place, self.spec, self.asked = place, spec, spec["slurm"]
        self.files = place  # where the files of the job in the queue are: those of an earlier attempt it may be
        self.environ = engine_environment(self.asked)
        self.offsets: dict[str, int] = {}
        self.rests: dict[str, bytes] = {}
        self.served: dict[str, threading.Thread] = {}
        self.lock = threading.Lock()
        self.last: Any = None
        self.unsent = False  # the files could not be sent to a node

    def call(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Have a command of Slurm's carried out."""
        try:
            return subprocess.run(  # noqa: S603
                words, env=self.environ, input=given, capture_output=True, text=True, timeout=CALL_S, check=False
            )
        except FileNotFoundError:
            return subprocess.CompletedProcess(words, 127, "", f"{words[0]} is not on this machine")
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, "", f"{words[0]} timed out")

    def found(self) -> str | None:
        """Return Slurm's id of the job of this name, empty for none; None where nobody can tell."""
        said = self.call("squeue", "-h", "-a", "-t", "all", "--name", self.asked["name"], "-o", "%F|%T|%k")
        if said.returncode:
            return None
        for line in reversed(said.stdout.splitlines()):
            number, state, comment = [*line.strip().split("|", 2), "", ""][:3]
            if state not in LOST_STATES:
                self.files = Path(comment) if comment.startswith("/") and Path(comment).is_dir() else self.place
                return number
        return self.recorded()

    def recorded(self) -> str:
        """Return the id of a job of this name that has ended and left the queue; empty for none."""
        path = self.asked.get("records")
        with contextlib.suppress(OSError):
            for line in Path(path).expanduser().read_text(errors="replace").splitlines() if path else ():
                words = dict(word.partition("=")[::2] for word in line.split())
                if words.get("Name") == self.asked["name"] and words.get("JobState") not in LOST_STATES:
                    return words.get("JobId", "")
        return ""

    def submitted(self) -> str:
        """Return the id of the job, submitted if it is not there; empty where Slurm refuses it, which is told."""
        why = "Slurm does not answer"
        for tried in range(TRIES):
            time.sleep(min(2.0 * tried, 10.0))
            known = self.found()
            if known:
                return known
            if known is None:  # before it is known that it is not there, nothing is submitted
                continue
            done = self.call("sbatch", *self.options(), str(self.place / RANK), "batch")
            if not done.returncode and done.stdout.strip():
                return done.stdout.strip().split(";")[0]
            why = done.stderr.strip() or f"sbatch ended with {done.returncode}"
            if not RETRY_ON.search(why):
                break
        report(why)
        return ""

    def options(self) -> list[str]:
        """Return the options of sbatch."""
        asked = self.asked
        spread = asked.get("spread")
        names = sorted(one for one in self.environ if KEEP_ENV.match(one) or one in self.spec.get("env", {}))
        found = ["--parsable", f"--job-name={asked['name']}", f"--comment={self.place}", "--no-requeue"]
        found += [f"--chdir={'/' if spread else self.place}", f"--export={','.join(names)}", "--input=/dev/null"]
        found += [f"--output={'/dev/null' if spread else self.place / 'slurm-%j.log'}", "--open-mode=append"]
        found += [f"--nodes={asked['nodes']}", "--ntasks-per-node=1", f"--time={asked['minutes']}"]
        if asked.get("gpus_per_node"):
            found.append(f"--gpus-per-node={asked['gpus_per_node']}")
        if asked.get("whole"):
            found.append("--exclusive")
        for name in ("array", "partition", "account"):
            if asked.get(name):
                found.append(f"--{name}={asked[name]}")
        if asked.get("after"):
            found += [f"--dependency=afterok:{asked['after']}", "--kill-on-invalid-dep=yes"]
        return found

    def elements(self, number: str) -> list[dict[str, str]] | None:
        """Return what Slurm says of the job, each element of an array; empty once it knows nothing of it."""
        said = self.call("scontrol", "show", "job", "-o", number)
        if said.returncode:
            return [] if "Invalid job id" in said.stderr else None
        lines = (line for line in said.stdout.splitlines() if line.startswith("JobId="))
        return [dict(re.findall(r"(?:^|\s)([A-Za-z]+)=(\S*)", line)) for line in lines]

    def follow(self, number: str) -> tuple[str, int]:
        """Follow the job to its end; return why it ended, empty for by itself, and its exit status."""
        wait, last, known = SHORTEST_S, "", []  # type: float, str, list[dict[str, str]]
        while True:
            found = self.elements(number)
            if found:
                known = found
            self.note(number, known)
            for one in known:
                if self.asked.get("spread") and one["JobState"] in ("RUNNING", "COMPLETING"):
                    self.serve(one)
            self.pump(known)
            if found == [] or (known and all(one["JobState"] in ENDED_STATES for one in known)):
                break
            states = str([one["JobState"] for one in known])
            wait, last = (SHORTEST_S, states) if states != last else (min(wait * 1.1, LONGEST_S), states)
            time.sleep(wait)
        for thread in self.served.values():
            thread.join(COLLECT_TIMEOUT_S)
        self.pump(known, final=True)
        return self.outcome(known)

    def note(self, number: str, known: list[dict[str, str]]) -> None:
        """Write how far it is, for whoever looks."""
        rows = []
        for one in known:
            nodes = self.hosts(one.get("NodeList", ""))
            begin, end = (to_epoch(one.get(name, "")) for name in ("StartTime", "EndTime"))
            state, waits = one["JobState"], one["JobState"] == "PENDING"
            rows.append(
                {
                    "id": one["JobId"],
                    "task": one.get("ArrayTaskId", ""),
                    "state": state,
                    "reason": one.get("Reason", "").replace("_", " ") if waits else "",
                    "nodes": nodes,
                    "begin": None if waits or not nodes else begin,
                    "end": end if state in ENDED_STATES and nodes else None,
                }
            )
        value = {"id": number, "name": self.asked["name"], "tasks": rows}
        if value != self.last:
            save(self.place / "engine.json", value)
            self.last = value

    def hosts(self, nodes: str) -> list[str]:
        """Return the names of nodes that Slurm writes as train-[0-3]."""
        if nodes in ("", "(null)"):
            return []
        if not re.search(r"[\[,]", nodes):
            return [nodes]
        return self.call("scontrol", "show", "hostnames", nodes).stdout.split()

    def outcome(self, known: list[dict[str, str]]) -> tuple[str, int]:
        """Return why it ended, empty for by itself, and the status of what failed first."""
        if not known:
            report("Slurm does not know this job any more, so nobody can say how it ended")
            return "lost", 255
        known = sorted(known, key=lambda one: (to_epoch(one.get("EndTime", "")) or 0, one["JobId"]))
        worst = next((one for one in known if one["JobState"] != "COMPLETED"), known[0])
        state = worst["JobState"]
        if self.unsent:
            return "start", 1
        code, _, number = worst.get("ExitCode", "0:0").partition(":")
        if state not in ("COMPLETED", "FAILED"):
            report(f"Slurm job {worst['JobId']} ended as {state} {worst.get('Reason', '')}".rstrip())
        if state in ("TIMEOUT", "DEADLINE"):
            return "timeout", 143
        if state in LOST_STATES:
            return "lost", 143
        if state == "CANCELLED":
            return "cancelled", 143
        status = int(code) or (128 + int(number) if int(number or 0) else 0)
        return "", status if state == "COMPLETED" else status or 1

    # -- its output

    def pump(self, known: list[dict[str, str]], *, final: bool = False) -> None:
        """Print what is new of the output that is in files here."""
        for one in known:
            number = one["JobId"]
            if number in self.served:
                continue
            for stream, ending in ((OUT, "out"), (ERR, "err"), (ERR, "log")):
                path = self.files / f"slurm-{number}.{ending}"
                with contextlib.suppress(OSError), path.open("rb") as file:
                    file.seek(self.offsets.get(str(path), 0))
                    while data := file.read(1 << 20):
                        self.offsets[str(path)] = file.tell()
                        self.show(one, stream, data)
            if final:
                for stream in (OUT, ERR):
                    self.show(one, stream, b"", final=True)

    def show(self, one: dict[str, str], stream: int, data: bytes, *, final: bool = False) -> None:
        """Print output; that of an array's elements by lines, each behind the element's number."""
        task = one.get("ArrayTaskId")
        with self.lock:
            if task:
                key = f"{one['JobId']}-{stream}"
                lines = (self.rests.pop(key, b"") + data).split(b"\n")
                rest = lines.pop()
                if rest and not final:
                    self.rests[key] = rest
                elif rest:
                    lines.append(rest)
                data = b"".join(b"[%s] %s\n" % (task.encode(), line) for line in lines)
            write_all(1 if stream == OUT else 2, data)

    # -- files for nodes that do not have ours

    def serve(self, one: dict[str, str]) -> None:
        """Send an element its files, and take its output and results, where its nodes do not see ours."""
        number = one["JobId"]
        hosts = self.hosts(one.get("NodeList", ""))
        if number in self.served or not one.get("BatchHost") or set(hosts) <= {str(self.asked.get("own"))}:
            return
        thread = threading.Thread(target=self._serve, args=(one,), daemon=True)
        self.served[number] = thread
        thread.start()

    def _serve(self, one: dict[str, str]) -> None:
        number, token = one["JobId"], self.token()
        bundle, ready = self.place / "bundle.tar", self.place / "ready"
        if not self.sealed(one):
            return None
        with self.lock:
            if not bundle.exists():
                pack(self.place, bundle)
                ready.write_text(token)
        for source, ending in ((bundle, "tar"), (ready, "ready")):
            sends = ("sbcast", "--force", f"--jobid={number}", str(source), f"{arrived(self.files, token)}.{ending}")
            done = self.call(*sends)
            for _ in range(TRIES):
                if done.returncode:
                    time.sleep(1)
                    done = self.call(*sends)
            if done.returncode:
                return self._not_sent(one, "files", done.stderr)
        words = [*self.step(one), "--input=none", "--unbuffered", *self.rank(), "collect", str(self.files), number]
        words += [
            f"work/{self.spec['results']}",
            f"work/{own}" if (own := self.spec.get("checkpoint")) else "checkpoint",
        ]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        process = subprocess.Popen(words, env=self.environ, **pipes)  # noqa: S603
        if process.stdout is None or process.stderr is None:
            return None
        if not self._take(one, process.stdout):
            report(
                f"output and results of {one['NodeList']} did not come whole: {process.stderr.read().decode().strip()}"
            )
        process.wait()
        return None

    def token(self) -> str:
        """Return what the names of files on their way hold: of an earlier attempt, if it submitted the job."""
        spec = self.spec if self.files == self.place else json.loads((self.files / "spec.json").read_text())
        return str(spec["slurm"]["token"])

    def step(self, one: dict[str, str]) -> list[str]:
        """Return the begin of a command that runs beside an element, on its first node."""
        words = ["srun", f"--jobid={one['JobId']}", "--overlap", "--nodes=1", "--ntasks=1", "--gres=none", "--mem=0"]
        return [*words, f"--nodelist={one['BatchHost']}", "--chdir=/"]

    def rank(self) -> list[str]:
        """Return what runs our own text on a node."""
        return ["python3", "-IS", "-c", (self.place / RANK).read_text()]

    def sealed(self, one: dict[str, str]) -> bool:
        """Send an element its secrets where its first node does not see ours; say whether it has what it needs."""
        values = self.place / "secrets"
        if not values.exists() or one["BatchHost"] == self.asked.get("own"):
            return True
        sends = [*self.step(one), *self.rank(), "seal", str(self.files), one["JobId"]]
        for tried in range(TRIES):
            time.sleep(min(tried, 1))
            done = self.call(*sends, given=values.read_text())
            if not done.returncode:
                return True
        self._not_sent(one, "secrets", done.stderr)
        return False

    def _not_sent(self, one: dict[str, str], what: str, why: str) -> None:
        """End an element: its nodes would wait for what does not come, and cost money."""
        self.unsent = True
        self.call("scancel", one["JobId"])
        report(f"the {what} could not be sent to {one['NodeList']}: {why.strip()}")

    def _take(self, one: dict[str, str], source: Any) -> bool:
        """Take what the collector writes; return whether it came to its end."""
        coming = self.place / f"coming-{one['JobId']}.tar"
        while True:
            kind, size = FRAME.unpack(head) if len(head := source.read(FRAME.size)) == FRAME.size else (0, 0)
            if kind in (OUT, ERR):
                self.show(one, kind, source.read(size))
            elif kind == RESULTS:
                with coming.open("ab") as file:
                    file.write(source.read(size))
            else:
                break
        for stream in (OUT, ERR):
            self.show(one, stream, b"", final=True)
        if kind == END and coming.exists():
            with tarfile.open(str(coming)) as tar:
                unpack(tar, self.place)
        with contextlib.suppress(OSError):
            coming.unlink()
        return bool(kind == END)


def to_epoch(text: str) -> float | None:
    """Return a time of Slurm's, which is local, as seconds since 1970; None for none."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def engine_environment(options: Any) -> dict[str, str]:
    """Return the environment in which sbatch finds its cluster: ours, or what the login's shell sets."""
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
        said = subprocess.run([shell, "-lc", "env -0"], capture_output=True, timeout=CALL_S, check=True).stdout  # noqa: S603
        pairs = dict(one.partition("=")[::2] for one in said.decode(errors="replace").split("\0") if "=" in one)
        return {name: value for name, value in pairs.items() if re.match(r"(PATH|SLURM_CONF|LD_LIBRARY_PATH)$", name)}
    return {}


def stop_as(place: Path, reason: str) -> None:
    """Write why it ended where the attempt's supervisor looks for it; who asked before is the one who ended it."""
    path = place / "stop.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    save(path, {"mono": time.monotonic(), "reason": reason, **known, "grace": 10.0})


def submit() -> int:
    """Submit the job, once, and follow it; return its exit status."""
    place = Path(os.environ["CLOUDGPU_ATTEMPT"])
    spec = json.loads((place / "spec.json").read_text())
    spec["slurm"].pop("program", None)
    job, ended = Submission(place, spec), threading.Event()
    (place / "origin").write_text(socket.gethostname())
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    job.asked["sealed"] = (place / "secrets").exists()
    job.environ["CLOUDGPU_SLURM"] = json.dumps({**job.asked, "place": str(place), "argv": spec["argv"]})
    number = job.submitted()
    if not number:
        forget(place)
        stop_as(place, "start")
        return 1
    threading.Thread(target=cancelled, args=(job, number, ended), daemon=True).start()
    reason, status = job.follow(number)
    forget(place, job.files)
    for name in {spec["results"], spec.get("checkpoint")} - {None} if job.files != place else ():
        if (job.files / "work" / name).is_dir():
            shutil.copytree(str(job.files / "work" / name), str(place / "work" / name), dirs_exist_ok=True)
    if reason:
        stop_as(place, reason)
    return status


def forget(*places: Path) -> None:
    """Remove secrets that no batch script has read and removed."""
    for path in places:
        with contextlib.suppress(OSError):
            (path / "secrets").unlink()


def cancelled(job: Submission, number: str, ended: threading.Event) -> None:
    """Have Slurm end the job once somebody asks, until it says that it does."""
    ended.wait()
    while job.call("scancel", number).returncode:
        time.sleep(1)


def pack(place: Path, bundle: Path) -> None:
    """Put the working directory into one file."""
    with tarfile.open(str(bundle) + ".new", "w") as tar:
        tar.add(str(place / "work"), "work")
    Path(str(bundle) + ".new").replace(bundle)
    bundle.chmod(0o600)
