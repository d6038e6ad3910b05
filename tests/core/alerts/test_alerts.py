from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from cloudgpu.core.alerts.alerts import AlertState, Finding, alert_state, changes_due, raised_line
from cloudgpu.core.events.general_events import alert_cleared, alert_sent
from cloudgpu.core.events.log import Event
from cloudgpu.core.values.times import iso

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Book:
    """The lines about alerts, as a ledger keeps them: a dedupe that stands is not written again."""

    def __init__(self):
        self.lines, self.now = [], NOW

    def write(self, drafts):
        for draft in drafts:
            if all(line.dedupe != draft.dedupe for line in self.lines):
                at = iso(draft.occurred_at)
                seq = len(self.lines) + 1
                body = dict(draft.body)
                self.lines.append(Event(seq, at, "own", at, "ada", draft.kind, draft.subject, draft.dedupe, "", body))

    def pass_(self, *keys, judged=None, to=("a",)):
        """A pass that finds these; returns what it raised and cleared."""
        self.now += timedelta(minutes=5)
        known = alert_state(self.lines)
        raised, cleared = changes_due([finding(key) for key in keys], known, judged)
        self.write([raised_line(one, known, to, self.now) for one in raised])
        self.write([alert_cleared(*one.id, self.now) for one in cleared])
        return [one.key for one in raised], [one.finding.key for one in cleared]

    def send(self, receiver):
        news = alert_state(self.lines).waiting(receiver)
        if news:
            self.write([alert_sent(receiver, [one.id for one in news], self.now)])
        return [one.id for one in news]


def finding(key):
    return Finding(key, "test", f"about {key}", "It is wrong.", {"amount": "$1.00"}, urgent=key.startswith("stop"))


def test_a_finding_is_raised_when_it_appears_and_not_again_while_it_stays():
    book = Book()
    assert book.pass_("budget:lab:80") == (["budget:lab:80"], [])
    for _ in range(3):
        assert book.pass_("budget:lab:80") == ([], [])


def test_it_is_raised_again_only_after_it_fell_back():
    book = Book()
    book.pass_("x")
    assert book.pass_() == ([], ["x"])
    assert book.pass_() == ([], [])
    assert book.pass_("x") == (["x"], [])
    assert alert_state(book.lines).raise_counts == {"x": 2}


def test_what_was_not_judged_does_not_fall_back():
    book = Book()
    book.pass_("budget:lab:80", "lease:m")
    assert book.pass_(judged={"lease"}) == ([], ["lease:m"])
    assert book.pass_(judged={"budget"}) == ([], ["budget:lab:80"])


def test_news_waits_until_each_receiver_has_it():
    book = Book()
    book.pass_("x", to=("a", "b"))
    assert book.send("a") == [("x", 1)]
    assert book.send("a") == []
    book.pass_("x", "y", to=("a", "b"))
    assert book.send("b") == [("x", 1), ("y", 1)]
    assert book.send("a") == [("y", 1)]


def test_what_fell_back_before_it_was_sent_is_still_told():
    book = Book()
    book.pass_("x")
    book.pass_()
    (news,) = alert_state(book.lines).waiting("a")
    assert news.cleared_at == book.now
    book.send("a")
    assert alert_state(book.lines).alerts == ()


def test_a_receiver_that_came_later_hears_what_lasts_and_not_what_is_over():
    book = Book()
    book.pass_("old", "lasting")
    book.pass_("lasting")
    assert book.send("new") == [("lasting", 1)]


def test_of_two_findings_with_one_key_the_first_counts():
    first, second = finding("x"), Finding("x", "test", "another", "")
    assert changes_due([first, second], AlertState())[0] == (first,)


@given(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.booleans()), max_size=30))
def test_each_crossing_is_raised_once_and_sent_once_however_often_the_receiver_is_down(passes):
    book, crossings, before, sent = Book(), [], set(), []
    for here, up in passes:
        book.pass_(*sorted(here))
        crossings += sorted(here - before)
        before = here
        sent += book.send("a") if up else []
    sent += book.send("a")
    assert sorted(key for key, _ in sent) == sorted(crossings)
    assert len(set(sent)) == len(sent)


@given(st.lists(st.sets(st.sampled_from("ab")), max_size=12), st.randoms())
def test_the_fold_minds_neither_order_of_arrival_nor_lines_that_stand_twice(passes, shuffle):
    book = Book()
    for number, here in enumerate(passes):
        book.pass_(*sorted(here))
        if number % 3 == 2:
            book.send("a")
    mixed = [*book.lines, *book.lines]
    shuffle.shuffle(mixed)
    assert alert_state(mixed) == alert_state(book.lines)


def test_two_passes_at_once_write_a_crossing_once():
    book = Book()
    known = alert_state(book.lines)
    for _ in range(2):
        book.write([raised_line(finding("x"), known, ["a"], NOW)])
    assert len(book.lines) == 1
