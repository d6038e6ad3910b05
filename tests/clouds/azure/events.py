"""The activity log: what was done to a machine and when, which the machine itself does not tell.

That an eviction of a single machine stands there as `evictSpotVM` is what public programs read; it is unverified.
"""

from __future__ import annotations

import re
from datetime import datetime

from tests.clouds.azure.handlers import answers, pages
from tests.clouds.azure.model import Ask, Model
from tests.clouds.rest import Reply, Unmodelled

_FILTER = re.compile(r"eventTimestamp ge '([^']+)'(?: and resourceGroupName eq '([^']+)')?")


@answers("ActivityLogs.List")
def list_events(model: Model, ask: Ask) -> Reply:
    """List events, newest first, since a time, of a resource group."""
    found = _FILTER.fullmatch(ask.query.get("$filter", ""))
    if found is None:
        raise Unmodelled(f"the filter {ask.query.get('$filter')!r}")
    since, group = datetime.fromisoformat(found[1]), (found[2] or "").lower()
    rows = [one for one in model.events if datetime.fromisoformat(one["eventTimestamp"]) >= since]
    meant = [one for one in rows if group in {"", one["resourceGroupName"].lower()}]
    names = ask.query.get("$select", "").split(",")
    shown = [{name: one[name] for name in one if names == [""] or name in names} for one in reversed(meant)]
    return pages(model, ask, shown)
