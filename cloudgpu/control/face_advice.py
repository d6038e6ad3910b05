"""The verbs that compare and advise, as methods of the library's face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Document = dict[str, Any]


class Advice:
    """What `cloudgpu.connect()` returns can do beside running machines: compare, estimate, recommend, report."""

    _session: Session
