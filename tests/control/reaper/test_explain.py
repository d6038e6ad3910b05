from __future__ import annotations

import re
from datetime import timedelta

import pytest

from cloudgpu.cli.machines.why_text import why_text
from cloudgpu.control.api.show import show_document
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.reaper.explain import build_why_document as ask_why
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import instance_observed_by_itself
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.samples.store import SampleStore

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def samples(lab, minutes, *, last=0, **more):
    """Keep what an agent would have said of the last `minutes`: a quiet machine, `more` in each bucket."""
    end = lab.clock() - last * MINUTE
    found = [
        {"t": (end - n * MINUTE).timestamp(), "s": 60, "cpu": 0.02, "net": 800, "disk": 0} | more
        for n in range(minutes)
    ]
    (row,) = lab.rows()
    SampleStore(lab.session.home.samples, row.id).keep(found[::-1], end.timestamp() + 60, end + MINUTE)


def why(lab, **more):
    return show_document(lab.session, None, why=True, **more)["why"]


def signal(value, what):
    (found,) = [one for one in value["signals"] if one["what"] == what]
    return found


@pytest.fixture
def running(lab):
    lab.up()
    lab.later(hours=2)
    return lab


def test_a_quiet_machine_is_idle_and_each_signal_is_said(running):
    samples(running, 100)
    value = why(running)
    assert (value["activity"], value["source"]["how"]) == ("IDLE", "samples")
    assert signal(value, "network") == {
        "what": "network", "unit": "bytes_per_s", "value": 800, "names": [], "limit": 100e3,
        "ago_s": None, "active": False,
    }  # fmt: skip
    assert value["policy"]["name"] == "default"
    assert value["decision"]["do"] == "warn"
    assert value["ends"]["idle"] == value["decision"]["at"] == iso(running.clock() + 10 * MINUTE)


def test_what_shows_life_is_named_and_when_idleness_would_end_it(running):
    samples(running, 100)
    running.later(minutes=1)
    samples(running, 1, busy=["kernel 1a2b"])
    running.later(minutes=5)
    value = why(running)
    assert value["activity"] == "ACTIVE"
    assert signal(value, "busy kernel")["active"]
    assert signal(value, "busy kernel")["ago_s"] == 300
    assert value["why"].startswith("busy kernel")
    assert value["ends"]["idle"] == iso(running.clock() + 65 * MINUTE)


def test_use_whose_last_sign_is_too_long_ago_by_now_is_not_said_to_go_on(running):
    samples(running, 100, last=58)
    running.later(minutes=1)
    samples(running, 1, last=58, busy=["kernel 1a2b"])
    samples(running, 57)
    assert why(running)["why"] == "busy kernel, 58m ago"
    running.later(minutes=3)
    assert (why(running)["activity"], why(running)["decision"]["do"]) == ("IDLE", "warn")  # as a pass would judge it
    running.later(minutes=4)
    value = why(running)
    assert (value["activity"], value["decision"]["do"]) == ("UNKNOWN", "keep")
    assert value["why"] == "busy kernel, 1h 5m ago, and of the last 7m nothing is kept here"
    assert not any(one["active"] for one in value["signals"])


def test_samples_that_are_old_are_shown_and_decide_nothing(running):
    samples(running, 100)
    running.later(minutes=40)
    value = why(running)
    assert value["activity"] == "UNKNOWN"
    assert value["why"] == "its samples were last read 40m ago"
    assert signal(value, "start")["ago_s"] == 160 * 60
    assert value["ends"]["idle"] is None
    assert value["decision"]["do"] == "keep"


def test_nothing_kept_is_unknown_and_says_how_to_ask(running):
    value = why(running)
    assert (value["activity"], value["signals"], value["source"]["at"]) == ("UNKNOWN", [], None)
    assert "cloudgpu show" in why_text(value, running.clock())


def test_samples_of_an_earlier_run_say_nothing_of_this_one(running):
    samples(running, 100, last=130)
    assert why(running)["why"] == "this computer has no samples of it since its latest start"


def test_one_that_does_not_answer_is_shown_as_it_was_and_judged_by_nothing(running):
    samples(running, 100)
    running.later(minutes=4)
    value = ask_why(running.session, running.rows()[0], is_live=True)  # a fake machine has no address
    assert (value["activity"], value["source"]["how"], value["source"]["at"]) == ("UNKNOWN", "live", None)
    assert "has no address" in value["source"]["error"]
    assert value["source"]["signals_at"] == iso(running.clock() - 4 * MINUTE)
    assert signal(value, "network")["value"] == 800
    assert "the signals are of 4m ago" in " ".join(why_text(value, running.clock()).split())


def test_a_hold_and_a_warning_are_said(running):
    samples(running, 100)
    row = running.rows()[0]
    now = iso(running.clock())
    due = iso(running.clock() + 10 * MINUTE)
    body = {"rule": "idle", "due": due, "why": "idle", "how": ["terminals"], "host": "tower"}
    running.session.ledger.append([Draft("warning_sent", row.id, body, running.clock(), f"w:{now}")])
    running.later(minutes=4)
    value = why(running)
    assert value["warnings"] == [{"rule": "idle", "at": now, "due": due, "count": 1}]
    assert value["ends"]["idle"] == value["decision"]["at"] == due
    assert "warned     idle, 4m ago, ends" in why_text(value, running.clock())


def test_a_held_machine_is_not_said_to_end_for_idle_time_before_the_hold(running):
    samples(running, 100)
    row, now = running.rows()[0], running.clock()
    running.session.ledger.append([Draft("hold_set", row.id, {"until": iso(now + 3 * HOUR)}, now, "h:1")])
    said = " ".join(why_text(why(running), now).split())
    assert f"it ends {iso(now + 3 * HOUR + 10 * MINUTE)[:16].replace('T', ' ')} UTC" in said


def test_one_that_is_stopped_is_said_to_be_stopped_and_no_rule_that_is_none_is_named(running):
    assert "decision   keep: this computer has no samples of it" in why_text(why(running), running.clock())
    running.cloud.stop(running.rows()[0].provider_id)
    value = why(running, refresh=True)
    assert why_text(value, running.clock()).startswith(f"{value['name']}: it is stopped\n")


def test_a_machine_that_has_ended_is_not_judged(running):
    row = running.rows()[0]
    running.cloud.terminate(row.provider_id)
    show_document(running.session, row.name, refresh=True)
    with pytest.raises(InvalidRequest, match="has ended") as caught:
        show_document(running.session, row.name, why=True)
    assert "--history" in caught.value.next


def own_policy(lab, text):
    (lab.home / "policies").mkdir(exist_ok=True)
    (lab.home / "policies" / "mine.yaml").write_text(text)


def test_a_policy_that_cannot_be_read_leaves_the_lease_alone_and_says_so(lab):
    own_policy(lab, "lease: 3h\nrenew_until: 4h\n")
    lab.up(policy="mine")
    policy = {"place": "", "text": "x: 1", "tz": "UTC"}
    body = {"terms": {"home": "elsewhere", "policy": policy, "limits": [], "price_jump": "1.5"}}
    lab.session.ledger.append([Draft("terms_set", lab.rows()[0].id, body, lab.clock(), "of another version")])
    lab.later(hours=2)
    samples(lab, 100)
    value = why(lab)
    assert value["policy"]["idle"] is value["ends"]["idle"] is None
    assert "cannot be resolved" in value["policy"]["why"]
    assert "only its lease counts" in value["decision"]["why"]


def test_a_policy_with_a_fault_is_an_error_and_no_answer(lab):
    own_policy(lab, "lease: 3h\nrenew_until: 4h\n")
    lab.up(policy="mine")
    own_policy(lab, "lease: 3h\nno_such_key: 1\n")
    with pytest.raises(InvalidRequest, match="no_such_key"):
        why(lab)


def test_the_text_has_room_in_eighty_columns(running):
    samples(running, 100, gpu=97.5, mem=71234.0, **{"in": 4000.0, "out": 12.0, "jup": 30.0})
    for value in (why(running), why(running) | {"scratch": [{"path": "/mnt/nvme" * 4, "bytes": 123_456_789}]}):
        shown_text = why_text(value, running.clock())
        assert max(map(len, shown_text.splitlines())) <= 80
        assert "97.5 %" in shown_text
    assert "in use (GPU, 0s ago)" in shown_text
    assert "123 MB" in shown_text
    assert re.search(r"terminal output +12s ago +within 1h +12s ago +yes", shown_text), "2h is how long after a key"


def test_one_that_idle_time_has_stopped_says_so_and_not_that_it_is_in_use(running):
    row = running.rows()[0]
    running.session.ledger.append([instance_observed_by_itself(row, running.clock() - 17 * MINUTE, running.clock())])
    stop(running.session, running.rows()[0], why="idle for 1h, and warned 10m ago")
    said = " ".join(why_text(why(running), running.clock()).split())
    assert said.startswith(
        f"{row.name}: it is stopped: idle for 1h, and warned 10m ago known nothing is asked of it now"
    )
    assert "it was last in use at most 17m ago" in said
    start(running.session, running.rows()[0], new_lease(running.session, running.rows()[0], None))
    running.cloud.stop(running.rows()[0].provider_id)
    assert why(running, refresh=True)["why"] == "it is stopped"


@pytest.mark.parametrize(("reason", "words"), [("idle", "idle time ended it"), ("died", "died")])
def test_one_that_stopped_of_itself_says_why(running, reason, words):
    row = running.rows()[0]
    line = instance_observed_by_itself(
        row._replace(state="stopped", billed=False, state_reason=reason), running.clock(), running.clock()
    )
    running.session.ledger.append([line])
    assert why(running)["why"] == f"it is stopped: {words}"


def test_a_look_that_finds_a_machine_as_it_was_says_when_that_was(running):
    name = running.rows()[0].name
    assert show_document(running.session, name, refresh=True)["seen_at"] == iso(running.clock())
    running.later(minutes=3)
    assert show_document(running.session, name)["seen_at"] == iso(running.clock() - 3 * MINUTE)
    list_machines(running.session, refresh=True)
    assert show_document(running.session, name)["seen_at"] == iso(running.clock())
    assert [one["seen_at"] for one in list_machines(running.session)["machines"]] == [iso(running.clock())]


def test_its_own_fresh_word_says_more_than_older_samples_that_show_use(running):
    samples(running, 100, last=18, busy=["k"])
    assert why(running)["why"].startswith("busy kernel, 18m")
    row = running.rows()[0]
    running.session.ledger.append([instance_observed_by_itself(row, running.clock() - MINUTE, running.clock())])
    value = why(running)
    assert (value["activity"], value["why"]) == ("ACTIVE", "it wrote 1m ago that it is in use")
