"""Uploads what a job writes from the machine it runs on to a bucket, by a presigned POST form.

`access/jobs/program.py` sends this text over SSH, after `remote_download.py`. Standard library only, Python 3.8+. No
SDK and no key: the form allows creating objects under the prefix of this job. It stays in the memory of the uploading
process.

Objects under the prefix (`core/jobs/stored.py` reads them):

- state/NUMBER.json: what attempt NUMBER has written so far, results and the newest complete checkpoints
- state/NUMBER-COUNT/N: their files; COUNT counts the uploads of the state, N the files of one; none is ever overwritten
- results/PATH: the results of a command that is over
- output/NUMBER/out, err: what it wrote
- results.json: sizes and sha256 of all that, and how the command ended; written last

Objects are created atomically, and a manifest after all files that it lists.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

from cloudgpu.access.jobs.remote_attempt import Attempt, root_dir, run_detached
from cloudgpu.access.jobs.remote_download import read_refusal, run_parallel
from cloudgpu.access.jobs.remote_files import (
    CHUNK_BYTES,
    Fault,
    hash_file,
    is_locked,
    load,
    names_in,
    save,
    sync_file_system,
    take_lock,
    write_answer,
)

VERSION = 1
MAX_PARALLEL = 4
TRIES, PAUSE_S = 5, 0.5  # of one object; the pause doubles
SEND_TIMEOUT_S = 60.0
SPOT_NOTICE_S = 5.0
RETRY_S = 10.0  # after a failed round
POLL_S = 0.1
ROUNDS = 3  # for results that still change after their command has ended
MAX_CHECKPOINTS = 2
CONTINUED_REASONS = ("lost", "moved")  # after these another attempt continues: there are no final results


class FormRefused(Exception):
    """The bucket does not accept the form: a new one is needed."""


class Replaced(Exception):
    """Another process has taken over the uploads."""


class Changed(Exception):
    """A file changed while it was uploaded."""


class Upload:
    """The uploads of one attempt by one process, while `claim`, the id of that process, is the last one on the disk."""

    def __init__(self, attempt: Attempt, request: dict[str, Any]) -> None:
        self.attempt, self.form, self.claim = attempt, request["form"], request["claim"]
        self.interval_s, self.part_bytes = float(request["every"]), int(request["part"])
        self.progress: dict[str, Any] = load(attempt.dir / "store.json") or {}
        last_manifest = load(attempt.dir / "state.json") or request.get("known") or {}
        self.last_manifest: dict[str, Any] = {"results": {"files": [], "links": []}, "checkpoints": [], **last_manifest}
        self.uploaded_results: dict[str, dict[str, Any]] = {}  # results of a command that has ended, by path
        self.save_progress(until=request["until"], error="")

    def save_progress(self, **values: Any) -> None:
        """Write the progress, for `upload_progress`. It contains no URL.

        `until`: the form is valid; `at`: time of the last upload; `count`: uploads of the state; `final`: all is
        uploaded; `error`: of the last upload, or empty. Times are epochs.
        """
        self.progress.update(values)
        save(self.attempt.dir / "store.json", self.progress)

    def run(self) -> None:
        """Upload at every interval, and everything when the command has ended."""
        next_round_at = time.monotonic() + self.interval_s
        while True:
            pause = POLL_S
            try:
                exit_record = self.attempt.exit()
                if exit_record or time.monotonic() >= next_round_at:
                    self.upload_round(exit_record)
                    next_round_at = time.monotonic() + self.round_pause()
                # a spot notice may come between two rounds
                next_round_at = min(next_round_at, time.monotonic() + self.round_pause())
                if exit_record:
                    return
            except (FormRefused, Replaced) as error:
                self.save_progress(error=str(error))
                return
            except (OSError, Fault, Changed, http.client.HTTPException) as error:  # may be temporary: a full disk
                self.save_progress(error=str(error)[:300] or type(error).__name__)
                pause, next_round_at = RETRY_S, time.monotonic()
            self.check_claim()
            time.sleep(pause)

    def round_pause(self) -> float:
        """Return the seconds to the next round: few after a spot notice."""
        return min(self.interval_s, SPOT_NOTICE_S) if (root_dir() / "notice").exists() else self.interval_s

    def upload_round(self, exit_record: dict[str, Any]) -> None:
        """Upload what is new. State for another attempt is not uploaded after a success."""
        succeeded = exit_record and exit_record["status"] == 0 and exit_record["reason"] == "exited"
        if not succeeded:
            self.upload_state()
        if exit_record and exit_record["reason"] not in CONTINUED_REASONS:
            self.upload_results(exit_record)
        if exit_record:
            self.save_progress(final=True)

    def check_claim(self) -> None:
        """Raise Replaced if another process has taken over."""
        if load(self.attempt.dir / "store.turn") != self.claim:
            raise Replaced("another form is used")

    # -- while it runs

    def upload_state(self) -> None:
        """Upload new results and complete checkpoints, then the manifest of the state."""
        self.save_progress(count=int(self.progress.get("count", 0)) + 1)  # before any object has this number
        directory = f"state/{self.attempt.number}-{self.progress['count']:06}/"
        names = iter(range(10**9))
        parts_by_hash = {file["sha256"]: file["parts"] for file in self.files_of(self.last_manifest)}

        def put(root: Path, new_file: dict[str, Any]) -> dict[str, Any]:  # uploads unless an object has this content
            if new_file["sha256"] not in parts_by_hash:
                parts_by_hash[new_file["sha256"]] = self.upload_file(
                    root / new_file["path"], new_file, f"{directory}{next(names)}"
                )
            return manifest_entry(new_file, parts_by_hash[new_file["sha256"]])

        manifest = {
            "version": VERSION,
            "results": self.upload_results_so_far(put),
            "checkpoints": self.upload_checkpoints(put),
        }
        if {**self.last_manifest, "version": VERSION} != manifest or not self.progress.get("at"):
            self.upload_json(f"state/{self.attempt.number}.json", manifest)
            save(self.attempt.dir / "state.json", manifest)
            self.last_manifest = manifest
        self.save_progress(at=time.time(), error="")

    @staticmethod
    def files_of(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all files of a manifest."""
        for part in (manifest["results"], *manifest["checkpoints"]):
            yield from part["files"]

    def upload_results_so_far(self, put: Callable[[Path, dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Upload the results so far; of a file that changes meanwhile, the earlier copy counts."""
        root = self.attempt.results
        listing = self.list_files("results", names_in(root))
        earlier_files = {file["path"]: file for file in self.last_manifest["results"]["files"]}
        files, changed = self.upload_files(root, listing["files"], put)
        files += [earlier_files[path] for path in changed if path in earlier_files]
        return {"files": sorted(files, key=lambda file: file["path"]), "links": listing["links"]}

    def upload_checkpoints(self, put: Callable[[Path, dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
        """Upload the newest complete checkpoints; one that changes meanwhile is left out, and older ones stay."""
        root, checkpoints = (
            self.attempt.checkpoint,
            {checkpoint["name"]: checkpoint for checkpoint in self.last_manifest["checkpoints"]},
        )
        for mtime_ns, name in reversed(self.attempt.finished_checkpoints()[:MAX_CHECKPOINTS]):
            manifest = self.list_files("checkpoint", [name])
            files, changed = self.upload_files(root, manifest["files"], put)
            is_complete = files and not changed and not manifest["unreadable"]
            if is_complete and self.list_files("checkpoint", [name]) == manifest:
                checkpoints.pop(name, None)
                files.sort(key=lambda file: file["path"])
                origin = {"attempt": self.attempt.number, "work_s": self.work_until(mtime_ns)}
                checkpoints[name] = {"name": name, "files": files, "links": manifest["links"], **origin}
        return [*checkpoints.values()][-MAX_CHECKPOINTS:]

    def work_until(self, moment_ns: int) -> float | None:
        """Return how many seconds the command had run at `moment_ns`; None before it began."""
        started = self.attempt.process().get("epoch")
        return None if started is None else max(0.0, moment_ns / 1e9 - started)

    def list_files(self, kind: str, names: Iterable[str]) -> dict[str, Any]:
        """Return the manifest of the results or of these checkpoints, without names that a form cannot contain."""
        listing = self.attempt.list_files(kind, names)
        printable = [file for file in listing["files"] if file["path"].isprintable()]
        unprintable_paths = (file["path"] for file in listing["files"] if not file["path"].isprintable())
        skipped = [[path, "its name is not printable"] for path in unprintable_paths]
        return {**listing, "files": printable, "skipped": [*listing["skipped"], *skipped]}

    def upload_files(
        self, root: Path, files: list[dict[str, Any]], put: Callable[[Path, dict[str, Any]], dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Upload files in parallel; return the uploaded ones, and the paths of those that changed meanwhile."""
        uploaded: list[dict[str, Any]] = []
        changed: list[str] = []

        def upload_one(file: dict[str, Any]) -> None:
            try:
                uploaded.append(put(root, file))
            except (Changed, FileNotFoundError):
                changed.append(file["path"])

        run_parallel(upload_one, files, MAX_PARALLEL, [])
        return uploaded, changed

    # -- when the command has ended

    def upload_results(self, exit_record: dict[str, Any]) -> None:
        """Upload the results under their own names, the output, and last the manifest.

        Raises Changed, and OSError while a result cannot be read: its machine would be ended without it.
        """
        listing = self.list_files("results", names_in(self.attempt.results))
        for _ in range(ROUNDS):
            files, changed = self.upload_files(self.attempt.results, listing["files"], self.upload_result)
            previous, listing = listing, self.list_files("results", names_in(self.attempt.results))
            if not changed and listing == previous:
                break
        else:
            raise Changed("the results still change after their command has ended")
        for path, reason in listing["unreadable"]:
            raise OSError(f"{path[:200]} cannot be read there ({reason.lower()})")
        process, setup = self.attempt.process(), load(self.attempt.dir / "setup.json") or {}
        manifest = {
            "version": VERSION,
            "attempt": self.attempt.number,
            "exit": exit_record,
            "started": process.get("epoch"),
            "setup_s": setup.get("s"),
            "files": sorted(files, key=lambda file: file["path"]),
            "links": listing["links"],
            "skipped": listing["skipped"],
            "output": [self.upload_output(path) for path in (self.attempt.out, self.attempt.err) if path.exists()],
        }
        self.upload_json("results.json", manifest)
        self.save_progress(at=time.time(), error="")

    def upload_result(self, root: Path, file: dict[str, Any]) -> dict[str, Any]:
        """Upload one result under its own name, once."""
        uploaded = self.uploaded_results.get(file["path"])
        if uploaded is None or uploaded["sha256"] != file["sha256"]:
            uploaded = manifest_entry(file, self.upload_file(root / file["path"], file, f"results/{file['path']}"))
            self.uploaded_results[file["path"]] = uploaded
        return uploaded

    def upload_output(self, path: Path) -> dict[str, Any]:
        """Upload one stream of the command's output."""
        sha256, status = hash_file(path)
        file = {"path": path.name, "size": status.st_size, "mode": 0o600, "sha256": sha256}
        return manifest_entry(file, self.upload_file(path, file, f"output/{self.attempt.number}/{path.name}"))

    # -- objects

    def upload_file(self, path: Path, file: dict[str, Any], key: str) -> list[list[Any]]:
        """Upload a file, a large one in parts; return the key and size of each part. Raises Changed."""
        size, hasher, parts = file["size"], hashlib.sha256(), []
        for offset in range(0, max(size, 1), self.part_bytes):
            length = min(self.part_bytes, size - offset)
            name = key if size <= self.part_bytes else f"{key}.part-{offset // self.part_bytes:04}"
            hasher = self.upload_part(name, length, path, offset, hasher)
            parts.append([name, length])
        if hasher.hexdigest() != file["sha256"]:
            raise Changed(file["path"])
        return parts

    def upload_json(self, key: str, value: dict[str, Any]) -> None:
        """Upload a manifest."""
        text = json.dumps(value).encode()
        self.check_claim()
        self.post(key, len(text), lambda: iter([text]))

    def upload_part(self, key: str, size: int, path: Path, offset: int, hasher: Any) -> Any:
        """Upload a part of a file; return the hasher of the file up to the end of the part."""
        self.check_claim()
        hashers: list[Any] = []

        def chunks() -> Iterator[bytes]:
            hashers.append(hasher.copy())
            yield from read_part(path, offset, size, hashers[-1])

        self.post(key, size, chunks)
        return hashers[-1]

    def post(self, key: str, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Create one object; retry while the bucket is busy. Raises FormRefused, Replaced, Changed, OSError."""
        reason, wait_s = "", 0.0
        for retries in range(TRIES):
            if retries:
                self.wait(max(PAUSE_S * 2**retries, wait_s))
            try:
                return post_form(self.form, key, size, chunks)
            except urllib.error.HTTPError as error:
                refusal = read_refusal(error)
                if not refusal.is_busy:
                    raise FormRefused(f"the bucket refuses {key.partition('/')[0]}: it answers {refusal}") from None
                reason, wait_s = f"the bucket does not take what is sent: it answers {refusal}", refusal.wait_s
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                reason, wait_s = f"the bucket cannot be reached: {type(error).__name__}", 0.0
        raise OSError(reason)

    def wait(self, seconds: float) -> None:
        """Wait before the next try. Raises Replaced as soon as another process takes over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(max(0.0, min(1.0, deadline - time.monotonic())))
            self.check_claim()


def post_form(form: dict[str, Any], key: str, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
    """Post the form with one file."""
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
        yield from chunks()
        yield end

    length = str(len(head) + size + len(end))
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Content-Length": length}
    post = urllib.request.Request(form["url"], data=body(), headers=headers, method="POST")  # noqa: S310
    with urllib.request.urlopen(post, timeout=SEND_TIMEOUT_S) as response:  # noqa: S310
        response.read()


def read_part(path: Path, offset: int, size: int, hasher: Any) -> Iterator[bytes]:
    """Yield `size` bytes of a file from `offset` on, and hash them. Raises Changed if the file is shorter."""
    with path.open("rb", 0) as file:
        file.seek(offset)
        while size:
            data = file.read(min(CHUNK_BYTES, size))
            if not data:
                raise Changed(path.name)
            hasher.update(data)
            size -= len(data)
            yield data


def manifest_entry(file: dict[str, Any], parts: list[list[Any]]) -> dict[str, Any]:
    """Return a file as in manifests: `parts` are its objects, in order."""
    return {**{name: file[name] for name in ("path", "size", "mode", "sha256")}, "parts": parts}


# -- which process uploads


def claim_uploads(attempt: Attempt) -> str:
    """Stop the process that uploads for this attempt at its next object; return the id of the new claim."""
    claim = os.urandom(8).hex()
    save(attempt.dir / "store.turn", claim)
    return claim


def stop_earlier_uploads(attempt: Attempt) -> None:
    """Stop the uploads of the job's earlier attempts on this machine."""
    for number in range(1, attempt.number):
        earlier = Attempt(attempt.job, number)
        if earlier.dir.exists():
            claim_uploads(earlier)


def upload(attempt: Attempt, request: dict[str, Any]) -> None:
    """Upload, after all other processes that upload for this job here have stopped; hold store.lock meanwhile."""
    numbers = range(1, attempt.number + 1)
    for earlier in (Attempt(attempt.job, number) for number in numbers):
        if not earlier.dir.exists():
            continue
        lock = -1
        while lock < 0:
            lock = take_lock(earlier.dir / "store.lock", wait=POLL_S)
            if load(attempt.dir / "store.turn") != request["claim"]:
                return
        if earlier.number < attempt.number:
            os.close(lock)
    uploads = Upload(attempt, request)
    try:
        uploads.run()
    except Replaced:
        pass
    except Exception as error:  # noqa: BLE001  (nobody reads what this process complains of)
        uploads.save_progress(error=f"the upload failed: {type(error).__name__}")


def upload_progress(attempt: Attempt) -> dict[str, Any]:
    """Return the state of the uploads: running, form valid until, time of the last, complete, last error."""
    progress = load(attempt.dir / "store.json") or {}
    names = ("until", "at", "final", "error")
    return {"alive": is_locked(attempt.dir / "store.lock"), **{name: progress.get(name) for name in names}}


# -- requests


def state_with_uploads(attempt: Attempt) -> dict[str, Any]:
    """Return the state of an attempt and of its uploads."""
    return {**attempt.state(), "storing": upload_progress(attempt)}


def start_upload(attempt: Attempt, request: dict[str, Any]) -> None:
    """Start a process that uploads what the attempt writes, by the form of this request; it replaces any other."""
    if not attempt.dir.exists():
        raise Fault("failed", "there is no such attempt")
    claim = claim_uploads(attempt)
    run_detached(lambda: upload(attempt, {**request, "claim": claim}))
    write_answer(state_with_uploads(attempt))


def sync_results(attempt: Attempt, _request: dict[str, Any]) -> None:
    """Sync the results on a volume to disk; answer with their number of files and bytes."""
    root = attempt.results
    paths = (Path(directory, name) for directory, _, names in os.walk(str(root)) for name in names)
    sizes = [path.lstat().st_size for path in paths]
    sync_file_system(root)
    write_answer({"files": len(sizes), "bytes": sum(sizes)})
