"""A provider plug-in: the boxes of a lab, lent one by one. Who has which box is in one JSON file that all can write."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict

from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance, Listing, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import (
    Accelerator,
    Availability,
    Basis,
    MachineConfiguration,
    Market,
    Price,
    Requirements,
)
from cloudgpu.core.policies.guards import Agent, Safeguards
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InstanceNotFound, InvalidRequest, NoCapacity, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings, TokenRule

GPU = Accelerator("rtx3090", 1, 24)
KEYS = ("boxes", "usd_per_hour", "file")


class Loan(TypedDict):
    """A box that is lent, or was: `token` is that of the launch."""

    box: str
    token: str
    tags: dict[str, str]
    lent_at: str
    is_lent: bool


class Shelf:
    """One account: the boxes that config.toml names."""

    kind = "shelf"
    # A token names one request to launch: the same token again must not lend a second box.
    token_rule = TokenRule(
        lifetime=timedelta(days=3650),  # for so long the same token returns the same loan
        listing_proves_after=timedelta(0),  # a loan that `list` lacks so long after the call was never made
        source="the file keeps every loan, and is read under a lock",  # why the two hold
    )
    supported_parts: frozenset[str] = frozenset()  # it carries out no part of a template
    guards = Safeguards(Agent.NONE)  # nothing but a run of the reaper returns a box

    def __init__(self, settings: ProviderSettings) -> None:
        """Read the account's table of config.toml."""
        for key in settings.options.keys() - set(KEYS):
            field = f"accounts.{settings.account}.{key}"
            raise InvalidRequest(f"{field} is no setting of shelf.", field=field, next=f"It has: {', '.join(KEYS)}.")
        self.account = settings.account
        self._boxes: Sequence[str] = settings.options.get("boxes", ())
        self._price = Money.usd(str(settings.options.get("usd_per_hour", "0.15")))
        self._file = Path(settings.options.get("file", settings.home / "loans.json"))
        self._clock = settings.clock

    def identity(self, region: str | None = None) -> AccountIdentity:
        """Return the file: whoever reads it has the same boxes."""
        del region
        return AccountIdentity("shelf", str(self._file), f"shelf {self._file}")

    def available(self, requirements: Requirements) -> Availability:
        """Return the one kind of box, where it is what was wanted."""
        box = MachineConfiguration("shelf", self.account, "lab", "lab", "box", Market.ON_DEMAND, (GPU,), 16, 64.0)
        return Availability((box,) if self._boxes and fits(box, requirements) else ())

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return what config.toml says for each offer."""
        return [Price(self._price, "usd_per_hour of the shelf", self._clock(), Basis.SETTING) for _ in offers]

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Lend a free box, or return the loan that this token has made, whatever became of it."""
        del deadline
        with self._loans() as loans:
            for id, loan in loans.items():
                if loan["token"] == attempt.token:
                    return self._instance(id, loan)
            taken = {loan["box"] for loan in loans.values() if loan["is_lent"]}
            free = [box for box in self._boxes if box not in taken]
            if not free:
                raise NoCapacity("Every box is lent.", field="zone", value="lab", next="Return one: cloudgpu down NAME")
            id, at = f"loan-{len(loans) + 1:04d}", self._clock().isoformat()
            loans[id] = Loan(box=free[0], token=attempt.token, tags=dict(attempt.tags), lent_at=at, is_lent=True)
            return self._instance(id, loans[id])

    def get(self, id: str) -> Instance:
        """Return one loan now; raise InstanceNotFound for none such."""
        with self._loans() as loans:
            if id not in loans:
                raise InstanceNotFound(f"The shelf has no loan {id!r}.", field="id", value=id)
            return self._instance(id, loans[id])

    def list(self) -> Listing:
        """Return every box that is lent."""
        with self._loans() as loans:
            return Listing(tuple(self._instance(id, loan) for id, loan in loans.items() if loan["is_lent"]))

    def terminate(self, id: str) -> None:
        """Take the box back; nothing happens for one that is back already."""
        with self._loans() as loans:
            if id in loans:
                loans[id]["is_lent"] = False

    @contextmanager
    def _loans(self) -> Iterator[dict[str, Loan]]:
        """Give the file to one caller at a time. Raises ProviderUnavailable where it cannot be read or written."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._file.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                loans: dict[str, Loan] = json.loads(file.read() or "{}")
                yield loans
                file.truncate(0)
                file.write(json.dumps(loans))
        except (OSError, ValueError) as error:
            raise ProviderUnavailable(f"The shelf does not answer: {error}.", field="account") from error

    def _instance(self, id: str, loan: Loan) -> Instance:
        return Instance(
            provider="shelf",
            account=self.account,
            id=id,
            state=State.RUNNING if loan["is_lent"] else State.TERMINATED,
            billed=loan["is_lent"],
            tags=loan["tags"],
            region="lab",
            zone="lab",
            instance_type="box",
            market=Market.ON_DEMAND,
            launched_at=datetime.fromisoformat(loan["lent_at"]).astimezone(UTC),
            accelerators=(GPU,),
        )


def make(settings: ProviderSettings) -> Shelf:
    """Return the provider of one account: the entry point names this function."""
    return Shelf(settings)
