"""The control channel of a worker process: JSON lines over a socket pair.

Request: {"id": n, "do": verb, ...arguments}; answer: {"id": n, "ok": true, "result": ...} or {"id": n, "ok": false,
"error": text}; unasked, while somebody watches: {"event": {...}}. Owns framing only; the verbs are in `worker.py`.
"""

from __future__ import annotations

import json
import socket
from typing import Any

_CHUNK = 1 << 16


class LineChannel:
    """The worker's end: non-blocking reads, blocking writes (answers are small, but for the last one)."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = b""
        self.closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> list[dict[str, Any]]:
        """Whole messages waiting; sets `closed` when the other end went away."""
        while True:
            try:
                data = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                self.closed = True
                break
            if not data:
                self.closed = True
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines if line]

    def write(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.closed = True
