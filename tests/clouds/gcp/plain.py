"""Google's own client on our model, without cloudgpu: for the tests of the model itself."""

from __future__ import annotations

import functools
import uuid

from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

PROJECT = "cloudgpu-test"
ZONE = "us-central1-a"
UBUNTU = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"


@functools.cache
def client(name, url):
    """Return a client (`Instances`), one per server."""
    options = {"api_endpoint": url}
    return getattr(compute_v1, f"{name}Client")(credentials=AnonymousCredentials(), client_options=options)


class Plain:
    """Calls by their names; what changes something returns the operation as it is when it has ended."""

    def __init__(self, server):
        self.server = server

    def __call__(self, name, method, *, at="zone", **request):
        where = {"project": PROJECT} | ({"zone": ZONE} if at == "zone" else {})
        made = getattr(client(name, self.server.url), method)(request={**where, **request})
        return self.ended(made) if type(made).__name__ == "Operation" else made

    def begun(self, name, method, **request):
        """Call it and return the operation as it is at once."""
        where = {"project": PROJECT, "zone": ZONE}
        return getattr(client(name, self.server.url), method)(request={**where, **request})

    def ended(self, operation):
        where = {"project": PROJECT, "operation": operation.name}
        if not operation.zone:
            return client("GlobalOperations", self.server.url).get(request=where)
        zone = operation.zone.rpartition("/")[2]
        return client("ZoneOperations", self.server.url).get(request={**where, "zone": zone})

    def launch(self, name="box", **more):
        """Launch a machine of an N1 with a T4, as the documentation does."""
        return self("Instances", "insert_unary", **launching(name, **more))

    def look(self, name="box"):
        return self("Instances", "get", instance=name)


def launching(name="box", *, zone=ZONE, request_id=None, **more):
    """Return the request of a launch."""
    disk = {"initialize_params": {"source_image": UBUNTU, "disk_size_gb": 50, "labels": {"a": "b"}}}
    body = {
        "name": name,
        "machine_type": f"zones/{zone}/machineTypes/n1-standard-4",
        "guest_accelerators": [{"accelerator_type": gpu(zone, "nvidia-tesla-t4"), "accelerator_count": 1}],
        "scheduling": {"on_host_maintenance": "TERMINATE"},
        "disks": [{"boot": True, "auto_delete": True, **disk}],
        "network_interfaces": [{"network": "global/networks/default", "access_configs": [{"type_": "ONE_TO_ONE_NAT"}]}],
        **more,
    }
    return {"zone": zone, "instance_resource": body, "request_id": request_id or str(uuid.uuid4())}


def gpu(zone, name):
    return f"projects/{PROJECT}/zones/{zone}/acceleratorTypes/{name}"
