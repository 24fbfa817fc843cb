"""What a line of a chat's log is on a platform: pieces of text, then files. Pure: the same line is
the same posts at every try, so that a post can be counted and known by its number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.platform.protocol import Abilities, Button, Piece, PostTarget
from shared.errors import BadInput
from shared.ids import split_session
from shared.media.reference import MediaRef, read_reference
from shared.messages.outbound import LogLine, OutboundMessage
from shared.messages.schedule import is_tick
from shared.messages.subagent import ID_PREFIX

STOPPED: Final = "*Stopped.*"
LABELS: Final = {"/yes": "Yes", "/no": "No"}
"""What stands on a button of a question instead of the command that it says."""

GROUP: Final = "group"
"""The note of a place that says ("1") that several people are there; the inlet writes it."""

Render = Callable[[str], list[Piece]]


class LineParts(msgspec.Struct, frozen=True):
    """The posts of a line: a piece or a file each. The last piece has the buttons, or the last file
    if there is no piece."""

    pieces: tuple[Piece, ...]
    files: tuple[MediaRef, ...]
    buttons: tuple[Button, ...]

    @property
    def count(self) -> int:
        return len(self.pieces) + len(self.files)

    def buttons_of(self, part: int) -> tuple[Button, ...]:
        """Those of one post."""
        return self.buttons if part == (len(self.pieces) or self.count) - 1 else ()


def split_line(line: LogLine, render: Render, abilities: Abilities, *, age_s: float) -> LineParts:
    """The posts of a line; none when it has nothing to show here."""
    if not isinstance(line, OutboundMessage) or line.kind == "withdrawn":
        return LineParts((), (), ())
    files = tuple(ref for ref in map(_reference, line.media) if ref is not None)
    buttons = _buttons(line)
    text = line.content
    if line.kind == "stopped":
        text = f"{text}\n\n{STOPPED}" if text.strip() else STOPPED
    if not abilities.media:
        text = "\n\n".join(filter(str.strip, [text, *(f"[file: {ref.name}]" for ref in files)]))
        files = ()
    if len(buttons) > abilities.buttons:
        if line.approval is None:  # a question says itself what to answer
            text = "\n".join([text, "", *(f"- {button.says}" for button in buttons)])
        buttons = ()
    pieces = _pieces(text, render, late_s=age_s if age_s > abilities.late_after_s else 0.0) if text.strip() else ()
    return LineParts(pieces, files, buttons)


def _pieces(text: str, render: Render, *, late_s: float) -> tuple[Piece, ...]:
    """With the mark of a late one where that changes no other piece: a try after this one may count
    on them."""
    pieces = tuple(render(text))
    if late_s:
        mark = f"*This answer is {_in_words(late_s)} late.*"
        for marked in (f"{mark}\n\n{text}", f"{text}\n\n{mark}"):
            tried = tuple(render(marked))
            if len(tried) == len(pieces) and tried[:-1] == pieces[:-1]:
                return tried
    return pieces


def _in_words(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} minutes" if minutes > 1 else "a minute"
    return f"{round(minutes / 60)} hours" if minutes < 48 * 60 else f"{round(minutes / 1440)} days"


def _buttons(line: OutboundMessage) -> tuple[Button, ...]:
    if line.approval is not None and line.approval.state != "open":
        return ()
    return tuple(Button(LABELS.get(one.partition(" ")[0], one), one) for one in line.buttons)


def _reference(text: str) -> MediaRef | None:
    try:
        return read_reference(text)
    except BadInput:  # a newer release may name files differently
        return None


def replied_to(line: LogLine) -> str | None:
    """The platform's id of the message that a line answers; None for what nobody asked."""
    if not isinstance(line, OutboundMessage):
        return None
    id = line.reply_to or (line.in_reply_to[0] if line.in_reply_to else "")
    return None if not id or id.startswith(ID_PREFIX) or is_tick(id) else id


def target_of(session: str, notes: dict[str, str], abilities: Abilities) -> PostTarget:
    """Where the messages of a session go."""
    _, chat_id = split_session(session)
    thread = None
    if abilities.threads and "#" in chat_id:
        chat_id, _, thread = chat_id.rpartition("#")
    return PostTarget(session=session, chat_id=chat_id, thread=thread, notes=notes)
