"""The plan as text: what is paid beside the machine, what is kept, who may connect; never wider than a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.cli.colours import coloured
from cloudgpu.cli.common import Format
from cloudgpu.cli.launch.planned import brief_plan_text, plan_line, plan_text
from cloudgpu.cli.machines.up import tell_plan
from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.launch.plan import launch_plan
from cloudgpu.core.launch.plan_cost import AddedCost
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Basis, Market, Note, NoteKind, Requirements
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.policies.guards import Agent, Safeguards
from cloudgpu.core.policies.policy import Origin, Policy
from cloudgpu.core.values.money import Money
from cloudgpu.testing import make_attempt, make_offer, new_host_key, pick
from cloudgpu.testing.fake.market import matching_offers
from cloudgpu.views.plans import plan_document

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
HOST_KEY = new_host_key()
DISK = AddedCost("64 GB system disk (gp3)", Money.usd("5.12"), kept=True, source="a list of 2026-09-01")
ADDRESS = AddedCost("public IPv4 address", Money.usd("3.65"), kept=False, source="a list of 2024-02-01")
VOLUME = AddedCost("volume data (200 GB)", None, kept=True, source="no price in the catalogue")


def shown(*extras, setup=None, market=Market.SPOT, remarks=(), want=None, said_by=(Origin.POLICY, Origin.POLICY)):
    offer = make_offer(pick(matching_offers("lab", Requirements(market=market)), market), usd="1.01", now=NOW)
    request = make_attempt(offer.configuration, host_key=HOST_KEY, now=NOW).request
    request = replace(request, setup=setup or Setup(), requirements=want or Requirements(market=market))
    said = {"added_costs": extras, "remarks": remarks, "lifetime_origins": said_by}
    found = launch_plan(request, [offer, offer], left_out=(), safeguard_texts=("an agent",), now=NOW, **said)
    text = plan_text(plan_document(found), NOW)
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("said_by", "words"),
    [
        ((Origin.POLICY, Origin.POLICY), "policy default: lease 1h, renew-until 2h cost"),
        ((Origin.TYPED, Origin.POLICY), "lease 1h as typed, renew-until 2h cost"),
        ((Origin.SETTINGS, Origin.TYPED), "lease 1h from config.toml, renew-until 2h as typed"),
    ],
)
def test_the_policy_is_named_and_who_said_how_long(said_by, words):
    assert words in shown(said_by=said_by)


def test_what_is_paid_beside_the_machine_stands_beside_it():
    said = shown(DISK, ADDRESS)
    assert "64 GB system disk (gp3): $5.12 a month" in said
    assert "public IPv4 address: $3.65 a month" in said
    assert "$1.02 to the end of the lease, $2.04 if it is renewed to the end with attached costs" in said


def test_what_may_cost_less_or_has_no_price_is_said_with_the_cost():
    dear = replace(ADDRESS, per_month=Money.usd(730), upper_bound=True)
    said = shown(DISK, dear, VOLUME)
    assert "cost at most $2.02 to the end of the lease, at most $4.03 if it is renewed to the end" in said
    assert "without what has no known price: volume data (200 GB)" in said


def test_what_stop_keeps_is_said_with_its_price_a_month():
    assert f"{pick_stop_means()}: $5.12 a month" in shown(DISK, ADDRESS)
    assert f"{pick_stop_means()}: at most $7.12 a month" in shown(
        DISK, replace(DISK, per_month=Money.usd(2), upper_bound=True)
    )


def pick_stop_means():
    return pick(matching_offers("lab", Requirements(market=Market.SPOT)), Market.SPOT).stop_effect


def test_what_costs_only_while_it_is_parked_is_said_there_alone():
    parked = AddedCost("image while parked", Money.usd(3), kept=True, source="a list", upper_bound=True, running=False)
    said = shown(replace(DISK, kept=False), parked)
    assert f"{pick_stop_means()}: at most $3.00 a month" in said
    assert "image while parked" not in said


def test_a_price_that_is_not_known_is_said_and_never_left_out():
    assert "volume data (200 GB): price not known" in shown(VOLUME)
    assert f"{pick_stop_means()}: its price is not known" in shown(VOLUME)
    assert "$5.12 a month and what has no known price" in shown(DISK, VOLUME)


def test_an_upper_bound_is_marked():
    assert "64 GB system disk (gp3): at most $5.12 a month" in shown(replace(DISK, upper_bound=True))


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (Basis.UNVERIFIED, "$5.12 a month (unverified)"),
        (Basis.DERIVED, "$5.12 a month (derived)"),
        (Basis.LISTED, "$5.12 a month "),
    ],
)
def test_what_is_no_lists_word_is_said_to_be_so(basis, words):
    rate = Rate(Resource.DISK, "gp3", 64, Per.MONTH, Money.usd("0.08"), "a list", NOW, basis)
    said = shown(replace(DISK, rate=rate))
    assert words in said
    assert ("(" in said.split("$5.12 a month")[1][:2]) == (basis is not Basis.LISTED)


def test_without_anything_beside_it_the_plan_says_nothing_of_it():
    said = shown()
    assert "attached" not in said
    assert "a month" not in said


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Network(("203.0.113.7/32",)), "ssh from 203.0.113.7/32"),
        (Network(("0.0.0.0/0",)), "ssh from EVERY address (with a key)"),
        (Network(security_group="sg-0a"), "ssh as security group sg-0a says"),
        (Network(jump="ada@bastion", public_ip=False), "ssh through ada@bastion"),
        (Network(("10.0.0.0/8",), jump="ada@bastion"), "ssh from 10.0.0.0/8; through ada@bastion"),
    ],
)
def test_who_may_connect_and_by_which_way_is_said(network, words):
    assert words in shown(setup=Setup(network=network))


def test_the_market_says_what_kind_of_request_it_is_and_what_follows_it():
    assert "market spot price" in shown()
    assert "market spot by a persistent request price" in shown(setup=Setup(persistent=True))
    fallback = Requirements(market=Market.SPOT, or_on_demand=True)
    assert "market spot; on-demand where spot has no capacity" in shown(want=fallback)


def test_every_remark_is_a_note_of_its_own():
    said = shown(remarks=("The volume data binds this launch to us-east-1b.", "The quota could not be checked."))
    assert said.count(" note ") == 2


POLICY = Policy("default", timedelta(hours=8), timedelta(days=3))


def at_a_glance(*, show=brief_plan_text, **more):
    said = {"left_out": (), "safeguard_texts": ("an agent",), "now": NOW, "policy": POLICY} | more
    setup, market = said.pop("setup", Setup()), said.pop("market", Market.SPOT)
    offer = make_offer(pick(matching_offers("lab", Requirements(market=market)), market), usd="1.01", now=NOW)
    request = make_attempt(offer.configuration, host_key=HOST_KEY, now=NOW).request
    changed = {name: said.pop(name) for name in ("provider", "stop_effect") if name in said}
    found = launch_plan(replace(request, setup=setup), [offer, *said.pop("others", ())], **said)
    value = {**plan_document(found), **changed}
    return plan_line(value) if show is plan_line else show(value, NOW)


def test_a_plan_at_a_glance_has_seven_lines():
    lines = at_a_glance(added_costs=(DISK, ADDRESS)).splitlines()
    assert max(map(len, lines)) <= 80
    labels = [line[2:12].strip() for line in lines]
    assert labels == ["what", "where", "price", "ends", "cost", "if idle", "ended by"]
    assert lines[3].endswith("2026-11-20 12:00 UTC (in 1h); if in use, by 2026-11-20 13:00 UTC")
    assert lines[4].endswith("at most $2.04 in 2h, $1.02 in 1h at this price, with attached costs")
    assert lines[5].endswith("kept as an image and ended after 1h and a 10m warning")
    assert lines[6].endswith("its agent (idle, lease), a timer in the cloud (renew-until)")


def test_a_plan_says_that_scratch_disks_with_data_keep_an_idle_machine_running():
    said = " ".join(at_a_glance(stop_effect="erases its 125 GB of scratch disks (instance store)").split())
    assert "and a 10m warning; only warned while its scratch disks hold data" in said


@pytest.mark.parametrize("show", [brief_plan_text, plan_line])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"setup": Setup(network=Network(("0.0.0.0/0",)))},
            "SSH is open to EVERY address; a login still needs the key",
        ),
        (
            {"safeguards": Safeguards(Agent.NONE)},
            "without cloudgpu reap or watch it costs $1.0100 an hour until you end it",
        ),
        ({"added_costs": (VOLUME,)}, "no price is known for volume data (200 GB): the cost does not include it"),
        ({"setup": Setup(keep_disk=False)}, "its system disk is deleted when it ends"),
        ({"remarks": ("R " * 90 + "end",)}, "R " * 90 + "end"),
    ],
)
def test_what_costs_erases_or_exposes_more_is_never_shortened(show, more, words):
    assert words in " ".join(at_a_glance(show=show, **more).split())


def test_a_whole_plan_says_what_an_hour_of_all_nodes_costs_if_nothing_ends_them():
    said = at_a_glance(show=lambda value, now: plan_text({**value, "nodes": 4}, now), safeguards=Safeguards(Agent.NONE))
    assert "; $4.0400 an hour until you end it, if neither cloudgpu reap nor watch runs" in " ".join(said.split())


NOTES = [
    ("it is deleted", NoteKind.ERASURE, "erases", "1;31"),
    ("RISK: every address", NoteKind.ACCESS, "open", "1;31"),
    ("the price can rise", NoteKind.MONEY, "money", "1;35"),
    ("no timer in the cloud", NoteKind.GUARD, "guard", "1;35"),
]


@pytest.mark.parametrize("show", [brief_plan_text, plan_line, plan_text])
@pytest.mark.parametrize(("text", "kind", "label", "colour"), NOTES)
def test_a_note_says_what_it_is_about_in_a_word_a_colour_and_the_document(show, text, kind, label, colour):
    said = at_a_glance(show=show, remarks=(Note(text, kind), "the volume is bound to a zone"))
    assert f"{label} {text} note the volume is bound" in " ".join(said.split())
    assert f"  \x1b[{colour}m{label}\x1b[0m  " in coloured(said)
    of_plan = at_a_glance(show=lambda value, _: value, remarks=(Note(text, kind), "R."))
    assert (of_plan["notes"], of_plan["note_kinds"]) == ([text, "R."], [str(kind), "note"])


def test_what_a_stop_erases_has_a_label_of_its_own():
    said = at_a_glance(provider="aws", stop_effect="erases its 900 GB of scratch disks and keeps its disk")
    assert "stop erases its 900 GB of scratch disks and keeps its disk" in " ".join(said.split())
    assert "  \x1b[1;31mstop erases\x1b[0m  " in coloured(said)


def test_the_highest_price_of_the_other_offers_is_told():
    dear = make_offer(pick(matching_offers("lab", Requirements(market=Market.SPOT)), Market.SPOT), usd="2.5", now=NOW)
    assert "; other offers up to $2.5000" in " ".join(at_a_glance(others=(dear,)).split())
    assert "other offers" not in at_a_glance()


@pytest.mark.parametrize("show", [brief_plan_text, plan_line])
def test_what_a_plug_in_says_of_a_stop_is_always_shown(show):
    """Its words are its own: whether they say that something is erased, nobody here knows."""
    said = " ".join(at_a_glance(show=show, provider="shelf", stop_effect="wipes what is on /scratch").split())
    assert "stop wipes what is on /scratch" in said
    said = at_a_glance(show=show, provider="aws", stop_effect="keeps its disk")
    assert "keeps its disk" not in said


def test_the_highest_price_of_the_other_offers_is_told_in_one_line_too():
    dear = make_offer(pick(matching_offers("lab", Requirements(market=Market.SPOT)), Market.SPOT), usd="2.5", now=NOW)
    assert "$1.0100/h; other offers up to $2.5000, ends" in at_a_glance(show=plan_line, others=(dear,))


def test_what_is_not_asked_about_is_one_line():
    (said,) = at_a_glance(show=plan_line).splitlines()
    assert said.endswith("no GPU spot, fake north-a, $1.0100/h, ends 2026-11-20 12:00 UTC")


def test_the_line_of_a_jobs_machine_has_the_end_that_its_cost_is_counted_to():
    (said,) = at_a_glance(show=lambda value, _: plan_line(value, for_job=True)).splitlines()
    assert said.endswith(", ends 2026-11-20 13:00 UTC at the latest")


def test_one_line_that_is_too_long_for_the_terminal_breaks_between_words(monkeypatch, capsys):
    for name, value in (("COLUMNS", "50"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    def show(value, now):
        tell_plan({"plan": value}, now, Format.TEXT, verbose=False, briefly=True)
        return capsys.readouterr().err

    said = at_a_glance(show=show)
    assert max(map(len, said.splitlines())) <= 50
    assert "ends 2026-11-20 12:00 UTC" in " ".join(said.split())


def test_the_document_has_it_all():
    offer = make_offer(pick(matching_offers("lab", Requirements()), Market.ON_DEMAND), usd="1.01", now=NOW)
    request = make_attempt(offer.configuration, host_key=HOST_KEY, now=NOW).request
    setup = Setup("trained", 100, Volume("data", 200), persistent=False, network=Network(("10.0.0.0/8",)))
    found = launch_plan(
        replace(request, setup=setup),
        [offer],
        left_out=(),
        safeguard_texts=(),
        now=NOW,
        added_costs=(VOLUME,),
        remarks=("R.",),
    )
    value = plan_document(found)
    assert value["attached_costs"] == [
        {
            "what": VOLUME.what,
            "usd_per_month": None,
            "low_usd_per_month": None,
            "at_most": False,
            "while_running": True,
            "while_stopped": True,
            "source": "no price in the catalogue",
            "basis": None,
        }
    ]
    assert value["notes"] == ["R."]
    assert value["setup"]["volume"] == {"name": "data", "size_gb": 200}
    assert value["setup"]["network"]["ssh_from"] == ["10.0.0.0/8"]


def test_of_all_accounts_the_plan_says_which_and_what_each_asks():
    cheap, dear = (
        make_offer(pick(matching_offers(account, Requirements()), Market.ON_DEMAND), usd=usd, now=NOW)
        for account, usd in (("cheap", "1.01"), ("dear", "2.5"))
    )
    request = make_attempt(cheap.configuration, host_key=HOST_KEY, now=NOW).request
    said = {"left_out": (), "safeguard_texts": ("an agent",), "now": NOW, "any_provider": True}
    text = " ".join(plan_text(plan_document(launch_plan(request, [cheap, cheap, dear], **said)), NOW).split())
    assert "chosen first of 2 accounts: cheap at $1.0100 (2 offers), dear at $2.5000 (1 offer)" in text
    text = " ".join(plan_text(plan_document(launch_plan(request, [dear], **said)), NOW).split())
    assert "chosen of all accounts only dear at $2.5000 (1 offer) has what fits" in text
