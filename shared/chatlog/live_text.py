"""The text of a running reply, put together from deltas that may be lost or late."""

from __future__ import annotations

from shared.messages.live import DeltaEvent
from shared.messages.web import DeltaFrame


class LiveText:
    """The text of the newest attempt of the newest turn. A delta is added only to the text that it
    follows; a later full text heals a gap."""

    def __init__(self) -> None:
        self.turn = 0
        self.text = ""
        self._attempt = 0
        self._next_seq = 0

    def add(self, delta: DeltaEvent | DeltaFrame) -> bool:
        """Add a delta; return whether it counted."""
        here, known = (delta.turn, delta.attempt), (self.turn, self._attempt)
        if here < known or not (delta.full or (here == known and delta.seq == self._next_seq)):
            return False
        self.text = delta.text if delta.full else self.text + delta.text
        self.turn, self._attempt, self._next_seq = delta.turn, delta.attempt, delta.seq + 1
        return True
