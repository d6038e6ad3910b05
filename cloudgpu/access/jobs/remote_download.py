"""Downloads files from buckets to the machine it runs on, by presigned URLs that are valid for some hours.

`access/jobs/program.py` sends this text over SSH, after `remote_files.py` and `remote_attempt.py`. Standard library
only, Python 3.8+. No SDK and no key: a presigned URL allows one object to be read. URLs stay in the memory of the
job's keeper (`remote_keeper.py`), and no error contains one.

`~/.cloudgpu/data/NAME` holds each object once, shared by all jobs; NAME is a hash of its location and ETag. A file is
written to a part file, resumed after an interruption, compared by size, and then renamed.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import os
import re
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, NamedTuple

from cloudgpu.access.jobs.remote_attempt import Attempt, root_dir, volume_path
from cloudgpu.access.jobs.remote_files import (
    CHUNK_BYTES,
    Fault,
    hash_file,
    remove,
    safe_path,
    save,
    sync_directory,
    take_lock,
)

MAX_PARALLEL = 8
TRIES, PAUSE_S = 5, 0.5  # per object; the pause doubles
TIMEOUT_S = 60.0  # without any data from a bucket
REPORT_S = 1.0  # between two reports of the progress, and two looks for a request to stop
RETAIN_UNUSED_S = 7 * 86400.0  # an object that no job uses is retained so long for the next job
MAX_WAIT_S = 60.0  # the longest Retry-After of a bucket that is respected
MAX_ERROR_BYTES = 1 << 16  # of an error's text
FORBIDDEN, CHANGED, PARTIAL, SERVER_ERROR = 403, 412, 206, 500  # HTTP statuses; CHANGED: `If-Match` does not match
# Errors that S3, Google Cloud Storage and Azure Blob Storage document as retryable, by status and by code
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
# For an expired URL or form: codes of S3 and Google Cloud Storage; phrases, the last one of Azure
EXPIRED_CODES = ("ExpiredToken", "RequestExpired", "RequestTimeTooSkewed")
EXPIRED_PHRASES = ("request has expired", "policy expired", "not valid in the specified time frame")


class DownloadFailed(Exception):
    """A download failed. `kind` is `data` if new URLs may help, `cancelled` if the job was ended, else `start`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Refusal(NamedTuple):
    """An error that a bucket answered: its meaning, and how long the bucket asks to wait."""

    status: int
    code: str
    is_busy: bool
    is_expired: bool
    wait_s: float

    def __str__(self) -> str:
        """Return the status, and the code if there is one."""
        return f"{self.status} {self.code}".rstrip()


class Download:
    """Downloads the missing files of one attempt, in parallel.

    An item is a file of the request: `store` and `name` say where it goes, `label` how errors call it, `parts` are
    [presigned URL, bytes]; `etag` and `sha256` where they are known.
    """

    def __init__(self, attempt: Attempt, request: dict[str, Any]) -> None:
        self.attempt, self.urls_expire_at = attempt, float(request["until"])
        self.items = [item for item in request["files"] if not is_downloaded(item)]
        self.bytes_total = sum(item["size"] for item in self.items)
        self.bytes_done, self.reported_at, self.stop_checked_at = 0, 0.0, 0.0
        self.lock = threading.Lock()
        self.errors: list[Exception] = []
        self.is_stopped = False

    def run(self) -> None:
        """Download all files. Raises DownloadFailed, OSError."""
        self.report(immediately=True)
        run_parallel(self.fetch, self.items, MAX_PARALLEL, self.errors)
        if self.is_stopped:
            raise DownloadFailed("cancelled", "it was ended before its data had been downloaded")
        self.report(immediately=True)

    def fetch(self, item: dict[str, Any]) -> None:
        """Download one file; wait while another job downloads it, unless this one is to stop."""
        final_path = path_of(item)
        final_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part_file = final_path.with_name(f".bring-{final_path.name}")
        handle = self.lock_part(part_file)
        if handle < 0:
            return
        with os.fdopen(handle, "r+b", 0) as file:
            if is_downloaded(item):
                remove(part_file)
                self.count_bytes(item["size"])
            else:
                self.fetch_missing(file, item)
                self.finish(part_file, final_path, item)

    def lock_part(self, part_file: Path) -> int:
        """Return a descriptor that holds the lock of a part file, -1 if the job is to stop or failed meanwhile."""
        while not self.errors and not self.is_stopped:
            handle = take_lock(part_file, wait=0.0)
            if handle < 0:
                self.wait(REPORT_S)
            elif is_open_at(handle, part_file):
                return handle
            else:  # the other job has renamed or removed it since it was opened
                os.close(handle)
        return -1

    def fetch_missing(self, file: Any, item: dict[str, Any]) -> None:
        """Download the missing parts of a file. Raises DownloadFailed, OSError."""
        offset = min(os.fstat(file.fileno()).st_size, item["size"])
        self.count_bytes(offset)
        part_start = 0
        for url, size in item["parts"]:
            tries = 0
            while offset < part_start + size and not self.is_stopped:
                offset_before = offset
                offset, refusal = self.fetch_part(file, item, url, range(part_start, part_start + size), offset)
                tries = 0 if offset > offset_before else tries + 1
                if tries == TRIES:
                    reason = (
                        "the connection to its bucket is cut" if refusal is None else f"its bucket answers {refusal}"
                    )
                    raise DownloadFailed("data", f"{item['label']} does not arrive: {reason}")
                if tries:
                    self.wait(max(PAUSE_S * 2**tries, 0.0 if refusal is None else refusal.wait_s))
            part_start += size

    def wait(self, seconds: float) -> None:
        """Wait before the next try, unless the job is to stop."""
        deadline = time.monotonic() + seconds
        while not self.is_stopped and time.monotonic() < deadline:
            time.sleep(max(0.0, min(REPORT_S, deadline - time.monotonic())))
            self.count_bytes(0)

    def fetch_part(
        self, file: Any, item: dict[str, Any], url: str, part: range, offset: int
    ) -> tuple[int, Refusal | None]:
        """Download what one connection yields of a part; return the bytes of the file so far, and the refusal."""
        headers = {"Range": f"bytes={offset - part.start}-"} if offset > part.start else {}
        if item.get("etag"):
            headers["If-Match"] = f'"{item["etag"]}"'
        try:
            response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)  # noqa: S310
        except urllib.error.HTTPError as error:
            refusal = read_refusal(error)
            self.raise_if_final(refusal, item)
            return offset, refusal
        except (OSError, http.client.HTTPException):  # before Python 3.10, a time-out is no TimeoutError
            return offset, None
        with response:
            start = offset if not headers.get("Range") or response.status == PARTIAL else part.start
            self.count_bytes(start - offset)
            return self.write(file, response, start, part.stop), None

    def write(self, file: Any, response: Any, offset: int, end: int) -> int:
        """Write a response from offset `offset` on, up to `end`; return the offset reached when the connection ends."""
        file.truncate(offset)
        file.seek(offset)
        while offset < end and not self.is_stopped:
            try:
                data = response.read(min(CHUNK_BYTES, end - offset))
            except (OSError, http.client.HTTPException):
                break
            if not data:
                break
            file.write(data)
            offset += len(data)
            self.count_bytes(len(data))
        return offset

    def raise_if_final(self, refusal: Refusal, item: dict[str, Any]) -> None:
        """Raise DownloadFailed for an answer that another try will not change; not for a busy bucket."""
        if refusal.is_expired or (refusal.status == FORBIDDEN and time.time() >= self.urls_expire_at):
            raise DownloadFailed("data", "the URLs of its data have expired")
        if refusal.status == CHANGED:
            raise DownloadFailed("start", f"{item['label']} was changed while it was downloaded")
        if not refusal.is_busy:
            raise DownloadFailed("start", f"{item['label']} cannot be read: its bucket answers {refusal}")

    def finish(self, part_file: Path, final_path: Path, item: dict[str, Any]) -> None:
        """Verify a downloaded file, sync it and rename it. Raises DownloadFailed if it differs from the list."""
        if self.is_stopped:
            return
        digest, status = hash_file(part_file)
        if status.st_size != item["size"] or (item.get("sha256") and digest != item["sha256"]):
            remove(part_file)
            raise DownloadFailed("start", f"{item['label']} has another content than it was listed with")
        handle = os.open(str(part_file), os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        part_file.chmod(0o600 if item["store"] == "blobs" else 0o444)
        part_file.replace(final_path)
        sync_directory(final_path.parent)

    def count_bytes(self, size: int) -> None:
        """Count downloaded bytes; check now and then whether the job is to stop."""
        with self.lock:
            self.bytes_done += size
            if time.monotonic() - self.stop_checked_at > REPORT_S:
                self.stop_checked_at = time.monotonic()
                self.is_stopped = self.is_stopped or bool(self.attempt.stop_request())
        self.report()

    def report(self, *, immediately: bool = False) -> None:
        """Write the progress, at most once a second."""
        with self.lock:
            if immediately or time.monotonic() - self.reported_at > REPORT_S:
                self.reported_at = time.monotonic()
                with contextlib.suppress(OSError):
                    save(self.attempt.dir / "data.json", [self.bytes_done, self.bytes_total])


def read_refusal(error: urllib.error.HTTPError) -> Refusal:
    """Return the meaning of an error; its text is XML with a code, or anything if a proxy wrote it."""
    text = ""
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        text = error.read(MAX_ERROR_BYTES).decode("utf-8", "replace")
    match = re.search(r"<Code>([A-Za-z0-9.]{1,64})</Code>", text)
    code = match.group(1) if match else ""
    is_busy = error.code in BUSY_STATUSES or code in BUSY_CODES
    is_busy = is_busy or (error.code >= SERVER_ERROR and error.code not in FINAL_STATUSES)
    is_expired = code in EXPIRED_CODES or any(phrase in text.lower() for phrase in EXPIRED_PHRASES)
    return Refusal(error.code, code, is_busy, is_expired and not is_busy, retry_after(error.headers))


def retry_after(headers: Any) -> float:
    """Return the seconds to wait by the Retry-After header, at most MAX_WAIT_S; 0 without one."""
    header = (headers.get("Retry-After") or "").strip()
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if header.isdigit():
            return min(float(header), MAX_WAIT_S)
        return max(0.0, min(email.utils.parsedate_to_datetime(header).timestamp() - time.time(), MAX_WAIT_S))
    return 0.0


def is_open_at(handle: int, path: Path) -> bool:
    """Tell whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def run_parallel(
    work: Callable[[Any], object], items: list[dict[str, Any]], max_parallel: int, errors: list[Exception]
) -> None:
    """Call `work` with each item, in threads, and with none after an error. Raises the first of `errors`."""
    next_items = iter(items)  # which threads may share

    def run_worker() -> None:
        try:
            for item in next_items:
                if errors:
                    return
                work(item)
        except Exception as error:  # noqa: BLE001  (raised where the threads are waited for)
            errors.append(error)

    workers = [threading.Thread(target=run_worker) for _ in range(min(max_parallel, len(items)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def path_of(item: dict[str, Any]) -> Path:
    """Return the local path of a file: in `blobs` by its sha256, in `data` by its object. Raises Fault."""
    if item["store"] not in ("blobs", "data") or len(item["name"]) != 64 or set(item["name"]) - set("0123456789abcdef"):  # noqa: PLR2004
        raise Fault("invalid", "a file of a bucket has an invalid name")
    return root_dir() / str(item["store"]) / str(item["name"])


def is_downloaded(item: dict[str, Any]) -> bool:
    """Tell whether a file is here already; if so, mark it as used now."""
    path = path_of(item)
    try:
        if path.stat().st_size != item["size"]:
            return False
        os.utime(str(path))
    except OSError:
        return False
    return True


def place_data(attempt: Attempt, entries: list[dict[str, Any]]) -> None:
    """Link data into the working directory: downloaded objects, and paths on this machine. Raises Fault, OSError.

    An entry has `target`, the path of the link, with `source`, a path on this machine, or `files`: (path below
    `target`, name of the object). Objects are read-only links to files that all jobs share.
    """
    for entry in entries:
        root = attempt.work_dir / str(entry["target"])  # an absolute target replaces the working directory
        root.parent.mkdir(parents=True, exist_ok=True)
        if "source" in entry:
            source = volume_path() if entry["source"].startswith("volume:") else Path(entry["source"])
            if source != root:
                link(source, root, replace_file=attempt.work_dir in root.parents)
        for path, name in entry.get("files", ()):
            link_path = root / safe_path(path) if path else root
            if attempt.work_dir not in link_path.parents:
                refuse_to_replace(link_path)
            link_path.parent.mkdir(parents=True, exist_ok=True)
            source = root_dir() / "data" / name
            try:
                remove(link_path)
                os.link(str(source), str(link_path))
            except OSError:  # another file system
                link(source, link_path, replace_file=True)


def refuse_to_replace(path: Path) -> None:
    """Raise Fault for a file of the user: unlike data of an earlier job, somebody may write to it."""
    with contextlib.suppress(FileNotFoundError):
        if not path.is_symlink() and path.stat().st_mode & 0o222:
            raise Fault("failed", f"{path} is there already, and data of a bucket does not replace it")


def link(source: Path, path: Path, *, replace_file: bool) -> None:
    """Make a symbolic link; replace a link, and a file if `replace_file`."""
    if path.is_symlink() or (replace_file and path.is_file()):
        path.unlink()
    path.symlink_to(source)


def remove_unused_data(needed: set[str]) -> int:
    """Remove objects that no job needs and none has used for RETAIN_UNUSED_S; return the bytes freed."""
    freed = 0
    for path in (root_dir() / "data").glob("*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            if path.name not in needed and time.time() - status.st_mtime > RETAIN_UNUSED_S:
                path.unlink()
                freed += status.st_size
    return freed


def download(attempt: Attempt, request: dict[str, Any] | None) -> None:
    """Download the files of an attempt that are in buckets. Raises DownloadFailed, Fault, OSError."""
    if request and request["files"]:
        Download(attempt, request).run()
