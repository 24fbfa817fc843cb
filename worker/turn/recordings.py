"""Recordings of people, written down once: the text is a step of the turn's ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.clock import SYSTEM_CLOCK
from shared.errors import ModelError
from shared.ids import log_id
from shared.log import logger
from shared.media.reference import MediaRef
from shared.messages.effects import SayEffect
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import TRANSCRIBED, EffectEntry
from worker.turn.journal import TurnJournal

if TYPE_CHECKING:
    from worker.llm.clients.voice_client import VoiceClient

log = logger("worker")


@dataclass(frozen=True)
class Recordings:
    """Gives the text of a turn's recordings. With `show` the text goes to the chat in the step that
    stores it, so that people see what was understood; a worker that takes over finds both done."""

    voice: VoiceClient
    journal: TurnJournal
    show: bool

    async def __call__(self, number: int, ref: MediaRef, data: bytes) -> str:
        """Return what follows the note on a recording of message `number`. A recording that cannot
        be written down ends no turn: the agent is told so, and can tell the person."""
        id = f"{TRANSCRIBED}-{number}-{ref.file}"
        steps = (entry for entry in self.journal.entries if isinstance(entry, EffectEntry))
        text = next((one.text for one in steps if (one.kind, one.call_id) == (TRANSCRIBED, id)), None)
        if text is None:
            try:
                text = await self.voice.transcribe(ref, data)
            except ModelError as exc:
                log.warning(
                    "recording not transcribed", kind=exc.kind, session=log_id(self.journal.lease.claim.session)
                )
                return "\n[what it says could not be written down; tell the person, who may write it instead]"
            await self._store(id, text)
        return f"\n[it says:]\n{text}" if text else "\n[nothing is said in it]"

    async def _store(self, id: str, text: str) -> None:
        claim = self.journal.lease.claim
        now_ms = SYSTEM_CLOCK.now_ms()
        assert claim.turn is not None
        turn = claim.turn.n
        entry = EffectEntry(call_id=id, turn=turn, kind=TRANSCRIBED, to=claim.session, at=now_ms, text=text)
        effect = None
        if self.show and text:
            line = OutboundMessage(
                content=f"You said: \N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}",
                turn=turn,
                kind="notice",
                at=now_ms,
            )
            effect = SayEffect(session=claim.session, line=line)
        await self.journal.append(entry, effect)
