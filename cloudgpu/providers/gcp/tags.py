"""Sets a machine's labels, and in its metadata what it reads of them: it cannot read its own labels from inside.

Labels and metadata are replaced whole, under a fingerprint of what was read: who comes second has to read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_HOLD_UNTIL, TAG_RENEW_UNTIL
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids, operations
from cloudgpu.providers.gcp.codes import STALE
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.listing import raw
from cloudgpu.providers.gcp.translate import labels_of, metadata_of

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

READ_INSIDE = (TAG_EXPIRES, TAG_RENEW_UNTIL, TAG_HOLD_UNTIL)
TRIES, PAUSE_S = 6, 0.5


def tag(gcp: Gcp, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set these labels, and what the machine reads of them, and leave every other alone. Raises InstanceNotFound.

    The metadata first: a machine that hears of a longer lease late could end itself, a label that is late is only old.
    """
    if not tags:
        ids.machine(id)
        return
    for attempt in range(1, TRIES + 1):
        try:
            _set(gcp, id, raw(gcp, id), tags)
        except InvalidRequest as fault:
            if code_of(fault) != STALE or attempt == TRIES:
                raise
            gcp.pause(PAUSE_S * attempt)
        else:
            return


def _set(gcp: Gcp, id: str, found: Mapping[str, Any], tags: Mapping[str, str]) -> None:  # noqa: A002
    inside = {key: value for key, value in tags.items() if key in READ_INSIDE}
    held, labels = metadata_of(found), labels_of(found)
    if inside.items() - held.items():
        items = [{"key": key, "value": value} for key, value in {**held, **inside}.items()]
        fingerprint = found.get("metadata", {}).get("fingerprint", "")
        _change(gcp, id, "setMetadata", metadataResource={"items": items, "fingerprint": fingerprint})
    if tags.items() - labels.items():
        wanted = {"labels": {**labels, **tags}, "labelFingerprint": found.get("labelFingerprint", "")}
        _change(gcp, id, "setLabels", instancesSetLabelsRequestResource=wanted)


def _change(gcp: Gcp, id: str, verb: str, **fields: Any) -> None:  # noqa: A002
    zone, name = ids.machine(id)
    action = f"compute.instances.{verb}"
    operation = gcp.ask(action, zone, value=id, zone=zone, instance=name, **fields)
    operations.finished(gcp, operation, action=action, value=id)
