"""People at work on a real machine: at a terminal, in a browser, with a download. For tests of the command line."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import os
import pty
import select
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass

CHROMIUM = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-quic --remote-debugging-port=0"
).split()


class Shell:
    """A person in `cloudgpu ssh`, on a terminal of this computer."""

    def __init__(self, cloudgpu, name):
        self._ours, theirs = pty.openpty()
        environ = cloudgpu.env() | {"TERM": "xterm", "PS1": "$ "}
        self._process = subprocess.Popen(
            cloudgpu.argv("ssh", name),
            stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._said = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # nobody holds the other side any more
            while more := os.read(self._ours, 65536):
                self._said += more

    @property
    def text(self):
        """All that this terminal was shown."""
        return self._said.decode(errors="replace")

    def type(self, text):
        os.write(self._ours, text.encode())

    def end(self):
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        os.close(self._ours)


@dataclass
class Terminal:
    """What a terminal was shown by a command: its code, its text, and the longest time without a byte."""

    code: int
    text: str
    seconds: float
    silent_s: float
    last_line: str

    @classmethod
    def of(cls, argv, environ, *, rows=24, cwd=None, within_s=60):
        """Run a command on a terminal of so many rows and 80 columns, as long as it takes but `within_s`."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
        begun = wrote = time.monotonic()
        found, silent, last = b"", 0.0, b""
        with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=cwd) as process:
            os.close(theirs)
            with contextlib.suppress(OSError):  # nobody holds the other side any more
                while time.monotonic() - begun < within_s and can_read(ours, within_s):
                    more = os.read(ours, 4096)
                    now = time.monotonic()
                    if now - wrote > silent:
                        silent, last = now - wrote, found
                    found, wrote = found + more, now
            if process.poll() is None and time.monotonic() - begun >= within_s:
                process.kill()
            code = process.wait()
        os.close(ours)
        now = time.monotonic()
        if now - wrote > silent:
            silent, last = now - wrote, found
        lines = last.decode(errors="replace").replace("\r", "\n").split("\n")
        return cls(code, found.decode(), now - begun, silent, next((one for one in lines[::-1] if one.strip()), ""))


def can_read(number, within_s):
    """Say whether there is something to read; `select.select` takes no number above 1023."""
    waiting = select.poll()
    waiting.register(number, select.POLLIN | select.POLLHUP)
    return bool(waiting.poll(within_s * 1000))


def seen_on_terminal(argv, environ, *, rows=24):
    """Return what a terminal of so many rows and 80 columns is shown by a command that ends well."""
    seen = Terminal.of(argv, environ, rows=rows)
    assert seen.code == 0, seen.text
    return seen.text


class Browser:
    """Chromium on a page, until it is ended."""

    def __init__(self, chromium, url, profile):
        self._process = subprocess.Popen(
            [chromium, *CHROMIUM, f"--user-data-dir={profile}", url],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def end(self):
        self._process.terminate()
        self._process.wait(20)


class Site:
    """A web server on loopback with one file that never ends, `rate` bytes a second to each who asks for it."""

    def __init__(self, rate):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):
                    while not ended.wait(0.1):
                        self.wfile.write(bytes(rate // 10))

            def log_message(self, *_):
                pass

        self._ended = ended = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/data"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self):
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()


def until(found, *, within_s=60, pause=0.1, said=()):
    """Return what `found` says once it is true, asked every `pause` seconds; fail else, with that and `said`."""
    deadline = time.monotonic() + within_s
    while not (answer := found()):
        assert time.monotonic() < deadline, f"waited in vain; the last answer was {answer!r} {said or ''}"
        for _ in range(round(pause / 0.1)):  # who asks a busy machine asks it seldom
            time.sleep(0.1)
    return answer
