"""How long a model may take, counted token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from shared.errors import ModelError
from shared.settings import ModelSettings

T = TypeVar("T")


class Patience:
    """How long one call may stay silent, and how long it may take in all. Its time runs from when it is made.

    What is awaited through it is cancelled when its time is over, and ModelError("timeout") is raised.
    """

    def __init__(self, settings: ModelSettings) -> None:
        now = asyncio.get_running_loop().time()
        self._between_s = settings.between_tokens_s
        self._all_by = now + settings.total_s
        self._next_by = now + settings.first_token_s
        self._silence = f"no first token within {settings.first_token_s:g} s"
        self._total = f"not done within {settings.total_s:g} s"

    def heard(self) -> None:
        """A token came; the next one has its own time."""
        self._next_by = asyncio.get_running_loop().time() + self._between_s
        self._silence = f"no further token within {self._between_s:g} s"

    async def for_next(self, answer: Awaitable[T]) -> T:
        return await self._until(min(self._next_by, self._all_by), answer)

    async def for_all(self, answer: Awaitable[T]) -> T:
        return await self._until(self._all_by, answer)

    async def _until(self, deadline: float, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            text = self._total if deadline == self._all_by else self._silence
            raise ModelError("timeout", f"the model was given up: {text}", retryable=True) from None
