"""Conversations become memory, piece by piece. What no model can sum up stays raw."""

from __future__ import annotations

import contextlib
import random
from functools import cache, partial
from importlib.resources import files
from typing import Final, TypedDict

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadInput, ModelError, RedisAway, Refused, SettingsError
from shared.ids import split_session
from shared.log import logger
from shared.messages.schedule import CronPlan
from shared.metrics import CONSOLIDATIONS
from shared.settings import MemorySettings
from shared.store.fleet.spending import Spending
from shared.store.schedules.times import check_plan, next_tick
from shared.store.sessions.memory import (
    MemoryChanged,
    MemoryStore,
    MemoryText,
    Source,
    Unconsolidated,
    about_scope,
    soul_scope,
)
from worker.agent.limits import CHARS_PER_TOKEN
from worker.agent.model.model import Model, TokenUsage
from worker.memory.lines import middle_out, stamp
from worker.memory.pieces import ConversationPiece, cut_point, next_piece, read_entries, unread_piece
from worker.memory.saving import CONSOLIDATE, REWORK
from worker.memory.scribe import MemoryWriter, UnusableReply

PIECE_CHARS: Final = 48_000
PIECE_LEAST_CHARS: Final = 4_000
RAW_CHARS: Final = 16_000
SWAPS: Final = 4  # attempts while MEMORY.md keeps changing; then the job returns later
SPREAD_MS: Final = 600_000
_TOO_OFTEN: Final = f"MEMORY.md was changed {SWAPS} times in the meantime; try again later"

log = logger("memory")


class ReworkDue(TypedDict, total=False):
    """When a memory that changes now is rewritten: arguments of `MemoryStore.consolidate`."""

    rework_ms: int
    rework_entries: int


class Consolidator:
    """Consolidates sessions, and rewrites MEMORY.md from their accounts.

    `context_tokens` is the model's limit (0: unknown); `timezone` an IANA name. With `spending`,
    each call is charged to its chat on the day of the call; a budget never refuses it. With
    `own_files` the agent has a SOUL.md and USER.md, which `rework` rewrites, too. Every method
    raises RedisAway, MemoryChanged if MEMORY.md changes faster than it can be written, and
    ModelError if a later try may succeed; a repeated call continues where the last one stopped.
    With `patient=False` it does not wait for a later try: text that the model cannot sum up now is
    kept raw. With `unread=True` (workers died of this conversation) the first piece is kept raw
    without being decoded, before anything else.
    """

    def __init__(
        self,
        memory: MemoryStore,
        model: Model,
        settings: MemorySettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        timezone: str = "UTC",
        max_tokens: int = 4096,
        context_tokens: int = 0,
        spending: Spending | None = None,
        own_files: bool = False,
    ) -> None:
        self.settings = settings
        self._memory = memory
        self._clock = clock
        self._timezone = timezone
        self._spending = spending
        self._chars = _room(context_tokens, max_tokens, settings.file_bytes)
        self._own_files = own_files
        self._scribe = MemoryWriter(model, limit_bytes=settings.file_bytes, max_tokens=max_tokens)

    async def consolidate(self, session: str, keep: int, *, patient: bool = True, unread: bool = False) -> None:
        """Bring all but about the newest `keep` entries of a conversation into memory, after what
        is older: the archive, so that HISTORY.md and the transcript are in order."""
        if (await self._memory.count_unconsolidated(session)).archive:
            await self.archive(session, patient=patient, unread=unread)
        await self._bring_in(session, "history", keep, patient, unread)

    async def archive(self, session: str, *, patient: bool = True, unread: bool = False) -> None:
        """Bring a conversation that `/new` ended, or what was over the cap of one, into memory,
        until nothing of it is left."""
        await self._bring_in(session, "archive", 0, patient, unread)

    async def _bring_in(self, session: str, source: Source, keep: int, patient: bool, unread: bool) -> None:
        read = await self._memory.read_unconsolidated(session, source)
        piece = unread_piece(read.entries, read.total, keep, RAW_CHARS) if unread else None
        if piece is not None:
            CONSOLIDATIONS.labels(await self._keep_raw(session, read, piece)).inc()
            log.error("conversation kept raw", error="crashes", entries=piece.take)
            read = await self._memory.read_unconsolidated(session, source)
        while take := cut_point(read_entries(read.entries), read.total, keep):
            whole = read.total == len(read.entries)
            read = await self._advance(session, read, read.mark + take, patient)
            if whole and source == "history":
                break

    async def rework(self, scope: str, *, patient: bool = True) -> bool:
        """Rewrite the MEMORY.md of a scope from itself and its HISTORY.md, and then the agent's own
        files that it feeds: the SOUL.md of a chat with a memory of its own, the USER.md of the
        person whose memory it is, or who alone writes in its chat. Return whether MEMORY.md
        changed. If the model cannot do it, a file stays. A chat that owns the memory is charged."""
        changed = await self._rewrite(scope, scope, "rework", patient)
        if self._own_files:
            for own in await self._own_files_of(scope):
                await self._rewrite(own, scope, own.partition(":")[0], patient)
        return changed

    async def _own_files_of(self, scope: str) -> list[str]:
        """Return the scopes of the agent's own files that a memory feeds; none for one of all
        chats."""
        of, _, name = scope.partition(":")
        if of == "user":
            return [f"about:{name}"]
        if of != "chat":
            return []
        person = await self._memory.transcripts.find_person(name)
        return [soul_scope(name), *([about_scope(split_session(name)[0], person)] if person else [])]

    async def _rewrite(self, scope: str, source: str, task: str, patient: bool) -> bool:
        """Rewrite the file of `scope` from itself and the HISTORY.md of `source`. Return whether it
        changed; a file of the agent's own that it never wrote stays unwritten."""
        of, _, session = source.partition(":")
        count = partial(self._count, session) if of == "chat" else None
        for _ in range(SWAPS):
            old = await self._memory.read_memory(scope)
            history = "\n\n".join(await self._memory.read_log(source))
            if not history or (scope != source and not await self._may_feed(source, old)):
                return False
            text = f"{_notes(old.text)}\n\n<history>\n{history[-self._chars :]}\n</history>"
            try:
                saved = await self._scribe.ask(prompt(task), text, REWORK, old=old.text, count=count, session=session)
            except (UnusableReply, ModelError) as exc:
                if patient and _may_pass(exc):
                    raise
                log.warning("rework given up", error=exc.kind)
                return False
            if saved.memory is None:
                return False
            try:
                await self._memory.write_memory(scope, saved.memory, version=old.version)
            except MemoryChanged:
                continue
            return True
        raise MemoryChanged(_TOO_OFTEN)

    async def _may_feed(self, source: str, old: MemoryText) -> bool:
        """Return whether a file of the agent's own is rewritten from a memory. What strangers wrote
        must not get into it, and a summary of that is theirs, too. Asked once the memory was read:
        its mark is never younger than its text."""
        return bool(old.text.strip()) and not (await self._memory.read_memory(source)).sources

    async def _advance(self, session: str, read: Unconsolidated, goal: int, patient: bool) -> Unconsolidated:
        """Consolidate up to the mark `goal`, in pieces. Return the conversation as it is then.

        Another worker may do the same at the same time; the first one to write a piece has done it.
        """
        raw_until, chars = 0, self._chars  # up to the mark `raw_until` everything is kept raw
        while read.entries and read.mark < goal:
            entries = read_entries(read.entries)[: goal - read.mark]
            raw = read.mark < raw_until
            piece = next_piece(entries, RAW_CHARS if raw else chars, self._timezone)
            if raw:
                outcome = await self._keep_raw(session, read, piece)
            else:
                try:
                    outcome = await self._summarise(session, read, piece)
                except (UnusableReply, ModelError) as exc:
                    if exc.kind == "context_length" and chars > PIECE_LEAST_CHARS:
                        # The estimate was too low for this text: try again with half of it.
                        chars //= 2
                        continue
                    if patient and _may_pass(exc):
                        CONSOLIDATIONS.labels("put_off").inc()
                        raise
                    log.warning("conversation kept raw", error=exc.kind, entries=piece.take)
                    raw_until = read.mark + piece.take
                    continue
            CONSOLIDATIONS.labels(outcome).inc()
            source = read.source
            take = piece.take
            log.info("conversation consolidated", outcome=outcome, source=source, entries=take)
            read = await self._memory.read_unconsolidated(session, read.source)
        return read

    async def _summarise(self, session: str, read: Unconsolidated, piece: ConversationPiece) -> str:
        """Bring one piece into memory through the model, and return the outcome."""
        for _ in range(SWAPS):
            old = await self._memory.read_memory(read.scope)
            text = f"{_notes(old.text)}\n\n<conversation>\n{piece.text}\n</conversation>"
            count = partial(self._count, session)
            at = self._stamp(piece)
            saved = await self._scribe.ask(
                prompt("consolidate"), text, CONSOLIDATE, old=old.text, stamp=at, count=count, session=session
            )
            new = None if saved.memory is None else MemoryText(saved.memory, old.version)
            try:
                done = await self._memory.consolidate(
                    session, read, take=piece.take, entry=saved.entry, memory=new, **self._rework_due()
                )
            except MemoryChanged:
                continue
            if not done:
                return "gone"
            return "refused" if saved.refused else "entry" if new is None else "memory"
        raise MemoryChanged(_TOO_OFTEN)

    async def _count(self, session: str, usage: TokenUsage) -> None:
        tokens = usage.prompt_tokens + usage.completion_tokens
        if self._spending is not None:
            with contextlib.suppress(RedisAway, Refused):  # bookkeeping must not end a job
                await self._spending.add(session, tokens, usage.cost_usd)

    async def _keep_raw(self, session: str, read: Unconsolidated, piece: ConversationPiece) -> str:
        entry = f"[{self._stamp(piece)}] [RAW] {middle_out(piece.text, RAW_CHARS)}"
        done = await self._memory.consolidate(session, read, take=piece.take, entry=entry, **self._rework_due())
        return "raw" if done else "gone"

    def _rework_due(self) -> ReworkDue:
        """Return in how many ms a memory that changes now is rewritten (0: never), and from how
        many entries of HISTORY.md on."""
        settings = self.settings
        if settings.rework_h > 0 or not settings.dream:
            return {"rework_ms": int(settings.rework_h * 3_600_000)}
        now_ms = self._clock.now_ms()
        at_ms = next_tick(CronPlan(settings.dream, self._timezone), now_ms) or now_ms
        # Spread out: the whole fleet dreams at the same time.
        return {"rework_ms": at_ms - now_ms + random.randrange(1, SPREAD_MS), "rework_entries": settings.dream_entries}

    def _stamp(self, piece: ConversationPiece) -> str:
        return stamp(piece.last_ms or self._clock.now_ms(), self._timezone)


def check_dream(settings: MemorySettings, timezone: str) -> None:
    """Raise SettingsError if `memory.dream` is no cron expression, or comes more than once an
    hour."""
    if settings.dream:
        try:
            check_plan(CronPlan(settings.dream, timezone), now_ms=SYSTEM_CLOCK.now_ms(), min_every_s=3600)
        except BadInput as exc:
            raise SettingsError(f"memory.dream is {settings.dream!r}: {exc.message}") from exc


@cache
def prompt(name: str) -> str:
    """Return the system text of a job, from `worker/prompts/<name>.md`."""
    return files("worker.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8")


def _notes(text: str) -> str:
    return f"<memory>\n{text.strip() or '(nothing yet)'}\n</memory>"


def _room(context_tokens: int, max_tokens: int, file_bytes: int) -> int:
    """Return how many characters of a conversation fit into one call: half of what MEMORY.md and
    the reply leave, because an estimate by characters is too low for many languages."""
    if context_tokens <= 0:
        return PIECE_CHARS
    room = (context_tokens - max_tokens) * CHARS_PER_TOKEN - file_bytes
    return min(PIECE_CHARS, max(PIECE_LEAST_CHARS, room // 2))


def _may_pass(exc: UnusableReply | ModelError) -> bool:
    """Return whether the service is at fault, not the text. Keys are replaced, accounts
    refilled."""
    return isinstance(exc, ModelError) and (exc.retryable or exc.kind in ("auth", "billing"))
