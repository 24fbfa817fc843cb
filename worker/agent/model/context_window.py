"""The prompt of a turn: built at its start, longer with every round, compacted when too big."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from shared.errors import ModelError, ToolFailed
from shared.messages.transcript import ToolEntry, TranscriptEntry, UserEntry
from worker.agent.hook import Iteration
from worker.agent.limits import Budget, Meter, estimate_tokens
from worker.agent.model.model import Image, ToolSpec, image_part
from worker.agent.model.prompt import Message, build_messages, clean, followup_message, step_message
from worker.agent.ports import FollowupMessage, Journal, Pictures
from worker.agent.turn import AgentRunSpec

TURN_PICTURES: Final = 4  # the most pictures of files that are shown in one turn
MARK: Final = "[Pictures of files that your tools looked at; nobody wrote this]"
REFUSED: Final = "they cannot be shown: this model takes no pictures, or not these"
_PATH_CHARS: Final = 200


class TurnPictures:
    """Pictures of files that tools opened: shown to the model during the turn, not kept in history.
    `placeholder` reserves a message, `load` fills reserved ones. A successor of the turn loads them
    again. Many providers accept pictures only in messages of the user, so the pictures of all tools
    of one reply share one such message after the results."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._left = TURN_PICTURES
        self._pending: list[tuple[Message, Sequence[str]]] = []

    def placeholder(self, paths: Sequence[str]) -> Message:
        """Return the message that will contain these pictures."""
        message: Message = {"role": "user", "content": MARK}
        self._pending.append((message, paths))
        return message

    async def load(self) -> None:
        """Load the pictures of all placeholders, or say why one cannot be shown."""
        pending = self._pending
        self._pending = []
        for message, paths in pending:
            parts = []
            notes = []
            for path in paths:
                loaded = await self._load_picture(path)
                note = repr(path if len(path) <= _PATH_CHARS else f"{path[:_PATH_CHARS]}…")
                if isinstance(loaded, Image):
                    parts.append(image_part(loaded))
                else:
                    note += f" ({loaded})"
                notes.append(note)
            text = f"{MARK}\n{', '.join(notes)}"
            # The message is changed in place: it already stands in the prompt.
            message["content"] = [*parts, {"type": "text", "text": text}] if parts else text

    def remove_from(self, messages: Iterable[Message]) -> list[Message]:
        """Return the messages without pictures, also those of people. No more are shown in this turn."""
        self._left = 0
        return [_without_pictures(message) for message in messages]

    async def _load_picture(self, path: str) -> Image | str:
        """Return a picture, or the reason why it is not shown."""
        if self._left <= 0:
            return f"not shown: {TURN_PICTURES} pictures of files are shown in one turn; say what you have seen first"
        try:
            image = await self._pictures.picture(path)
        except ToolFailed as exc:
            return f"not shown: {exc}"
        self._left -= 1
        return image


def _without_pictures(message: Message) -> Message:
    content = message["content"]
    if not isinstance(content, list):
        return message
    texts = [part["text"] for part in content if part.get("type") == "text"]
    pictures = sum(part.get("type") == "image_url" for part in content)
    if not pictures:
        return message
    if texts and texts[-1].startswith(MARK):
        return {**message, "content": f"{texts[-1]}: {REFUSED}"}
    return {**message, "content": "\n\n".join([f"[{pictures} of the person's pictures: {REFUSED}]", *texts])}


AIM: Final = 0.75  # share of its limit that a compacted prompt aims at, to last some rounds


class ContextWindow:
    """The messages that the model sees in one turn."""

    def __init__(self, spec: AgentRunSpec, tools: Sequence[ToolSpec], journal: Journal, meter: Meter) -> None:
        self.messages: list[Message] = build_messages(spec, spec.clock.now_ms())
        self._task = self.messages[-1]
        self._spec = spec
        self._joined = {joined.entry: joined for joined in spec.joined.values()}
        self._pictures = TurnPictures(spec.pictures)
        self._tools = tools
        self._journal = journal
        self._meter = meter
        self._budget = Budget(spec.context_tokens, spec.max_tokens, compact_at=spec.compact_at)

    def add(self, entries: Iterable[TranscriptEntry]) -> None:
        """Append entries. Pictures that tools opened follow all results of a reply."""
        paths: list[str] = []
        for entry in entries:
            if isinstance(entry, ToolEntry):
                paths.extend(entry.images)
            elif paths:
                self.messages.append(self._pictures.placeholder(paths))
                paths = []
            if isinstance(entry, UserEntry):
                self.add_followups([self._joined.get(entry) or FollowupMessage(entry)])
            else:
                self.messages.append(step_message(entry))
        if paths:
            self.messages.append(self._pictures.placeholder(paths))

    def add_followups(self, messages: Iterable[FollowupMessage]) -> None:
        self.messages.extend(clean(followup_message(message)) for message in messages)

    async def begin(self, round_: int) -> None:
        """Load pictures, let hooks change the messages, and compact a prompt over its budget."""
        await self._pictures.load()
        context = Iteration(self._spec.session, self._spec.turn, round_, self.messages)
        await self._spec.hook.before_iteration(context)
        if self._spec.hook.changes_messages:  # messages made here are clean already
            self.messages = [clean(message) for message in context.messages]
        limit = self._budget.prompt_tokens
        if self._budget.context_tokens and self._tokens() > limit:
            await self._shrink(int(limit * AIM))

    async def repair(self, refusal: ModelError) -> bool:
        """Change the prompt so that the model may accept it now. Return whether it changed."""
        if refusal.kind == "context_length":
            tokens = self._tokens()
            await self._shrink(tokens // 2)
            return self._tokens() < tokens
        if refusal.kind != "bad_request":
            return False
        # A model may refuse any picture, or one that is too big for it, with no kind of error of its own:
        # the turn goes on without those of its tools and of the person.
        before = self.messages
        self.messages = self._pictures.remove_from(before)
        return self.messages != before

    def _tokens(self) -> int:
        return estimate_tokens(self.messages) + self._tools_tokens

    @cached_property
    def _tools_tokens(self) -> int:
        return estimate_tokens((), self._tools)

    async def _shrink(self, aim_tokens: int) -> None:
        if self._spec.compact is None:
            return
        await self._journal.checkpoint()  # compaction is a model call too
        aim_tokens = max(0, aim_tokens - self._tools_tokens)
        keep = self._spec.compact_keep
        try:
            smaller = await self._spec.compact(self.messages, task=self._task, keep=keep, aim_tokens=aim_tokens)
        except asyncio.CancelledError:
            self._meter.add_estimate(self.messages)
            raise
        self.messages = [clean(message) for message in smaller.messages]
        if smaller.usage is not None:
            await self._meter.add(smaller.usage)
