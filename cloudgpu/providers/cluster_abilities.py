"""What a provider may be able to do with several machines at once: launch, stop, and delete what they share.

A provider with the methods of a protocol has the ability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from cloudgpu.core.model.instances import Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import CloudgpuError


@runtime_checkable
class LaunchesTogether(Protocol):
    """Launches the nodes of a cluster with one call of the cloud's API: all of them or none."""

    def launch_together(self, attempts: Sequence[Attempt], *, deadline: datetime) -> Sequence[Instance]:
        """Request all machines at once, and return them in the order of `attempts` once the cloud has accepted them.

        The attempts differ in machine, token, key, name and tags alone; `cluster.shared_tags` are the tags that one
        call can give all of them, and `get` and `list` show each with its own. Idempotent on the first attempt's token:
        the same call again returns the same machines. Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when
        surely none was made; LaunchUncertain (or any other ProviderUnavailable) when that is not known.
        """


@runtime_checkable
class ClearsShared(Protocol):
    """The nodes of a cluster share a network, a placement group or a firewall rule, which costs nothing.

    A launch makes it, whether of one node or of all in one call; a repeated launch makes no second one. It lets the
    nodes reach each other, and nobody else. `HasOrphans` lists it under the id of node 0, in use while a node uses it.
    """

    def clear_shared(self, cluster: str, region: str) -> bool:
        """Request the deletion of what launches of a cluster (`ClusterNode.id`) made beside its machines and disks.

        Return whether none of it was found: call it again until then. What a machine uses stays. Idempotent.
        """


@runtime_checkable
class BulkStop(Protocol):
    """Many machines can be read, and stopped, in few calls. One that cannot be stopped keeps no other one running."""

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Request the stop of these, as `Pausable.stop` does; return the error, by id, of those surely not requested.

        In as few calls as possible; a call that is refused for one of them is halved until that one is alone. A
        machine that is stopped already, or stopping, is fine; one that is still starting may be refused. Raises
        nothing itself: where an outcome is not known, the ids have that error. A later `get_many` proves the stop.
        """

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or the error that `get` would raise for it: InstanceNotFound, say. Raises nothing.

        In as few calls as possible: at most one per region and 1000 ids, if all of them exist.
        """
