"""What a machine downloads from buckets for a job: by signed addresses, which are secret and valid for hours. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Download:
    """One file that the machine downloads unless it has it: to `store`/`name`, which is `blobs`/SHA256 or `data`/NAME.

    `label` is its name in errors. `parts` are (signed address, bytes) of the objects that it is made of.
    """

    store: str
    name: str
    label: str
    size: int
    parts: tuple[tuple[str, int], ...] = field(repr=False)
    etag: str | None = None

    def as_dict(self) -> dict[str, object]:
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
    """Files that the command finds below `target`: (path there, name in `data`); path empty: `target` is the file."""

    target: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Transfers:
    """What an attempt downloads from buckets before its command begins; the addresses are valid `until` then."""

    downloads: tuple[Download, ...] = ()
    shown: tuple[ShownData, ...] = ()
    until: datetime | None = None

    def merged_with(self, other: Transfers) -> Transfers:
        """Return both together, valid until the first of both ends."""
        ends = [one.until for one in (self, other) if one.downloads and one.until is not None]
        return Transfers(self.downloads + other.downloads, self.shown + other.shown, min(ends, default=None))

    def as_dict(self, links: Sequence[tuple[str, str]] = ()) -> dict[str, object]:
        """Return what `start` sends to the machine; `links` are (target, path) of existing paths and volumes there."""
        files = {(download.store, download.name): download.as_dict() for download in self.downloads}
        until = 0.0 if self.until is None else self.until.timestamp()
        data: list[dict[str, object]] = [{"target": target, "source": source} for target, source in links]
        data += [{"target": one.target, "files": one.files} for one in self.shown]
        return {"download": {"files": list(files.values()), "until": until} if files else None, "data": data}
