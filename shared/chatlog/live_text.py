"""The text of a running reply, put together from deltas that may be lost or late."""

from __future__ import annotations

from shared.messages.live import DeltaEvent
from shared.messages.web import DeltaFrame


class LiveText:
    """The text of the newest attempt of the newest turn. A delta is added only to the text that it
    follows; a later full text heals a gap. `shown` is the text for a person's screen: what stands
    there stays until the attempt, which may have begun again, has written more than that. `floor`
    is the length of what stands there; another process may have shown the first of it."""

    def __init__(self, turn: int = 0, floor: int = 0) -> None:
        self.turn = turn
        self.floor = floor
        self.text = self.shown = ""
        self._attempt = 0
        self._next_seq = 0

    def add(self, delta: DeltaEvent | DeltaFrame) -> bool:
        """Add a delta; return whether it counted."""
        here = (delta.turn, delta.attempt)
        known = (self.turn, self._attempt)
        if here < known or not (delta.full or (here == known and delta.seq == self._next_seq)):
            return False
        self.text = delta.text if delta.full else self.text + delta.text
        if delta.turn > self.turn or len(self.text) > self.floor:
            self.shown, self.floor = self.text, len(self.text)
        self.turn = delta.turn
        self._attempt = delta.attempt
        self._next_seq = delta.seq + 1
        return True
