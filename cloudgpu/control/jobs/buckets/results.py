"""Results and checkpoints of a job in a bucket: the machine's access to write, and what is stored there."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cloudgpu.access.jobs.copies import CopiedFile
from cloudgpu.access.jobs.remote import RemoteJob, Restored
from cloudgpu.control.jobs.buckets.data import PRESIGNED_URL_TTL_S, bucket_settings_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.jobs import stored
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.stored import StoredFile, StoredFiles, StoredResults, StoredState
from cloudgpu.core.jobs.transfers import Download, Transfers
from cloudgpu.core.model.buckets import BucketAddress
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.buckets import ResultsBucket, open_results_bucket

PRESIGNED_POST_TTL_S = 12 * 3600  # how long a machine may upload while no computer watches its job
MIN_VALIDITY_S = PRESIGNED_POST_TTL_S / 2  # a presigned form that is valid for less is replaced by a new one


@dataclass(frozen=True, slots=True)
class JobBucket:
    """The folder of one job in a bucket, read and written with the user's SDK (`client`)."""

    address: BucketAddress
    client: ResultsBucket

    @property
    def prefix(self) -> str:
        """What all keys of the job begin with."""
        return f"{self.address.prefix}/"

    def results(self, attempt_number: int) -> StoredResults | None:
        """Return the results of the attempt with this number, if they are complete in the bucket; else None.

        Their list (an object of its own) is written last; the size of each object is compared with it all the same.
        Raises AuthFailed, ProviderUnavailable.
        """
        text = self.client.read(self.prefix + stored.LIST)
        results = None if text is None else stored.read_results(text)
        if results is None or results.attempt != attempt_number:
            return None
        missing = stored.missing_objects(results.results.files, self._object_sizes(stored.RESULTS))
        return None if missing else results

    def state(self, last_attempt: int) -> tuple[StoredState, bytes] | None:
        """Return the newest list of what attempts up to `last_attempt` have written, parsed and as it was read."""
        for number in range(last_attempt, 0, -1):
            text = self.client.read(f"{self.prefix}{stored.STATE}{number}.json")
            state = None if text is None else stored.read_state(text)
            if state is not None and text is not None:
                return state, text
        return None

    def download(self, file: StoredFile) -> Download:
        """Return the download of a listed file; the machine compares its sha256."""
        parts = tuple(
            (self.client.presigned_url(self.prefix + key, PRESIGNED_URL_TTL_S), size) for key, size in file.parts
        )
        return Download("blobs", file.sha256, f"{self.address.text}/{file.parts[0][0]}", file.size, parts)

    def copy(self, file: StoredFile, target: BinaryIO) -> None:
        """Write the content of a listed file to an open file."""
        for key, _ in file.parts:
            self.client.copy(self.prefix + key, target)

    def remove_all_but(self, results: StoredResults) -> None:
        """Delete all objects that the list of the results does not name: earlier copies, and incomplete uploads."""
        listed_keys = {key for file in (*results.results.files, *results.output) for key, _ in file.parts}
        keys = [listed.key for listed in self.client.objects(self.prefix)]
        self.client.remove([key for key in keys if key.removeprefix(self.prefix) not in {*listed_keys, stored.LIST}])

    def prune(self, last_attempt: int) -> None:
        """Delete objects of earlier copies that the newest list of the attempts up to `last_attempt` does not name."""
        stored_state = self.state(last_attempt)
        newest = None if stored_state is None else stored.newest_copy(stored_state[0])
        if stored_state is not None and newest is not None:
            unneeded = stored.unneeded_objects(stored_state[0], newest, self._object_sizes(stored.STATE))
            self.client.remove([self.prefix + key for key in unneeded])

    def _object_sizes(self, key_prefix: str) -> dict[str, int]:
        """Return the bytes of each object below this prefix, by key without the job's own prefix."""
        return {
            listed.key.removeprefix(self.prefix): listed.size
            for listed in self.client.objects(self.prefix + key_prefix)
        }


def job_bucket(session: Session, job: Job) -> JobBucket | None:
    """Return the job's folder in the bucket of `--results-to`; None where its results go elsewhere.

    Raises MissingExtra.
    """
    address = stored.bucket_of(job.spec["results_to"])
    if address is None:
        return None
    settings = bucket_settings_of(session, address, job.spec["launch"])
    job_address = address.joined(stored.folder(job.name, job.id))
    return JobBucket(job_address, open_results_bucket(job_address, settings))


def send_presigned_post(bucket: JobBucket, job: Job, remote: RemoteJob) -> None:
    """Let the machine upload for PRESIGNED_POST_TTL_S more, with a presigned form that it gets on standard input.

    The form is stored nowhere: whoever has it may write to the job's folder.

    Raises Unreachable, AuthFailed, ProviderUnavailable.
    """
    newest = bucket.state(remote.attempt)
    newest_list = {} if newest is None else json.loads(newest[1])
    form = bucket.client.presigned_post(bucket.prefix, PRESIGNED_POST_TTL_S, stored.PART_BYTES + 10**9)
    form_json = {"url": form.url, "fields": dict(form.fields), "prefix": form.prefix}
    every_s, until = job.spec["every_s"], form.until.timestamp()
    remote.call("start_upload", form=form_json, until=until, every=every_s, part=stored.PART_BYTES, known=newest_list)


def restore_plan(bucket: JobBucket, attempts: int) -> tuple[Restored, Transfers] | None:
    """Return the files with which the attempt after the first `attempts` begins, and their downloads.

    None where nothing is stored.
    """
    newest = bucket.state(attempts)
    if newest is None:
        return None
    state = newest[0]
    files = {file.sha256: file for file in state.files}
    checkpoints = {checkpoint.name: checkpoint for checkpoint in state.checkpoints}.values()
    restored = Restored(
        _copied_files(state.results),
        state.results.links,
        tuple(file for checkpoint in checkpoints for file in _copied_files(checkpoint)),
        tuple(link for checkpoint in checkpoints for link in checkpoint.links),
    )
    downloads = tuple(bucket.download(file) for file in files.values())
    return restored, Transfers(downloads, until=bucket.client.url_expires_at(PRESIGNED_URL_TTL_S))


def _copied_files(stored_files: StoredFiles) -> tuple[CopiedFile, ...]:
    return tuple(CopiedFile(file.path, file.size, file.mode, file.sha256) for file in stored_files.files)


def fetch_stored_output(bucket: JobBucket, results: StoredResults, file_of: Callable[[str], Path]) -> None:
    """Complete the local copies of the output of a lost machine; `file_of` returns a stream's file.

    Raises AuthFailed, ProviderUnavailable; InvalidRequest for a file that cannot be written.
    """
    for file in results.output:
        path = file_of(file.path)
        if not path.exists() or path.stat().st_size < file.size:
            _download_file(bucket, file, path)


def fetch_state(bucket: JobBucket, attempts: int, into: Path) -> None:
    """Copy the results that the first `attempts` attempts had stored last into a directory of this computer."""
    newest = bucket.state(attempts)
    for file in () if newest is None else newest[0].results.files:
        _download_file(bucket, file, into / file.path)


def _download_file(bucket: JobBucket, file: StoredFile, path: Path) -> None:
    """Download a file; it gets its name only when it is complete. Raises InvalidRequest if it cannot be written."""
    partial = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as target:
            bucket.copy(file, target)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise InvalidRequest(
            f"{path} cannot be written: {error.strerror}.",
            field="home",
            value=str(path),
            next="Free some space. The output is still in the bucket.",
        ) from error


def remove_all_but_results(bucket: JobBucket, results: StoredResults, report: Callable[[str], object]) -> None:
    """Remove everything that is stored there but the results and their output; report it if that fails."""
    try:
        bucket.remove_all_but(results)
    except CloudgpuError as error:
        report(f"{bucket.address.text}/{stored.STATE} could not be removed: {error.message}")
