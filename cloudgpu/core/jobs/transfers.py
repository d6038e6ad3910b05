"""What a machine downloads from buckets for a job: by signed addresses, which are secret and valid for hours. Pure.

The machine keeps what it downloaded in stores, for later jobs, too: `blobs` has files by their SHA-256, `data` has the
files of buckets.
"""

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
class PlacedData:
    """Files of the store `data` that the command finds below `target`, a path on the machine.

    `files` has for each (path below `target`, name in the store). An empty path: `target` itself is that file.
    """

    target: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Transfers:
    """What an attempt downloads from buckets before its command begins, and where the command finds it.

    `until` is when the first of the signed addresses expires; None where nothing is downloaded.
    """

    downloads: tuple[Download, ...] = ()
    placed: tuple[PlacedData, ...] = ()
    until: datetime | None = None

    def merged_with(self, other: Transfers) -> Transfers:
        """Return both together, valid until the earlier `until` of those that download something."""
        ends = [one.until for one in (self, other) if one.downloads and one.until is not None]
        return Transfers(self.downloads + other.downloads, self.placed + other.placed, min(ends, default=None))

    def as_dict(self, links: Sequence[tuple[str, str]] = ()) -> dict[str, object]:
        """Return what `start` sends to the machine.

        `links` are (target, path): the command finds at `target` a path or volume that is on the machine already.
        """
        files = {(download.store, download.name): download.as_dict() for download in self.downloads}
        until = 0.0 if self.until is None else self.until.timestamp()
        data: list[dict[str, object]] = [{"target": target, "source": source} for target, source in links]
        data += [{"target": one.target, "files": one.files} for one in self.placed]
        return {"download": {"files": list(files.values()), "until": until} if files else None, "data": data}
