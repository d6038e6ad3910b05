"""Makes the body of instances.insert from an attempt: pure, so that a replay in another process sends the same call."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.cluster import node_of_tags
from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_RENEW_UNTIL
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.naming import digest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.machine.user_data import BootOptions, startup_script, too_large_error, user_data

NETWORK_TAG = "cloudgpu"  # of our machines: the firewall rule that lets nobody in is for this tag
MIN_RUN, MAX_RUN = timedelta(seconds=30), timedelta(days=120)  # of maxRunDuration ("Limit the run time of a VM")
MAX_METADATA_VALUE = 262_144  # bytes of a value of the metadata ("About VM metadata")
ALL_SCOPES = "https://www.googleapis.com/auth/cloud-platform"  # its roles limit what a service account may do


@dataclass(frozen=True, slots=True)
class Call:
    """The exact launch call, saved with the attempt as JSON.

    `image` is its full name (`projects/P/global/images/N`), `network` too; `subnet` is empty where Google chooses it.
    `accelerator` is Google's name of the GPU that is attached to an N1 machine, empty for none; `accelerators` how
    many. `tag` is a network tag of the user's own firewall rules (`--security-group`); None: our rules let `callers`
    in: CIDRs by label, `caller` and `caller-2` of the user, `inside` of the network's own addresses. `cloud_init`: the
    image runs it, else the boot data are a startup script. `installs_driver`: the image installs NVIDIA's driver when
    its metadata say so. `volume` is the device name of a data disk, empty for none. `host_key`: `reads` for an image
    that makes its own host key, which is read from its guest attributes. `scratch`: the machine type comes with local
    SSD.
    """

    project: str
    zone: str
    machine_type: str
    image: str
    disk_gb: int
    disk_type: str
    network: str
    subnet: str
    callers: Mapping[str, str]
    ssh_port: int
    accelerator: str = ""
    accelerators: int = 0
    tag: str | None = None
    service_account: str | None = None
    cloud_init: bool = True
    installs_driver: bool = False
    shielded: bool = True
    secure_boot: bool = False
    volume: str = ""
    host_key: str = ""
    scratch: bool = False


def request_id(attempt: Attempt) -> str:
    """Return the request id, by which Google recognises a second send of the same launch: it follows from the token."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"cloudgpu {attempt.token}"))


def instance_resource(attempt: Attempt) -> dict[str, Any]:
    """Return the body of the call (Google's `instanceResource`); deterministic.

    No service account unless the settings name one: what runs there can do nothing in the project. Source: the
    Compute Engine API, instances.insert.
    """
    call, name = Call(**attempt.call), ids.machine_name(attempt.token)
    resource: dict[str, Any] = {
        "name": name,
        "description": f"cloudgpu: {attempt.request.name}",
        "machineType": f"zones/{call.zone}/machineTypes/{call.machine_type}",
        "labels": dict(attempt.tags),
        "tags": {"items": [call.tag] if call.tag else [NETWORK_TAG, name, *filter(None, [cluster_tag(attempt, call)])]},
        "disks": [_system_disk(attempt, call)],
        "networkInterfaces": [_interface(attempt, call)],
        "scheduling": scheduling(attempt),
        "metadata": {"items": [{"key": key, "value": value} for key, value in _metadata(attempt, call).items()]},
    }
    if call.accelerator:
        accelerator_type = f"zones/{call.zone}/acceleratorTypes/{call.accelerator}"
        resource["guestAccelerators"] = [{"acceleratorType": accelerator_type, "acceleratorCount": call.accelerators}]
    if call.shielded:
        resource["shieldedInstanceConfig"] = {
            "enableSecureBoot": call.secure_boot,
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
        }
    if call.service_account:
        resource["serviceAccounts"] = [{"email": call.service_account, "scopes": [ALL_SCOPES]}]
    return resource


def cluster_tag(attempt: Attempt, call: Call) -> str | None:
    """Return the network tag of the machines of an attempt's cluster; None for a single machine.

    Each attempt has its own, the same in a replay. None, too, where the user's own firewall rules decide.
    """
    node = node_of_tags(attempt.tags)
    if node is None or node.nodes == 1 or call.tag is not None:
        return None
    return f"cloudgpu-in-{digest(node.id, str(attempt.number))[:12]}"


def scheduling(attempt: Attempt) -> dict[str, Any]:
    """Return how the machine is bought and when Google stops it.

    A machine with a GPU cannot move to another host, so its host's maintenance ends it. It is not started again by
    itself, for then its time would begin anew, beyond what was reserved for it. A machine with local SSD, and only such
    a one, has to say what becomes of that when the time is over: kept, it would be billed on (gcloud's
    `--discard-local-ssds-at-termination-timestamp`: "required and only allowed for VMs that have local SSDs").
    """
    is_spot = attempt.offer.configuration.market is Market.SPOT
    discard_action = {"onInstanceStopAction": {"discardLocalSsd": True}} if Call(**attempt.call).scratch else {}
    return {
        "provisioningModel": "SPOT" if is_spot else "STANDARD",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "instanceTerminationAction": "STOP",
        "maxRunDuration": {"seconds": str(run_seconds(attempt.renew_until - attempt.made_at))},
        **discard_action,
    }


def run_seconds(duration: timedelta) -> int:
    """Return a duration in seconds within what Google accepts for maxRunDuration: 30 seconds to 120 days."""
    return int(min(max(duration, MIN_RUN), MAX_RUN).total_seconds())


def _system_disk(attempt: Attempt, call: Call) -> dict[str, Any]:
    """Return the system disk, which goes with its machine. Google encrypts every disk ("About disk encryption")."""
    return {
        "boot": True,
        "autoDelete": True,
        "type": "PERSISTENT",
        "initializeParams": {
            "sourceImage": call.image,
            "diskSizeGb": str(call.disk_gb),
            "diskType": f"zones/{call.zone}/diskTypes/{call.disk_type}",
            "labels": dict(attempt.tags),
        },
    }


def _interface(attempt: Attempt, call: Call) -> dict[str, Any]:
    interface: dict[str, Any] = {"network": call.network} | ({"subnetwork": call.subnet} if call.subnet else {})
    if attempt.request.setup.network.public_ip:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    return interface


def _metadata(attempt: Attempt, call: Call) -> dict[str, str]:
    """Return the machine's metadata: boot data, its lease, and that no SSH keys of the project are let in."""
    metadata_key, boot_text = boot_data(attempt, call)
    tags = Lease(attempt.expires, attempt.renew_until).tags()
    return {
        metadata_key: boot_text,
        TAG_EXPIRES: tags[TAG_EXPIRES],
        TAG_RENEW_UNTIL: tags[TAG_RENEW_UNTIL],
        "enable-oslogin": "FALSE",
        "block-project-ssh-keys": "TRUE",
        "enable-guest-attributes": "TRUE",
        **({"install-nvidia-driver": "True"} if call.installs_driver else {}),
    }


def boot_data(attempt: Attempt, call: Call) -> tuple[str, str]:
    """Return the key and the value of the metadata with the boot data; raise InvalidRequest where it is too large."""
    options = BootOptions(cloud="gcp", ssh_port=call.ssh_port, reports=True, volume=call.volume)
    metadata_key, write_boot_data = ("user-data", user_data) if call.cloud_init else ("startup-script", startup_script)
    text = write_boot_data(attempt, options)
    if len(text.encode()) > MAX_METADATA_VALUE:
        raise too_large_error(attempt, len(text.encode()), MAX_METADATA_VALUE, "Google Cloud")
    return metadata_key, text
