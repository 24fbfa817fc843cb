"""The posts of a line of a chat's log: pieces of text, then files. A line gives the same posts at
every try, so a post is known by its number; a file is read only when its post is to be sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from gateway.delivery.platform_calls import Rates
from gateway.platform.protocol import Abilities, Button, File, NotAccepted, Piece, Platform, Post, PostTarget
from shared.errors import BadInput
from shared.ids import split_session
from shared.media.files import MediaNotFound
from shared.media.reference import MediaRef, read_reference
from shared.media.store import MediaStore
from shared.messages.outbound import LogLine, OutboundMessage
from shared.messages.schedule import is_tick
from shared.messages.subagent import ID_PREFIX
from shared.store.delivery.deliveries import PendingLine
from shared.store.turns.approvals import unshown_line

STOPPED: Final = "*Stopped.*"
LABELS: Final = {"/yes": "Yes", "/no": "No", "/always": "Always here"}
"""Labels of the buttons of a question, by the command that they send."""

LONG_CHARS: Final = 4096
"""A text of this length takes some ms to render, and an unlucky one far more."""

Render = Callable[[str], list[Piece]]
T = TypeVar("T")


async def render_off_loop(text: str, work: Callable[[], T]) -> T:
    """Return the result of `work`, which renders `text`: at once if it is short, else in a thread,
    for it would hold up the event loop. `work` is pure."""
    return work() if len(text) < LONG_CHARS else await asyncio.to_thread(work)


class LineParts(msgspec.Struct, frozen=True):
    """The posts of a line: a piece or a file each. The last piece, else file, has the buttons."""

    pieces: tuple[Piece, ...]
    files: tuple[MediaRef, ...]
    buttons: tuple[Button, ...]

    @property
    def count(self) -> int:
        return len(self.pieces) + len(self.files)

    def buttons_of(self, part: int) -> tuple[Button, ...]:
        """Return the buttons of one post."""
        return self.buttons if part == (len(self.pieces) or self.count) - 1 else ()


class OutgoingLine(msgspec.Struct, frozen=True):
    """A line on its way: its posts, where they go and what its calls cost. `quote`: it is shown as
    a reply to the message it answers."""

    entry: PendingLine
    target: PostTarget
    rates: Rates
    parts: LineParts
    quote: bool


async def build_post(
    platform: Platform, media: MediaStore, outgoing: OutgoingLine, part: int, *, as_plain: bool
) -> Post:
    """Return post number `part`. Raises NotAccepted when the volume of the files is unavailable."""
    pieces = outgoing.parts.pieces
    session = outgoing.target.session
    post = Post(
        target=outgoing.target,
        key=f"{session}:{outgoing.entry.seq}:{part}",
        piece=pieces[part] if part < len(pieces) else None,
        as_plain=as_plain,
        reply_to=replied_to(outgoing.entry.line) if outgoing.quote and part == 0 else None,
        buttons=outgoing.parts.buttons_of(part),
    )
    if post.piece is not None:
        return post
    ref = outgoing.parts.files[part - len(pieces)]
    try:
        data = await asyncio.to_thread(media.read, session, ref)
    except MediaNotFound:
        # A notice takes its place, so that the later posts keep their numbers.
        notice = platform.render(f"*The file “{ref.name}” is not kept any more.*")[0]
        return msgspec.structs.replace(post, piece=notice)
    except OSError as exc:
        raise NotAccepted(f"the files of chats cannot be read: {exc.strerror or exc}") from exc
    kind = ref.kind.media_type
    size = len(data)
    file = File(reference=str(ref), name=ref.name, media_type=kind, size_bytes=size, data=data)
    return msgspec.structs.replace(post, file=file)


def split_line(line: LogLine, render: Render, abilities: Abilities, *, age_s: float) -> LineParts:
    """Return the posts of a line; none when it has nothing to show on this platform."""
    if not isinstance(line, OutboundMessage) or line.kind == "withdrawn":
        return LineParts((), (), ())
    # Of several messages a person may read the last one only, which has the buttons.
    if line.approval is not None and line.approval.state == "open" and not fits_one_post(line, render):
        line = unshown_line(line)
    text = line.content
    files = []
    for one in line.media:
        with contextlib.suppress(BadInput):  # a newer release may name files differently
            files.append(read_reference(one))
    decided = line.approval is not None and line.approval.state != "open"
    says = () if decided else line.buttons
    if line.approval is not None and len(says) > abilities.buttons:
        says = says[:2]  # a yes for good is the one that can be left out
    buttons = tuple(Button(LABELS.get(one.partition(" ")[0], one), one) for one in says)
    if line.kind == "stopped":
        text = f"{text}\n\n{STOPPED}" if text.strip() else STOPPED
    if not abilities.media:
        text = "\n\n".join(filter(str.strip, [text, *(f"[file: {ref.name}]" for ref in files)]))
        files = []
    if len(buttons) > abilities.buttons:
        if line.approval is None:  # the text of a question names the commands that answer it
            text = "\n".join([text, "", *(f"- {button.says}" for button in buttons)])
        buttons = ()
    late_s = age_s if age_s > abilities.late_after_s else None
    pieces = _pieces(text, render, late_s=late_s) if text.strip() else ()
    return LineParts(pieces, tuple(files), buttons)


def fits_one_post(line: OutboundMessage, render: Render) -> bool:
    """Return whether a platform shows the text of a line in one message."""
    return len(render(line.content)) == 1


def _pieces(text: str, render: Render, *, late_s: float | None) -> tuple[Piece, ...]:
    """Return the pieces of a text, with a "late" note if that leaves all other pieces unchanged: a
    later try relies on the same split."""
    pieces = tuple(render(text))
    if late_s is not None:
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


def replied_to(line: LogLine) -> str | None:
    """Return the platform's id of the person's message that a line answers."""
    if not isinstance(line, OutboundMessage):
        return None
    id = line.reply_to or (line.in_reply_to[0] if line.in_reply_to else "")
    return None if not id or id.startswith(ID_PREFIX) or is_tick(id) else id


def target_of(session: str, notes: dict[str, str], abilities: Abilities) -> PostTarget:
    """Return where the messages of a session go."""
    _, chat_id = split_session(session)
    thread = None
    if abilities.threads and "#" in chat_id:
        chat_id, _, thread = chat_id.rpartition("#")
    return PostTarget(session=session, chat_id=chat_id, thread=thread, notes=notes)
