"""The report sent: to real receivers on loopback, when it is asked for, and once for each month that is over."""

from __future__ import annotations

import logging
import os
import signal
import sys
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.control.alerts.channels import label_of
from cloudgpu.control.cost.report import parse_report, report_document
from cloudgpu.control.cost.report_delivery import LOCK, report_due_at, send_monthly, send_report
from cloudgpu.control.inputs.periods import parse_month
from cloudgpu.control.scheduler.jobs import RETRY_LATER, watch_jobs
from cloudgpu.core.alerts.findings import SUBJECT
from cloudgpu.errors import InvalidRequest, MissingExtra
from cloudgpu.views.report.html import to_html
from cloudgpu.views.report.markdown import to_markdown
from tests.receivers.web import WebReceiver

SECRET = "s3cr3tpassword"


def utc(month, day, hour=0, minute=0):
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def json_of(web, more=""):
    return f"json://{web.place}/{SECRET}{more}"


def mailto(mail):
    return f"mailto://ada:{SECRET}@lab.example:{mail.port}/?smtp=127.0.0.1&mode=insecure&to=boss@lab.example"


@pytest.fixture
def lab_to(make_lab):
    """A lab with receivers, whose one machine runs since 2026-10-30 11:00 at $3.00 an hour."""

    def made(*addresses, more=""):
        lab = make_lab(f"[alerts]\nto = {list(addresses)!r}\n{more}")
        lab.clock.now = utc(10, 30, 11)
        lab.up(name="fox", lease=timedelta(days=9), renew_until=timedelta(days=9))
        return lab

    return made


def at(lab, moment):
    lab.clock.now = moment
    return lab


def months(lab):
    return [(line.body["month"], line.body["receiver"]) for line in lab.session.ledger.events(SUBJECT)]


def subjects(web):
    return [title for title, _ in web.texts]


def test_a_month_is_sent_once_it_has_been_over_for_six_hours(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 1, 5, 59))
    assert report_due_at(lab.session) == utc(11, 1, 6)
    assert send_monthly(lab.session) == ""
    at(lab, utc(11, 1, 6))
    assert report_due_at(lab.session) == lab.clock()
    assert send_monthly(lab.session) == f"the report of 2026-10 was sent to {label_of(json_of(web))}"
    assert report_due_at(lab.session) == utc(12, 1, 6)
    assert [send_monthly(one) for one in (lab.session, lab.opened())] == ["", ""]
    assert months(lab) == [("2026-10", label_of(json_of(web)))]
    # 37 hours at $3.00; the disk of the fake cloud has no price.
    assert subjects(web) == ["cloudgpu: report of 2026-10: at least $111.00"]
    assert lab.session.ledger.verify().faults == ()


def test_a_mail_has_the_summary_and_the_page_byte_for_byte(lab_to, mail):
    lab = at(lab_to(mailto(mail)), utc(11, 1, 6))
    assert send_monthly(lab.session)
    (got,) = mail.got
    (page,) = got.iter_attachments()
    october = report_document(lab.session, parse_report(lab.session, month="2026-10"))
    assert page.get_payload(decode=True) == to_html(october).encode()
    assert (page.get_filename(), page.get_content_type()) == ("cloudgpu-report-2026-10.html", "text/html")
    text = " ".join(got.get_body(("plain",)).get_content().split())
    assert october["summary"]
    assert all(" ".join(one.split()) in text for one in october["summary"])


def test_who_takes_no_files_gets_all_of_it_as_text(lab_to, web):
    lab = at(lab_to(f"gotify://{web.place}/t0ken"), utc(11, 1, 6))
    october = report_document(lab.session, parse_report(lab.session, month="2026-10"))
    assert send_monthly(lab.session)
    assert web.texts[0][1].split() == to_markdown(october).replace("\\$", "$").split()[4:]  # <!-- cloudgpu report -->
    assert web.texts[0][1].startswith("# ")


def test_a_watch_that_was_off_sends_it_later_and_after_a_whole_month_the_last_one_alone(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 17, 3))
    assert send_monthly(lab.session)
    lab.session.ledger.close()
    at(lab, utc(12, 31, 3))
    lab.session = lab.opened()
    assert send_monthly(lab.session)
    assert [month for month, _ in months(lab)] == ["2026-10", "2026-11"]
    assert len(web.got) == 2


def test_a_receiver_that_refuses_is_tried_again_and_the_others_have_it_once(lab_to, web, mail):
    lab = at(lab_to(json_of(web), mailto(mail)), utc(11, 1, 6))
    web.answer = 500
    said = send_monthly(lab.session)
    assert f"was not taken by {label_of(json_of(web))} (answered 500), and is tried again" in said
    assert report_due_at(lab.session) == lab.clock()
    lab.later(hours=1)
    assert "answered 500" in send_monthly(lab.session)
    web.answer = 200
    lab.later(days=28)
    assert send_monthly(lab.session) == f"the report of 2026-10 was sent to {label_of(json_of(web))}"
    assert (len(mail.got), len(months(lab))) == (1, 2)


def test_a_receiver_that_never_takes_it_is_tried_for_a_month_at_most(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 1, 6))
    web.answer = 500
    assert "the report of 2026-10 was not taken" in send_monthly(lab.session)
    web.answer = 200
    assert "the report of 2026-11 was sent" in send_monthly(at(lab, utc(12, 1, 6)).session)
    assert send_monthly(lab.session) == ""


def job_of_watch(name):
    (found,) = [one for one in watch_jobs(timedelta(minutes=10), None, run_at_once=lambda: None) if one.name == name]
    return found


def test_the_job_of_watch_waits_for_a_pass_after_the_month(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 1, 6))
    report, pass_ = job_of_watch("report"), job_of_watch("pass")
    assert report.due(lab.session) == utc(11, 1, 7)
    pass_.work(lab.session)
    assert report.due(lab.session) == lab.clock()
    assert "was sent" in report.work(lab.session)
    assert report.due(lab.session) == utc(12, 1, 6)


def test_it_waits_for_the_pass_by_a_clock_that_goes_on_too(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 1, 6))

    def ticking():
        lab.clock.advance(1e-6)
        return lab.clock()

    lab.session.clock = ticking
    assert job_of_watch("report").due(lab.session) > utc(11, 1, 6, 59)


def test_where_no_pass_is_made_it_is_sent_an_hour_later(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 17))
    job = job_of_watch("report")
    assert job.due(lab.session) == utc(11, 17, 1)
    lab.later(minutes=59)
    assert job.due(lab.session) == utc(11, 17, 1)
    lab.later(minutes=1)
    assert job.due(lab.session) <= lab.clock()
    web.answer = 500
    assert "is tried again" in job.work(lab.session)
    assert job.due(lab.session) <= lab.clock()
    assert job.retry == RETRY_LATER
    at(lab, utc(11, 16))  # the clock was set back
    assert job.due(lab.session) <= utc(11, 16, 1)


def test_a_receiver_that_is_added_gets_the_last_month(lab_to, web, mail):
    lab = at(lab_to(json_of(web)), utc(11, 1, 6))
    send_monthly(lab.session)
    config = lab.home / "config.toml"
    config.write_text(config.read_text().replace(json_of(web), f"{json_of(web)}', '{mailto(mail)}"))
    lab.session = lab.opened()
    assert send_monthly(lab.session) == f"the report of 2026-10 was sent to {label_of(mailto(mail))}"
    assert (len(web.got), len(mail.got)) == (1, 1)


@pytest.mark.parametrize("more", ['report = "never"\n', None])
def test_nobody_is_sent_a_report_without_receivers_or_where_that_is_the_wish(lab_to, web, more):
    lab = at(lab_to(json_of(web), more=more) if more else lab_to(), utc(11, 1, 6))
    assert report_due_at(lab.session) == utc(12, 1, 6)
    assert send_monthly(lab.session) == ""
    assert web.got == []


def test_a_month_in_which_nothing_was_billed_has_no_report(lab_to, web):
    lab = lab_to(json_of(web))
    assert report_due_at(lab.session) == utc(11, 1, 6)  # September is over, and nothing was there
    assert send_monthly(lab.session) == ""
    assert (web.got, months(lab)) == ([], [])


def test_a_fresh_ledger_has_nothing_to_send(make_lab, web):
    lab = make_lab(f"[alerts]\nto = ['{json_of(web)}']\n")
    assert report_due_at(lab.session) == utc(12, 1, 6)
    assert send_monthly(lab.session) == ""


def test_a_clock_that_is_set_back_or_forward_sends_each_month_once(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 5))
    send_monthly(lab.session)
    for moment in (utc(10, 2), utc(12, 5), utc(11, 6), utc(10, 31), utc(12, 6)):
        send_monthly(at(lab, moment).session)
    assert [month for month, _ in months(lab)] == ["2026-10", "2026-11"]
    assert len(web.got) == 2


def test_a_month_is_that_of_the_settings_time_zone(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(10, 31, 20, 59))
    config = lab.home / "config.toml"
    config.write_text('tz = "Asia/Seoul"\n' + config.read_text())
    lab.session = lab.opened()
    assert report_due_at(lab.session) == utc(10, 31, 21)  # six in the morning of 1 November there
    at(lab, utc(10, 31, 21))
    assert "2026-10 was sent" in send_monthly(lab.session)


class Killing(WebReceiver):
    """Takes a message, and kills the process `sender` before it can write that down."""

    sender = None

    def _take(self, request):
        super()._take(request)
        if self.sender is not None:
            sender, self.sender = self.sender, None
            os.kill(sender, signal.SIGKILL)


def sent_by_a_child(lab, web):
    """Send the month from a process of its own, once `web` knows its number; return its exit status."""
    read, write = os.pipe()
    number = os.fork()
    if number == 0:
        code = 70
        try:
            os.read(read, 1)
            send_monthly(lab.opened())
            code = 0
        finally:
            os._exit(code)
    web.sender = number
    os.write(write, b"1")
    os.close(read)
    os.close(write)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def test_a_crash_between_sending_and_writing_it_down_sends_it_twice_and_loses_nothing(lab_to):
    web = Killing()
    try:
        lab = at(lab_to(json_of(web)), utc(11, 1, 6))
        assert sent_by_a_child(lab, web) == -signal.SIGKILL
        assert months(lab) == []
        assert send_monthly(lab.opened())
        assert send_monthly(lab.opened()) == ""
        assert len(web.got) == 2
    finally:
        web.end()


def test_while_another_watch_sends_it_nothing_is_sent_twice(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 1, 6))
    with lab.opened().lock(LOCK, wait=False):
        assert send_monthly(lab.session) == ""
    assert web.got == []
    assert send_monthly(lab.session)


def asked(lab, **words):
    return send_report(lab.session, report_document(lab.session, parse_report(lab.session, **words)))


def test_a_report_that_is_asked_for_goes_to_everybody_and_says_who_has_it(lab_to, web, mail):
    web.answer = 500
    lab = at(lab_to(json_of(web), mailto(mail)), utc(11, 1, 3))
    found = asked(lab)
    assert found["sent"] == [label_of(mailto(mail))]
    assert found["failed"] == [{"receiver": label_of(json_of(web)), "why": "answered 500"}]
    assert (found["since"], found["until"], found["as_of"][:10]) == (None, None, "2026-11-01")
    assert mail.texts[0][0] == found["subject"]
    assert found["subject"] == "cloudgpu: report up to 2026-11-01: at least $120.00"
    assert months(lab) == []


def test_a_month_that_was_asked_for_is_not_sent_again_by_watch(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 1, 3))
    for _ in range(2):
        assert asked(lab, month="last")["failed"] == []
    assert [month for month, _ in months(lab)] == ["2026-10"]
    at(lab, utc(11, 1, 6))
    assert send_monthly(lab.session) == ""
    assert len(web.got) == 2


def test_a_month_in_which_nothing_was_billed_is_sent_to_nobody_who_asks_for_it(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(11, 1, 6))
    found = asked(lab, month="2026-09")
    assert (found["sent"], found["nothing_sent"]) == ([], "Nothing was sent: nothing was billed in 2026-09.")
    assert (web.got, months(lab)) == ([], [])
    spent = asked(lab, month="2026-10", tz="Asia/Seoul")  # a month there
    assert (len(spent["sent"]), spent["nothing_sent"]) == (1, None)


def test_a_month_that_is_not_over_counts_for_nothing(lab_to, web):
    lab = at(lab_to(json_of(web)), utc(10, 31, 12))
    assert asked(lab, since="2026-10", until="2026-11-01")["sent"]
    assert months(lab) == []


def test_without_a_receiver_it_says_what_to_write(lab_to):
    with pytest.raises(InvalidRequest, match=r"config\.toml names no receiver") as fault:
        asked(lab_to())
    assert (fault.value.field, "config.toml" in fault.value.next) == ("alerts.to", True)


def test_without_apprise_the_extra_is_named_and_nothing_counts_as_sent(lab_to, web, monkeypatch):
    lab = at(lab_to(json_of(web)), utc(11, 1, 6))
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(MissingExtra, match="not installed"):
        send_monthly(lab.session)
    assert months(lab) == []
    monkeypatch.undo()
    assert "was sent" in send_monthly(lab.session)


def test_no_secret_is_in_what_is_said_or_kept(lab_to, web, mail, logged, capfd):
    logging.getLogger("apprise").setLevel(1)
    web.answer = 500
    lab = at(lab_to(json_of(web), mailto(mail), f"nosuch://{SECRET}/"), utc(11, 1, 6))
    said = [send_monthly(lab.session), str(asked(lab)), *lab.said, *capfd.readouterr(), logged.text]
    assert SECRET not in " ".join(said)
    files = [path for path in lab.home.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("more", [{"since": "2026-10-02"}, {"until": "2026-10-02"}])
def test_a_month_and_a_period_are_not_both_meant(lab_to, more):
    lab = at(lab_to(), utc(11, 1, 6))
    with pytest.raises(InvalidRequest, match="whole period") as fault:
        parse_report(lab.session, month="last", **more)
    assert fault.value.field == f"--{min(more)}"


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-09", "2026-09-01", "2026-10-01"),
        ("last", "2026-10-01", "2026-11-01"),
        ("2026-11", "2026-11-01", "2026-12-01"),
    ],
)
def test_a_month_is_named_or_the_last_one(text, first, last):
    found = parse_month(text, utc(11, 22, 8), "UTC")
    assert (f"{found.begin:%Y-%m-%d}", f"{found.end:%Y-%m-%d}") == (first, last)


def test_the_month_is_that_of_the_zone():
    found = parse_month("last", utc(10, 31, 15), "Asia/Seoul")  # midnight there
    assert (found.begin, found.end) == (utc(9, 30, 15), utc(10, 31, 15))


@pytest.mark.parametrize(
    "text", ["", "october", "2026-13", "2026-00", "2026-1", "2026-12", "9999-12", "0000-01", "2026-10-01", "1e3", "nan"]
)
def test_what_is_no_month_or_still_to_come_is_refused(text):
    with pytest.raises(InvalidRequest) as fault:
        parse_month(text, utc(11, 22, 8), "UTC")
    assert (fault.value.field, fault.value.value) == ("--month", text)
    assert "last" in fault.value.next
