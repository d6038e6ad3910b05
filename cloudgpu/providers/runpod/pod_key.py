"""The API key that RunPod puts into each pod, with which a pod can stop itself.

RunPod's documents say that this key is for its own pod only. cloudgpu uses it only after a pod of the account has shown
that it reads no other pod: at its start the pod requests itself, all pods and the account with its key, and writes the
statuses to its log. Reading the host key from the log records them. Only a pod in a data centre is trusted with this
check.
"""

from __future__ import annotations

import json
import re

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.account_abilities import AccountFinding
from cloudgpu.providers.runpod.client import Pod, Runpod
from cloudgpu.providers.runpod.options import COMMUNITY
from cloudgpu.providers.shared.account import write_file

STOPS_ITSELF_NOTE = (
    "the agent on the pod (idle time, lease; it renews while somebody works), which stops the pod by its own key"
)
UNPROVED_TEXT = (
    "the agent on the pod reports how it is used, and cannot stop it: no pod of this account has shown yet that its "
    "own key reads no other pod"
)
CHECK_VARIABLE = "CLOUDGPU_KEY_CHECK"  # variable in a pod's environment: the program of the check
OK_STATUS, REFUSED_STATUSES = 200, (401, 403)  # HTTP statuses
_RECORD_FILE = "pod-key.json"
_CHECK_LINE = re.compile(r"^cloudgpu-pod-key: own=(\d+) list=(\d+) others=(\d+) account=(\d+)\s*$", re.MULTILINE)
_PROGRAM_START = """import json, os, urllib.error, urllib.request
base = os.environ.get("CLOUDGPU_RUNPOD_ENDPOINT") or "https://api.runpod.io"
pod, key = os.environ.get("RUNPOD_POD_ID", ""), os.environ.get("RUNPOD_API_KEY", "")
head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
"""
# Runs once at the start of a pod. It prints statuses and a number, and no data of the answers.
CHECK_PROGRAM = (
    _PROGRAM_START
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
{_PROGRAM_START}call = urllib.request.Request(base + "/v2/pods/" + pod + "/action", b'{{"action": "stop"}}', head)
urllib.request.urlopen(call, timeout=30).read()
END"""


def reads_no_other_pod(runpod: Runpod) -> bool:
    """Tell whether a pod of this account has shown that its own key reads no other pod."""
    try:
        record = json.loads((runpod.home / _RECORD_FILE).read_text(encoding="ascii"))
        return bool(record["account"] == runpod.identity().id and record["reads_no_other"])
    except (OSError, ValueError, KeyError, TypeError, CloudgpuError):
        return False


def account_finding(runpod: Runpod) -> AccountFinding:
    """Return the account of the user's key, for `doctor` and `init`. Raises AuthFailed, ProviderUnavailable."""
    return AccountFinding("RunPod account", is_ok=True, message=runpod.identity().display_name)


def key_finding(runpod: Runpod) -> AccountFinding:
    """Return whether it is proved that a pod's own key reads no other pod, for `doctor`."""
    title = "the pod's own key"
    if reads_no_other_pod(runpod):
        return AccountFinding(
            title, is_ok=True, message="it reads no other pod, so that pods stop themselves at their lease"
        )
    return AccountFinding(
        title, is_ok=None, message=UNPROVED_TEXT, next="Run: cloudgpu doctor --live --provider runpod"
    )


def record_check(runpod: Runpod, pod: Pod, log: str) -> None:
    """Record the check in a pod's log, if it is new. Errors of writing are only notified."""
    check_lines = _CHECK_LINE.findall(log)
    if not check_lines or pod["cloud"] == COMMUNITY:
        return
    own_status, list_status, other_pods, account_status = (int(number) for number in check_lines[-1])
    is_isolated = own_status == OK_STATUS and account_status in REFUSED_STATUSES
    if (
        is_isolated and list_status not in REFUSED_STATUSES
    ):  # it could list pods: only itself, although there are others?
        is_isolated = list_status == OK_STATUS and other_pods == 0 and len(runpod.pods()) > 1
        if not is_isolated and other_pods == 0:
            return  # with a single pod the list proves nothing
    if is_isolated != reads_no_other_pod(runpod) or not is_isolated:
        write_record(runpod, reads_no_other=is_isolated)


def write_record(runpod: Runpod, *, reads_no_other: bool) -> None:
    """Store the result of the check."""
    record = {"account": runpod.identity().id, "reads_no_other": reads_no_other, "at": runpod.clock().isoformat()}
    try:
        write_file(runpod.home / _RECORD_FILE, json.dumps(record))
    except OSError as error:
        runpod.notify(f"what the pod's key may do could not be written down: {error.strerror}")
