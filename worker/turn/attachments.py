"""Attachments of messages, placed where the agent can use them before its turn begins."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.errors import BadInput, ToolFailed
from shared.log import logger
from shared.media.files import MediaNotFound
from shared.media.reference import PREFIX, MediaRef, read_reference
from shared.media.store import MediaStore
from shared.messages.inbound import InboundMessage
from worker.agent.model.model import Image
from worker.agent.ports import FollowupMessage, Followups
from worker.documents.images import IMAGE_LIMIT_BYTES, MAX_IMAGES, entry_text, file_note, read_images
from worker.guards.marks import TurnMark, WorkspaceMark
from worker.guards.threads import FileThreads
from worker.guards.workspace import Workspace
from worker.turn.conversation import JoinedMessage

FOLDER: Final = "inbox"
THREADS: Final = 2

log = logger("worker")

Listen = Callable[[int, MediaRef, bytes], Awaitable[str]]
"""Returns what follows the note on a recording of a message, by its number: its text, or why there
is none."""


class Attachments:
    """Loads stored files for turns: pictures for the model, everything else into the workspace. An
    attachment never ends a turn: one that cannot be loaded becomes a note. `close()` ends its
    threads."""

    def __init__(self, store: MediaStore) -> None:
        self._store = store
        self._threads = FileThreads(THREADS)

    async def load(
        self,
        session: str,
        media: Sequence[str],
        turn: int,
        workspace: Workspace,
        listen: Listen | None = None,
    ) -> tuple[tuple[Image, ...], tuple[str, ...]]:
        """Return the pictures of a message, and a note in brackets for each other attachment, with
        the text of a recording if somebody can `listen`. A file becomes `inbox/<turn>-<name>`. One
        that an earlier attempt has written is left as is."""
        plain, notes = read_images([one for one in media if not one.startswith(PREFIX)])
        images = list(plain)
        left_out = list(notes)
        used: set[str] = set()
        for reference in media:
            if not reference.startswith(PREFIX):
                continue
            room = len(images) < MAX_IMAGES
            found = await self._load_file(session, reference, turn, workspace, used, room, listen)
            if isinstance(found, Image):
                images.append(found)
            else:
                left_out.append(found)
        return tuple(images), tuple(left_out)

    async def _load_file(
        self,
        session: str,
        reference: str,
        turn: int,
        workspace: Workspace,
        used: set[str],
        room: bool,
        listen: Listen | None,
    ) -> Image | str:
        try:
            ref = read_reference(reference)
        except BadInput:
            return "[an attachment could not be read]"
        try:
            data = await self._threads.run(lambda _: self._store.read(session, ref))
        except MediaNotFound:
            return file_note(ref, "it is not there any more")
        except (ToolFailed, OSError) as exc:
            log.warning("attachment away", error=type(exc).__name__)
            return file_note(ref, "it cannot be had just now")
        if ref.kind.is_image and room and len(data) <= IMAGE_LIMIT_BYTES:
            return Image(ref.kind.media_type, data)
        spoken = await listen(turn, ref, data) if listen and ref.kind.is_recording else ""
        path = _unused_path(f"{FOLDER}/{turn}-{_safe_name(ref)}", used)
        try:
            if path not in {entry.path for entry in await workspace.list_entries()}:
                await workspace.write_file(path, data, limit_bytes=self._store.file_bytes)
        except ToolFailed as exc:
            return file_note(ref, f"it could not be put into the workspace: {exc}") + spoken
        return file_note(ref, f"it is the file {path!r}") + spoken

    def close(self) -> None:
        self._threads.close()


@dataclass(eq=False)
class TurnAttachments:
    """The attachments of a turn's message and of those that join it (see `inner`, `joined`). They
    mark the turn, and the workspace that they are put into, by `mark`."""

    attachments: Attachments
    workspace: Workspace
    inner: Followups
    joined: dict[int, JoinedMessage]
    mark: WorkspaceMark = field(default_factory=lambda: WorkspaceMark(TurnMark()))
    listen: Listen | None = None

    @property
    def open(self) -> bool:
        """True when messages that arrive during the turn may join it."""
        return self.inner.open

    async def claim(self) -> Sequence[FollowupMessage]:
        """The messages that join the turn now, with what was sent along (see `Followups`)."""
        before = set(self.joined)
        claimed = await self.inner.claim()
        new = [number for number in self.joined if number not in before]
        # Should another task have claimed as well, numbers and messages do not match: leave them.
        if len(new) != len(claimed):
            return claimed
        await self._load_all(new)
        return [self.joined[number].followup for number in new]

    async def load_joined(self) -> None:
        """Load the attachments of messages that joined in an earlier attempt."""
        await self._load_all(list(self.joined))

    async def load_message(self, message: InboundMessage, number: int, form: FollowupMessage) -> FollowupMessage:
        """Return the form of a message that the agent gets, with its attachments loaded."""
        media = message.media
        workspace = self.workspace
        if not any(one.startswith(PREFIX) for one in media):
            return form
        self.mark.turn.add_messages([message])
        await self.mark.before_write()
        images, notes = await self.attachments.load(message.session, media, number, workspace, self.listen)
        content = entry_text(message.content, images, notes)
        entry = msgspec.structs.replace(form.entry, content=content)
        return msgspec.structs.replace(form, entry=entry, images=images)

    async def _load_all(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            one = self.joined[number]
            if one.message is not None:
                followup = await self.load_message(one.message, number, one.followup)
                self.joined[number] = JoinedMessage(one.message, followup)


def _safe_name(ref: MediaRef) -> str:
    """Return a file name that needs quotes nowhere, with the suffix of its content."""
    stem = ref.name.rpartition(".")[0] or ref.name
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:48] or "file"
    own = ref.name.rpartition(".")[2].lower() if "." in ref.name else ""
    text = ref.suffix == "txt" and re.fullmatch(r"[a-z0-9]{1,8}", own)  # a .csv or .py stays one
    return f"{plain}.{own if text else ref.suffix}"


def _unused_path(path: str, used: set[str]) -> str:
    stem, _, suffix = path.rpartition(".")
    n = 1
    while path.casefold() in used:
        n += 1
        path = f"{stem}-{n}.{suffix}"
    used.add(path.casefold())
    return path
