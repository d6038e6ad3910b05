"""The cloudgpu agent, on the machine: heartbeat, activity, lease. One file, Python 3.8+, nothing else.

Clocks: an end has come when the wall clock has said so for `grace` seconds, or when the monotonic clock reaches the
moment fixed when the end was first seen; so a clock set back prolongs nothing and a short jump ends nothing.
A later value moves that moment by the difference. An end first seen as over is fixed once the wall clock has it
ahead. A clock before the launch (`made`) counts as the launch; one that is ahead ends an IDLE machine early.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

ACTIVE, IDLE, UNKNOWN = "ACTIVE", "IDLE", "UNKNOWN"
WINDOW = 600.0  # seconds that a sign of life counts
STARTING = 300.0  # the same for a kernel that nobody ever connected to: it stays "starting"
HOUR = 3600.0
WARN = (600.0, HOUR)  # seconds before the end at which terminals are told
MINUTE = 60.0
LOG_SIZE = 256 * 1024
NET = Path("/sys/class/net")
TAGS = ("cloudgpu-expires", "cloudgpu-renew-until", "cloudgpu-hold-until")


class Fault(Exception):
    """A sentence for the user."""


# -- files and clocks


def read(path: Path) -> str:
    """Return a file's text, empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def load(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, empty when there is none."""
    try:
        found = json.loads(read(path))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def create(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file that only we may read."""
    return os.open(str(path), flags | os.O_CREAT, 0o600)


def save(path: Path, text: str) -> None:
    """Write a file whole: readers see the old or the new."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(create(fresh, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(text + "\n")
    fresh.replace(path)


def remove(path: Path) -> None:
    """Remove a file that may be gone."""
    with contextlib.suppress(OSError):
        path.unlink()


def appended(path: Path) -> int:
    """Open a log at its end; one that has grown is moved aside."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_SIZE:
            path.replace(path.with_name(path.name + ".1"))
    return create(path, os.O_WRONLY | os.O_APPEND)


def monotonic() -> float:
    """Return seconds since the boot, sleep included where the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def lock(handle: int, how: int) -> bool:
    """Take a lock at once, or not."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- JupyterLab


def get(port: int, path: str, token: str, wait: float = 3.0) -> Any:
    """Return the JSON that loopback answers; raise OSError or ValueError when it does not within `wait` seconds."""
    ask = f"GET {path}?no_track_activity=1 HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAuthorization: token {token}\r\n\r\n"
    end, data, part = monotonic() + wait, b"", b"-"
    with socket.create_connection(("127.0.0.1", port), wait) as link:
        link.sendall(ask.encode())
        while part:
            part = link.recv(1 << 16)
            data += part
            if monotonic() > end:
                raise OSError("too slow")
    head, _, body = data.partition(b"\r\n\r\n")
    if b" 404 " in head[:16]:  # terminals are switched off
        return []
    if b" 200 " not in head[:16]:
        raise ValueError(head[:16])
    return json.loads(body)


def alive(base: Path) -> bool:
    """Tell whether JupyterLab's process lives: it holds a lock that it inherited."""
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(str(base / "alive"), os.O_RDWR)
        try:
            return not lock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)
    return False


def look(base: Path) -> list[dict[str, Any]]:
    """Return the kernels and terminals; none when JupyterLab was not started or was shut down. Raises Fault."""
    record = load(base / "server.json")
    if alive(base):
        port, token = record.get("port"), read(base / "token")
        if not port:
            raise Fault("JupyterLab is starting")
        return [item for kind in ("kernels", "terminals") for item in get(port, "/api/" + kind, token)]
    if os.path.exists(record.get("info", "")):  # noqa: PTH110  (an orderly end removes it)
        raise Fault("JupyterLab died")
    return []


# -- network


def sent(known: dict[str, Any], boot: str, since: float) -> dict[str, Any]:
    """Return the bytes sent so far, by the network cards; bridges to containers count only where there is no card."""
    cards = [card for card in NET.glob("*") if card.name != "lo"]
    cards = [card for card in cards if (card / "device").exists()] or cards
    raw = sum(int(read(card / "statistics" / "tx_bytes") or 0) for card in cards)
    more = max(0, raw - (known["raw"] if known.get("boot") == boot else 0))
    return {"bytes": known.get("bytes", 0) + more, "raw": raw, "boot": boot, "since": known.get("since", int(since))}


# -- activity


class Sign(NamedTuple):
    """A sign of life: what, how many seconds ago, and for how long it counts."""

    what: str
    ago: float
    counts: float = WINDOW


class Ages:
    """How long ago, by the monotonic clock once seen: a jump of the wall clock makes nothing older or younger."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, float]] = {}

    def ago(self, key: str, stamp: float, now: float, mono: float) -> float:
        """Return the age of `stamp` in seconds; one that changed since the last look is new."""
        known = self.seen.get(key)
        if known is None or known[0] != stamp:
            self.seen[key] = (stamp, mono if known else mono - max(0.0, now - stamp))
        return mono - self.seen[key][1]


def signs(items: list[dict[str, Any]], ages: Ages, now: float, mono: float) -> list[Sign]:
    """Return what kernels and terminals, in Jupyter's own words, show of life."""
    found = []
    for item in items:
        what = "kernel " + item["id"][:8] if "id" in item else "Jupyter terminal " + item["name"]
        state = item.get("execution_state")
        stamp = datetime.fromisoformat(item["last_activity"][:19] + "+00:00").timestamp()
        ago = ages.ago(what, stamp, now, mono)
        if state == "busy":  # its last activity is when the cell began
            found.append(Sign("busy " + what, 0.0))
        else:
            found.append(Sign(what, ago, STARTING if state == "starting" else WINDOW))
    return found


def judge(found: list[Sign], fault: str) -> tuple[str, str, float]:
    """Return activity, why, and the seconds since the last sign of life (-1: none). Silence is UNKNOWN, not IDLE."""
    live = [sign for sign in found if sign.ago <= sign.counts]
    latest = min(live or found, key=lambda sign: sign.ago, default=Sign("", -1.0))
    why = f"{latest.what}, {latest.ago:.0f} s ago" if found else "nothing runs"
    if live:
        return ACTIVE, why, latest.ago
    return (UNKNOWN, fault, latest.ago) if fault else (IDLE, why, latest.ago)


# -- lease


def lease_of(tags: dict[str, Any], own: float) -> dict[str, float]:
    """Return the lease in force: the tag or our own renewal, never over renew-until. 0: none."""
    ends, until, hold = (float(tags.get(name, 0)) for name in TAGS)
    until = until or ends
    return {"expires": min(max(ends, own) or until, until), "renew_until": until, "hold_until": hold}


def mark(marks: dict[str, Any], lease: dict[str, float], now: float, mono: float, made: float) -> dict[str, Any]:
    """Return per end [value, due by the monotonic clock, since when the wall clock says that it is over]."""
    fresh = {}
    for name, value in lease.items():
        was, due, since = marks.get(name) or (value, None, None)
        left = value - max(now, made)
        if due is not None:
            due += value - was
        elif left > 0:
            due = mono + left
        since = (mono if since is None or was != value else since) if now >= value else None
        if value:
            fresh[name] = [value, due, since]
    return fresh


def decide(marks: dict[str, Any], activity: str, mono: float, grace: float) -> tuple[str, str]:
    """Return (keep, why), (renew, why) or (end, reason). Pure. Precedence: renew-until, hold, lease."""

    def over(name: str) -> bool:
        _, due, since = marks[name]
        return (due is not None and mono >= due) or (since is not None and mono - since >= grace)

    if "renew_until" not in marks:
        return "keep", "no lease is known"
    if over("renew_until"):
        return "end", "renew-until"
    if not over("expires"):
        return "keep", "leased"
    if "hold_until" in marks and not over("hold_until"):
        return "keep", "held"
    if activity != IDLE and marks["expires"][0] < marks["renew_until"][0]:
        return "renew", activity
    return "end", "lease"


# -- channels: one function per kind


def file_channel(where: dict[str, Any]) -> dict[str, Any]:
    """Read a JSON object from a file."""
    return load(Path(where.get("path", "")))


CHANNELS = {"file": file_channel}


def channel(where: dict[str, Any]) -> dict[str, Any]:
    """Return what a channel says now, empty when it says nothing."""
    try:
        return CHANNELS[where["kind"]](where)
    except Exception:  # noqa: BLE001  (no fault of a channel may keep a lease from ending)
        return {}


def tell(text: str, terminals: list[str]) -> None:
    """Write to those terminals that are ours; one that does not take it is left out."""
    for path in terminals:
        with contextlib.suppress(OSError):
            if os.stat(path).st_uid == os.getuid():  # noqa: PTH116
                handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
                try:
                    os.write(handle, f"\r\n[cloudgpu] {text}\r\n".encode())
                finally:
                    os.close(handle)


# -- the loop


class Agent:
    """One machine's agent. `state.json` holds what must outlive this process."""

    def __init__(self, home: Path, mono: float) -> None:
        self.home = home
        self.settings: dict[str, Any] = {}
        self.state = load(home / "state.json")
        self.ages = Ages()
        self.reported = self.ended = -HOUR
        self.children: list[subprocess.Popen[bytes]] = []
        self.beat = load(home / "heartbeat.json")
        self.boot = read(Path("/proc/sys/kernel/random/boot_id"))
        if self.state.get("boot") != self.boot or self.state.get("mono", 0) > mono:
            self.state.update(boot=self.boot, marks={})

    def seconds(self, name: str, usual: float) -> float:
        """Return a setting."""
        try:
            return float(self.settings[name])
        except (KeyError, TypeError, ValueError):
            return usual

    def put(self, name: str, value: Any) -> None:
        """Write one of our files; a full disk keeps no lease from ending."""
        with contextlib.suppress(OSError):
            save(self.home / name, json.dumps(value))

    def log(self, text: str) -> None:
        """Write a line to our log."""
        with contextlib.suppress(OSError), os.fdopen(appended(self.home / "agent.log"), "a") as file:
            file.write(time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) + text + "\n")

    def run(self) -> int:
        """Make pass after pass while our directory stands. A Jupyter that died before us is of an earlier boot."""
        if not alive(self.home / "jupyter"):
            remove(self.home / "jupyter" / "server.json")
        while self.home.exists():
            pause = 5.0
            try:
                self.step(time.time(), monotonic())
                pause = self.seconds("interval", 30)
            except Exception:  # noqa: BLE001  (the agent outlives every fault)
                self.log(traceback.format_exc())
            time.sleep(max(0.2, pause))
        return 0

    def step(self, now: float, mono: float) -> None:
        """Make one pass."""
        self.settings = load(self.home / "agent.json") or self.settings
        self.children = [child for child in self.children if child.poll() is None]
        before = json.dumps(self.state)
        activity, why, ago = self.activity(now, mono)
        try:
            verdict, reason = self.lease(activity, now, mono)
        except Exception:
            self.state = {}  # what cannot be used must not keep the next pass from ending a lease
            raise
        if verdict == "end":
            self.end(reason, mono)
        beat = {"id": self.settings.get("id"), "epoch": now, "monotonic": mono, "activity": activity, "why": why}
        for name in ("expires", "renew_until", "hold_until"):
            beat[name] = self.state["marks"].get(name, [None])[0]
        beat.update(verdict=verdict, reason=reason, last_active=self.report(activity, now - ago, mono))
        beat.update(notice=self.notice(), renewed=self.state.get("renewed"), pid=os.getpid())
        beat["jupyter"] = load(self.home / "jupyter" / "server.json") or None
        with contextlib.suppress(Exception):  # a disk that was another machine's has its count, too
            known = self.beat.get("sent") if self.beat.get("id") == beat["id"] else None
            beat["sent"] = sent(known or {}, self.boot, now - mono)
        self.beat = beat
        self.put("heartbeat.json", beat)
        if json.dumps(self.state) != before:
            self.put("state.json", {**self.state, "mono": mono})

    def activity(self, now: float, mono: float) -> tuple[str, str, float]:
        """Look at everything that shows life, and judge it."""
        found, fault = [], ""
        try:
            found = signs(look(self.home / "jupyter"), self.ages, now, mono)
        except Exception as error:  # noqa: BLE001  (whatever is wrong there, nothing is known)
            fault = f"JupyterLab: {error}"
        with contextlib.suppress(OSError):
            stamp = (self.home / "terminal-input").stat().st_mtime
            found.append(Sign("terminal input", self.ages.ago("terminal", stamp, now, mono)))
        return judge(found, fault)

    def report(self, activity: str, last: float, mono: float) -> Any:
        """Tell the outside, only while ACTIVE and seldom: where a tag is written, each write may cost money."""
        if activity == ACTIVE:
            self.state["last_active"] = int(last)
            if mono - self.reported >= self.seconds("report_every", WINDOW):
                self.put("last-active", int(last))
                self.reported = mono
        return self.state.get("last_active")

    def lease(self, activity: str, now: float, mono: float) -> tuple[str, str]:
        """Read the lease, decide, renew. What cannot be read is as it was."""
        tags = self.state.get("tags") or self.settings.get("lease") or {}
        tags.update({k: v for k, v in channel(self.settings.get("metadata") or {}).items() if k in TAGS and number(v)})
        self.state["tags"] = tags
        lease = lease_of(tags, self.state.get("own", 0))
        made = self.seconds("made", 0)
        marks = mark(self.state.get("marks") or {}, lease, now, mono, made)
        verdict, reason = decide(marks, activity, mono, self.seconds("grace", MINUTE))
        if verdict == "renew":
            lease["expires"] = self.state["own"] = int(min(max(lease["expires"], now) + HOUR, lease["renew_until"]))
            self.put("expires", lease["expires"])
            self.state["renewed"] = {"at": int(now), "to": lease["expires"], "activity": activity}
            marks = mark(marks, lease, now, mono, made)
        self.state["marks"] = marks
        if verdict != "end":
            self.warn("expires" if activity == IDLE and reason == "leased" else "renew_until", mono)
        return verdict, reason

    def warn(self, name: str, mono: float) -> None:
        """Tell the people at the terminals, once per end and threshold; not where they may be another machine's."""
        local = (self.settings.get("metadata") or {}).get("kind") == "file"
        value, due, _ = self.state["marks"].get(name) or (0, None, None)
        left = HOUR * 24 if due is None else due - mono
        near = [limit for limit in WARN if left <= limit]
        warned = self.state.setdefault("warned", {})
        if near and warned.get(name) != [value, near[0]] and self.settings.get("warn", not local):
            warned[name] = [value, near[0]]
            text = f"This machine ends in {max(1, left // MINUTE):.0f} min. To keep it: cloudgpu extend"
            tell(text, [str(path) for path in Path("/dev/pts").glob("[0-9]*")])

    def notice(self) -> Any:
        """Pass a spot notice on; the user's hook runs once for each."""
        said = channel(self.settings.get("notice") or {})
        if not said.get("time"):
            return None
        notice = {name: str(said.get(name))[:64] for name in ("action", "time")}
        if notice != self.state.get("notice"):
            self.state["notice"] = notice
            self.put("notice", notice)
            hook = str(self.home / "on-interrupt")
            if os.access(hook, os.X_OK):
                self.spawn([hook, notice["action"], notice["time"]])
        return notice

    def end(self, reason: str, mono: float) -> None:
        """Ask for the machine's end; again a minute later when we still live."""
        if mono - self.ended >= MINUTE:
            self.ended = mono
            self.log("ending: " + reason)
            if self.settings.get("end"):
                self.spawn([*self.settings["end"], reason])

    def spawn(self, command: list[str]) -> None:
        """Start a command, its output in our log."""
        try:
            log = appended(self.home / "agent.log")
        except OSError:
            log = os.open(os.devnull, os.O_WRONLY)
        try:
            null = subprocess.DEVNULL
            child = subprocess.Popen(command, stdin=null, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
            self.children.append(child)
        except OSError as error:
            self.log(str(error))
        finally:
            os.close(log)


def number(value: Any) -> bool:
    """Tell whether a tag's value is a time in epoch seconds."""
    return str(value).isdecimal() and len(str(value)) < 12  # noqa: PLR2004


def status(home: Path, now: float) -> dict[str, Any]:
    """Return the latest heartbeat; an old one says nothing about activity."""
    names = ("activity", "why", "last_active", "expires", "renew_until", "hold_until", "jupyter", "notice", "sent")
    beat = load(home / "heartbeat.json")
    answer = {"heartbeat": beat.get("epoch"), **{name: beat.get(name) for name in names}}
    if now - beat.get("epoch", 0) > MINUTE + 3 * float(load(home / "agent.json").get("interval") or 30):
        answer.update(activity=UNKNOWN, why="the agent is silent")
    return answer


def main(words: list[str]) -> int:
    """Run one command. `python` is for programs that come over SSH: it is the interpreter that we run on."""
    if words[:1] == ["python"]:
        os.execv(sys.executable, [sys.executable, *words[1:]])  # noqa: S606
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("verb", choices=("run", "status", "python"))
    parser.add_argument("--home", type=Path, default=Path(__file__).resolve().parent)
    args = parser.parse_args(words)
    if args.verb == "status":
        sys.stdout.write(json.dumps(status(args.home, time.time())) + "\n")
        return 0
    if not lock(create(args.home / "run.lock"), fcntl.LOCK_EX):
        sys.stderr.write("another agent runs here\n")
        return 1
    return Agent(args.home, monotonic()).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
