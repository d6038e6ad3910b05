"""The cloudgpu agent, which runs on the machine: it samples activity, keeps the lease and follows the policy.

It is sent as one file that needs only Python 3.8+: `cloudgpu.agent.program` puts the modules beside this one and
`cloudgpu.core.activity.idle` in front of it. docs/agent.md says what it reads, what counts and what it never does.
Times: `now` is the epoch, `mono` seconds of the monotonic clock.
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
from cloudgpu.agent.jupyter import is_running
from cloudgpu.agent.lease import LEASE_TAGS, decide, has_ended, lease_of, update_marks
from cloudgpu.agent.meters import scratch_disks, traffic_total
from cloudgpu.agent.sampler import MINUTE, Sampler
from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN, ActivityVerdict, Thresholds, judge

ACTIVITY_WINDOW = 600.0  # seconds for which activity counts when a lease ends, and without a policy
HOUR, SILENT_AFTER = 3600.0, 150.0  # seconds without a heartbeat after which the agent counts as silent
NO_POLICY: dict[str, Any] = {
    "off": [],  # epochs of scheduled ends
    "stop": False,  # whether idle time ends the machine
    "scratch": "",  # "warn": not where a stop would erase data
    "ends": IDLE,  # activities in which the end of the lease ends the machine
}


def with_defaults(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the state that outlives this process: what is `stored`, else defaults.

    `tags` are the last that could be read, `marks` those of `lease.py`; `told` is when we wrote to each terminal, by
    path; `warned` which warning was written, by end and terminal. `off`, `idle` and `own` are epochs: the ends by
    schedule and by idle time, and the lease as renewed by the agent. `up` is the start of this uptime (monotonic).
    """
    state: dict[str, Any] = {"tags": {}, "marks": {}, "told": {}, "warned": {}, "off": 0, "idle": 0, "own": 0}
    return {**state, **dict.fromkeys(("up", "last_active", "notice", "events")), **stored}


def read_channel(channel: Any) -> dict[str, Any]:
    """Return the JSON object in a channel (a file that others on the machine write); empty without one."""
    try:
        return load(Path(channel["path"]))
    except (KeyError, TypeError):
        return {}


def write_terminals(text: str, terminals: list[str]) -> dict[str, float]:
    """Write to the terminals; return when, by path. A terminal that cannot be written to is left out."""
    written_at = {}
    for path in terminals:
        with suppress(OSError):
            handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.write(handle, f"\r\n[cloudgpu] {text}\r\n".encode())
                written_at[path] = os.stat(path).st_mtime  # noqa: PTH116
            finally:
                os.close(handle)
    return written_at


class Agent(Sampler):
    """One machine's agent. `state.json` keeps its state over restarts."""

    def __init__(self, home: Path, mono: float) -> None:
        super().__init__(home)
        self.reported_at = self.end_requested_at = -HOUR  # by the monotonic clock
        self.children: list[Any] = []
        self.heartbeat = load(home / "heartbeat.json")
        self.state = with_defaults(self.state)
        last = self.state.get("mono", 0)
        if self.state.get("boot") != self.boot or not isinstance(last, (int, float)) or last > mono:
            self.state.update(boot=self.boot, marks={}, up=None)

    def setting(self, name: str, default: float) -> float:
        """Return a number of the settings."""
        try:
            return float(self.settings[name])
        except (KeyError, TypeError, ValueError):
            return default

    def log(self, text: str) -> None:
        """Write a line to the agent's log."""
        append(self.home / "agent.log", f"{time.ctime()} {text}")

    def run(self) -> None:
        """Step every few seconds, until the agent's directory is removed. Forget a JupyterLab that ended before."""
        if not is_running(self.home / "jupyter"):
            remove(self.home / "jupyter" / "server.json")
        while self.home.exists():
            pause = 5.0
            try:
                self.step(time.time(), monotonic())
                pause = self.setting("interval", 30)
            except Exception:  # noqa: BLE001  (no error may end the agent)
                self.log(traceback.format_exc())
            time.sleep(max(0.2, pause))

    def step(self, now: float, mono: float) -> None:
        """Sample, judge, apply the lease, and write the heartbeat."""
        self.settings = load(self.home / "agent.json") or self.settings
        self.children = [child for child in self.children if child.poll() is None]
        before = json.dumps(self.state)
        policy, thresholds = self.read_policy()
        recent, judged = self.judge_activity(thresholds, now, mono)
        judged = recent if policy is NO_POLICY else judged
        try:
            verdict, reason = self.apply_lease(recent.activity, now, mono, policy, judged.activity)
        except Exception:
            self.state = with_defaults(
                {"boot": self.boot}
            )  # a damaged state must not keep the next step from ending a lease
            raise
        if verdict == "end":
            self.request_end(reason, mono)
        self.publish_activity(judged, now, mono)
        self.pass_on_notices()
        heartbeat = {**dict.fromkeys(("expires", "renew_until", "hold_until")), **self.state, **self.end_times()}
        heartbeat.update(
            activity=judged.activity,
            why=judged.why,
            verdict=verdict,
            reason=reason,
            policy=policy,
            id=self.settings.get("id"),
            pid=os.getpid(),
            epoch=now,
            monotonic=mono,
            up_since=now - mono + self.up_since,
            ends_at=min(self.end_times("hold_until", recent.activity != IDLE and "expires").values(), default=None),
            jupyter=load(self.home / "jupyter" / "server.json") or None,
        )
        with suppress(Exception):  # a disk image of another machine brings that machine's total, which does not count
            previous = self.heartbeat if self.heartbeat.get("id") == heartbeat["id"] else {}
            for name, counter in (("sent", "tx_bytes"), ("received", "rx_bytes")):
                heartbeat[name] = traffic_total(previous.get(name) or {}, self.boot, now - mono, counter)
        self.heartbeat = heartbeat
        save(self.home / "heartbeat.json", heartbeat)
        save(self.home / "sample", [self.boot, now, self.sample])
        if json.dumps(self.state) != before:
            save(self.home / "state.json", {**self.state, "mono": mono})

    def end_times(self, *excluded: Any) -> dict[str, float]:
        """Return the ends that are set, as epochs by name, without the `excluded` names."""
        return {name: value[0] for name, value in self.state["marks"].items() if name not in excluded}

    def read_policy(self) -> tuple[dict[str, Any], Thresholds]:
        """Return the policy and its thresholds.

        NO_POLICY when it cannot be understood, so that only the lease holds.
        """
        try:
            policy = {**NO_POLICY, **self.settings["policy"]}
            policy["grace"] + sum(policy["off"])
            return policy, Thresholds(*(float(policy[name]) for name in Thresholds._fields))
        except (KeyError, TypeError, ValueError):
            return NO_POLICY, Thresholds()

    def judge_activity(
        self, thresholds: Thresholds, now: float, mono: float
    ) -> tuple[ActivityVerdict, ActivityVerdict]:
        """Return the activity of the last minutes, and that over the time that the policy says.

        A failed sample is a fault, not idleness.
        """
        try:
            samples = self.take_sample(now, mono)
        except Exception as error:  # noqa: BLE001  (whatever went wrong, the activity is unknown)
            samples = [{"t": mono, "s": 1.0, "fault": f"{error}"}]
        recent = thresholds._replace(after=ACTIVITY_WINDOW, uptime=0.0)
        return judge(samples, recent, mono, self.up_since), judge(samples, thresholds, mono, self.up_since)

    def publish_activity(self, judged: ActivityVerdict, now: float, mono: float) -> None:
        """Save when the machine was last active, at most every ACTIVITY_WINDOW: writing it to a tag may cost money."""
        if judged.activity == ACTIVE:
            self.state["last_active"] = int(now - judged.ago)
            if mono - self.reported_at >= ACTIVITY_WINDOW:
                save(self.home / "last-active", self.state["last_active"])
                self.reported_at = mono

    def apply_lease(
        self, activity: str, now: float, mono: float, policy: dict[str, Any] = NO_POLICY, policy_activity: str = UNKNOWN
    ) -> tuple[str, str]:
        """Read the lease, decide, renew; return the verdict and its reason. Tags that cannot be read stay as they were.

        `activity` is that of the last minutes, `policy_activity` the one by the policy's time.
        """
        launched_at, grace, state = self.setting("made", 0), self.setting("grace", MINUTE), self.state
        state["tags"] = tags = state["tags"] or self.settings.get("lease") or {}
        for name, value in read_channel(self.settings.get("metadata")).items():
            if name in LEASE_TAGS and str(value).isdecimal() and len(str(value)) < 12:  # noqa: PLR2004  (epoch seconds)
                tags[name] = value
        erased_disks = self.schedule_ends(policy, policy_activity == IDLE, now, mono)
        lease = {**lease_of(tags, state["own"]), "off": state["off"], "idle": state["idle"]}
        marks = update_marks(state["marks"], lease, now, mono, launched_at)
        verdict, reason = decide(marks, activity, mono, grace, policy["ends"])
        if verdict == "renew":
            lease["expires"] = state["own"] = int(min(max(lease["expires"], now) + HOUR, lease["renew_until"]))
            save(self.home / "expires", lease["expires"])
            marks = update_marks(marks, lease, now, mono, launched_at)
        state["marks"] = marks
        if verdict != "end":
            self.warn("expires" if activity in policy["ends"] and reason == "leased" else "renew_until", mono)
        return verdict, f"a stop would erase {erased_disks[0][0]}" if erased_disks and verdict == "keep" else reason

    def schedule_ends(self, policy: dict[str, Any], is_idle: bool, now: float, mono: float) -> list[Any]:  # noqa: FBT001
        """Set the next end by schedule and by idle time, 0 for none; return scratch disks that keep an idle machine.

        A scheduled end (`off`) stays set until the next start. Any activity cancels the end by idle time.
        """
        state, launched_at = self.state, self.setting("made", 0)
        if state["up"] is None or abs(state["up"] - self.up_since) > MINUTE:
            state.update(up=self.up_since, off=0, idle=0)
            state["marks"].pop("off", None)
        if now >= launched_at and state["off"] not in policy["off"]:
            state["off"] = min((off for off in policy["off"] if off > now), default=0)
        erased_disks = scratch_disks() if is_idle and policy["scratch"] == "warn" else []
        if not (is_idle and policy["stop"] and has_ended(state["marks"], "hold_until", mono, MINUTE)) or erased_disks:
            state["idle"] = 0
        elif not state["idle"]:
            state["idle"] = int(max(now, launched_at) + policy["grace"])
        return erased_disks

    def warn(self, lease_end: str, mono: float) -> None:
        """Warn each terminal 60 and 10 minutes before an end; only where the setting `warn` says that they are ours."""
        for end in (lease_end, "off", "idle"):
            value, due, _ = self.state["marks"].get(end) or (0, None, 0)
            seconds_left = HOUR * 24 if due is None else due - mono
            warning = [value, *(limit for limit in (600.0, HOUR) if seconds_left <= limit)][:2]
            for path in self.terminals:
                if warning[1:] and self.state["warned"].get(end + path) != warning and self.settings.get("warn"):
                    self.state["warned"][end + path] = warning
                    reason = {"off": "by its schedule", "idle": "unless it is used"}.get(end, "unless extended")
                    text = f"This machine ends in {max(1, seconds_left // MINUTE):.0f} min {reason}"
                    self.state["told"].update(write_terminals(text, [path]))

    def pass_on_notices(self) -> None:
        """Put the cloud's planned events and spot notice into the state; run the user's hook once for each notice."""
        self.state["events"] = read_channel(self.settings.get("events")).get("events")
        notice = read_channel(self.settings.get("notice"))
        previous, self.state["notice"] = self.state["notice"], notice or None
        if not notice:
            (self.home / "notice").unlink(missing_ok=True)  # of before a restart
        if notice and notice != previous:
            save(self.home / "notice", notice)
            hook = str(self.home / "on-interrupt")
            if os.access(hook, os.X_OK):
                self.children.append(self.spawn([hook, str(notice.get("action")), str(notice.get("time"))]))

    def request_end(self, reason: str, mono: float) -> None:
        """Run the command that ends the machine; again a minute later if the machine still runs."""
        if mono - self.end_requested_at >= MINUTE:
            self.end_requested_at = mono
            self.log("ending: " + reason)
            if self.settings.get("end"):
                self.children.append(self.spawn([*self.settings["end"], reason]))


def status(home: Path, now: float, since: float = 0.0) -> dict[str, Any]:
    """Return the latest heartbeat, scratch disks that a stop would erase, and the samples since the epoch `since`.

    The activity is UNKNOWN when the heartbeat is old. The last sample is of now, so what was just typed is seen; it has
    no meters.
    """
    sampler, mono, heartbeat = Sampler(home), monotonic(), load(home / "heartbeat.json")
    heartbeat["heartbeat"] = epoch = heartbeat.pop("epoch", None)
    if now - (epoch or 0) > SILENT_AFTER:
        heartbeat.update(activity=UNKNOWN, why="the agent is silent")
    sampler.settings["gpus"] = 0
    samples = [{**sample, "t": sample["t"] - mono + now} for sample in sampler.take_sample(now, mono)]
    samples[-1]["fault"] = "the agent is silent"
    return {
        **heartbeat,
        "now": now,
        "scratch": scratch_disks(),
        "samples": [sample for sample in samples if sample["t"] >= since],
    }


def main(verb: str = "", *args: str) -> Any:
    """Run the agent, or `status`. `python` runs a program sent over SSH with the interpreter that the agent runs on."""
    home = Path(__file__).resolve().parent
    if verb == "python":
        os.execv(sys.executable, [sys.executable, *args])  # noqa: S606
    if verb == "status":  # --since EPOCH
        sys.stdout.write(json.dumps(status(home, time.time(), float(["inf", *args][-1]))) + "\n")
        return 0
    os.umask(0o77)
    with (home / "run.lock").open("a") as file:
        return Agent(home, monotonic()).run() if lock(file, fcntl.LOCK_EX) else "another agent runs"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
