"""The text of a running turn so far, as one message shows it. No I/O."""

from __future__ import annotations

from typing import Final

from gateway.delivery.line_posts import Render
from gateway.platform.protocol import Piece
from shared.chatlog.live_text import LiveText
from shared.messages.live import DeltaEvent, LiveEvent, ProgressEvent, TurnEvent

MORE: Final = " …"
"""Ends a text that is still being written."""

PROGRESS_CHARS: Final = 80


class TurnText:
    """The newest turn of which an event came. A new attempt counts as soon as it has text."""

    def __init__(self, *, progress: bool) -> None:
        self.turn = 0
        self.ended = False
        self.version = 0
        """Changes whenever `preview` may change."""

        self._with_progress = progress
        self._progress = ""
        self._live = LiveText()

    @property
    def text(self) -> str:
        """The text so far."""
        return self._live.text

    def apply(self, event: LiveEvent) -> None:
        """Apply one event of the chat. Events of older turns change nothing."""
        if event.turn < self.turn:
            return
        if event.turn > self.turn:
            self.turn, self.ended, self._progress, self._live = event.turn, False, "", LiveText()
        self.version += 1
        match event:
            case TurnEvent(state=state):
                self.ended = state != "started"
            case DeltaEvent(text=text) as delta:
                if self._live.add(delta) and text:
                    self._progress = ""
            case ProgressEvent(text=text) if self._with_progress:
                self._progress = " ".join(text.split())
            case _:
                pass

    def preview(self, render: Render) -> Piece | None:
        """Return what one message shows now; None = nothing yet. Of a longer text it is the first
        piece, which does not change any more: the others come with the reply."""
        if text := self.text.strip():
            pieces = render(text + MORE)
            return pieces[0] if len(pieces) == 1 else render(text)[0]
        if self._progress:
            progress = self._progress.replace("`", "'")
            short = progress if len(progress) <= PROGRESS_CHARS else progress[: PROGRESS_CHARS - 1] + "…"
            return render(f"*`{short}`*{MORE}")[0]
        return None
