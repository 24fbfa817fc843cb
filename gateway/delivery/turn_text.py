"""What a running turn has said so far, put together from live events. No I/O."""

from __future__ import annotations

from typing import Final

from gateway.delivery.line_posts import Render
from gateway.platform.protocol import Piece
from shared.messages.live import DeltaEvent, LiveEvent, ProgressEvent, TurnEvent

MORE: Final = " …"
"""Ends what is still being written."""

PROGRESS_CHARS: Final = 80


class TurnText:
    """The newest turn of a chat that was heard of. Events may be lost or late: text is only added
    to what it follows, and a later full text heals it. A new attempt takes the place of the one
    before as soon as it says something."""

    def __init__(self, *, progress: bool) -> None:
        self.turn = 0
        self.text = ""
        self.ended = False
        self.version = 0
        """Changes with whatever `shown` would show."""

        self._with_progress = progress
        self._progress = ""
        self._attempt = 0
        self._next_seq = 0

    def apply(self, event: LiveEvent) -> None:
        """Something happened in the chat."""
        turn = event.turn
        if turn < self.turn:
            return
        if turn > self.turn:
            self.turn, self.text, self.ended, self._progress, self._attempt, self._next_seq = turn, "", False, "", 0, 0
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
            return
        self._attempt, self._next_seq = delta.attempt, delta.seq + 1
        if delta.text:
            self._progress = ""

    def preview(self, render: Render) -> Piece | None:
        """What one message shows of it at this moment; None = nothing yet. A text that is longer
        than a message shows its first piece, which stands: the others come with the reply."""
        if text := self.text.strip():
            pieces = render(text + MORE)
            return pieces[0] if len(pieces) == 1 else render(text)[0]
        if self._progress:
            doing = self._progress.replace("`", "'")
            short = doing if len(doing) <= PROGRESS_CHARS else doing[: PROGRESS_CHARS - 1] + "…"
            return render(f"*`{short}`*{MORE}")[0]
        return None
