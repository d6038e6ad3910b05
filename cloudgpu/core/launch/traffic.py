"""What it costs to bring a job's files to its machine and its results back, where its place charges for that. Pure.

Prices are for a GB of 10^9 bytes. Amounts are rounded up to a nano-dollar.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.billing.rules import GB
from cloudgpu.core.model.offers import TrafficPrices
from cloudgpu.core.values.money import Money


@dataclass(frozen=True, slots=True)
class JobTraffic:
    """The bytes that a machine receives for a job, and what a GB costs each way; None: it is free.

    `previous_bytes` are the results of the job `previous_job`, the latest of this name or command; None: none is known.
    `at_most`: a part of what it sends may be free.
    """

    received_bytes: int
    per_gb_in: Money | None
    per_gb_out: Money | None
    previous_bytes: int | None = None
    previous_job: str = ""
    at_most: bool = False

    @property
    def upload_cost(self) -> Money:
        """What the bytes that it receives cost."""
        return _cost(self.per_gb_in, self.received_bytes)

    @property
    def previous_cost(self) -> Money | None:
        """What as many results as the last ones would cost; None where none are known."""
        return None if self.previous_bytes is None else _cost(self.per_gb_out, self.previous_bytes)


def job_traffic(
    prices: TrafficPrices | None, egress: Money | None, received_bytes: int, last: tuple[int, str] | None
) -> JobTraffic | None:
    """Return what a job's traffic costs; None where nothing of it is charged.

    `prices` are those of its machine's offer, which win over `egress`, the catalogue's price of
    a GB sent. `last` is the bytes and the name of the latest job of its name or command.
    """
    previous_bytes, previous_job = last or (None, "")
    if prices is not None:
        return JobTraffic(received_bytes, prices.into, prices.out, previous_bytes, previous_job)
    return (
        None if egress is None else JobTraffic(received_bytes, None, egress, previous_bytes, previous_job, at_most=True)
    )


def move_cost(
    sent_bytes: int,
    received_bytes: int,
    prices: TrafficPrices | None,
    egress: Money | None,
    target_prices: TrafficPrices | None,
) -> Money:
    """Return what it costs to leave a machine for another one: what the old one sends, and what the new one receives.

    `prices` are those of the old machine's offer, which win over `egress`, as in `job_traffic`; `target_prices` those
    of the new one's offer. Where neither charges for something, that is free.
    """
    sent_cost = _cost(egress if prices is None else prices.out, sent_bytes)
    return sent_cost if target_prices is None else sent_cost + _cost(target_prices.into, received_bytes)


def traffic_sentence(traffic: JobTraffic) -> str:
    """Return what is charged for a job's traffic, in words, for its plan."""
    clauses = []
    if traffic.per_gb_in is not None:
        cost = f"{_text(traffic.upload_cost)} ({traffic.per_gb_in.text(4)} a GB)"
        clauses.append(f"what it is sent costs {cost}, again on each machine")
    if traffic.per_gb_out is not None:
        bound_text = "at most " if traffic.at_most else ""
        previous = traffic.previous_cost
        previous_text = "" if previous is None else f", {_text(previous)} for as many as {traffic.previous_job} had"
        clauses.append(
            f"results cost {bound_text}{traffic.per_gb_out.text(4)} for each GB that leaves it{previous_text}"
        )
    return "; ".join(clauses)


def _cost(price: Money | None, byte_count: int) -> Money:
    return Money(0 if price is None else -(-price.nanos * byte_count // GB))


def _text(amount: Money) -> str:
    return amount.text(2) if not amount.nanos or amount.nanos >= Money.usd("0.01").nanos else "less than $0.01"
