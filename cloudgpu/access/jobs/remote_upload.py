"""Copies what a job writes from the machine it runs on into a bucket, by a form that was signed elsewhere for hours.

This file's text is sent over SSH behind that of `remote_download.py` (`access/jobs/program.py` does it). Standard
library only, Python 3.8+. No SDK, no key: the form allows objects to be made under the prefix of this one job, and
stays in the memory of the process that uploads.

What is under the prefix (`core/jobs/stored.py` reads it):

    state/NUMBER.json       what attempt NUMBER has written so far: results and the newest complete checkpoints
    state/NUMBER-COUNT/N    their files; none is ever overwritten
    results/PATH            the results of a command that is over
    output/NUMBER/out, err  what it wrote
    results.json            sizes and sha256 of all that, and how the command ended; written last

An object appears whole or not at all, and a list after all that it names: where the list is, the files are.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

from cloudgpu.access.jobs.remote_attempt import Attempt, detached, root_dir
from cloudgpu.access.jobs.remote_download import read_refusal, take_next
from cloudgpu.access.jobs.remote_files import CHUNK, Fault, Tree, answer, is_locked, load, save, sync, take_lock

VERSION = 1
MAX_PARALLEL = 4
TRIES, PAUSE_S = 5, 0.5  # of one object; the pause doubles
SEND_TIMEOUT_S = 60.0
NOTICED_S = 5.0
RETRY_S = 10.0  # after a round that failed
POLL_S = 0.1
ROUNDS = 3  # of results that change, though their command is over
MAX_CHECKPOINTS = 2  # checkpoints
CONTINUED_REASONS = ("lost", "moved")  # how a command ended that another attempt continues: these are no results


class Refused(Exception):
    """The bucket does not accept the form any more, or never did: another one is needed."""


class Replaced(Exception):
    """Another process uploads from now on."""


class Changed(Exception):
    """A file changed while it was uploaded."""


class Upload:
    """What one process uploads of one attempt."""

    def __init__(self, attempt: Attempt, request: dict[str, Any]) -> None:
        self.attempt, self.form, self.claim = attempt, request["form"], request["claim"]
        self.every, self.part = float(request["every"]), int(request["part"])
        self.progress: dict[str, Any] = load(attempt.dir / "store.json") or {}
        known = load(attempt.dir / "state.json") or request.get("known") or {}
        self.last: dict[str, Any] = {"results": {"files": [], "links": []}, "checkpoints": [], **known}
        self.done: dict[str, dict[str, Any]] = {}  # results of a command that is over, by path
        self.note(until=request["until"], error="")

    def note(self, **facts: Any) -> None:
        """Write how far it is, for the next look. No address is in it."""
        self.progress.update(facts)
        save(self.attempt.dir / "store.json", self.progress)

    def run(self) -> None:
        """Upload at the interval, and all of it when the command is over."""
        due = time.monotonic() + self.every
        while True:
            pause = POLL_S
            try:
                ended = self.attempt.exit()
                if ended or time.monotonic() >= due:
                    self.upload_round(ended)
                    due = time.monotonic() + self.pause()
                due = min(due, time.monotonic() + self.pause())  # a notice comes between two rounds
                if ended:
                    return
            except (Refused, Replaced) as end:
                self.note(error=str(end))
                return
            except (OSError, Fault, Changed, http.client.HTTPException) as error:  # may pass: a full disk, the network
                self.note(error=str(error)[:300] or type(error).__name__)
                pause, due = RETRY_S, time.monotonic()
            self.check_claim()
            time.sleep(pause)

    def pause(self) -> float:
        """Return the seconds to the next round: few where the provider has given notice that it takes the machine."""
        return min(self.every, NOTICED_S) if (root_dir() / "notice").exists() else self.every

    def upload_round(self, ended: dict[str, Any]) -> None:
        """Upload what there is now. What another attempt may begin with is not needed of one that succeeded."""
        succeeded = ended and ended["status"] == 0 and ended["reason"] == "exited"
        if not succeeded:
            self.state()
        if ended and ended["reason"] not in CONTINUED_REASONS:
            self.upload_results(ended)
        if ended:
            self.note(final=True)

    def check_claim(self) -> None:
        """Raise Replaced where another process was begun after this one."""
        if load(self.attempt.dir / "store.turn") != self.claim:
            raise Replaced("another form is used")

    # -- while it runs

    def state(self) -> None:
        """Upload results and complete checkpoints, then the list of them, where anything is new."""
        self.note(count=int(self.progress.get("count", 0)) + 1)  # before anything is there by this number
        place = f"state/{self.attempt.number}-{self.progress['count']:06}/"
        names = iter(range(10**9))
        known = {one["sha256"]: one["parts"] for one in self.files_of(self.last)}

        def put(root: Path, file: dict[str, Any]) -> dict[str, Any]:
            if file["sha256"] not in known:
                known[file["sha256"]] = self.file(root / file["path"], file, f"{place}{next(names)}")
            return entry(file, known[file["sha256"]])

        manifest = {"version": VERSION, "results": self.results(put), "checkpoints": self.checkpoints(put)}
        if {**self.last, "version": VERSION} != manifest or not self.progress.get("at"):
            self.json(f"state/{self.attempt.number}.json", manifest)
            save(self.attempt.dir / "state.json", manifest)
            self.last = manifest
        self.note(at=time.time(), error="")

    @staticmethod
    def files_of(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all files of a list."""
        for part in (manifest["results"], *manifest["checkpoints"]):
            yield from part["files"]

    def results(self, put: Callable[[Path, dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Upload the results so far; of a file that changes meanwhile, the copy before it stays."""
        root = self.attempt.results
        found = self.list_files("results", names_in(root))
        before = {one["path"]: one for one in self.last["results"]["files"]}
        files, changed = self.upload_files(root, found["files"], put)
        files += [before[path] for path in changed if path in before]
        return {"files": sorted(files, key=lambda one: one["path"]), "links": found["links"]}

    def checkpoints(self, put: Callable[[Path, dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
        """Upload the newest complete checkpoints; one that changes meanwhile is left out, and the older ones stay."""
        root, listed = self.attempt.checkpoint, {one["name"]: one for one in self.last["checkpoints"]}
        for changed_ns, name in reversed(self.attempt.finished()[:MAX_CHECKPOINTS]):
            found = self.list_files("checkpoint", [name])
            files, changed = self.upload_files(root, found["files"], put)
            if files and not changed and self.list_files("checkpoint", [name]) == found:
                listed.pop(name, None)
                files.sort(key=lambda one: one["path"])
                held = {"attempt": self.attempt.number, "work_s": self.work_until(changed_ns)}
                listed[name] = {"name": name, "files": files, "links": found["links"], **held}
        return [*listed.values()][-MAX_CHECKPOINTS:]

    def work_until(self, moment_ns: int) -> float | None:
        """Return how long the command of this attempt had run by then, in seconds; None before it began."""
        started = self.attempt.process().get("epoch")
        return None if started is None else max(0.0, moment_ns / 1e9 - started)

    def list_files(self, which: str, names: Iterable[str]) -> dict[str, Any]:
        """Return what lies below the results or these checkpoints; what no form can name is left out."""
        root = self.attempt.checkpoint if which == "checkpoint" else self.attempt.results
        names = self.attempt.with_links(names) if which == "checkpoint" else names
        found = Tree(root, self.attempt.dir / f"hashes-{which}.json").read(names)
        plain = [one for one in found["files"] if one["path"].isprintable()]
        others = (one["path"] for one in found["files"] if not one["path"].isprintable())
        skipped = [[path, "its name is not printable"] for path in others]
        return {**found, "files": plain, "skipped": [*found["skipped"], *skipped]}

    def upload_files(
        self, root: Path, files: list[dict[str, Any]], put: Callable[[Path, dict[str, Any]], dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Upload files side by side; return those that are there, and the paths of those that changed meanwhile."""
        left = list(files)
        uploaded: list[dict[str, Any]] = []
        changed: list[str] = []
        faults: list[Exception] = []

        def upload_each(file: dict[str, Any]) -> None:
            try:
                uploaded.append(put(root, file))
            except (Changed, FileNotFoundError):
                changed.append(file["path"])

        def work() -> None:
            try:
                file = take_next(left)
                while file is not None and not faults:
                    upload_each(file)
                    file = take_next(left)
            except Exception as error:  # noqa: BLE001  (raised where the threads are waited for)
                faults.append(error)

        workers = [threading.Thread(target=work) for _ in range(min(MAX_PARALLEL, len(files)))]
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        if faults:
            raise faults[0]
        return uploaded, changed

    # -- when the command is over

    def upload_results(self, ended: dict[str, Any]) -> None:
        """Upload the results under their own names, the output, and last the list of all. Raises Changed."""
        found = self.list_files("results", names_in(self.attempt.results))
        for _ in range(ROUNDS):
            files, changed = self.upload_files(self.attempt.results, found["files"], self.upload_result)
            before, found = found, self.list_files("results", names_in(self.attempt.results))
            if not changed and found == before:
                break
        else:
            raise Changed("the results change, though their command is over")
        process, setup = self.attempt.process(), load(self.attempt.dir / "setup.json") or {}
        manifest = {
            "version": VERSION,
            "attempt": self.attempt.number,
            "exit": ended,
            "started": process.get("epoch"),
            "setup_s": setup.get("s"),
            "files": sorted(files, key=lambda one: one["path"]),
            "links": found["links"],
            "skipped": found["skipped"],
            "output": [self.output(path) for path in (self.attempt.out, self.attempt.err) if path.exists()],
        }
        self.json("results.json", manifest)
        self.note(at=time.time(), error="")

    def upload_result(self, root: Path, file: dict[str, Any]) -> dict[str, Any]:
        """Upload one result under its own name, once."""
        done = self.done.get(file["path"])
        if done is None or done["sha256"] != file["sha256"]:
            done = entry(file, self.file(root / file["path"], file, f"results/{file['path']}"))
            self.done[file["path"]] = done
        return done

    def output(self, path: Path) -> dict[str, Any]:
        """Upload one stream of the command's output."""
        hasher = hashlib.sha256()
        with path.open("rb", 0) as file:
            while True:
                data = file.read(CHUNK)
                if not data:
                    break
                hasher.update(data)
        file_ = {"path": path.name, "size": path.stat().st_size, "mode": 0o600, "sha256": hasher.hexdigest()}
        return entry(file_, self.file(path, file_, f"output/{self.attempt.number}/{path.name}"))

    # -- objects

    def file(self, path: Path, file: dict[str, Any], key: str) -> list[list[Any]]:
        """Upload a file, a large one in parts; return the key and size of each. Raises Changed where it has changed."""
        size, hasher, parts = file["size"], hashlib.sha256(), []
        for at in range(0, max(size, 1), self.part):
            length = min(self.part, size - at)
            name = key if size <= self.part else f"{key}.part-{at // self.part:04}"
            hasher = self.put(name, length, path, at, hasher)
            parts.append([name, length])
        if hasher.hexdigest() != file["sha256"]:
            raise Changed(file["path"])
        return parts

    def json(self, key: str, value: dict[str, Any]) -> None:
        """Upload a list: it names nothing that is not there."""
        text = json.dumps(value).encode()
        self.check_claim()
        self.post(key, len(text), lambda: iter([text]))

    def put(self, key: str, size: int, path: Path, at: int, hasher: Any) -> Any:
        """Upload a part of a file; return the hash of the file up to its end."""
        self.check_claim()
        hashes: list[Any] = []

        def pieces() -> Iterator[bytes]:
            hashes.append(hasher.copy())
            yield from read_part(path, at, size, hashes[-1])

        self.post(key, size, pieces)
        return hashes[-1]

    def post(self, key: str, size: int, pieces: Callable[[], Iterator[bytes]]) -> None:
        """Make one object. A bucket that is busy is asked again. Raises Refused, Replaced, Changed, OSError."""
        why, wait = "", 0.0
        for again in range(TRIES):
            if again:
                self.wait(max(PAUSE_S * 2**again, wait))
            try:
                return post_form(self.form, key, size, pieces)
            except urllib.error.HTTPError as error:
                refusal = read_refusal(error)
                if not refusal.is_busy:
                    raise Refused(f"the bucket refuses {key.partition('/')[0]}: it answers {refusal}") from None
                why, wait = f"the bucket does not take what is sent: it answers {refusal}", refusal.wait_s
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                why, wait = f"the bucket cannot be reached: {type(error).__name__}", 0.0
        raise OSError(why)

    def wait(self, seconds: float) -> None:
        """Wait before the next try. Raises Replaced as soon as another process uploads."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(max(0.0, min(1.0, end - time.monotonic())))
            self.check_claim()


def post_form(form: dict[str, Any], key: str, size: int, pieces: Callable[[], Iterator[bytes]]) -> None:
    """Send the form with one file in it."""
    boundary = os.urandom(16).hex()
    fields = {**form["fields"], "key": form["prefix"] + key}
    texts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}\r\n' for name in fields
    ]
    texts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n')
    texts.append("Content-Type: application/octet-stream\r\n\r\n")
    head, end = "".join(texts).encode(), f"\r\n--{boundary}--\r\n".encode()

    def body() -> Iterator[bytes]:
        yield head
        yield from pieces()
        yield end

    length = str(len(head) + size + len(end))
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Content-Length": length}
    post = urllib.request.Request(form["url"], data=body(), headers=headers, method="POST")  # noqa: S310
    with urllib.request.urlopen(post, timeout=SEND_TIMEOUT_S) as answer:  # noqa: S310
        answer.read()


def read_part(path: Path, at: int, size: int, hasher: Any) -> Iterator[bytes]:
    """Yield a part of a file, exactly so long, and hash it. Raises Changed for one that has become shorter."""
    with path.open("rb", 0) as file:
        file.seek(at)
        while size:
            data = file.read(min(CHUNK, size))
            if not data:
                raise Changed(path.name)
            hasher.update(data)
            size -= len(data)
            yield data


def entry(file: dict[str, Any], parts: list[list[Any]]) -> dict[str, Any]:
    """Return a file as lists name it: `parts` are the objects that it is made of, in order."""
    return {**{name: file[name] for name in ("path", "size", "mode", "sha256")}, "parts": parts}


def names_in(root: Path) -> list[str]:
    """Return the names in a directory, none where there is none."""
    try:
        return os.listdir(str(root))  # noqa: PTH208
    except FileNotFoundError:
        return []


# -- whose turn it is


def claim_uploads(attempt: Attempt) -> str:
    """Have whoever uploads of this attempt stop at its next object; return what tells our own process."""
    claim = os.urandom(8).hex()
    save(attempt.dir / "store.turn", claim)
    return claim


def stop_earlier_uploads(attempt: Attempt) -> None:
    """Have the uploads of the job's earlier attempts on this machine stop."""
    for number in range(1, attempt.number):
        earlier = Attempt(attempt.job, number)
        if earlier.dir.exists():
            claim_uploads(earlier)


def upload(attempt: Attempt, request: dict[str, Any]) -> None:
    """Upload, once nobody else does for this job here; the lock tells that somebody does, and that a job is at work."""
    numbers = range(1, attempt.number + 1)
    for one in (Attempt(attempt.job, number) for number in numbers):
        if not one.dir.exists():
            continue
        lock = -1
        while lock < 0:
            lock = take_lock(one.dir / "store.lock", wait=POLL_S)
            if load(attempt.dir / "store.turn") != request["claim"]:
                return
        if one.number < attempt.number:
            os.close(lock)
    work = Upload(attempt, request)
    try:
        work.run()
    except Replaced:
        pass
    except Exception as error:  # noqa: BLE001  (nobody reads what this process complains of)
        work.note(error=f"the upload failed: {type(error).__name__}")


def upload_state(attempt: Attempt) -> dict[str, Any]:
    """Return how far the uploads are: whether anybody does them, until when, what came last, and whether all did."""
    said = load(attempt.dir / "store.json") or {}
    names = ("until", "at", "final", "error")
    return {"alive": is_locked(attempt.dir / "store.lock"), **{name: said.get(name) for name in names}}


# -- what is asked of it


def state_with_uploads(attempt: Attempt) -> dict[str, Any]:
    """Return all that can be seen of an attempt, and of its uploads."""
    return {**attempt.state(), "storing": upload_state(attempt)}


def store(request: dict[str, Any]) -> None:
    """Have a process upload what the attempt writes, by the form of this request, in place of any other."""
    attempt = Attempt(request["job"], request["attempt"])
    if not attempt.dir.exists():
        raise Fault("failed", "there is no such attempt")
    claim = claim_uploads(attempt)
    detached(lambda: upload(attempt, {**request, "claim": claim}))
    answer(state_with_uploads(attempt))


def sync_results(request: dict[str, Any]) -> None:
    """Have the results on a volume reach its disk; answer with how many files and bytes they are."""
    root = Attempt(request["job"], request["attempt"]).results
    sizes = [os.lstat(os.path.join(here, name)).st_size for here, _, names in os.walk(str(root)) for name in names]  # noqa: PTH118
    sync(root)
    answer({"files": len(sizes), "bytes": sum(sizes)})
