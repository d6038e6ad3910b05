"""A plan that somebody thought about for long: it is made again before the launch, and asked for if it got worse."""

from __future__ import annotations

import pytest

from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.plan import ask_for_agreement, prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.errors import NoCapacity

WISH = {"gpu": "rtx4090", "region": "US", "name": "bear", "no_guard": True}


class Person:
    """Somebody who thinks for so many seconds about each plan, while all hosts ask for so many times the price."""

    def __init__(self, vast, home, seconds, *times):
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text('provider = "vast"\nowner = "ada"\naddress_services = []\n')
        self.session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=vast.clock.now)
        self.vast, self.seconds, self.times, self.shown = vast, seconds, list(times), []

    def change(self, host):
        """What happens to each host while the person thinks."""

    def ask(self, prepared):
        self.shown.append(prepared.plan.offer.price.per_hour.text(2))
        self.vast.advance(self.seconds)
        for host in self.vast.hosts if self.times else ():
            host.dph_base *= self.times[0]
            self.change(host)
        self.times[:1] = []

    def agrees(self):
        wish = parse_request(**WISH)
        plan = prepare(self.session, wish)
        return plan, ask_for_agreement(
            self.session, plan, lambda: prepare(self.session, wish), self.ask, lambda one: one
        )


@pytest.fixture
def person(vast, tmp_path):
    return lambda *words: Person(vast, tmp_path / "lab", *words)


def test_who_agrees_within_a_minute_is_asked_once_and_nothing_is_read_again(vast, person):
    one = person(59, 2)
    first, plan = one.agrees()
    searches = len(vast.called("search"))
    assert plan is first
    assert one.shown == ["$0.34"]
    assert searches == 2  # the offers, and the one that was picked


def test_a_price_that_rose_meanwhile_is_shown_and_asked_for_until_it_stands(person):
    one, said = person(61, 2, 2), []
    one.session.report = said.append
    _, plan = one.agrees()
    assert "it is $0.6800 an hour now, no longer $0.3400" in said[0]
    assert one.shown == ["$0.34", "$0.68", "$1.36"]
    assert plan.plan.offer.price.per_hour.text(2) == "$1.36"


def test_a_price_that_fell_is_not_asked_for_again(person):
    one = person(61, 0.5)
    _, plan = one.agrees()
    assert one.shown == ["$0.34"]
    assert plan.plan.offer.price.per_hour.text(2) == "$0.17"


def test_what_is_out_of_stock_by_then_is_said(vast, person):
    one = person(61, 1)
    ask = one.ask
    one.ask = lambda plan: (ask(plan), vast.hosts.clear())
    with pytest.raises(NoCapacity):
        one.agrees()


def test_what_runs_where_a_machine_is_already_costs_no_more_however_late_the_answer_is(vast, person):
    one = person(3600)
    planned = ask_for_agreement(one.session, "a job", pytest.fail, lambda _: vast.advance(3600), lambda _: None)
    assert planned == "a job"


def set_dearer_disks(host):
    host.storage_cost = 2.0


def set_dearer_traffic(host):
    host.inet_up_cost = 0.04


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (set_dearer_disks, "its disks and the like cost $"),
        (set_dearer_traffic, "traffic costs, too: "),
    ],
)
def test_a_lower_price_with_worse_terms_is_shown_and_asked_for_again(person, change, told):
    one, said = person(61, 0.5, 1), []
    one.change, one.session.report = change, said.append
    _, plan = one.agrees()
    assert one.shown == ["$0.34", "$0.17"]
    assert said[0].startswith(f"The plan has changed since it was made: {told}")
    assert plan.plan.offer.price.per_hour.text(2) == "$0.17"
