from __future__ import annotations

from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process

__all__ = ["lambdalabs", "lambdalabs_process"]
