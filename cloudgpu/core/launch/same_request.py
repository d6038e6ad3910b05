"""Which machine a launch request has already: two requests are the same by their fingerprint, or by their key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.machine import Machine, comes_back
from cloudgpu.core.values.naming import derived_key, digest, lock_name
from cloudgpu.core.values.times import minute
from cloudgpu.errors import InvalidRequest


def living_of(rows: Sequence[Machine], key: str | None, fingerprint: str) -> Machine | None:
    """Return the machine of this request that lives, or that can be started from what is kept of it.

    Raises InvalidRequest when `key` cannot be used for it.
    """
    if key is None:
        same = [row for row in rows if _is_of(row, fingerprint) and _is_there(row)]
        return max(same, key=lambda row: row.terminated_at is None) if same else None
    for row in rows:
        if row.key != key or (row.launch_status in ("refused", "void") and not comes_back(row)):
            continue
        if row.terminated_at is not None and not comes_back(row):
            raise InvalidRequest(
                f"The machine of --key {key} ended at {minute(row.terminated_at)}; a key can launch only one machine.",
                field="--key",
                value=key,
                next="Use another --key for a new machine.",
            )
        if row.request not in (fingerprint, key):  # one that was taken up without its launch bears its key
            raise InvalidRequest(
                f"--key {key} belongs to {row.name}, which was launched by a different request.",
                field="--key",
                value=key,
                next=f"Repeat that request as it was, or use another --key (cloudgpu show {row.name}).",
            )
        return row if _is_there(row) else None
    return None


def _is_there(row: Machine) -> bool:
    return comes_back(row) or (row.terminated_at is None and row.launch_status == "made")


def _is_of(row: Machine, fingerprint: str) -> bool:
    """Say whether a row is of this request: by its fingerprint, or by its key where its launch is not known here."""
    if row.request == row.key:
        return lock_name(row.key) == lock_name(derived_key(fingerprint, 1))
    return bool(row.request == fingerprint)


def unsettled_of(rows: Sequence[Machine], lock: str) -> Machine | None:
    """Return the unfinished attempt that is launched under this lock, if there is one."""
    open_ = (row for row in rows if row.terminated_at is None and row.launch_status == "open")
    return next((row for row in open_ if lock_name(row.key) == lock), None)


def fingerprint_of(request: LaunchRequest, name: str | None) -> str:
    """Return what makes two requests the same: everything but how long the machine may live and who may reach it."""
    want, setup = request.want, request.setup
    return digest(
        request.provider,
        request.account,
        want.gpu or "",
        str(want.gpu_count),
        want.instance_type or "",
        want.region or "",
        want.zone or "",
        str(want.market),
        request.template,
        request.owner,
        request.project,
        name or "",
        json.dumps(asdict(replace(setup, network=replace(setup.network, ssh_from=()))), sort_keys=True),
    )
