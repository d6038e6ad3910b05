"""When machines of Google's were last in use, by their own word: a guest attribute that each writes of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool
from cloudgpu.providers.asking import AT_ONCE, tried
from cloudgpu.providers.gcp.guest import said

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

SPACE, KEY = "cloudgpu", "last-active"  # the machine writes epoch seconds there
_SECONDS = re.compile(r"[1-9]\d{0,10}")


def activity(gcp: Gcp, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
    """Return when each machine was last in use, aware UTC; None where it has said nothing, else why it is not known.

    One call for each, side by side.
    """
    if not ids:
        return {}
    with Pool(AT_ONCE) as pool:
        return dict(zip(ids, pool.map(partial(tried, partial(_last_active, gcp)), ids), strict=True))


def _last_active(gcp: Gcp, id: str) -> datetime | None:  # noqa: A002
    text = said(gcp, id, f"{SPACE}/{KEY}").get(KEY, "").strip()
    return datetime.fromtimestamp(int(text), UTC) if _SECONDS.fullmatch(text) else None
