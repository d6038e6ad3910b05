from __future__ import annotations

from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["gcp", "gcp_process"]
