"""Brings files from buckets to the machine it runs on, by addresses that were signed elsewhere for some hours.

This file's text is sent over SSH behind those of `remote_files.py` and `remote_attempt.py` (`access/jobs/program.py`
does it). Standard library only, Python 3.8+. No SDK, no key: an address allows one object to be read, and stays in the
memory of the keeper. No error repeats one.

`~/.cloudgpu/data/NAME` holds each object once, shared by all jobs: its name is made of where it is and of its ETag. A
name there is whole: what arrives is written beside, continued after a cut, compared by size, and only then renamed.
"""

from __future__ import annotations

import contextlib
import email.utils
import fcntl
import http.client
import os
import re
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from cloudgpu.access.jobs.remote_attempt import Attempt, root_dir, volume
from cloudgpu.access.jobs.remote_files import CHUNK, Fault, create, hashed, remove, safe_path, save, sync_directory

MAX_PARALLEL = 8
TRIES, PAUSE_S = 5, 0.5  # of one object; the pause doubles
TIMEOUT_S = 60.0  # how long a bucket may send nothing
REPORT_S = 1.0
KEEP_FOR_S = 7 * 86400.0  # how long an object that no job uses stays for the next one
MAX_WAIT_S = 60.0  # the longest wait before the next try that a bucket's Retry-After is granted
MAX_ERROR = 1 << 16  # bytes of an error's text that are read
FORBIDDEN, CHANGED, PARTIAL, BROKEN = 403, 412, 206, 500
# Answers that S3, Google Cloud Storage and Azure Blob Storage document as worth another try, by status and by code
BUSY_STATUSES, FINAL_STATUSES = (408, 425, 429), (501, 505)
BUSY_CODES = (
    "BandwidthLimitExceeded",
    "InternalError",
    "OperationAborted",
    "OperationTimedOut",
    "PriorRequestNotComplete",
    "RequestLimitExceeded",
    "RequestTimeout",
    "ServerBusy",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
)
# Codes and phrases for an address or a form whose time is over: S3, Google Cloud Storage; Azure's last
EXPIRED_CODES = ("ExpiredToken", "RequestExpired", "RequestTimeTooSkewed")
EXPIRED_PHRASES = ("request has expired", "policy expired", "not valid in the specified time frame")


class Failed(Exception):
    """Files that did not come. `kind` is `data` where new addresses may help, `start` where nothing does."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Refusal(NamedTuple):
    """An answer of a bucket that is an error: what it says, and how long it asks to wait."""

    status: int
    code: str
    is_busy: bool
    is_expired: bool
    wait_s: float

    def __str__(self) -> str:
        """Return it in words: the status, and the code where there is one."""
        return f"{self.status} {self.code}".rstrip()


class Download:
    """The files of one attempt that are not here yet, brought side by side."""

    def __init__(self, attempt: Attempt, request: dict[str, Any]) -> None:
        self.attempt, self.until = attempt, float(request["until"])
        self.items = [one for one in request["files"] if not is_downloaded(one)]
        self.total = sum(one["size"] for one in self.items)
        self.done, self.reported, self.checked = 0, 0.0, 0.0
        self.lock = threading.Lock()
        self.fault: Exception | None = None
        self.is_stopped = False

    def run(self) -> None:
        """Bring all of them. Raises Failed, OSError."""
        self.report(now=True)
        left = list(reversed(self.items))
        workers = [threading.Thread(target=self.work, args=(left,)) for _ in range(min(MAX_PARALLEL, len(left)))]
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        if self.fault is not None:
            raise self.fault
        if self.is_stopped:
            raise Failed("cancelled", "it was ended before its data had come")
        self.report(now=True)

    def work(self, left: list[dict[str, Any]]) -> None:
        """Bring one file after the other until none is left, or one failed."""
        try:
            item = take_next(left)
            while item is not None and self.fault is None and not self.is_stopped:
                self.fetch(item)
                item = take_next(left)
        except Exception as error:  # noqa: BLE001  (raised where the threads are waited for)
            self.fault = self.fault or error

    def fetch(self, item: dict[str, Any]) -> None:
        """Bring one file. Another job that brings it now is waited for."""
        final = path_of(item)
        final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = final.with_name(f".bring-{final.name}")
        handle = create(part)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not is_downloaded(item):
                with os.fdopen(os.dup(handle), "r+b", 0) as file:
                    self.fill(file, item)
                self.name(part, final, item)
            else:
                remove(part)
        finally:
            os.close(handle)

    def fill(self, file: Any, item: dict[str, Any]) -> None:
        """Write what is missing of a file, part by part. Raises Failed, OSError."""
        have = min(os.fstat(file.fileno()).st_size, item["size"])
        self.count(have)
        at = 0
        for address, size in item["parts"]:
            tries = 0
            while have < at + size and not self.is_stopped:
                before = have
                have, refusal = self.fetch_part(file, item, address, at, have)
                tries = 0 if have > before else tries + 1
                if tries == TRIES:
                    why = "the connection to its bucket is cut" if refusal is None else f"its bucket answers {refusal}"
                    raise Failed("data", f"{item['label']} does not arrive: {why}")
                if tries:
                    self.wait(max(PAUSE_S * 2**tries, 0.0 if refusal is None else refusal.wait_s))
            at += size

    def wait(self, seconds: float) -> None:
        """Wait before the next try, unless all this is to stop."""
        end = time.monotonic() + seconds
        while not self.is_stopped and time.monotonic() < end:
            time.sleep(max(0.0, min(REPORT_S, end - time.monotonic())))
            self.count(0)

    def fetch_part(
        self, file: Any, item: dict[str, Any], address: str, at: int, have: int
    ) -> tuple[int, Refusal | None]:
        """Write as much of one part as one connection brings; return how much of the file is here, and the refusal."""
        refusal = None
        headers = {"Range": f"bytes={have - at}-"} if have > at else {}
        if item.get("etag"):
            headers["If-Match"] = f'"{item["etag"]}"'
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_S) as answer:  # noqa: S310
                begin = have if not headers.get("Range") or answer.status == PARTIAL else at
                self.count(begin - have)
                return self.write(file, answer, begin, item["size"]), None
        except urllib.error.HTTPError as error:
            refusal = read_refusal(error)
            self.refuse(refusal, item)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError):
            pass
        return min(os.fstat(file.fileno()).st_size, int(item["size"])), refusal

    def write(self, file: Any, answer: Any, begin: int, most: int) -> int:
        """Write an answer from there on; return how far it came. A connection that is cut ends it."""
        file.truncate(begin)
        file.seek(begin)
        while begin < most and not self.is_stopped:
            try:
                data = answer.read(min(CHUNK, most - begin))
            except (OSError, http.client.HTTPException):
                break
            if not data:
                break
            file.write(data)
            begin += len(data)
            self.count(len(data))
        return begin

    def refuse(self, refusal: Refusal, item: dict[str, Any]) -> None:
        """Raise Failed for an answer after which trying again has no use; a bucket that is busy is asked again."""
        if refusal.is_expired or (refusal.status == FORBIDDEN and time.time() >= self.until):
            raise Failed("data", "the addresses of its data have expired")
        if refusal.status == CHANGED:
            raise Failed("start", f"{item['label']} was changed while it was fetched")
        if not refusal.is_busy:
            raise Failed("start", f"{item['label']} cannot be read: its bucket answers {refusal}")

    def name(self, part: Path, final: Path, item: dict[str, Any]) -> None:
        """Give a file its name, where it is what it should be."""
        if self.is_stopped:
            return
        digest, facts = hashed(part)
        if facts.st_size != item["size"] or (item.get("sha256") and digest != item["sha256"]):
            remove(part)
            raise Failed("start", f"{item['label']} arrived with another content than it was listed with")
        handle = os.open(str(part), os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        part.chmod(0o600 if item["store"] == "blobs" else 0o444)
        part.replace(final)
        sync_directory(final.parent)

    def count(self, size: int) -> None:
        """Note so many bytes more; look, now and then, whether all this is to stop."""
        with self.lock:
            self.done += size
            if time.monotonic() - self.checked > REPORT_S:
                self.checked = time.monotonic()
                self.is_stopped = self.is_stopped or bool(self.attempt.stop())
        self.report()

    def report(self, *, now: bool = False) -> None:
        """Write how far it is, once a second at most."""
        with self.lock:
            if now or time.monotonic() - self.reported > REPORT_S:
                self.reported = time.monotonic()
                with contextlib.suppress(OSError):
                    save(self.attempt.dir / "data.json", [self.done, self.total])


def read_refusal(error: urllib.error.HTTPError) -> Refusal:
    """Return what an answer says that is an error; its text is XML with a code, or anything where a proxy wrote it."""
    text = ""
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        text = error.read(MAX_ERROR).decode("utf-8", "replace")
    found = re.search(r"<Code>([A-Za-z0-9.]{1,64})</Code>", text)
    code = found.group(1) if found else ""
    is_busy = error.code in BUSY_STATUSES or code in BUSY_CODES
    is_busy = is_busy or (error.code >= BROKEN and error.code not in FINAL_STATUSES)
    is_expired = code in EXPIRED_CODES or any(one in text.lower() for one in EXPIRED_PHRASES)
    return Refusal(error.code, code, is_busy, is_expired and not is_busy, retry_after(error.headers))


def retry_after(headers: Any) -> float:
    """Return how many seconds an answer asks to wait, a minute at most; 0 where it does not say."""
    said = (headers.get("Retry-After") or "").strip()
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if said.isdigit():
            return min(float(said), MAX_WAIT_S)
        return max(0.0, min(email.utils.parsedate_to_datetime(said).timestamp() - time.time(), MAX_WAIT_S))
    return 0.0


def take_next(left: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Take one file off a list that several threads work on; None where none is left."""
    try:
        return left.pop()
    except IndexError:
        return None


def path_of(item: dict[str, Any]) -> Path:
    """Return where a file is kept: `blobs` by its sha256, `data` by what its object is. Raises Fault."""
    if item["store"] not in ("blobs", "data") or len(item["name"]) != 64 or set(item["name"]) - set("0123456789abcdef"):  # noqa: PLR2004
        raise Fault("invalid", "a file of a bucket has a name that is none")
    return root_dir() / str(item["store"]) / str(item["name"])


def is_downloaded(item: dict[str, Any]) -> bool:
    """Tell whether a file is here already; one that is used stays."""
    path = path_of(item)
    try:
        if path.stat().st_size != item["size"]:
            return False
        os.utime(str(path))
    except OSError:
        return False
    return True


def place(attempt: Attempt, shown: list[dict[str, Any]]) -> None:
    """Show data to the command: objects under their names, and paths that are here. Raises Fault, OSError.

    Objects are links to what all jobs share, and cannot be written to.
    """
    for one in shown:
        root = attempt.work / str(one["target"])  # joined with an absolute one, it is that one
        root.parent.mkdir(parents=True, exist_ok=True)
        if "source" in one:
            source = volume() if one["source"].startswith("volume:") else Path(one["source"])
            if source != root:
                link(source, root, ours=attempt.work in root.parents)
        for path, name in one.get("files", ()):
            where = root / safe_path(path) if path else root
            where.parent.mkdir(parents=True, exist_ok=True)
            source = root_dir() / "data" / name
            try:
                remove(where)
                os.link(str(source), str(where))
            except OSError:  # another file system
                link(source, where, ours=True)


def link(source: Path, where: Path, *, ours: bool) -> None:
    """Make a link in place of one that is there, and of a file where the place is `ours`."""
    if where.is_symlink() or (ours and where.is_file()):
        where.unlink()
    where.symlink_to(source)


def forget_data(needed: set[str]) -> int:
    """Remove objects that no job here needs and that none has used for a week; return their bytes."""
    freed = 0
    for path in (root_dir() / "data").glob("*"):
        with contextlib.suppress(OSError):
            facts = path.stat()
            if path.name not in needed and time.time() - facts.st_mtime > KEEP_FOR_S:
                path.unlink()
                freed += facts.st_size
    return freed


def download(attempt: Attempt, request: dict[str, Any] | None) -> None:
    """Bring the files of an attempt that are in buckets. Raises Broken, Fault, OSError."""
    if request and request["files"]:
        Download(attempt, request).run()
