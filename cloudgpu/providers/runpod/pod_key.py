"""The key that RunPod puts into each pod, and what it may do: with it, a pod can stop itself.

RunPod's documents say that the key is for its pod alone. That it reads no other pod is our belief until a pod of this
account has tried: at its start it asks with its own key for itself, for all pods and for the account, and writes the
answers' statuses into its log. Whoever reads the host key there takes that down. Until then the key is no layer that
ends a machine. Only a pod in a data centre is believed.
"""

from __future__ import annotations

import json
import re

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.account_abilities import Finding
from cloudgpu.providers.runpod.client import Pod, Runpod
from cloudgpu.providers.runpod.options import COMMUNITY
from cloudgpu.providers.shared.account import write_file

TIMED_BY = "the agent on the pod (idle time, lease; it renews while somebody works), which stops the pod by its own key"
UNPROVED_TEXT = (
    "the agent on the pod reports how it is used, and cannot stop it: no pod of this account has shown yet that its "
    "own key reads no other pod"
)
CHECK = "CLOUDGPU_KEY_CHECK"  # in a pod's environment: the program that asks
OK, REFUSED = 200, (401, 403)
_FILE = "pod-key.json"
_LINE = re.compile(r"^cloudgpu-pod-key: own=(\d+) list=(\d+) others=(\d+) account=(\d+)\s*$", re.MULTILINE)
_HEAD = """import json, os, urllib.error, urllib.request
base = os.environ.get("CLOUDGPU_RUNPOD_ENDPOINT") or "https://api.runpod.io"
pod, key = os.environ.get("RUNPOD_POD_ID", ""), os.environ.get("RUNPOD_API_KEY", "")
head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
"""
# Runs once at the start of a pod. It prints statuses and a number, nothing of what it was answered.
CHECK_PROGRAM = (
    _HEAD
    + """def ask(path):
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path, None, head), timeout=5) as reply:
            return reply.status, json.loads(reply.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, {}
    except Exception:
        return 0, {}
own, _ = ask("/v2/pods/" + pod)
listed, found = ask("/v2/pods")
account, _ = ask("/v2/account")
others = sum(1 for one in found.get("pods", []) if one.get("id") != pod)
print("cloudgpu-pod-key: own=%d list=%d others=%d account=%d" % (own, listed, others, account), flush=True)
"""
)
# Runs in the pod at its lease's end, for sh; the key is in the container's environment (RunPod's documents).
STOP_COMMAND = f"""python3 - <<'END'
{_HEAD}call = urllib.request.Request(base + "/v2/pods/" + pod + "/action", b'{{"action": "stop"}}', head)
urllib.request.urlopen(call, timeout=30).read()
END"""


def is_proved(runpod: Runpod) -> bool:
    """Say whether a pod of the account that is meant now has shown that its key reads itself and no other pod."""
    try:
        found = json.loads((runpod.home / _FILE).read_text(encoding="ascii"))
        return bool(found["account"] == runpod.identity().id and found["reads_no_other"])
    except (OSError, ValueError, KeyError, TypeError, CloudgpuError):
        return False


def account(runpod: Runpod) -> Finding:
    """Return whose the user's key is, for `doctor` and `init`. Raises AuthFailed, ProviderUnavailable."""
    return Finding("RunPod account", good=True, says=runpod.identity().words)


def finding(runpod: Runpod) -> Finding:
    """Return what is known of the key, for `doctor`."""
    what = "the pod's own key"
    if is_proved(runpod):
        return Finding(what, good=True, says="it reads no other pod, so that pods stop themselves at their lease")
    return Finding(what, good=None, says=UNPROVED_TEXT, next="Run: cloudgpu doctor --live --provider runpod")


def record_check(runpod: Runpod, pod: Pod, log: str) -> None:
    """Write down what a pod's log says of its key, where that is new. A full disk, say, is no reason to fail."""
    counts = _LINE.findall(log)
    if not counts or pod["cloud"] == COMMUNITY:
        return
    own, listed, others, account = (int(number) for number in counts[-1])
    good = own == OK and account in REFUSED
    if good and listed not in REFUSED:  # it was shown a list: of itself alone, though there are others?
        good = listed == OK and others == 0 and len(runpod.pods()) > 1
        if not good and others == 0:
            return  # nothing follows from a list of the only pod there is
    if good != is_proved(runpod) or not good:
        write_record(runpod, reads_no_other=good)


def write_record(runpod: Runpod, *, reads_no_other: bool) -> None:
    """Write down what a look from a pod has shown; for whoever comes later."""
    record = {"account": runpod.identity().id, "reads_no_other": reads_no_other, "at": runpod.clock().isoformat()}
    try:
        write_file(runpod.home / _FILE, json.dumps(record))
    except OSError as error:
        runpod.notify(f"what the pod's key may do could not be written down: {error.strerror}")
