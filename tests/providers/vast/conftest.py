from __future__ import annotations

import pytest

from tests.clouds.vast.fixtures import vast, vast_process
from tests.providers.vast.accounts import account

__all__ = ["vast", "vast_process"]


@pytest.fixture
def lab(vast, tmp_path):
    """An account at the model."""
    return account(vast, tmp_path / "lab")
