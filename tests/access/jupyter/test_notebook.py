from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cloudgpu.access.jupyter.notebook import CellResult, open_page, run_cell
from cloudgpu.errors import InvalidRequest, Unreachable
from tests.agent.machine import LAB, Machine


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A real JupyterLab: (machine, port)."""
    machine = Machine(tmp_path_factory.mktemp("lab") / "home").build(jupyter=LAB)
    try:
        yield machine, machine.lab("ensure")["port"]
    finally:
        machine.end()


def _run(lab, code, **more):
    machine, port = lab
    return run_cell(port, machine.token, code, **more)


def _kernels(lab):
    machine, port = lab
    return machine.ask("GET", "/api/kernels", port)


@pytest.mark.soak
def test_a_cell_says_what_it_printed_and_returned(lab):
    assert _run(lab, "import sys; print('out'); print('err', file=sys.stderr); 6 * 7") == CellResult(
        "out\nerr\n42\n", ok=True
    )


def test_a_cell_that_raises_is_not_ok_and_says_why_without_colours(lab):
    result = _run(lab, "1 / 0")
    assert not result.ok
    assert result.text.endswith("ZeroDivisionError: division by zero\n")
    assert "\x1b" not in result.text


def test_what_a_cell_shows_is_text(lab):
    result = _run(lab, "from IPython.display import HTML, display; display(HTML('<b>x</b>'))")
    assert result == CellResult("<IPython.core.display.HTML object>\n", ok=True)


@pytest.mark.parametrize("buffers", ["[b'\\xff' * 9]", "[b'', b'{}']"])
def test_a_message_with_buffers_as_widgets_send_it_is_read_too(lab, buffers):
    content = {"data": {"text/plain": "a widget"}, "metadata": {}}
    sent = (
        f"kernel.session.send(kernel.iopub_socket, 'display_data', {content}, kernel.get_parent(), buffers={buffers})"
    )
    result = _run(lab, f"kernel = get_ipython().kernel; {sent}; print('ran')")
    assert result == CellResult("a widget\nran\n", ok=True)


def test_much_output_comes_whole(lab):
    result = _run(lab, "for n in range(20000): print(n)")
    assert result.text == "".join(f"{n}\n" for n in range(20000))


def test_the_kernel_lives_on(lab):
    before = len(_kernels(lab))
    _run(lab, "1")
    assert len(_kernels(lab)) == before + 1


def test_a_cell_that_takes_too_long_is_an_error_in_time(lab):
    started = time.monotonic()
    with pytest.raises(Unreachable, match="did not end in time"):
        _run(lab, "import time; time.sleep(600)", timeout_s=5)  # a busy computer connects late
    assert time.monotonic() - started < 60


def test_a_wrong_token_is_refused_and_never_shown(lab):
    with pytest.raises(Unreachable, match="does not know our token") as caught:
        run_cell(lab[1], "not-the-token", "1")
    assert "not-the-token" not in str(caught.value.as_dict())


def test_nobody_there_is_unreachable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable, match=r"does not answer: .*refused"):
            run_cell(taken.getsockname()[1], "t" * 20, "1", timeout_s=5)


def test_somebody_else_there_is_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(Unreachable):
        run_cell(other.getsockname()[1], "t" * 20, "1", timeout_s=0.5)


@pytest.mark.parametrize("body", ["", "[]", "{}", '"yes"'])
def test_an_answer_that_is_none_of_jupyters_is_unreachable(body):
    class Other(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        with pytest.raises(Unreachable, match="its answer is not one of Jupyter"):
            run_cell(other.server_port, "t" * 20, "1", timeout_s=20)
        thread.join()


def test_without_the_package_it_says_how_to_install_it_and_leaves_no_kernel(lab):
    machine, port = lab
    before = _kernels(lab)
    code = (
        "import sys; sys.modules['websocket'] = None\n"
        "from cloudgpu.access.jupyter.notebook import run_cell\n"
        "from cloudgpu.errors import MissingExtra\n"
        "try: run_cell(int(sys.argv[1]), sys.stdin.read(), '1')\n"
        "except MissingExtra as error: print(error.next)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(port)],
        input=machine.token,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "pip install 'cloudgpu[local]'\n"
    assert len(_kernels(lab)) == len(before)


class _Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_page_that_opens_a_browser_is_for_our_eyes_only(tmp_path):
    page = open_page(tmp_path / "pages", 8888, "a-token_1")
    url = "http://127.0.0.1:8888/lab?token=a-token_1"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    assert "a-token_1" not in str(page)
    found = _Page(page.read_text()).found
    assert ("meta", {"http-equiv": "refresh", "content": f"0; url={url}"}) in found
    assert ("meta", {"name": "referrer", "content": "no-referrer"}) in found
    assert ("a", {"rel": "noreferrer", "href": url}) in found
    assert open_page(tmp_path / "pages", 8888, "a-token_1") != page


def test_a_page_that_has_no_place_is_a_sentence(tmp_path):
    (tmp_path / "pages").write_text("a file in the way")
    with pytest.raises(InvalidRequest, match="cannot be read or written: File exists") as caught:
        open_page(tmp_path / "pages", 8888, "a-token_1")
    assert "a-token_1" not in str(caught.value)


def test_a_token_cannot_break_out_of_the_page(tmp_path):
    page = open_page(tmp_path, 8888, '"><script>')
    assert "<script" not in page.read_text()
