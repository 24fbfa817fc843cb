"""Titles of chats: one short call of a model, whose input is marked as words of others, and which has
no tools. Whatever a text in the chat says, all that it can change is the title."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache
from importlib.resources import files
from typing import Final

from shared.errors import ModelError, RedisAway, Refused
from shared.log import logger
from shared.settings import Settings
from shared.store.fleet.spending import Spending
from shared.store.sessions.chats import Titles, UntitledChat
from worker.agent.model.model import Model, ModelRequest, TokenUsage
from worker.documents.untrusted import fence_text, strip_hidden
from worker.llm.counted import ask_counted
from worker.llm.registry import DEMO, Models
from worker.titles.title import clean_title

QUESTION_CHARS: Final = 1000
ANSWER_CHARS: Final = 500
REPLY_TOKENS: Final = 500  # far more than a title has: a model may think first
TEMPERATURE: Final = 0.3
CALL_S: Final = 60.0

log = logger("titles")


class Titler:
    """Gives chats their titles. A call is charged to its chat; one whose budget is used up today
    keeps its first words, and so does one whose model fails."""

    def __init__(self, titles: Titles, models: Models, settings: Settings, spending: Spending) -> None:
        self._titles = titles
        self._models = models
        self._preset = settings.agent.title_model
        self._budget = settings.budget
        self._spending = spending

    async def give_title(self, session: str) -> None:
        """Give a chat a title, if it is still its first words. Raises RedisAway before the model was
        asked, and nothing afterwards: a second try would cost a second call."""
        chat = await self._titles.find_untitled(session)
        if chat is None or await self._is_used_up(session):
            return
        preset = self._preset or chat.preset
        model = self._models.get(preset)
        # The demo can only repeat what it was asked.
        if model.name == DEMO or not chat.question.strip():
            await self._titles.set_title(chat, "")
            return
        limits = await self._models.limits_of(preset)
        try:
            async with asyncio.timeout(CALL_S):
                title = await self._ask(model, chat, min(REPLY_TOKENS, limits.max_tokens))
        except (ModelError, TimeoutError) as exc:
            passing = isinstance(exc, TimeoutError) or exc.retryable
            log.warning("no title", reason="TimeoutError" if isinstance(exc, TimeoutError) else exc.kind)
            if passing:
                return  # the first words stay for now
            title = ""
        with contextlib.suppress(RedisAway, Refused):
            if await self._titles.set_title(chat, title):
                log.info("chat titled", by="model" if title else "words")

    async def keep_words(self, session: str) -> None:
        """Keep the first words of a chat for good. Raises RedisAway."""
        chat = await self._titles.find_untitled(session)
        if chat is not None:
            log.error("no title", reason="crashes")
            await self._titles.set_title(chat, "")

    async def _ask(self, model: Model, chat: UntitledChat, max_tokens: int) -> str:
        text = strip_hidden(f"PERSON: {chat.question[:QUESTION_CHARS]}\n\nASSISTANT: {chat.answer[:ANSWER_CHARS]}")
        fenced = fence_text(text, tag="chat", intro="The beginning of the chat")
        messages = [{"role": "system", "content": prompt()}, {"role": "user", "content": fenced}]
        response = await ask_counted(model, ModelRequest(messages, (), max_tokens, TEMPERATURE, chat.session))
        await self._count(chat.session, response.usage)
        return clean_title(response.content or "")

    async def _count(self, session: str, usage: TokenUsage) -> None:
        with contextlib.suppress(RedisAway, Refused):  # bookkeeping must not cost the title
            await self._spending.add(session, usage.prompt_tokens + usage.completion_tokens, usage.cost_usd)

    async def _is_used_up(self, session: str) -> bool:
        """Return whether the chat has used its budget of today."""
        tokens = self._budget.tokens_per_day
        usd = self._budget.usd_per_day
        if not (tokens or usd):
            return False
        spent = await self._spending.read(session)
        return bool((tokens and spent.tokens >= tokens) or (usd and spent.usd >= usd))


@cache
def prompt() -> str:
    """Return the system text of the call."""
    return files("worker.prompts").joinpath("title.md").read_text(encoding="utf-8")
