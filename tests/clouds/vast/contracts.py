"""The contracts of our model of vast.ai: their states, their three meters, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.clouds.vast.market import MONTH_H

GB = 10**9  # [B]: the size of a GB of traffic is not documented


@dataclass
class Contract:
    """One contract, from its making to its end; `runs` are the times in which its GPUs were billed."""

    id: int
    ask: dict[str, Any]
    body: dict[str, Any]
    made: datetime
    bid: float | None
    actual: str | None = None  # null, loading, created, running, exited, offline
    intended: str = "running"
    status_msg: str = ""
    label: str = ""
    listed: bool = False
    ended: datetime | None = None
    runs: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    offline: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    refused: bool = False  # the call that made it was told no
    sent: int = 0  # bytes
    received: int = 0
    log: str = ""
    shown_log: str | None = None  # as the store of logs has it
    port: int = 0  # of its host, to which that of SSH is bound
    read_log: Callable[[], str] | None = None  # of a container that really runs

    @property
    def inside(self) -> str:
        """The port that its container asked for, as docker calls it."""
        asked = next((name for name in self.body["env"] if name.startswith("-p ")), "-p 22:22")
        return f"{asked.rpartition(':')[2]}/tcp"

    @property
    def key(self) -> str:
        """The key that is put into the container: it may look at and change this contract alone."""
        return f"scoped-to-{self.id}"

    @property
    def per_hour(self) -> Decimal:
        """What its GPUs cost an hour."""
        return Decimal(str(self.ask["dph_base"] if self.bid is None else self.bid))

    def run(self, now: datetime, *, on: bool) -> None:
        """Begin or end to be billed for its GPUs."""
        running = bool(self.runs) and self.runs[-1][1] is None
        if on and not running:
            self.runs.append((now, None))
        elif running and not on:
            self.runs[-1] = (self.runs[-1][0], now)

    def bill(self, now: datetime) -> dict[str, Decimal]:
        """Return what each meter shows, in USD: per second, not rounded."""
        until = self.ended or now
        gpu = _seconds(self.runs, until) * self.per_hour / 3600
        stored = Decimal((until - self.made).total_seconds()) - _seconds(self.offline, until)
        monthly = Decimal(str(self.ask["storage_cost"])) * Decimal(str(self.body["disk"]))
        up, down = (Decimal(str(self.ask[name])) for name in ("inet_up_cost", "inet_down_cost"))
        return {
            "gpu": gpu,
            "storage": stored * monthly / (MONTH_H * 3600),
            "traffic": (self.sent * up + self.received * down) / GB,
        }

    def shown(self) -> dict[str, Any]:
        """Return it as a listing shows it."""
        ask = self.ask
        same = (
            "machine_id host_id gpu_name num_gpus gpu_ram dph_base storage_cost inet_up_cost inet_down_cost "
            "geolocation verification reliability2 direct_port_count cuda_max_good driver_version end_date "
            "cpu_cores_effective cpu_ram min_bid"
        )
        running = self.actual == "running"
        return {
            "id": self.id,
            **{name: ask[name] for name in same.split()},
            "dph_base": float(self.per_hour),
            "dph_total": float(self.per_hour) + ask["storage_cost"] * self.body["disk"] / MONTH_H,
            "is_bid": self.bid is not None,
            "actual_status": self.actual,
            "cur_state": "running" if running else "stopped",
            "next_state": self.intended,
            "intended_status": self.intended,
            "status_msg": self.status_msg,
            "label": self.label,
            "extra_env": [[name, value] for name, value in self.body["env"].items()],
            "disk_space": self.body["disk"],
            "image_uuid": self.body["image"],
            "image_runtype": self.body["runtype"],
            "start_date": None if self.refused and not self.runs else self.made.timestamp(),  # [B]
            "public_ipaddr": "127.0.0.1",
            "ports": {self.inside: [{"HostIp": "0.0.0.0", "HostPort": str(self.port)}]} if running else None,  # noqa: S104
            "ssh_host": "ssh4.vast.ai",
            "ssh_port": 20000 + self.id % 10000,
        }


def _seconds(spans: list[tuple[datetime, datetime | None]], until: datetime) -> Decimal:
    return sum((Decimal(((end or until) - begin).total_seconds()) for begin, end in spans), Decimal(0))
