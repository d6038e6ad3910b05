"""The key that RunPod puts into each pod, and what it may do: with it, a pod can stop itself.

RunPod's documents say that the key is for its pod alone; whether it reads no other pod is our belief until
`cloudgpu doctor --live` has proved it with this account. Until then it is no layer that ends a machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.shared.account import write_file

if TYPE_CHECKING:
    from cloudgpu.providers.runpod.client import Runpod

ENDS = "the agent on the pod (idle time, lease; it renews while somebody works), which stops the pod by its own key"
TELLS = (
    "the agent on the pod tells how it is used, and cannot stop it: cloudgpu doctor --live has not proved yet that the "
    "pod's own key reads no other pod"
)
_FILE = "pod-key.json"
# Runs in the pod at the lease's end, with the reason as $1; the key is in the container's environment (RunPod's docs).
END = """python3 - <<'END'
import json, os, urllib.request
where = "https://api.runpod.io/v2/pods/%s/action" % os.environ["RUNPOD_POD_ID"]
head = {"Authorization": "Bearer " + os.environ["RUNPOD_API_KEY"], "Content-Type": "application/json"}
call = urllib.request.Request(where, json.dumps({"action": "stop"}).encode(), head)
urllib.request.urlopen(call, timeout=30).read()
END"""


def is_proved(runpod: Runpod) -> bool:
    """Say whether it was proved, with the account that is meant now, that a pod's key reads no other pod."""
    try:
        found = json.loads((runpod.home / _FILE).read_text(encoding="ascii"))
        return bool(found["account"] == runpod.identity().id and found["reads_no_other"])
    except (OSError, ValueError, KeyError, TypeError, CloudgpuError):
        return False


def note(runpod: Runpod, *, reads_no_other: bool) -> None:
    """Write down what a look from a pod has shown. Raises OSError."""
    told = {"account": runpod.identity().id, "reads_no_other": reads_no_other, "at": runpod.clock().isoformat()}
    write_file(runpod.home / _FILE, json.dumps(told))
