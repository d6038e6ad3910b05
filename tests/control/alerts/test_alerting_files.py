"""A file beside a message, on real receivers on loopback: whole where it is taken, and in words where it is not."""

from __future__ import annotations

import base64
import json
import os
import stat
import tempfile
from pathlib import Path

import pytest

from cloudgpu.config.alerts.alerts import DESKTOP
from cloudgpu.config.alerts.template import AttachedFile, Message
from cloudgpu.control.alerts import channels as alerting_send
from cloudgpu.control.alerts.channels import send
from tests.receivers.web import HANG, WebReceiver

PAGE = "<!doctype html>\r\n<p>für Ada: 80,5 %</p>\n\n.\n".encode() + bytes(range(256)) + b"x" * 3000
FILE = AttachedFile(
    "cloudgpu-report-2026-10.html", "text/html", PAGE, "Run: cloudgpu report", "# All of it\n" + "y" * 5000
)
MESSAGE = Message("cloudgpu: report of 2026-10: $1.00", "It cost $1.00.\n\nSee the file.", urgent=False, attached=FILE)


def whys(*addresses, wait_s=30.0):
    return [one.why for one in send([(address, MESSAGE) for address in addresses], wait_s=wait_s)]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Where files lie meanwhile."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_mail_has_the_file_byte_for_byte(mail, places):
    assert whys(f"mailto://lab.example:{mail.port}/?smtp=127.0.0.1&to=boss@lab.example&from=gpu@lab.example") == [None]
    (got,) = mail.got
    (file,) = got.iter_attachments()
    assert (file.get_filename(), file.get_content_type()) == (FILE.name, "text/html")
    assert file.get_payload(decode=True) == PAGE
    assert got["subject"] == MESSAGE.subject
    assert got.get_body(("plain",)).get_content().split() == MESSAGE.body.split()
    assert list(places.iterdir()) == []


def test_a_webhook_has_it_too_and_takes_it_for_no_warning(web):
    assert whys(f"json://{web.place}/x") == [None]
    ((_, _, body),) = web.got
    found = json.loads(body)
    (file,) = found["attachments"]
    assert (file["filename"], file["mimetype"], base64.b64decode(file["base64"])) == (FILE.name, "text/html", PAGE)
    assert (found["type"], found["message"]) == ("info", MESSAGE.body)


def test_who_takes_no_files_gets_all_of_it_as_text_where_one_message_holds_that(web):
    assert whys(f"gotify://{web.place}/t0ken") == [None]
    assert json.loads(web.got[-1][2])["message"] == FILE.full_text
    assert whys(f"mmost://{web.place}/3ccdd113474722377935511fc85d3dd4") == [None]  # 4,000 characters at most
    assert FILE.summary in json.loads(web.got[-1][2])["text"]
    assert len(web.got) == 2


class Picky(WebReceiver):
    """Refuses what is too large for it."""

    def _take(self, request):
        self.answer = 413 if int(request.headers["Content-Length"]) > 3000 else 200
        super()._take(request)


def test_who_refuses_the_file_is_told_at_once_without_it():
    web = Picky()
    try:
        short = AttachedFile(FILE.name, FILE.type, PAGE, FILE.summary, "# All of it")
        message = Message(MESSAGE.subject, MESSAGE.body, urgent=False, attached=short)
        assert [one.why for one in send([(f"json://{web.place}/x", message)])] == [None]
        assert [title for title, _ in web.texts] == [MESSAGE.subject] * 2
        assert web.texts[-1][1] == "# All of it"
    finally:
        web.end()


@pytest.mark.parametrize("answer", [500, 401])
def test_who_is_not_well_is_asked_once(web, answer):
    web.answer = answer
    assert whys(f"json://{web.place}/x") == [f"answered {answer}"]
    assert len(web.got) == 1


def test_while_it_is_sent_nobody_else_may_read_it_and_then_it_is_gone(web, places, monkeypatch):
    seen = []

    def attempt(*words):
        (directory,) = places.iterdir()
        (file,) = directory.iterdir()
        seen.extend(stat.S_IMODE(path.stat().st_mode) for path in (directory, file))
        seen.append(file.read_bytes() == PAGE)
        return real(*words)

    real = alerting_send._attempt
    monkeypatch.setattr(alerting_send, "_attempt", attempt)
    assert whys(f"json://{web.place}/x") == [None]
    assert seen == [0o700, 0o600, True]
    assert list(places.iterdir()) == []


def test_it_is_gone_too_where_a_receiver_hangs(web, places):
    web.answer = HANG
    assert whys(f"json://{web.place}/x?rto=20", wait_s=0.3) == ["did not answer within 0.3 seconds"]
    assert list(Path(places).iterdir()) == []


def test_a_screen_is_shown_the_text_that_says_how_to_have_it(tmp_path, monkeypatch):
    shown, program = tmp_path / "shown", tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shown}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert whys(DESKTOP) == [None]
    assert [MESSAGE.subject, FILE.summary] == shown.read_text().splitlines()[-2:]
