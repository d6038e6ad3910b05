"""The JSON Schemas of policies and limits, for editors: made from the table of their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudgpu.config.policy_keys import LIMITS, POLICY, Key, Keys, Section

DRAFT = "http://json-schema.org/draft-07/schema#"  # the one that editors' YAML servers know best


def policy_schema() -> dict[str, Any]:
    """Return the schema that every policy's file fits. What contradicts itself, only the reader knows."""
    return {"$schema": DRAFT, "title": "cloudgpu policy", **_table(POLICY)}


def limits_schema() -> dict[str, Any]:
    """Return the schema of limits.yaml."""
    return {"$schema": DRAFT, "title": "cloudgpu limits", **_table(LIMITS)}


def _table(keys: Keys) -> dict[str, Any]:
    needed = [name for name, key in keys.items() if isinstance(key, Key) and key.needed]
    return {
        "type": "object",
        "properties": {name: _of(key) for name, key in keys.items()},
        "additionalProperties": False,
        **({"required": needed} if needed else {}),
    }


def _of(key: Key | Section) -> Mapping[str, Any]:
    if isinstance(key, Key):
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        return {"description": key.means, **key.kind.schema, **({} if default is None else {"default": default})}
    table = _table(key.keys)
    if key.many:
        return {"description": key.means, "anyOf": [table, {"type": "array", "items": table, "minItems": 1}]}
    return {"description": key.means, **table}
