"""Server-sent events of a streamed reply."""

from __future__ import annotations

from typing import Final

LIMIT_BYTES: Final = 16 * 1024 * 1024  # of one event; no provider comes near it, it saves memory


class EventReader:
    """Splits a stream into server-sent events, in whatever pieces it arrives.

    https://html.spec.whatwg.org/multipage/server-sent-events.html. Only `data` counts: comments,
    which keep a connection open, event names, ids and retry times are skipped. Lines end with LF or
    CRLF; a lone CR, which the standard also allows, does not end a line here.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._waiting_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of each event that ends here. Raises ValueError over the limit."""
        *lines, rest = piece.split(b"\n")
        events = []
        for line in lines:
            if self._line:
                line = b"".join([*self._line, line])
                self._line.clear()
            event = self._feed_line(line[:-1] if line.endswith(b"\r") else line)
            if event is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
        self._waiting_bytes = len(rest) if lines else self._waiting_bytes + len(rest)
        if self._waiting_bytes + sum(map(len, self._data)) > self._limit_bytes:
            raise ValueError("an event is too big")
        return events

    def end(self) -> list[bytes]:
        return self.feed(b"\n\n")

    def _feed_line(self, line: bytes) -> bytes | None:
        if not line:
            event = b"\n".join(self._data) if self._data else None
            self._data.clear()
            return event
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value[1:] if value.startswith(b" ") else value)
        return None
