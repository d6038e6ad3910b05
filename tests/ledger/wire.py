"""A wire to a server that can be cut at a chosen moment: before a COMMIT gets there, or before its answer is back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """Listens on loopback at `port` and passes everything on to `server`. `cut` is "", "request" or "reply"."""

    def __init__(self, server: int) -> None:
        self.cut = ""
        self.cuts = 0
        self.refuses = False  # whoever connects anew is turned away, and from the next cut on
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def break_all(self) -> None:
        """Cut every connection that stands; new ones are taken as before."""
        while self._sockets:
            one = self._sockets.pop()
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server))
                self._sockets += [client, server]
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cut and b"COMMIT\0" in data:
                    how, self.cut = self.cut, ""
                    self.cuts += 1
                    if how == "reply":
                        client.shutdown(socket.SHUT_RDWR)  # nothing comes back from here on
                        server.sendall(data)
                    break
                server.sendall(data)
            client.close()
            server.shutdown(socket.SHUT_WR)

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                with suppress(OSError):
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
