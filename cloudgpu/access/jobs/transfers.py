"""What a machine is told to move to and from buckets for a job: addresses and forms, which are secrets of hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cloudgpu.core.jobs.remote_state import Storing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from cloudgpu.core.model.buckets import SignedForm


@dataclass(frozen=True, slots=True)
class Download:
    """One file that the machine brings from a bucket, unless it has it: as `blobs`/SHA256 or `data`/NAME.

    `label` is what an error calls it. `parts` are the addresses of the objects that it is made of, with their bytes.
    """

    store: str
    name: str
    label: str
    size: int
    parts: tuple[tuple[str, int], ...] = field(repr=False)
    etag: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what the machine is sent."""
        return {
            "store": self.store,
            "name": self.name,
            "label": self.label,
            "size": self.size,
            "parts": self.parts,
            "etag": self.etag,
            "sha256": self.name if self.store == "blobs" else None,
        }


@dataclass(frozen=True, slots=True)
class ShownData:
    """Objects that the command finds below `target`: path there (empty: `target` is the file), and name in `data`."""

    target: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Transfers:
    """What an attempt brings from buckets before its command begins; the addresses are good `until` then."""

    downloads: tuple[Download, ...] = ()
    shown: tuple[ShownData, ...] = ()
    until: datetime | None = None

    def joined(self, other: Transfers) -> Transfers:
        """Return both together, good as long as either is."""
        ends = [one.until for one in (self, other) if one.downloads and one.until is not None]
        return Transfers(self.downloads + other.downloads, self.shown + other.shown, min(ends, default=None))

    def as_dict(self, links: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Return what `start` sends; `links` are paths and volumes of the machine: (place, path)."""
        files = {(one.store, one.name): one.as_dict() for one in self.downloads}
        until = 0.0 if self.until is None else self.until.timestamp()
        data: list[dict[str, Any]] = [{"target": target, "source": source} for target, source in links]
        data += [{"target": one.target, "files": one.files} for one in self.shown]
        return {"bring": {"files": list(files.values()), "until": until} if files else None, "data": data}


class Attempt(Protocol):
    """An attempt on its machine (`cloudgpu.access.jobs.remote.RemoteJob`), as far as transfers need it."""

    def call(self, verb: str, **values: Any) -> dict[str, Any]:
        """Have a verb of the program carried out there; return its answer."""
        ...


def store(
    remote: Attempt, form: SignedForm, every_s: int, part_bytes: int, known: Mapping[str, Any] | None = None
) -> None:
    """Have the machine upload what an attempt writes, each `every_s` seconds and when its command is over.

    Replaces the process that did so with an earlier form. `known` is the list of what is in the bucket already. The
    form travels on standard input and is written nowhere. Raises as every method of RemoteJob.
    """
    said = {"url": form.url, "fields": dict(form.fields), "prefix": form.prefix}
    remote.call(
        "store", form=said, until=form.until.timestamp(), every=every_s, part=part_bytes, known=dict(known or {})
    )


def settle(remote: Attempt) -> tuple[int, int]:
    """Have the results on a volume reach its disk; return how many files and bytes they are."""
    said = remote.call("settle")
    return int(said["files"]), int(said["bytes"])


def read_storing(said: Mapping[str, Any]) -> Storing | None:
    """Return how far an attempt's uploads are by a look; None where nobody ever was to upload anything."""
    if said.get("until") is None:
        return None
    at = said.get("at")
    return Storing(
        alive=bool(said["alive"]),
        until=float(said["until"]),
        at=None if at is None else float(at),
        final=bool(said.get("final")),
        error=str(said.get("error") or ""),
    )
