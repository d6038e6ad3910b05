"""What listens behind the SSH server in the tests: a web server, an echo, a listener that counts."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import socket
import threading
import urllib.request


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"answer to {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words):
        pass


class _Web(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *_request):
        pass  # the tests cut connections on purpose


@contextlib.contextmanager
def web():
    """Yield the port of a web server on loopback."""
    server = _Web(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def get(port, path, timeout=30):
    """Return what the web server says, through whatever listens on `port`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=timeout) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def listening(serve):
    """Yield the port of a listener that runs `serve(connection)` in a thread per connection."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    threads = []

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=_guarded, args=(serve, listener.accept()[0]), daemon=True))
                threads[-1].start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in [thread, *threads]:
            one.join(5)


def _guarded(serve, connection):
    with connection, contextlib.suppress(OSError):
        serve(connection)


def echo(connection):
    """Send back what comes, and end when the other side has ended."""
    while data := connection.recv(65536):
        connection.sendall(data)


def digest_after_end(connection):
    """Read to the end of data and only then answer: the length and digest of all of it."""
    seen, count = hashlib.sha256(), 0
    while data := connection.recv(1 << 18):
        seen.update(data)
        count += len(data)
    connection.sendall(f"{count} {seen.hexdigest()}".encode())
