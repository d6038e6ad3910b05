"""The cloudgpu agent, on the machine: samples, lease, policy. It travels as one file, Python 3.8+, nothing else.

`cloudgpu.agent.program` puts the files beside this one and the rules of `cloudgpu.core.activity.idle` before it, so
that nothing of ours has to be there. docs/agent.md says what it reads, what counts and what it never does.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloudgpu.agent.files import append, load, lock, monotonic, remove, save
from cloudgpu.agent.jupyter import is_responding
from cloudgpu.agent.lease import TAGS, decide, has_ended, lease_of, mark
from cloudgpu.agent.looking import MINUTE, Sampler
from cloudgpu.agent.meters import bytes_sent, scratch
from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN, Judged, Thresholds, judge

WINDOW = 600.0  # seconds that a sign of life counts at a lease's end, and where there is no policy
HOUR, SILENT = 3600.0, 150.0  # seconds: an agent that says nothing for so long is silent
WARN = (600.0, HOUR)  # seconds before the end at which terminals are told
NONE: dict[str, Any] = {"off": [], "stop": False, "scratch": "", "ends": IDLE}  # where there is no policy
HOW = {"off": "by its schedule", "idle": "unless it is used"}


def fresh(known: dict[str, Any]) -> dict[str, Any]:
    """Return what has to outlive this process, as far as it is known."""
    state: dict[str, Any] = {"tags": {}, "marks": {}, "told": {}, "warned": {}, "off": 0, "idle": 0, "own": 0}
    return {**state, **dict.fromkeys(("up", "last_active", "notice", "events")), **known}


def channel(where: Any) -> dict[str, Any]:
    """Return what a channel says now, empty when it says nothing. A file is the only kind of channel."""
    try:
        return load(Path(where["path"]))
    except (KeyError, TypeError):
        return {}


def write_terminals(text: str, terminals: list[str]) -> dict[str, float]:
    """Write to those terminals that we may write to and return when that was; one that does not take it is left out."""
    told = {}
    for path in terminals:
        with suppress(OSError):
            handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.write(handle, f"\r\n[cloudgpu] {text}\r\n".encode())
                told[path] = os.stat(path).st_mtime  # noqa: PTH116
            finally:
                os.close(handle)
    return told


class Agent(Sampler):
    """One machine's agent. `state.json` holds what must outlive this process."""

    def __init__(self, home: Path, mono: float) -> None:
        super().__init__(home)
        self.reported = self.ended = -HOUR
        self.children: list[Any] = []
        self.beat = load(home / "heartbeat.json")
        self.state = fresh(self.state)
        if self.state.get("boot") != self.boot or self.state.get("mono", 0) > mono:
            self.state.update(boot=self.boot, marks={}, up=None)

    def seconds(self, name: str, usual: float) -> float:
        """Return a setting."""
        try:
            return float(self.settings[name])
        except (KeyError, TypeError, ValueError):
            return usual

    def log(self, text: str) -> None:
        """Write a line to our log."""
        append(self.home / "agent.log", f"{time.ctime()} {text}")

    def run(self) -> None:
        """Make pass after pass while our directory stands. A Jupyter that died before us is of an earlier boot."""
        if not is_responding(self.home / "jupyter"):
            remove(self.home / "jupyter" / "server.json")
        while self.home.exists():
            pause = 5.0
            try:
                self.step(time.time(), monotonic())
                pause = self.seconds("interval", 30)
            except Exception:  # noqa: BLE001  (the agent outlives every fault)
                self.log(traceback.format_exc())
            time.sleep(max(0.2, pause))

    def step(self, now: float, mono: float) -> None:
        """Make one pass."""
        self.settings = load(self.home / "agent.json") or self.settings
        self.children = [child for child in self.children if child.poll() is None]
        before = json.dumps(self.state)
        policy, limits = self.policy()
        recent, judged = self.judged(limits, now, mono)
        judged = recent if policy is NONE else judged
        try:
            verdict, reason = self.lease(recent.activity, now, mono, policy, judged.activity)
        except Exception:
            self.state = fresh({})  # what cannot be used must not keep the next pass from ending a lease
            raise
        if verdict == "end":
            self.end(reason, mono)
        self.report(judged, now, mono)
        self.notice()
        beat = {**dict.fromkeys(("expires", "renew_until", "hold_until")), **self.state, **self.ends()}
        beat.update(activity=judged.activity, why=judged.why, verdict=verdict, reason=reason, policy=policy)
        beat.update(
            id=self.settings.get("id"), pid=os.getpid(), epoch=now, monotonic=mono, up_since=now - mono + self.up
        )
        beat["ends_at"] = min(self.ends("hold_until", recent.activity != IDLE and "expires").values(), default=None)
        beat["jupyter"] = load(self.home / "jupyter" / "server.json") or None
        with suppress(Exception):  # a disk that was another machine's has its count, too
            known = self.beat if self.beat.get("id") == beat["id"] else {}
            for name, counter in (("sent", "tx_bytes"), ("received", "rx_bytes")):
                beat[name] = bytes_sent(known.get(name) or {}, self.boot, now - mono, counter)
        self.beat = beat
        save(self.home / "heartbeat.json", beat)
        save(self.home / "sample", [self.boot, now, self.sample])
        if json.dumps(self.state) != before:
            save(self.home / "state.json", {**self.state, "mono": mono})

    def ends(self, *without: Any) -> dict[str, float]:
        """Return the ends that are set, as epochs."""
        return {name: value[0] for name, value in self.state["marks"].items() if name not in without}

    def policy(self) -> tuple[dict[str, Any], Thresholds]:
        """Return the policy and what counts by it; one that makes no sense is none, and the lease alone holds."""
        try:
            policy = {**NONE, **self.settings["policy"]}
            policy["grace"] + sum(policy["off"])
            return policy, Thresholds(*(float(policy[name]) for name in Thresholds._fields))
        except (KeyError, TypeError, ValueError):
            return NONE, Thresholds()

    def judged(self, limits: Thresholds, now: float, mono: float) -> tuple[Judged, Judged]:
        """Return what the last minutes and what the policy's time showed. A look that fails is a fault, no end."""
        try:
            samples = self.look(now, mono)
        except Exception as error:  # noqa: BLE001  (whatever is wrong there, nothing is known)
            samples = [{"t": mono, "s": 1.0, "fault": f"{error}"}]
        recent = limits._replace(after=WINDOW, uptime=0.0)
        return judge(samples, recent, mono, self.up), judge(samples, limits, mono, self.up)

    def report(self, judged: Judged, now: float, mono: float) -> None:
        """Tell the outside, only while ACTIVE and seldom: where a tag is written, each write may cost money."""
        if judged.activity == ACTIVE:
            self.state["last_active"] = int(now - judged.ago)
            if mono - self.reported >= WINDOW:
                save(self.home / "last-active", self.state["last_active"])
                self.reported = mono

    def lease(
        self, activity: str, now: float, mono: float, policy: dict[str, Any] = NONE, judged: str = UNKNOWN
    ) -> tuple[str, str]:
        """Read the lease, decide, renew. What cannot be read is as it was. `judged` is by the policy's time."""
        made, grace, state = self.seconds("made", 0), self.seconds("grace", MINUTE), self.state
        state["tags"] = tags = state["tags"] or self.settings.get("lease") or {}
        for name, value in channel(self.settings.get("metadata")).items():
            if name in TAGS and str(value).isdecimal() and len(str(value)) < 12:  # noqa: PLR2004  (epoch seconds)
                tags[name] = value
        erases = self.choose(policy, judged == IDLE, now, mono)
        lease = {**lease_of(tags, state["own"]), "off": state["off"], "idle": state["idle"]}
        marks = mark(state["marks"], lease, now, mono, made)
        verdict, reason = decide(marks, activity, mono, grace, policy["ends"])
        if verdict == "renew":
            lease["expires"] = state["own"] = int(min(max(lease["expires"], now) + HOUR, lease["renew_until"]))
            save(self.home / "expires", lease["expires"])
            marks = mark(marks, lease, now, mono, made)
        state["marks"] = marks
        if verdict != "end":
            self.warn("expires" if activity in policy["ends"] and reason == "leased" else "renew_until", mono)
        return verdict, f"a stop would erase {erases[0][0]}" if erases and verdict == "keep" else reason

    def choose(self, policy: dict[str, Any], quiet: bool, now: float, mono: float) -> list[Any]:  # noqa: FBT001
        """Set the next end by schedule and by idle time, 0 for none; return what keeps an idle machine all the same.

        An off that was once ahead of us stays until the next start. Any activity takes the end by idle time back.
        """
        state, made = self.state, self.seconds("made", 0)
        if state["up"] is None or abs(state["up"] - self.up) > MINUTE:
            state.update(up=self.up, off=0, idle=0)
            state["marks"].pop("off", None)
        if now >= made and state["off"] not in policy["off"]:
            state["off"] = min((off for off in policy["off"] if off > now), default=0)
        erases = scratch() if quiet and policy["scratch"] == "warn" else []
        if not (quiet and policy["stop"] and has_ended(state["marks"], "hold_until", mono, MINUTE)) or erases:
            state["idle"] = 0
        elif not state["idle"]:
            state["idle"] = int(max(now, made) + policy["grace"])
        return erases

    def warn(self, name: str, mono: float) -> None:
        """Tell the people at the terminals, once per end and threshold; not where they may be another machine's."""
        for rule in (name, "off", "idle"):
            value, due, _ = self.state["marks"].get(rule) or (0, None, 0)
            left = HOUR * 24 if due is None else due - mono
            near = [value, *(limit for limit in WARN if left <= limit)][:2]
            if near[1:] and self.state["warned"].get(rule) != near and self.settings.get("warn"):
                self.state["warned"][rule] = near
                how = HOW.get(rule, "unless extended")
                told = write_terminals(f"This machine ends in {max(1, left // MINUTE):.0f} min {how}", self.paths)
                self.state["told"].update(told)

    def notice(self) -> None:
        """Pass a spot notice and what else the cloud has planned on; the user's hook runs once for each notice."""
        self.state["events"] = channel(self.settings.get("events")).get("events")
        said = channel(self.settings.get("notice"))
        known, self.state["notice"] = self.state["notice"], said or None
        if not said:
            (self.home / "notice").unlink(missing_ok=True)  # of a life before: the machine was started again
        if said and said != known:
            save(self.home / "notice", said)
            hook = str(self.home / "on-interrupt")
            if os.access(hook, os.X_OK):
                self.children.append(self.spawn([hook, str(said.get("action")), str(said.get("time"))]))

    def end(self, reason: str, mono: float) -> None:
        """Ask for the machine's end; again a minute later when we still live."""
        if mono - self.ended >= MINUTE:
            self.ended = mono
            self.log("ending: " + reason)
            if self.settings.get("end"):
                self.children.append(self.spawn([*self.settings["end"], reason]))


def status(home: Path, now: float, since: float = 0.0) -> dict[str, Any]:
    """Return the latest heartbeat, what a stop would erase, and the samples since then; an old one says nothing.

    The last sample is of now: what was typed since the agent's last look is seen, too. It is no look at the meters.
    """
    looker, mono, beat = Sampler(home), monotonic(), load(home / "heartbeat.json")
    beat["heartbeat"] = epoch = beat.pop("epoch", None)
    if now - (epoch or 0) > SILENT:
        beat.update(activity=UNKNOWN, why="the agent is silent")
    looker.settings["gpus"] = 0
    samples = [{**one, "t": one["t"] - mono + now} for one in looker.look(now, mono)]
    samples[-1]["fault"] = "the agent is silent"
    return {**beat, "now": now, "scratch": scratch(), "samples": [one for one in samples if one["t"] >= since]}


def main(verb: str = "", *words: str) -> Any:
    """Run one command. `python` is for programs that come over SSH: it is the interpreter that we run on."""
    home = Path(__file__).resolve().parent
    if verb == "python":
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606
    if verb == "status":  # --since EPOCH
        sys.stdout.write(json.dumps(status(home, time.time(), float(["inf", *words][-1]))) + "\n")
        return 0
    os.umask(0o77)
    with (home / "run.lock").open("a") as file:
        return Agent(home, monotonic()).run() if lock(file, fcntl.LOCK_EX) else "another agent runs"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
