"""What a machine sends to a bucket and brings from one, and which answers of the bucket it tries again after."""

from __future__ import annotations

import fcntl
import io
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cloudgpu.access.jobs import remote_upload
from cloudgpu.access.jobs.remote_attempt import Attempt
from cloudgpu.access.jobs.remote_download import Download, DownloadFailed, place_data, read_refusal
from cloudgpu.access.jobs.remote_files import Fault, TreeListing, save
from cloudgpu.access.jobs.remote_upload import FormRefused, Upload
from tests.access.jobs.conftest import put_out_of_reach

ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"


class Bucket(ThreadingHTTPServer):
    """Answers requests with what is next in `answers`: status, code, headers, message; with 200 at the end."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.answers, self.asked = [], []
        self.thread = Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/lab"


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self):
        status, code, headers, message = self.server.answers.pop(0) if self.server.answers else (200, "", {}, "")
        self.server.asked.append((self.command, status))
        body = ERROR.format(code, message).encode() if status != 200 else b"content"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def bucket():
    made = Bucket()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def waits(monkeypatch):
    """The waits before another try, which do not take their time."""
    found = []
    monkeypatch.setattr(Upload, "wait", lambda _, seconds: found.append(seconds))
    monkeypatch.setattr(Download, "wait", lambda _, seconds: found.append(seconds))
    return found


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Attempt("job-1", 1)
    made.results.mkdir(parents=True)
    made.checkpoint.mkdir(parents=True)
    save(made.dir / "store.turn", "mine")
    return made


def upload_to(bucket, attempt):
    form = {"url": bucket.url, "fields": {}, "prefix": "runs/"}
    return Upload(attempt, {"form": form, "claim": "mine", "every": 60, "part": 1000, "until": 0})


def answer(status, code="", headers=None, message=""):
    return (status, code, headers or {}, message)


BUSY = {
    "S3: the connection was idle for too long": answer(400, "RequestTimeout"),
    "S3: too many requests": answer(503, "SlowDown"),
    "S3: another operation on the object": answer(409, "OperationAborted"),
    "Google: too many requests": answer(429, "SlowDown"),
    "Google: timeout": answer(408),
    "Azure: too many requests": answer(503, "ServerBusy"),
    "Azure: took too long": answer(500, "OperationTimedOut"),
    "a proxy": answer(502),
}
FINAL = {
    "S3: no right": (answer(403, "AccessDenied"), "403 AccessDenied"),
    "S3: the clock that signed is wrong": (answer(403, "RequestTimeTooSkewed"), "403 RequestTimeTooSkewed"),
    "S3: too large": (answer(400, "EntityTooLarge"), "400 EntityTooLarge"),
    "S3: no bucket": (answer(404, "NoSuchBucket"), "404 NoSuchBucket"),
    "S3: cannot do that": (answer(501, "NotImplemented"), "501 NotImplemented"),
    "says nothing": (answer(410), "410"),
}


@pytest.mark.parametrize("case", BUSY)
def test_an_upload_that_a_bucket_is_too_busy_for_is_sent_again(bucket, attempt, waits, case):
    bucket.answers += [BUSY[case]] * 2
    upload_to(bucket, attempt).upload_json("state/1.json", {})
    assert [status for _, status in bucket.asked] == [BUSY[case][0]] * 2 + [200]
    assert waits == [1.0, 2.0]


@pytest.mark.parametrize("case", FINAL)
def test_an_upload_that_a_bucket_refuses_is_sent_once_and_the_reason_is_told(bucket, attempt, waits, case):
    refused, reason = FINAL[case]
    bucket.answers.append(refused)
    with pytest.raises(FormRefused, match=f"the bucket refuses state: it answers {reason}$"):
        upload_to(bucket, attempt).upload_json("state/1.json", {})
    assert (len(bucket.asked), waits) == (1, [])


def test_a_bucket_that_stays_busy_is_named_with_what_it_answers(bucket, attempt, waits):
    bucket.answers += [answer(503, "SlowDown")] * 5
    with pytest.raises(OSError, match=r"^the bucket does not take what is sent: it answers 503 SlowDown$"):
        upload_to(bucket, attempt).upload_json("state/1.json", {})
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_a_bucket_that_asks_to_wait_is_granted_a_minute_at_most(bucket, attempt, waits):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    asked = ["7", later, "86400", "soon"]
    bucket.answers += [answer(503, "SlowDown", {"Retry-After": text}) for text in asked]
    upload_to(bucket, attempt).upload_json("state/1.json", {})
    assert (waits[0], waits[2], waits[3]) == (7.0, 60.0, 8.0)
    assert 20 < waits[1] <= 30


def test_a_wait_ends_when_another_process_uploads(bucket, attempt):
    save(attempt.dir / "store.turn", "another's")
    began = time.monotonic()
    with pytest.raises(remote_upload.Replaced):
        upload_to(bucket, attempt).wait(60)
    assert time.monotonic() - began < 30


def download_from(bucket, attempt, sizes=(7,)):
    parts = [[bucket.url, size] for size in sizes]
    item = {"store": "blobs", "name": "0" * 64, "label": "s3://lab/one", "size": sum(sizes), "parts": parts}
    return item, Download(attempt, {"until": time.time() + 3600, "files": [item]})


def fetch(bucket, attempt, tmp_path, sizes=(7,)):
    item, got = download_from(bucket, attempt, sizes)
    with (tmp_path / "part").open("w+b", 0) as file:
        got.fetch_missing(file, item)
        return (tmp_path / "part").read_bytes()


@pytest.mark.parametrize("case", BUSY)
def test_a_download_that_a_bucket_is_too_busy_for_is_asked_again(bucket, attempt, waits, tmp_path, case):
    bucket.answers += [BUSY[case]] * 2
    assert fetch(bucket, attempt, tmp_path) == b"content"
    assert waits == [1.0, 2.0]


def test_a_download_is_tried_again_whichever_way_its_connection_fails(bucket, attempt, waits, tmp_path, monkeypatch):
    real, errors = urllib.request.urlopen, [ssl.SSLError("timed out"), OSError("a time-out before Python 3.10")]

    def urlopen(*values, **options):
        if errors:
            raise errors.pop()
        return real(*values, **options)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert fetch(bucket, attempt, tmp_path) == b"content"
    assert waits == [1.0, 2.0]


def test_an_answer_that_is_longer_than_its_part_ends_where_the_next_part_begins(bucket, attempt, tmp_path):
    assert fetch(bucket, attempt, tmp_path, (3, 4)) == b"concont"


@pytest.fixture
def part(attempt):
    """The part file of the object, as another job that downloads it has it open and locked."""
    path = Path.home() / ".cloudgpu" / "blobs" / f".bring-{'0' * 64}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", 0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b"con")
        yield file


def test_a_job_is_ended_while_it_waits_for_what_another_downloads(bucket, attempt, part):
    save(attempt.dir / "stop.json", {"reason": "cancelled"})
    with pytest.raises(DownloadFailed, match="it was ended before its data had been downloaded"):
        download_from(bucket, attempt)[1].run()
    assert bucket.asked == []


def test_what_another_job_has_downloaded_meanwhile_counts_as_downloaded(bucket, attempt, part, monkeypatch):
    def finish(*_):
        part.write(b"tent")
        Path(part.name).rename(part.name.replace(".bring-", ""))
        fcntl.flock(part, fcntl.LOCK_UN)

    monkeypatch.setattr(Download, "wait", finish)
    download_from(bucket, attempt)[1].run()
    assert (bucket.asked, json.loads((attempt.dir / "data.json").read_text())) == ([], [7, 7])


def test_what_another_job_gave_up_and_removed_is_downloaded_into_a_new_file(bucket, attempt, part, monkeypatch):
    def give_up(*_):
        Path(part.name).unlink()
        fcntl.flock(part, fcntl.LOCK_UN)

    monkeypatch.setattr(Download, "wait", give_up)
    download_from(bucket, attempt)[1].run()
    assert Path(part.name.replace(".bring-", "")).read_bytes() == b"content"


@pytest.mark.parametrize(
    "expired",
    [
        answer(403, "AccessDenied", message="Request has expired"),  # S3
        answer(400, "ExpiredToken"),  # S3, for temporary credentials, and Google Cloud Storage
        answer(403, "AuthenticationFailed", message="Signature not valid in the specified time frame"),  # Azure
        answer(403, "RequestTimeTooSkewed"),
    ],
)
def test_an_address_that_its_bucket_calls_expired_is_signed_anew_whatever_the_machines_clock_says(
    bucket, attempt, waits, tmp_path, expired
):
    bucket.answers.append(expired)
    with pytest.raises(DownloadFailed, match="the URLs of its data have expired") as failed:
        fetch(bucket, attempt, tmp_path)
    assert failed.value.kind == "data"


def test_a_download_that_is_refused_or_never_served_says_with_what(bucket, attempt, waits, tmp_path):
    bucket.answers.append(answer(403, "AccessDenied"))
    with pytest.raises(DownloadFailed, match=r"one cannot be read: its bucket answers 403 AccessDenied$") as failed:
        fetch(bucket, attempt, tmp_path)
    assert failed.value.kind == "start"
    bucket.answers += [answer(503, "SlowDown")] * 9
    with pytest.raises(DownloadFailed, match=r"one does not arrive: its bucket answers 503 SlowDown$") as failed:
        fetch(bucket, attempt, tmp_path)
    assert failed.value.kind == "data"


def test_only_a_code_is_repeated_of_what_an_answer_says():
    text = b"<Error><Code>No\nCode https://x/?signature=secret</Code></Error>"
    refusal = read_refusal(urllib.error.HTTPError("http://x", 403, "no", Message(), io.BytesIO(text)))
    assert str(refusal) == "403"


def test_a_hundred_thousand_results_are_sorted_out_in_a_moment(bucket, attempt, monkeypatch):
    files = [{"path": f"f{number:06}" + "\n" * (number % 50 == 0)} for number in range(100_000)]
    found = {"files": files, "links": [], "skipped": [], "unreadable": [], "directories": []}
    monkeypatch.setattr(TreeListing, "read", lambda *_: found)
    began = time.process_time()
    listed = upload_to(bucket, attempt).list_files("results", [])
    assert (len(listed["files"]), len(listed["skipped"])) == (98_000, 2000)
    assert time.process_time() - began < 20  # comparing each with all took minutes


def test_a_result_that_cannot_be_read_is_waited_for_and_the_list_of_results_is_not_written(bucket, attempt):
    (attempt.results / "r").write_text("1")
    (attempt.checkpoint / "step-1").mkdir()
    (attempt.checkpoint / "step-1" / "r").write_text("1")
    for directory in (attempt.results, attempt.checkpoint / "step-1"):
        put_out_of_reach(directory)
    work, exit_record = upload_to(bucket, attempt), {"status": 1, "reason": "exited"}
    with pytest.raises(OSError, match=r"cannot be read there \(file name too long\)$"):
        work.upload_round(exit_record)
    assert not work.progress.get("final")
    assert work.last_manifest["checkpoints"] == []


def test_data_of_a_bucket_takes_the_place_of_earlier_data_and_of_no_file_of_the_user(attempt, tmp_path):
    """A destination may be anywhere on a machine that was there before, such as this computer."""
    store, place = tmp_path / ".cloudgpu" / "data", tmp_path / "imagenet"
    attempt.work_dir.joinpath("labels").write_text("of the workdir, which is a copy")
    for directory in (store, place):
        directory.mkdir()
    for name in ("one", "two"):
        (store / name).write_text(name)
        (store / name).chmod(0o444)
    (place / "labels").write_text("the user's own")
    with pytest.raises(Fault, match=f"{place / 'labels'} is there already"):
        place_data(attempt, [{"target": str(place), "files": [["labels", "one"]]}])
    assert (place / "labels").read_text() == "the user's own"
    (place / "labels").unlink()
    for name in ("one", "two"):
        for target in (place, "."):
            place_data(attempt, [{"target": str(target), "files": [["labels", name]]}])
            assert (attempt.work_dir / target / "labels").read_text() == name


def test_a_link_beside_checkpoints_is_none_and_goes_with_the_one_that_it_leads_to(bucket, attempt):
    root = attempt.checkpoint
    for number in (1, 2, 3):
        (root / f"step-{number}").mkdir()
        (root / f"step-{number}" / "weights").write_text(str(number))
        os.utime(root / f"step-{number}", (number, number))
    (root / "best").symlink_to("step-1")
    (root / "last").symlink_to("step-3/weights")
    (root / "away").symlink_to("/etc/hostname")
    (root / "step-4").symlink_to("nothing")
    assert [name for _, name in attempt.finished_checkpoints()] == ["step-3", "step-2", "step-1"]
    work = upload_to(bucket, attempt)
    work.upload_state()
    stored = {one["name"]: one["links"] for one in work.last_manifest["checkpoints"]}
    assert stored == {"step-2": [], "step-3": [["last", "step-3/weights"]]}
    sent = len(bucket.asked)
    (root / "last").unlink()
    (root / "last").symlink_to("step-2")
    work.upload_state()
    stored = {one["name"]: one["links"] for one in work.last_manifest["checkpoints"]}
    assert stored == {"step-2": [["last", "step-2"]], "step-3": []}
    assert len(bucket.asked) == sent + 1  # the list alone: no file has changed
