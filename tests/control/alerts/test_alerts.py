"""Alerts against a real SMTP server and a real HTTP receiver on loopback."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgpu.config.alerts.alerts import DESKTOP
from cloudgpu.control.alerts.alerts import LOCK, deliver, send_sample_alert, undelivered
from cloudgpu.control.alerts.channels import call_within, label_of, load_apprise, send
from cloudgpu.control.alerts.health import alert_checks
from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.errors import InvalidRequest, MissingExtra
from tests.receivers.web import DRIP, HANG, WebReceiver

SECRET = "s3cr3tpassword"
LAB80 = Finding(
    "budget:lab:threshold:80",
    "budget",
    "Budget lab has passed 80 % of $300.00",
    "Spent so far: $241.50 of $300.00 (KRW 322,500), für Ada: 80,5 %.",
    {"spent": "$241.50", "budget": "lab"},
)
GONE = Finding("budget:gone:threshold:100", "budget", "Budget gone is spent", "Spent: $50.00.", {}, urgent=True)


@pytest.fixture
def lab_to(make_lab):
    """A lab whose alerts go to these addresses."""
    return lambda *addresses, more="": make_lab(f"[alerts]\nto = {list(addresses)!r}\n{more}")


def json_of(web, more=""):
    return f"json://{web.place}/{SECRET}{more}"


def mailto(mail):
    return f"mailto://ada:{SECRET}@lab.example:{mail.port}/?smtp=127.0.0.1&mode=insecure&to=boss@lab.example"


def kinds(lab):
    return [line.kind for line in lab.session.ledger.events("alerts")]


@pytest.mark.soak
def test_a_mail_has_a_subject_the_amounts_and_every_letter_as_it_was(lab_to, mail):
    lab = lab_to(f"mailto://lab.example:{mail.port}/?smtp=127.0.0.1&to=boss@lab.example&from=gpu@lab.example")
    found = deliver(lab.session, [LAB80])
    assert [one.why for one in found.outcomes] == [None]
    ((subject, text),) = mail.texts
    assert subject == "cloudgpu: Budget lab has passed 80 % of $300.00"
    assert "$241.50 of $300.00 (KRW 322,500), für Ada: 80,5 %" in text
    assert "utf-8" in str(mail.got[0]).lower()
    assert mail.got[0]["to"] == "boss@lab.example"


def test_a_mail_server_that_wants_a_password_gets_it(lab_to, mail):
    deliver(lab_to(mailto(mail)).session, [LAB80])
    assert mail.logins == [("ada", SECRET)]
    assert len(mail.got) == 1


def test_an_alert_is_sent_once_per_crossing_and_again_only_after_it_fell_back(lab_to, web):
    lab = lab_to(json_of(web))
    for _ in range(3):
        deliver(lab.session, [LAB80])
    assert len(web.got) == 1
    assert deliver(lab.session, []).cleared == (LAB80.key,)
    assert deliver(lab.session, []).cleared == ()
    assert deliver(lab.session, [LAB80]).raised == (LAB80.key,)
    assert [title for title, _ in web.texts] == [f"cloudgpu: {LAB80.title}"] * 2
    assert kinds(lab) == ["alert_raised", "alert_sent", "alert_cleared", "alert_raised", "alert_sent"]


def test_the_ledger_is_whole_and_holds_no_machine_of_alerts(lab_to, web):
    lab = lab_to(json_of(web))
    deliver(lab.session, [LAB80])
    assert lab.session.ledger.verify().faults == ()
    assert lab.session.ledger.machines() == []


def test_several_news_are_one_message_and_one_attempt(lab_to, web):
    lab = lab_to(json_of(web))
    deliver(lab.session, [LAB80, GONE])
    ((title, text),) = web.texts
    assert title == "cloudgpu: Budget lab has passed 80 % of $300.00, and 1 more"
    assert LAB80.title in text
    assert GONE.text in text


@pytest.mark.parametrize(
    ("answer", "why"),
    [(500, "answered 500"), (404, "answered 404"), (HANG, "could not be reached, or did not answer")],
)
def test_what_a_receiver_does_not_take_is_kept_and_the_others_are_served(lab_to, web, mail, answer, why):
    lab = lab_to(json_of(web, "?rto=0.3"), mailto(mail))
    web.answer = answer
    found = deliver(lab.session, [LAB80])
    assert [one.why for one in found.outcomes] == [why, None]
    assert (len(mail.got), found.pending) == (1, 1)
    lab.later(minutes=90)
    web.answer = 200
    found = deliver(lab.session, [LAB80])
    assert [(one.receiver, one.why) for one in found.outcomes] == [(label_of(json_of(web, "?rto=0.3")), None)]
    assert "1h 30m before this was sent" in web.texts[-1][1]
    assert (len(mail.got), found.pending) == (1, 0)


def test_an_alert_that_was_kept_is_sent_in_the_words_of_now_and_once(lab_to, web):
    """The budget is replaced while the receiver is down: its old limit and its old sums are nobody's concern."""
    lab = lab_to(json_of(web))
    web.answer = 500
    deliver(lab.session, [LAB80])
    new = replace(LAB80, title="Budget lab has passed 80 % of $350.00", text="Spent so far: $301.00 of $350.00.")
    web.answer = 200
    found = deliver(lab.session, [new])
    assert (found.raised, found.pending, found.active) == ((), 0, (new.title,))
    deliver(lab.session, [new])
    title, text = web.texts[-1]
    assert (title, len(web.got)) == (f"cloudgpu: {new.title}", 2)
    assert "$301.00 of $350.00" in text
    assert "$300.00" not in text
    assert kinds(lab) == ["alert_raised", "alert_sent"]


def test_a_receiver_that_is_down_gets_all_of_it_later_also_what_is_over(lab_to, web):
    lab = lab_to(json_of(web))
    place = web.place
    web.end()
    assert [one.why for one in deliver(lab.session, [LAB80]).outcomes] == ["could not be reached, or did not answer"]
    deliver(lab.session, [GONE])
    assert deliver(lab.opened(), [GONE]).pending == 2
    again = WebReceiver()
    config = lab.home / "config.toml"
    try:
        config.write_text(config.read_text().replace(place, again.place))
        lab.session = lab.opened()
        # Another address is another receiver: it hears what lasts.
        deliver(lab.session, [GONE])
        assert [title for title, _ in again.texts] == ["cloudgpu: Budget gone is spent"]
    finally:
        again.end()


def test_what_fell_back_while_the_receiver_was_down_is_told_as_over(lab_to, web):
    lab = lab_to(json_of(web))
    web.answer = 503
    deliver(lab.session, [LAB80])
    deliver(lab.session, [])
    web.answer = 200
    deliver(lab.session, [])
    assert "(over by now)" in web.texts[-1][1]
    assert deliver(lab.session, []).outcomes == ()


def test_a_receiver_that_sends_a_byte_now_and_then_holds_nobody_up(web):
    web.answer = DRIP
    from cloudgpu.config.alerts.template import Message

    began = time.monotonic()
    (outcome,) = send([(json_of(web), Message("a", "b", urgent=False))], wait_s=0.4)
    assert outcome.why == "did not answer within 0.4 seconds"
    assert time.monotonic() - began < 5


HUNG = """
import sys
from cloudgpu.config.alerts.template import Message
from cloudgpu.control.alerts.channels import send
print(send([(sys.stdin.read(), Message("a", "b", urgent=False))], wait_s=0.3))
"""


@pytest.mark.soak
def test_a_receiver_that_hangs_does_not_keep_the_command_from_ending(web):
    web.answer = HANG
    address = json_of(web, "?rto=25")
    done = subprocess.run(
        [sys.executable, "-c", HUNG], input=address, text=True, capture_output=True, timeout=15, check=True
    )
    assert "did not answer within 0.3 seconds" in done.stdout
    assert len(web.got) <= 1


def test_an_address_that_apprise_does_not_know_is_said_and_kept(lab_to, web):
    lab = lab_to("nosuch://x/y", json_of(web))
    found = deliver(lab.session, [LAB80])
    assert [one.why for one in found.outcomes] == ["is not an address that apprise knows or can use here", None]
    assert found.pending == 1


SERVICES = {
    "ntfy": ("ntfy://{}/lab", b"topic"),
    "Slack-shaped webhook": ("matrix://t0ken@{}/#room?mode=slack", b"attachments"),
    "Mattermost": ("mmost://{}/3ccdd113474722377935511fc85d3dd4", b"text"),
    "Gotify": ("gotify://{}/t0ken", b"priority"),
    "form": ("form://{}/path", b"title="),
    "XML": ("xml://{}/path", b"<Subject>"),
}


@pytest.mark.soak
def test_services_whose_host_can_be_named_get_it_in_their_own_form(lab_to, web):
    lab = lab_to(*(address.format(web.place) for address, _ in SERVICES.values()))
    found = deliver(lab.session, [LAB80])
    assert [one.why for one in found.outcomes] == [None] * len(SERVICES)
    assert all(b"241.50" in body for _, _, body in web.got)
    for _, sign in SERVICES.values():
        assert any(sign in body for _, _, body in web.got)
    assert not any(b"github" in body for _, path, body in web.got if "path" not in path)  # no icons from elsewhere


@pytest.mark.soak
def test_no_secret_is_in_text_log_ledger_output_or_repr(lab_to, web, mail, logged, capfd, tmp_path):
    load_apprise()  # it says how many plug-ins it has
    logged.names.clear()
    logging.getLogger("apprise").setLevel(1)
    lab = lab_to(
        json_of(web), mailto(mail), f"nosuch://{SECRET}/", f"json://127.0.0.1:1/{SECRET}",
        more=f'deadman = "http://127.0.0.1:1/{SECRET}"\n',
    )  # fmt: skip
    for answer in (500, 200):
        web.answer = answer
        found = deliver(lab.session, [LAB80])
    send_sample_alert(lab.session)
    said = "".join(capfd.readouterr()) + "".join(map(str, lab.said)) + repr(found) + repr(lab.session.settings)
    said += logged.text + str(list(alert_checks(lab.session)))
    assert SECRET not in said
    assert "apprise" not in logged.names
    assert all(SECRET not in one for pair in (*web.texts, *mail.texts) for one in pair)
    files = [path for path in lab.home.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


KILLED = """
import sys
from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.outage.opening import open_session
import os
from tests.control.alerts.test_alerts import LAB80
deliver(open_session(os.environ), [LAB80])
"""


def test_a_crash_between_sending_and_writing_it_down_sends_it_twice_and_loses_nothing(lab_to, web):
    lab = lab_to(json_of(web))
    web.answer = HANG
    environ = os.environ | {"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}
    paths = [str(Path(__file__).parents[3]), str(lab.home.parent / "plugin"), environ.get("PYTHONPATH", "")]
    environ["PYTHONPATH"] = os.pathsep.join(paths)
    child = subprocess.Popen([sys.executable, "-c", KILLED], env=environ)
    until = time.monotonic() + 20
    while not web.got and time.monotonic() < until:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert kinds(lab) == ["alert_raised"]
    web.answer = 200
    deliver(lab.session, [LAB80])
    assert [title for title, _ in web.texts] == [f"cloudgpu: {LAB80.title}"] * 2
    deliver(lab.session, [LAB80])
    assert len(web.got) == 2


def test_while_another_command_sends_nothing_is_sent_twice(lab_to, web):
    lab = lab_to(json_of(web))
    with lab.session.lock(LOCK, wait=False):
        found = deliver(lab.session, [LAB80])
    assert (found.raised, found.outcomes, found.pending, web.got) == ((LAB80.key,), (), 1, [])
    assert "alerts are not sent now" in lab.said[-1]
    assert deliver(lab.session, [LAB80]).pending == 0


def test_without_a_receiver_alerts_stand_in_the_ledger_and_one_that_is_added_hears_what_lasts(lab_to, web):
    lab = lab_to()
    found = deliver(lab.session, [LAB80, GONE])
    assert (found.outcomes, found.pending, found.active) == ((), 0, (LAB80.title, GONE.title))
    deliver(lab.session, [GONE])
    config = lab.home / "config.toml"
    config.write_text(config.read_text().replace("to = []", f'to = ["{json_of(web)}"]'))
    deliver(lab.opened(), [GONE])
    assert [title for title, _ in web.texts] == [f"cloudgpu: {GONE.title}"]


def test_without_apprise_the_alert_is_kept_and_the_extra_named(lab_to, web, monkeypatch):
    lab = lab_to(json_of(web))
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(MissingExtra, match="not installed") as fault:
        deliver(lab.session, [LAB80])
    assert "cloudgpu[alerts]" in fault.value.next
    assert kinds(lab) == ["alert_raised"]
    monkeypatch.undo()
    deliver(lab.session, [LAB80])
    assert len(web.got) == 1


def test_a_text_of_ones_own_is_used(lab_to, web):
    lab = lab_to(json_of(web), more='template = "mine.txt"\n')
    (lab.home / "mine.txt").write_text("{% for one in news %}{{ one.title }}! {{ one.facts.spent }}{% endfor %}")
    deliver(lab.session, [LAB80])
    assert web.texts[0][1] == "Budget lab has passed 80 % of $300.00! $241.50"


@pytest.mark.parametrize(
    "text", ["{{ nosuch }}", "{% for", "{{ news[0].facts.nosuch }}", "", "{{ news.__class__.__mro__[1].x }}", None]
)
def test_a_text_of_ones_own_with_a_fault_keeps_no_alert_back(lab_to, web, text):
    lab = lab_to(json_of(web), more='template = "mine.txt"\n')
    if text is not None:
        (lab.home / "mine.txt").write_text(text)
    deliver(lab.session, [LAB80])
    assert "$241.50" in web.texts[0][1]
    assert "alerts.template" in lab.said[-1]
    with pytest.raises(InvalidRequest, match=r"alerts\.template"):
        send_sample_alert(lab.session)


def test_a_name_with_line_breaks_starts_no_header(lab_to, mail):
    bad = Finding("budget:x", "budget", "fox\r\nBcc: eve@example.org", "a\x1b[31mb", {"a\nb": "c\nd"})
    deliver(lab_to(mailto(mail)).session, [bad])
    assert mail.got[0]["bcc"] is None
    assert mail.texts[0][0] == "cloudgpu: fox Bcc: eve@example.org"
    assert "\x1b" not in mail.texts[0][1]


def test_a_sample_goes_to_every_receiver_and_into_no_ledger(lab_to, web, mail):
    lab = lab_to(json_of(web), mailto(mail))
    assert [one.why for one in send_sample_alert(lab.session)] == [None, None]
    assert web.texts[0][0] == mail.texts[0][0] == "cloudgpu: A sample of an alert"
    assert kinds(lab) == []


def test_a_sample_without_a_receiver_says_what_to_write(lab):
    with pytest.raises(InvalidRequest, match=r"config\.toml names no receiver") as fault:
        send_sample_alert(lab.session)
    assert "config.toml" in fault.value.next


def test_the_desktop_is_told_by_notify_send_where_apprise_has_none(lab_to, tmp_path, monkeypatch):
    shown = tmp_path / "shown"
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shown}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    lab = lab_to(DESKTOP)
    assert [one.why for one in deliver(lab.session, [GONE]).outcomes] == [None]
    assert "--urgency=critical" in shown.read_text()
    assert "cloudgpu: Budget gone is spent" in shown.read_text()


def test_a_screen_that_is_not_there_is_said(lab_to, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (outcome,) = deliver(lab_to(DESKTOP).session, [GONE]).outcomes
    assert "notify-send" in outcome.why


def test_a_receiver_is_called_the_same_everywhere_and_not_by_its_secret():
    one, other = f"json://h/{SECRET}", f"json://h/{SECRET}2"
    assert label_of(one) == label_of(one)
    assert label_of(one) != label_of(other)
    assert label_of(one).startswith("json-")
    assert len(label_of(one)) == len("json-123456")


def test_the_value_of_a_delivery_names_who_took_it_and_who_did_not(lab_to, web, mail):
    web.answer = 500
    lab = lab_to(json_of(web), mailto(mail))
    value = deliver(lab.session, [LAB80]).document()
    assert value == {
        "raised": [LAB80.key],
        "cleared": [],
        "sent": [label_of(mailto(mail))],
        "failed": [{"receiver": label_of(json_of(web)), "why": "answered 500"}],
        "pending": 1,
        "active": [LAB80.title],
    }
    assert list(undelivered(lab.session)) == [label_of(json_of(web))]


def test_doctor_says_who_is_told_and_what_waits(lab_to, web):
    lab = lab_to(json_of(web), more=f'deadman = "http://{web.place}/x"\n')
    first, second = alert_checks(lab.session)
    assert (first.verdict, second.verdict) == ("ok", "ok")
    assert first.message == f"sent to {label_of(json_of(web))}; watch sends them each month's report"
    web.answer = 500
    deliver(lab.session, [LAB80])
    first, _ = alert_checks(lab.session)
    assert (first.verdict, first.message) == ("warn", f"Not delivered yet: {label_of(json_of(web))}: 1.")


def test_doctor_has_a_note_without_receivers_and_without_a_dead_mans_address(lab):
    receivers, deadman = alert_checks(lab.session)
    assert (receivers.verdict, deadman.verdict) == ("note", "note")
    assert "to = [" in receivers.next
    assert "healthchecks" in deadman.next


def test_doctor_fails_for_a_template_that_is_gone(lab_to, web):
    first, _ = alert_checks(lab_to(json_of(web), more='template = "gone.txt"\n').session)
    assert (first.verdict, first.exit_code) == ("fail", 2)


def test_a_call_that_fails_in_an_unforeseen_way_is_not_said_to_be_silent():
    assert call_within(5, lambda: str(1 // 0)) == "failed (ZeroDivisionError)"
