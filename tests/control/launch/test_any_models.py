"""`--provider any` over our models of Lambda, RunPod and vast.ai at once, over HTTP: by price and trust, one down.

The models are what the project's notes say of the three. None of them ever was the cloud itself.
"""

from __future__ import annotations

from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]
