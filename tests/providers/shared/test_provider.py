"""What the three clouds' providers share: each of its methods calls a function that every cloud has."""

from __future__ import annotations

import ast
import inspect
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.registry import load
from cloudgpu.providers.shared.provider import CloudProvider

NOW = datetime(2026, 11, 28, tzinfo=UTC)
METHODS = [one for one in ast.parse(inspect.getsource(CloudProvider)).body[0].body if isinstance(one, ast.FunctionDef)]


def forwarded(method: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls `self._MODULE.FUNCTION(...)` of a method."""
    calls = (one for one in ast.walk(method) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute))
    return [one for one in calls if isinstance(one.func.value, ast.Attribute)]


@pytest.mark.parametrize("kind", ["aws", "azure", "gcp"])
def test_each_cloud_has_the_functions_that_its_provider_calls_with_their_parameters(kind: str, tmp_path: Path) -> None:
    provider = load(kind)(ProviderSettings("lab", {}, tmp_path, lambda: NOW))
    checked = 0
    for method in METHODS:
        for call in forwarded(method) if method.name not in vars(type(provider)) else ():
            function = getattr(getattr(provider, call.func.value.attr), call.func.attr)
            inspect.signature(function).bind(*call.args, **{one.arg: one.value for one in call.keywords})
            checked += 1
    assert checked > 30
