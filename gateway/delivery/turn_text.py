"""The text of a running turn so far, put together from live events. No I/O."""

from __future__ import annotations

from typing import Final

from gateway.delivery.line_posts import Render
from gateway.platform.protocol import Piece
from shared.messages.live import DeltaEvent, LiveEvent, ProgressEvent, TurnEvent

MORE: Final = " …"
"""Ends a text that is still being written."""

PROGRESS_CHARS: Final = 80


class TurnText:
    """The newest turn of a chat of which an event came.

    Events may be lost or late: a delta is added only to the text it follows, and a later full text
    heals a gap. A new attempt replaces the one before as soon as it has text.
    """

    def __init__(self, *, progress: bool) -> None:
        self.turn = 0
        self.text = ""
        self.ended = False
        self.version = 0
        """Changes whenever `preview` may change."""

        self._with_progress = progress
        self._progress = ""
        self._attempt = 0
        self._next_seq = 0

    def apply(self, event: LiveEvent) -> None:
        """Apply one event of the chat. Events of older turns change nothing."""
        turn = event.turn
        if turn < self.turn:
            return
        if turn > self.turn:
            self.turn, self.text, self.ended, self._progress = turn, "", False, ""
            self._attempt, self._next_seq = 0, 0
        self.version += 1
        match event:
            case TurnEvent(state=state):
                self.ended = state != "started"
            case DeltaEvent() as delta:
                self._add(delta)
            case ProgressEvent(text=text) if self._with_progress:
                self._progress = " ".join(text.split())
            case _:
                pass

    def _add(self, delta: DeltaEvent) -> None:
        if delta.attempt < self._attempt:
            return
        if delta.full:
            self.text = delta.text
        elif delta.attempt == self._attempt and delta.seq == self._next_seq:
            self.text += delta.text
        else:
            return  # one before it is missing; the next full text has both
        self._attempt, self._next_seq = delta.attempt, delta.seq + 1
        if delta.text:
            self._progress = ""

    def preview(self, render: Render) -> Piece | None:
        """Return what one message shows now; None = nothing yet.

        A text longer than a message shows its first piece, which does not change any more: the
        others come with the reply."""
        if text := self.text.strip():
            pieces = render(text + MORE)
            return pieces[0] if len(pieces) == 1 else render(text)[0]
        if self._progress:
            progress = self._progress.replace("`", "'")
            short = progress if len(progress) <= PROGRESS_CHARS else progress[: PROGRESS_CHARS - 1] + "…"
            return render(f"*`{short}`*{MORE}")[0]
        return None
