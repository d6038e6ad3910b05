"""A host's GPUs as nvidia-smi tells them, who uses them, and which are free for a machine.

It is a part of the program that is sent there.
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

ASK_S = 10.0  # a driver that is just being loaded takes seconds
GLANCE_S = 2.0  # as long a look waits for nvidia-smi, which may hang
CARD = ("uuid", "name", "memory.total", "memory.used", "utilization.gpu")
DIVIDED = ("uuid", "mig.mode.current")  # asked apart: a driver that does not know it refuses the whole question
PROCESS = ("gpu_uuid", "pid", "used_memory", "process_name")  # the name last, which may have commas
AT_WORK = 10  # percent of a GPU from which on it is in use, whoever it is by: a desktop's pictures take less
NAMED = 3  # processes of a GPU that are named


def nvidia_smi(seconds: float, **questions: tuple[str, ...]) -> list[list[list[str]] | None]:
    """Return the rows that answer each of these questions, asked at once; None for one without an answer in time.

    What stands behind a colon in a question's kind tells two of the same kind apart. Nobody waits longer for it: it may
    hang where no signal ends it.
    """
    asked: list[Any] = []
    for kind, fields in questions.items():
        command = [
            "nvidia-smi",
            "--query-{}={}".format(kind.partition(":")[0], ",".join(fields)),
            "--format=csv,noheader,nounits",
        ]
        out = tempfile.TemporaryFile()  # noqa: SIM115  (read below, once it is written)
        try:
            null = subprocess.DEVNULL
            child = subprocess.Popen(command, stdin=null, stdout=out, stderr=null, start_new_session=True)  # noqa: S603
        except OSError:
            return [None] * len(questions)
        asked.append((child, out, len(fields)))
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(child.poll() is None for child, _, _ in asked):
        time.sleep(0.01)
    return [answered(*one) for one in asked]


def answered(child: Any, out: Any, wanted: int) -> list[list[str]] | None:
    """Return the rows that nvidia-smi has written; None where it failed or is still at it, and is ended then."""
    with out:
        if child.poll() is None:
            child.kill()
        if child.returncode != 0:
            return None
        out.seek(0)
        lines = out.read().decode("utf-8", "replace").splitlines()
    rows = [[cell.strip() for cell in line.split(",", wanted - 1)] for line in lines]
    return [row for row in rows if len(row) == wanted]


def cards(seconds: float, ours: Callable[[], set[int]]) -> list[dict[str, Any]] | None:
    """Return each GPU with the processes that compute on it; None where nvidia-smi is missing or has no answer.

    `ours` tells the processes of the machine that is here.
    """
    rows, running, modes = nvidia_smi(seconds, gpu=CARD, **{"compute-apps": PROCESS, "gpu:mig": DIVIDED})
    if rows is None:
        return None
    divided = {uuid for uuid, mode in modes or () if mode == "Enabled"}
    own = ours() if running else set()
    found = []
    for number, (uuid, name, mib, used_mib, percent) in enumerate(rows):
        here = [process(row, own) for row in running or () if row[0] == uuid]
        one = {"uuid": uuid, "name": name, "mib": mib, "used": whole(used_mib), "percent": whole(percent)}
        known = {"number": number, "by": here, "told": running is not None, "divided": uuid in divided}
        found.append({**one, **known})
    return found


def process(row: list[str], own: set[int]) -> dict[str, Any]:
    """Return whose a process on a GPU is, as far as /proc here knows it."""
    _, pid, mib, command = row
    number, owner = whole(pid), None
    with contextlib.suppress(OSError, KeyError):
        owner = f"uid {os.stat(f'/proc/{number}').st_uid}"  # noqa: PTH116
        owner = pwd.getpwuid(int(owner[4:])).pw_name
    name = os.path.basename(command.split(" ")[0]) or "a process"  # noqa: PTH119
    return {"ours": number in own, "user": owner, "command": name, "mib": whole(mib), "pid": pid}


def whole(text: str) -> int | None:
    """Return a number; None for `[N/A]` and its like."""
    return int(text) if text.isdigit() else None


def is_taken(card: dict[str, Any]) -> bool:
    """Tell whether somebody else than the machine here uses a GPU."""
    if card["by"]:
        return not all(one["ours"] for one in card["by"])
    return (card["percent"] or 0) >= AT_WORK


def used(found: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return each GPU that is in use, by whom in words, and whether by others; None: not known."""
    if found is None:
        return None
    busy = [card for card in found if card["by"] or (card["percent"] or 0) >= AT_WORK]
    if not busy and not all(card["told"] for card in found):
        return None
    return [{"uuid": card["uuid"], "says": use_of(card), "taken": is_taken(card)} for card in busy]


def use_of(card: dict[str, Any]) -> str:
    """Return who uses a GPU, with how much of its memory, and how busy it is; or that it is divided (MIG)."""
    if card["divided"]:
        return "GPU {} is divided into parts (MIG), which are not handed out".format(card["number"])
    head = "GPU {}".format(card["number"]) + ("" if card["percent"] is None else " ({percent}% busy)".format(**card))
    who = []
    for one in card["by"][:NAMED]:
        owner = "this machine" if one["ours"] else one["user"] or "somebody"
        memory = "" if one["mib"] is None else ", {:.1f} GiB".format(one["mib"] / 1024)
        who.append("{} ({} {}{})".format(owner, one["command"], one["pid"], memory))
    more = len(card["by"]) - len(who)
    if more:
        who.append(f"{more} more")
    return "{}: {}".format(head, ", ".join(who) or "nvidia-smi does not say by whom")


def chosen(wanted: dict[str, Any] | None, ours: Callable[[], set[int]]) -> list[str]:
    """Return the GPUs of a new machine by their UUIDs: those least used; none where it is to have the host as it is.

    One in MIG mode is none that a machine gets whole: a program would see one part of it. Raises Fault where fewer are
    free than are wanted, or nobody can tell.
    """
    if wanted is None:
        return []
    found = cards(ASK_S, ours)
    if wanted["part"] and not all(card["told"] for card in found or [{"told": False}]):
        raise Fault("unseen", "nvidia-smi has no answer")
    if found is None:
        return []
    fitting = [card for card in found if wanted["name"] in (None, card["name"])]
    free = [card for card in fitting if not card["divided"] and not is_taken(card)]
    if len(free) < wanted["count"]:
        raise Fault("taken", in_use_text(wanted["count"], len(free), fitting))
    free = sorted(free, key=lambda card: (card["used"] or 0, card["percent"] or 0))[: wanted["count"]]
    return [card["uuid"] for card in sorted(free, key=lambda card: int(card["number"]))]


def in_use_text(wanted: int, free: int, fitting: list[dict[str, Any]]) -> str:
    """Return that too few of these GPUs are free, and who uses the others."""
    users = "; ".join(use_of(card) for card in fitting if card["divided"] or is_taken(card))
    return "{} of {} GPUs {} free, and {} {} wanted{}".format(
        free, len(fitting), "is" if free == 1 else "are", wanted, "is" if wanted == 1 else "are", users and f": {users}"
    )


def check_free(devices: list[str] | None, ours: Callable[[], set[int]]) -> None:
    """Raise Fault where others use a machine's GPUs by now; nobody knows where nvidia-smi has no answer."""
    found = cards(ASK_S, ours) if devices else None
    if found is None:
        return
    its = [card for card in found if card["uuid"] in (devices or ())]
    free = [card for card in its if not is_taken(card)]
    if len(free) < len(devices or ()):
        raise Fault("taken", in_use_text(len(devices or ()), len(free), its))
