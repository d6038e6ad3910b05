"""Loads AWS's service models for botocore: each once in a process, EC2's machines with the members that are read alone.

botocore parses every member of an answer that its model names, 61 of a machine. Those that nobody reads took half the
time of a listing. A member that is to be read anew has to be named here: `tests/providers/aws/test_models.py` compares.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from botocore.loaders import Loader, instance_cache

# What is read of a machine (the shape `Instance` of DescribeInstances and RunInstances), anywhere in `providers/aws`.
READ = frozenset(
    """
    BlockDeviceMappings CpuOptions InstanceId InstanceLifecycle InstanceType LaunchTime Placement PrivateIpAddress
    PublicIpAddress RootDeviceName SecurityGroups SpotInstanceRequestId State StateReason StateTransitionReason Tags
    """.split()
)


class _OfWhatIsRead(Loader):  # type: ignore[misc]  # botocore has no types
    """Loads service models as botocore does; of EC2's machines it leaves out the members that are not read."""

    @instance_cache  # type: ignore[untyped-decorator]
    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        """Return the model of a service as plain values, the same at each call."""
        model = super().load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) != ("ec2", "service-2"):
            return model
        shapes = dict(model["shapes"])
        members = {name: member for name, member in shapes["Instance"]["members"].items() if name in READ}
        shapes["Instance"] = shapes["Instance"] | {"members": members}
        return model | {"shapes": shapes}


@cache
def loader(data_path: str | None) -> Loader:
    """Return what loads the models, also from the directories of the user's `data_path`: 0.15 s for EC2's, once."""
    paths = data_path.split(os.pathsep) if data_path else ()
    return _OfWhatIsRead(extra_search_paths=[str(Path(os.path.expandvars(path)).expanduser()) for path in paths])
