from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu.core.events.kinds import EITHER, KINDS, MACHINE, RESOURCE
from cloudgpu.views.history import _TEXTS, actor_text, event_text, history_lines

AT = "2026-11-20T10:00:00.000000Z"
LATER = "2026-11-20T18:00:00.000000Z"
LAST = "2026-11-23T10:00:00.000000Z"
PRICE = {"nanos_per_hour": 526_000_000, "source": "AWS price list"}
LAUNCH = {
    "attempt": 1, "instance_type": "g4dn.xlarge", "account": "lab", "region": "eu-west-1", "zone": "eu-west-1a",
    "market": "spot", "price": PRICE, "policy": "default", "policy_by": "projects.thesis of config.toml",
    "expires": LATER, "renew_until": LAST,
}  # fmt: skip
SEEN = {"state": "running", "billed": True, "reason": None, "expires": LATER, "renew_until": LAST}


def line(kind, clock="own", /, **body):
    return {"occurred_at": AT, "clock": clock, "actor": "ada", "kind": kind, "body": body}


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (
            "launch_intended",
            LAUNCH,
            "(projects.thesis of config.toml), lease until 2026-11-20 18:00 UTC, renewable until 2026-11-23 10:00 UTC",
        ),
        (
            "launch_settled",
            {"outcome": "refused", "why": "no capacity", "token": "t"},
            "the launch is refused: no capacity",
        ),
        ("machine_adopted", {"why": "no launch line"}, "found by its tags and added: no launch line"),
        ("instance_observed", SEEN | {"reason": "interrupted", "state": "stopped", "billed": False, "expires": None}
         | {"renew_until": None}, "seen stopped (not billed): interrupted"),
        ("instance_vanished", {"proof": "not found"}, "gone: not found"),
        ("stop_requested", {"why": "idle for 1h 12m"}, "asked to stop: idle for 1h 12m"),
        ("park_requested", {"why": "idle"}, "asked to park: idle"),
        ("terminate_requested", {"why": "asked", "failed": True}, "asked to end, as it never came up: asked"),
        (
            "action_refused",
            {"action": "terminate", "why": "a lock keeps it", "next": "az lock delete"},
            "the provider refused to end it: a lock keeps it",
        ),
        ("start_refused", {"why": "no capacity"}, "the start has not begun: no capacity"),
        (
            "resources_retained",
            {"retained": [{"kind": "disk", "id": "vol-1", "size_gb": 30}]},
            "retained: disk vol-1 (30 GB)",
        ),
        ("resources_retained", {"retained": []}, "nothing of it is retained"),
        ("price_observed", {"price": PRICE}, "it costs $0.5260 an hour: AWS price list"),
        ("price_observed", {"price": None}, "no price is known"),
        ("traffic_observed", {"bytes_out": 1_250_000_000, "since": AT}, "1.25 GB sent since 2026-11-20 10:00 UTC"),
        ("lease_set", {"expires": LATER, "renew_until": LAST, "why": "asked"},
         "lease until 2026-11-20 18:00 UTC, renewable until 2026-11-23 10:00 UTC: asked"),
        ("lease_set", {"expires": None, "renew_until": None, "why": "asked"}, "no lease: asked"),
        ("hold_set", {"until": LATER, "why": "asked"}, "held until 2026-11-20 18:00 UTC"),
        ("hold_set", {"until": None, "why": "asked"}, "hold released"),
        ("interruption_simulated", {"at": LATER}, "a spot interruption is rehearsed for 2026-11-20 18:00 UTC"),
        ("machine_shared", {"key": "SHA256:x", "label": "bob@lab", "from": None, "host_key": "k"},
         "SHA256:x (bob@lab) was let in"),
        ("machine_unshared", {"key": None}, "every shared key was removed"),
        ("decision_made", {"do": "stop", "rule": "idle", "why": "idle for 1h 12m", "at": LATER},
         "decided to stop it (idle): idle for 1h 12m"),
        ("decision_made", {"do": "keep", "rule": "none", "why": "in use", "at": LATER},
         "left it: in use; ends 2026-11-20 18:00 UTC if nothing changes"),
        ("warning_sent", {"rule": "idle", "due": LATER, "why": "idle", "how": ["terminals", "mail"]},
         "warning given (idle, ends 2026-11-20 18:00 UTC) (terminals, mail): idle"),
        ("warning_sent", {"rule": "unlabelled", "due": None, "why": "no owner", "how": []},
         "warning given (unlabelled): no owner"),
        ("decision_made", {"do": "keep", "rule": "none", "why": "GPU, 0s ago", "at": LATER, "activity": "ACTIVE"},
         "left it: GPU, 0s ago; ends 2026-11-20 18:00 UTC if it stays in use"),
        ("decision_made", {"do": "warn", "rule": "idle", "why": "idle for 1h; it ends 18:00 UTC", "at": LATER},
         "warned (idle): idle for 1h; it ends 18:00 UTC"),
        ("warning_sent", {"rule": "none", "due": None, "why": "no answer", "how": ["mail"]},
         "warning given (use not known) (mail): no answer"),
        ("warning_cleared", {"rule": "idle", "why": "ACTIVE: terminal input"}, "lifted (idle): ACTIVE: terminal input"),
        ("timer_set", {"at": LATER, "why": "launched"}, "timer of its cloud set to 2026-11-20 18:00 UTC: launched"),
        ("timer_set", {"at": None, "why": "it is gone"}, "timer of its cloud dropped: it is gone"),
        ("orphan_removed", {"what": "disk", "id": "vol-1", "why": "asked"}, "orphaned disk vol-1 removed: asked"),
        ("budget_overridden", {"passed": [{"name": "month", "nanos": 1_500_000_000}], "reason": "deadline"},
         "a budget was overridden (month by up to $1.50): deadline"),
        ("resource_observed", {"kind": "volume", "id": "vol-2", "size_gb": 100, "attached_to": "i-1"},
         "seen: volume vol-2 (100 GB), attached to i-1"),
        ("resource_vanished", {"proof": "missing"}, "gone: missing"),
        ("dreamt_of", {"why": "a later version"}, "dreamt of: a later version"),
        ("dreamt_of", {}, "dreamt of"),
    ],
)  # fmt: skip
def test_each_kind_of_line_is_said_in_words(kind, body, words):
    assert event_text(line(kind, **body)).endswith(words)


def test_who_and_from_where_and_by_whose_clock():
    made = line("decision_made", do="stop", rule="idle", why="idle", at=None, host="tower")
    assert actor_text(made) == "ada on tower"
    assert actor_text(line("hold_set", until=None)) == "ada"
    assert event_text(line("instance_vanished", "provider", proof="gone")).endswith(", by its provider's clock")


def test_every_kind_that_a_machine_has_lines_of_is_said_in_words():
    kinds = {kind for kind, one in KINDS.items() if one.subject in (MACHINE, RESOURCE, EITHER)}
    assert kinds | {"budget_overridden"} == set(_TEXTS)


def test_a_lease_that_a_look_sees_again_is_said_once():
    later = SEEN | {"expires": (datetime(2026, 11, 20, 19, tzinfo=UTC)).isoformat()}
    lines = [line("launch_intended", **LAUNCH), line("instance_observed", **SEEN), line("instance_observed", **later)]
    words = history_lines([*lines, lines[-1]])
    assert ["lease until" in one for one in words] == [True, False, True, False]


def test_nothing_that_a_line_of_an_older_version_lacks_is_needed():
    old = {name: value for name, value in LAUNCH.items() if name not in ("policy_by", "policy", "price", "expires")}
    assert "no price is known" in event_text(line("launch_intended", **old))
