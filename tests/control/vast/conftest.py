"""A user's home with an account at the model of vast.ai."""

from __future__ import annotations

from tests.clouds.vast.fixtures import vast, vast_process

__all__ = ["vast", "vast_process"]
