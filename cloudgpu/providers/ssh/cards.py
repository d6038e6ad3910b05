"""A host's GPUs as nvidia-smi reports them, who uses them, and which are free for a machine.

It is a part of the program that is sent to the host.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

from cloudgpu.providers.ssh.files import Fault

QUERY_TIMEOUT_S = 10.0  # a driver that is just being loaded takes seconds
QUICK_QUERY_TIMEOUT_S = 2.0  # how long a status query waits for nvidia-smi, which may hang
GPU_FIELDS = ("uuid", "name", "memory.total", "memory.used", "utilization.gpu")
MIG_FIELDS = ("uuid", "mig.mode.current")  # a query of its own: a driver that does not know MIG refuses the whole query
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")  # the name last, which may have commas
BUSY_PERCENT = 10  # a GPU this busy counts as in use, even without a known process: a desktop's display takes less
MAX_NAMED_PROCESSES = 3  # per GPU


def nvidia_smi(seconds: float, **queries: tuple[str, ...]) -> list[list[list[str]] | None]:
    """Return the rows of each of these queries, all run in parallel; None for one that failed or took longer.

    A query is named like nvidia-smi's option (`gpu` for --query-gpu), with a suffix after a colon for a second one. An
    nvidia-smi that hangs in the kernel, where no signal ends it, is not waited for.
    """
    running: list[Any] = []
    for kind, fields in queries.items():
        command = [
            "nvidia-smi",
            "--query-{}={}".format(kind.partition(":")[0], ",".join(fields)),
            "--format=csv,noheader,nounits",
        ]
        output = tempfile.TemporaryFile()  # noqa: SIM115  (read below, once it is written)
        try:
            devnull = subprocess.DEVNULL
            child = subprocess.Popen(command, stdin=devnull, stdout=output, stderr=devnull, start_new_session=True)  # noqa: S603
        except OSError:
            return [None] * len(queries)
        running.append((child, output, len(fields)))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(child.poll() is None for child, _, _ in running):
        time.sleep(0.01)
    return [read_rows(*query) for query in running]


def read_rows(child: Any, output: Any, column_count: int) -> list[list[str]] | None:
    """Return the rows that nvidia-smi has written; None where it failed, or still runs and is killed."""
    with output:
        if child.poll() is None:
            child.kill()
        if child.returncode != 0:
            return None
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").splitlines()
    rows = [[cell.strip() for cell in line.split(",", column_count - 1)] for line in lines]
    return [row for row in rows if len(row) == column_count]


def read_cards(seconds: float, find_our_processes: Callable[[], set[int]]) -> list[dict[str, Any]] | None:
    """Return each GPU with the processes that compute on it; None where nvidia-smi is missing or has no answer.

    `find_our_processes` returns the pids of the machine on this host. A GPU is a dict: `used` (MiB) and `percent` are
    how much it is used now, `by` its processes, `told` whether these are known, `divided` whether it is in MIG mode.
    """
    queries = {"gpu": GPU_FIELDS, "compute-apps": PROCESS_FIELDS, "gpu:mig": MIG_FIELDS}
    rows, process_rows, mig_rows = nvidia_smi(seconds, **queries)
    if rows is None:
        return None
    mig_uuids = {uuid for uuid, mode in mig_rows or () if mode == "Enabled"}
    our_pids = find_our_processes() if process_rows else set()
    cards = []
    for gpu_number, (uuid, name, memory_mib, used_mib, percent) in enumerate(rows):
        gpu_processes = [describe_gpu_process(row, our_pids) for row in process_rows or () if row[0] == uuid]
        usage = {"used": number_or_none(used_mib), "percent": number_or_none(percent)}
        card = {"uuid": uuid, "name": name, "mib": memory_mib, **usage}
        use_facts = {
            "number": gpu_number,
            "by": gpu_processes,
            "told": process_rows is not None,
            "divided": uuid in mig_uuids,
        }
        cards.append({**card, **use_facts})
    return cards


def describe_gpu_process(row: list[str], our_pids: set[int]) -> dict[str, Any]:
    """Return who runs a process on a GPU, as far as /proc tells, and how much GPU memory it has."""
    _, pid, memory_mib, command = row
    pid_number, owner = number_or_none(pid), None
    with contextlib.suppress(OSError, KeyError):
        owner = f"uid {os.stat(f'/proc/{pid_number}').st_uid}"  # noqa: PTH116
        owner = pwd.getpwuid(int(owner[4:])).pw_name
    name = os.path.basename(command.split(" ")[0]) or "a process"  # noqa: PTH119
    return {
        "ours": pid_number in our_pids,
        "user": owner,
        "command": name,
        "mib": number_or_none(memory_mib),
        "pid": pid,
    }


def number_or_none(text: str) -> int | None:
    """Return the number in a cell; None for `[N/A]` and the like."""
    return int(text) if text.isdigit() else None


def is_used_by_others(card: dict[str, Any]) -> bool:
    """Tell whether somebody other than the machine on this host uses a GPU."""
    if card["by"]:
        return not all(process["ours"] for process in card["by"])
    return (card["percent"] or 0) >= BUSY_PERCENT


def gpus_in_use(cards: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return each GPU that is in use: its uuid, a sentence on who uses it (`says`), and whether others do (`taken`).

    None where that is not known.
    """
    if cards is None:
        return None
    busy = [card for card in cards if card["by"] or (card["percent"] or 0) >= BUSY_PERCENT]
    if not busy and not all(card["told"] for card in cards):
        return None
    return [{"uuid": card["uuid"], "says": usage_text(card), "taken": is_used_by_others(card)} for card in busy]


def usage_text(card: dict[str, Any]) -> str:
    """Return who uses a GPU, with how much of its memory, and how busy it is; or that it is divided (MIG)."""
    if card["divided"]:
        return "GPU {} is divided into parts (MIG), which are not handed out".format(card["number"])
    title = "GPU {}".format(card["number"]) + ("" if card["percent"] is None else " ({percent}% busy)".format(**card))
    users = []
    for process in card["by"][:MAX_NAMED_PROCESSES]:
        owner = "this machine" if process["ours"] else process["user"] or "somebody"
        memory = "" if process["mib"] is None else ", {:.1f} GiB".format(process["mib"] / 1024)
        users.append("{} ({} {}{})".format(owner, process["command"], process["pid"], memory))
    more_count = len(card["by"]) - len(users)
    if more_count:
        users.append(f"{more_count} more")
    return "{}: {}".format(title, ", ".join(users) or "nvidia-smi does not say by whom")


def choose_gpus(requested: dict[str, Any] | None, find_our_processes: Callable[[], set[int]]) -> list[str]:
    """Return the UUIDs of a new machine's GPUs, the least used ones; none where it shares the host's GPUs.

    `requested` has their `count`, their `name` (None: any), and `part`: whether the host has more than that. A GPU in
    MIG mode is never chosen: a program would see only one part of it. Raises Fault where fewer are free, or that is not
    known.
    """
    if requested is None:
        return []
    cards = read_cards(QUERY_TIMEOUT_S, find_our_processes)
    if requested["part"] and not all(card["told"] for card in cards or [{"told": False}]):
        raise Fault("unseen", "nvidia-smi has no answer")
    if cards is None:
        return []
    matching = [card for card in cards if requested["name"] in (None, card["name"])]
    free = [card for card in matching if not card["divided"] and not is_used_by_others(card)]
    if len(free) < requested["count"]:
        raise Fault("taken", in_use_text(requested["count"], len(free), matching))
    free = sorted(free, key=lambda card: (card["used"] or 0, card["percent"] or 0))[: requested["count"]]
    return [card["uuid"] for card in sorted(free, key=lambda card: int(card["number"]))]


def in_use_text(requested_count: int, free_count: int, matching: list[dict[str, Any]]) -> str:
    """Return the sentence that too few of the `matching` GPUs are free, and who uses the others."""
    users = "; ".join(usage_text(card) for card in matching if card["divided"] or is_used_by_others(card))
    return "{} of {} GPUs {} free, and {} {} wanted{}".format(
        free_count,
        len(matching),
        "is" if free_count == 1 else "are",
        requested_count,
        "is" if requested_count == 1 else "are",
        users and f": {users}",
    )


def check_gpus_free(devices: list[str] | None, find_our_processes: Callable[[], set[int]]) -> None:
    """Raise Fault where others use a machine's GPUs now; not where nvidia-smi has no answer."""
    cards = read_cards(QUERY_TIMEOUT_S, find_our_processes) if devices else None
    if cards is None:
        return
    own_gpus = [card for card in cards if card["uuid"] in (devices or ())]
    free = [card for card in own_gpus if not is_used_by_others(card)]
    if len(free) < len(devices or ()):
        raise Fault("taken", in_use_text(len(devices or ()), len(free), own_gpus))
