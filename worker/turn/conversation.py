"""A leased turn, decoded from its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.chatlog.live_text import LiveText
from shared.errors import BadRecord, ShoalError
from shared.log import logger
from shared.messages.inbound import SYSTEM, InboundMessage, decode_inbound
from shared.messages.live import Takeover, decode_deltas
from shared.messages.subagent import is_report
from shared.messages.transcript import (
    LedgerEntry,
    TranscriptEntry,
    UserEntry,
    decode_ledger,
    decode_transcript,
)
from shared.store.turns.queue import Claim, TurnWork
from worker.agent.ports import FollowupMessage
from worker.documents.images import entry_text, read_images

UNREADABLE: Final = "[A message that cannot be read. Say so, and ask for it again.]"

log = logger("turns")


class JoinedMessage(msgspec.Struct, frozen=True):
    """A message that joined a turn, and its form for the model. `message` is None if unreadable."""

    message: InboundMessage | None
    followup: FollowupMessage


class ShownBy(msgspec.Struct, frozen=True):
    """The worker that wrote the text on screens, when it last did (ms), and which died before
    it."""

    worker: str = ""
    at_ms: int = 0
    takeovers: tuple[Takeover, ...] = ()


NOBODY: Final = ShownBy()


class Conversation(msgspec.Struct, frozen=True):
    """The input of the agent: the message as received and as the model gets it (`opening`), the
    conversation before it, and the steps of earlier attempts."""

    claim: Claim
    message: InboundMessage
    opening: FollowupMessage
    history: tuple[TranscriptEntry, ...]
    resume: tuple[LedgerEntry, ...]
    joined: dict[int, JoinedMessage] = {}
    """The messages that joined the turn, by number, in order. The journal adds later ones."""

    shown: str = ""
    """The text of an earlier attempt that stands on screens."""

    begun: str = ""
    """The same, unless it belongs to a reply that is in the ledger."""

    shown_by: ShownBy = NOBODY
    """Who wrote the last of it."""

    @property
    def session(self) -> str:
        return self.claim.session

    @property
    def entry(self) -> UserEntry:
        return self.opening.entry

    @property
    def messages(self) -> tuple[InboundMessage, ...]:
        """The messages that the turn answers, without unreadable ones."""
        joined = self.joined.values()
        return (self.message, *[one.message for one in joined if one.message is not None])

    @property
    def entries(self) -> tuple[UserEntry, ...]:
        """The messages that the turn answers, as entries of history."""
        return (self.entry, *[one.followup.entry for one in self.joined.values()])

    @property
    def work(self) -> TurnWork:
        """The rest of the claim: memory, preset, counters."""
        assert self.claim.turn is not None
        return self.claim.turn


class NewerLedger(ShoalError):
    """A newer release began the turn with a step that we cannot read, and must resume it."""


def read_conversation(claim: Claim) -> Conversation:
    """Decode a turn. Raises NewerLedger, and BadRecord or BadInput if no worker can answer it."""
    work = claim.turn
    assert work is not None
    message = _resolve_origin(decode_inbound(work.record))
    if message.session != claim.session:
        problem = f"a message of another session lies in {claim.member!r}"
        raise BadRecord("record_misplaced", problem)
    live = LiveText()
    step = 0
    shown_by = NOBODY
    for delta in decode_deltas(work.shown):
        if delta.turn == work.n and live.add(delta):
            step = delta.step
            worker, died = (delta.worker, delta.takeovers) if delta.full else (shown_by.worker, shown_by.takeovers)
            shown_by = ShownBy(worker, delta.at, died)
    return Conversation(
        claim,
        message,
        _model_form(message, work.n),
        (*message.history, *_decode_history(work.history)),
        tuple(map(_decode_step, work.ledger)),
        {number: read_joined(claim, number, record) for number, record in work.joined},
        live.text,
        live.text if step == len(work.ledger) else "",
        shown_by,
    )


def read_joined(claim: Claim, number: int, record: bytes) -> JoinedMessage:
    """Decode a message that joined the turn. An unreadable one becomes a note for the model."""
    assert claim.turn is not None
    try:
        message = _resolve_origin(decode_inbound(record))
    except BadRecord as exc:
        log.error("record refused", code=exc.code, number=number)
        note = UserEntry(content=UNREADABLE, turn=claim.turn.n)
        return JoinedMessage(None, FollowupMessage(note))
    return JoinedMessage(message, _model_form(message, claim.turn.n))


def _model_form(message: InboundMessage, turn: int) -> FollowupMessage:
    images, notes = read_images(message.media)
    content = entry_text(message.content, images, notes)
    sender = message.sender_id
    entry = UserEntry(content=content, turn=turn, at=message.timestamp, sender_id=sender)
    if message.metadata.get("group") != "1":
        return FollowupMessage(entry, images)
    return FollowupMessage(entry, images, message.metadata.get("sender_name", ""), sender)


def _resolve_origin(message: InboundMessage) -> InboundMessage:
    """Return the message as one of the chat that it is for. Channel `system` has only reports of
    subagents, written by the script that ends one; they name that chat. Raises BadRecord for any
    other message of that channel."""
    if message.channel != SYSTEM:
        return message
    if not is_report(message):
        raise BadRecord("record_forged", "a message of the system that is not a subagent's report")
    channel, chat_id = message.origin
    return msgspec.structs.replace(message, channel=channel, chat_id=chat_id)


def _decode_step(record: bytes) -> LedgerEntry:
    try:
        return decode_ledger(record)
    except BadRecord as exc:
        raise NewerLedger(f"a step of the ledger cannot be read: {exc.code}") from None


def _decode_history(history: Sequence[bytes]) -> list[TranscriptEntry]:
    """Decode what this release can read: an entry of a newer one must not silence a chat."""
    try:
        return decode_transcript.every(history)
    except BadRecord:
        entries: list[TranscriptEntry] = []
        for record in history:
            try:
                entries.append(decode_transcript(record))
            except BadRecord as exc:
                log.warning("history entry skipped", code=exc.code)
        return entries
