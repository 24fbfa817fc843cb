"""Server-sent events, as providers send them."""

from __future__ import annotations

from typing import Final

import msgspec

LIMIT_BYTES: Final = 16 * 1024 * 1024  # of one event; no provider comes near it, it saves memory
# Blanks, and the mark of UTF-8 at the start of some streams
_BEFORE_A_FIELD: Final = b" \t\xef\xbb\xbf"


class EventReader:
    """Splits a stream into server-sent events, in whatever pieces it arrives.

    https://html.spec.whatwg.org/multipage/server-sent-events.html. Only `data` counts: comments,
    which keep a connection open, ids and retry times are skipped. The data of an event that is
    called `error` is put into a field of that name. Beyond the standard, a line that is a whole
    JSON object ends where the next one begins, with or without `data:` and an empty line. `strays`
    says whether there were lines that belong to no stream of events, as those of a page for people.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._waiting_bytes = 0
        self._event = b""
        self._bare = False  # the data has no `data:` in front of its lines
        self._after_cr = False
        self.strays = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of each event that ends here. Raises ValueError over the limit."""
        if b"\r" in piece or self._after_cr:
            piece = self._with_line_feeds(piece)
        *lines, rest = piece.split(b"\n")
        events = []
        for line in lines:
            if self._line:
                line = b"".join([*self._line, line])
                self._line.clear()
            event = self._feed_line(line)
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

    def _with_line_feeds(self, piece: bytes) -> bytes:
        """Return a piece whose lines all end with LF: CRLF and a lone CR are line ends, too."""
        begins_with_rest = self._after_cr and piece.startswith(b"\n")
        self._after_cr = piece.endswith(b"\r") if piece else self._after_cr
        piece = piece[1:] if begins_with_rest else piece
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _feed_line(self, line: bytes) -> bytes | None:
        if not line:
            plain = len(self._data) == 1 and not self._event and not self._bare
            return self._data.pop() if plain else self._take()
        if line.startswith(b"data: ") and not self._data:
            self._data.append(line[6:])
            return None
        field, _, value = line.partition(b":")
        if field == b"data":
            return self._add(value[1:] if value.startswith(b" ") else value)
        return None if not field else self._feed_unusual(line)

    def _feed_unusual(self, line: bytes) -> bytes | None:
        """Read a line that is neither data nor a comment, or is data in another form."""
        line = line.lstrip(_BEFORE_A_FIELD)
        if self._bare or line.startswith((b"{", b"[DONE]")):
            event = self._add(line)
            self._bare = True
            return event
        field, _, value = line.partition(b":")
        match field.strip().lower():
            case b"data":
                return self._add(value.removeprefix(b" "))
            case b"event":
                self._event = value.strip().lower()
            case b"id" | b"retry" | b"":
                pass
            case _:
                self.strays = True
        return None

    def _add(self, value: bytes) -> bytes | None:
        """Add a line of data. Return the event before it, if that is whole without it."""
        event = self._take() if len(self._data) == 1 and _is_whole(self._data[0]) else None
        self._data.append(value)
        return event

    def _take(self) -> bytes | None:
        event = b"\n".join(self._data) if self._data else None
        if event is not None and self._event.startswith(b"error"):
            event = _as_error(event)
        self._data.clear()
        self._event = b""
        self._bare = False
        return event


def _is_whole(line: bytes) -> bool:
    """Return whether a line of data can stand alone."""
    line = line.strip()
    return line == b"[DONE]" or (line.startswith(b"{") and line.endswith(b"}") and _value(line) is not None)


def _as_error(event: bytes) -> bytes:
    """Return the data of an error as an object with a field of that name."""
    value = _value(event)
    if isinstance(value, dict) and value.get("error"):
        return event
    return msgspec.json.encode({"error": value or event.decode("utf-8", "replace") or "an error"})


def _value(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
