"""The line of `cost` about a desktop: what one would have cost by now, if every billed hour of a GPU was work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.catalog.read import gpu_of, speeds
from cloudgpu.control.advice.desktop_choice import desktop_named
from cloudgpu.core.advice.compare import busy, clouds_of
from cloudgpu.core.billing.cost_groups import billed_within, time_owned_within
from cloudgpu.core.catalog.gpus import Work
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import usd
from cloudgpu.views.advice.compare_sentences import Shown, desktops

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.advice.desktop import Desktop, Owned
    from cloudgpu.core.billing.cost_groups import CostQuery, Ended
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.parts import DesktopLine


def desktop_line(
    session: Session,
    rows: Sequence[Machine],
    ended: Iterable[Ended],
    query: CostQuery,
    now: datetime,
    currency: Currency | None = None,
) -> DesktopLine:
    """Return what the desktop of the settings would have cost in a period, kept busy for all billed hours of GPUs.

    Scaled by speed at training. `ended` are the uses that ended, where the sums in the rows are not what is asked.
    `currency` is one whose rate was asked for. `compare` knows more: which of these hours were work. Raises
    InvalidRequest for a desktop that cannot be read.
    """
    desktop = desktop_named(session, currency=currency)
    counted, _ = clouds_of(rows)
    ran = billed_within(counted, ended, query, now)
    worked = _work(counted, ran, desktop)
    elapsed = max([time_owned_within(counted, query, now), *ran.values()])
    cost = busy(desktop, elapsed, worked)
    return {
        "name": desktop.name,
        "gpu": desktop.gpu,
        "desktops": cost.number,
        "hours": f"{worked / timedelta(hours=1):.4f}",
        "electricity_usd": usd(cost.electricity),
        "purchase_usd": usd(cost.purchase),
        "total_usd": usd(cost.total),
        "source": desktop.source,
        "as_of": desktop.as_of.isoformat(),
        "sentence": _sentence(desktop, cost, "by then" if query.until and query.until <= now else "by now"),
    }


def _sentence(desktop: Desktop, cost: Owned, when: str) -> str:
    shown, which = Shown(), desktops(desktop, cost.number)
    first, more = shown(desktop.purchase.scaled(Fraction(cost.number))), "cloudgpu compare says more"
    if not cost.worked:
        paid = "all of it" if first == shown(cost.total) else f"{first} of it"
        said = f"{which[0].upper()}{which[1:]} would have cost {shown(cost.total)} {when}"
        return f"{said}, {paid} on the first day; {more}."
    said = f"If every billed hour was work, {which} doing the same would have cost {shown(cost.total)} {when}"
    return f"{said}, {first} of it on the first day; {more}."


def _work(rows: Sequence[Machine], ran: Mapping[str, timedelta], desktop: Desktop) -> timedelta:
    speed, seconds = speeds(desktop, Work.TRAINING), 0.0
    for row in rows:
        gpu = gpu_of(row) if ran[row.id] else None
        if gpu is not None:
            scale = gpu.count * gpu.share / (float(speed(gpu).ratio) * desktop.gpus)
            seconds += scale * ran[row.id].total_seconds()
    return timedelta(seconds=int(seconds))
