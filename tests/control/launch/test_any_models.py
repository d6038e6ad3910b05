"""`--provider any` over our models of Lambda, RunPod and vast.ai at once, over HTTP: by price and trust, one down.

The models are what the project's notes say of the three. None of them ever was the cloud itself.
"""

from __future__ import annotations

import weakref
from datetime import UTC, datetime

import pytest

from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import end
from cloudgpu.control.outage.opening import open_session
from cloudgpu.testing import ManualClock
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process
from tests.control.conftest import OPENED

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]
