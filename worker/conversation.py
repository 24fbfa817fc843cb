"""What a leased turn is about, read from its records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shared.errors import BadRecord, ShoalError
from shared.log import logger
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.transcript import LedgerEntry, TranscriptEntry, UserEntry, decode_ledger, decode_transcript
from shared.store.queue import Claim, TurnWork
from worker.agent.image import Image
from worker.images import entry_text, read_images

log = logger("turns")


class Conversation(msgspec.Struct, frozen=True):
    """What the agent gets: the message, also as an entry of the transcript, the conversation before it, and the steps
    that an earlier attempt made."""

    claim: Claim
    message: InboundMessage
    entry: UserEntry
    history: tuple[TranscriptEntry, ...]
    resume: tuple[LedgerEntry, ...]
    images: tuple[Image, ...] = ()

    @property
    def session(self) -> str:
        return self.claim.session

    @property
    def work(self) -> TurnWork:
        """The rest of what the store handed over: memory, preset, counts."""
        assert self.claim.turn is not None
        return self.claim.turn


class NewerLedger(ShoalError):
    """The turn was begun by a newer release, which wrote a step that this one does not know: that one must go on."""


def read_conversation(claim: Claim) -> Conversation:
    """Raises BadRecord or BadInput for a message that cannot be answered by anybody, NewerLedger."""
    work = claim.turn
    assert work is not None
    message = decode_inbound(work.record)
    if message.session != claim.session:
        raise BadRecord("record_misplaced", f"a message of another session lies in {claim.member!r}")
    images, notes = read_images(message.media)
    return Conversation(
        claim,
        message,
        UserEntry(
            content=entry_text(message.content, images, notes),
            turn=work.n,
            at=message.timestamp,
            sender_id=message.sender_id,
        ),
        tuple(_readable(work.history)),
        tuple(map(_step, work.ledger)),
        images,
    )


def _step(record: bytes) -> LedgerEntry:
    try:
        return decode_ledger(record)
    except BadRecord as exc:
        raise NewerLedger(f"a step of the ledger cannot be read: {exc.code}") from None


def _readable(history: Sequence[bytes]) -> Iterator[TranscriptEntry]:
    """The entries that this release can read: one of a newer release must not silence a chat."""
    for entry in history:
        try:
            yield decode_transcript(entry)
        except BadRecord as exc:
            log.warning("history entry skipped", code=exc.code)
