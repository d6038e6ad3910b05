"""The model of RunPod for the tests of this directory."""

from __future__ import annotations

from tests.clouds.runpod.fixtures import runpod, runpod_process

__all__ = ["runpod", "runpod_process"]
