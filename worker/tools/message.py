"""Sending a message while a turn runs, to its own chat or to another chat of the same person."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from shared.errors import BadInput, ToolFailed
from shared.ids import log_id
from shared.media.disk import DISK_FULL, DiskFull
from shared.media.reference import MediaRef
from shared.media.store import MediaStore
from shared.messages.effects import SayEffect
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.store.access.audit import NO_TRAIL, Audit
from shared.tracing import current_traceparent
from worker.agent.tools.tool import Safety, ToolContext
from worker.documents.untrusted import one_line
from worker.guards.chats import ChatPolicy, ChatTarget, NotYourChat

TEXT_CHARS: Final = 16_000
BUTTONS: Final = 8
BUTTON_CHARS: Final = 40
FROM_ELSEWHERE: Final = "[Nobody wrote here: from another chat of the same person you said this]"

Label = Annotated[str, Meta(min_length=1, max_length=BUTTON_CHARS)]


class MessageArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A message, and its chat."""

    text: Annotated[str, Meta(max_length=TEXT_CHARS, description="What to say, in Markdown.")]
    chat: Annotated[
        str | None,
        Meta(description="Another chat of the same person, by its Chat ID; leave it out for this one."),
    ] = None
    media: Annotated[
        tuple[str, ...], Meta(max_length=8, description="Paths of files in the workspace to send along.")
    ] = ()
    buttons: Annotated[
        tuple[Label, ...],
        Meta(max_length=BUTTONS, description="Short answers that the person can give with one press."),
    ] = ()


class MessageTool:
    """Returns a confirmation; after a message to the turn's own chat, that the final text will not
    be sent. A message is in the log of its chat exactly once, even if the worker is lost."""

    name = "message"
    description = (
        "Say something at once, with files or buttons if wanted, in this chat or another chat of "
        "the same person. Answer ordinary questions without it: once it has spoken to this chat, "
        "your final text is not sent."
    )
    parameters = MessageArguments
    safety: Safety = "idempotent"
    timeout_s = 60.0

    def __init__(self, policy: ChatPolicy, media: MediaStore, *, files: int, audit: Audit = NO_TRAIL) -> None:
        self._policy = policy
        self._audit = audit
        self._media = media
        self._files = files

    async def run(self, arguments: MessageArguments, context: ToolContext) -> str:
        target = await self._target(arguments.chat, context)
        buttons = tuple(one_line(label, BUTTON_CHARS) for label in arguments.buttons)
        if not all(buttons):
            raise ToolFailed("a button has no label; give each a short word")
        if command := next((label for label in buttons if label.startswith("/")), ""):
            # A pressed label counts as the person's own message, so text that somebody else wrote
            # could get a command executed.
            raise ToolFailed(f"a button cannot be a command such as {command!r}; tell the person to type it")
        text = arguments.text.strip()
        if not text and not arguments.media:
            raise ToolFailed("there is nothing to say: `text` is empty and no file is sent along")
        here = target.session == context.session
        refs = await self._store_files(arguments.media, target.session, context)
        now_ms = context.clock.now_ms()
        # A message to another chat belongs to no turn there: it has turn 0 and its own history.
        line = OutboundMessage(
            content=text,
            turn=context.turn if here else 0,
            kind="notice",
            media=tuple(map(str, refs)),
            buttons=buttons,
            at=now_ms,
            sent_by_tool=True,
            traceparent=current_traceparent(),
        )
        effect = SayEffect(session=target.session, line=line)
        if not here:
            marks = (*(f"[file: {ref.name}]" for ref in refs), *(f"[button: {one}]" for one in buttons))
            sent_text = "\n".join([text, *marks]).strip()
            # A question and an answer, because some models accept only alternating roles.
            asked = UserEntry(content=FROM_ELSEWHERE, turn=0, at=now_ms)
            history = (asked, AssistantEntry(content=sent_text, turn=0, at=now_ms))
            effect = replace(effect, listed_for=target.listed_for, history=history)
        try:
            await context.effects.carry_out(effect)
        except BadInput:
            raise ToolFailed(
                f"there is no chat {arguments.chat!r}, so nothing was sent. Only chats that the "
                "person has opened can be written to; leave `chat` out to write here"
            ) from None
        if here:
            return "Sent to this chat. Your final text of this turn will not be sent: do not repeat what you said."
        return f"Sent to the chat {arguments.chat!r}. It was not shown in this chat."

    async def _target(self, chat: str | None, context: ToolContext) -> ChatTarget:
        """Return the chat that the policy allows; record requests for chats of others."""

        async def record(what: str, about: str) -> None:
            session = context.session
            turn = context.turn
            await self._audit.record("message", what, session=session, turn=turn, about=log_id(about))

        try:
            target = self._policy.resolve(context.session, chat)
        except NotYourChat:
            await record("not_your_chat", chat or "")
            raise
        if target.granted:
            await record("granted", target.session)
        return target

    async def _store_files(self, paths: tuple[str, ...], session: str, context: ToolContext) -> list[MediaRef]:
        """Store the files for their chat. The same file always gets the same reference."""
        if len(paths) > self._files:
            raise ToolFailed(f"{len(paths)} files are too many for one message; at most {self._files} are allowed")
        refs = []
        for path in paths:
            content = await context.files.content(path)
            data = content.encode() if isinstance(content, str) else content
            name = path.rsplit("/", 1)[-1]
            try:
                refs.append(await asyncio.to_thread(self._media.put, session, data, name))
            except BadInput as exc:
                raise ToolFailed(f"{path!r} cannot be sent: {exc.message}") from None
            except OSError as exc:
                fault = DISK_FULL if isinstance(exc, DiskFull) else "the store of files is away"
                raise ToolFailed(f"{path!r} cannot be sent: {fault}. Say it in words") from None
        return refs
