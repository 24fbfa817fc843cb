"""Time limits of a model call, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from shared.errors import ModelError
from shared.metrics import MODEL_FIRST_TOKEN_SECONDS
from shared.settings import ModelSettings

T = TypeVar("T")


class CallTimeouts:
    """The time limits of one call: until its first token, between tokens, and in all. They run from
    construction. Use `with CallTimeouts(settings) as timeouts:` in the task that makes the call. An
    awaitable that is awaited through it is cancelled when its time is over, and
    ModelError("timeout") is raised. One timer serves all waits, and is only moved when it fires too
    early: a timer for each token would cost a fifth of the token's own cost."""

    def __init__(self, settings: ModelSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self._model = settings.name
        self._began = now = self._loop.time()
        self._first_s = settings.first_token_s
        self._between_s = settings.between_tokens_s
        self._total_s = settings.total_s
        self._all_by = now + settings.total_s
        self._next_by = now + settings.first_token_s
        self._speaking = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._by = 0.0
        self._waiting: asyncio.Task[object] | None = None
        self._expired = False

    def __enter__(self) -> CallTimeouts:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_token(self) -> None:
        now = self._loop.time()
        self._next_by = now + self._between_s
        if not self._speaking:
            self._speaking = True
            MODEL_FIRST_TOKEN_SECONDS.labels(self._model).observe(now - self._began)

    async def wait_next(self, answer: Awaitable[T]) -> T:
        return await self._until(min(self._next_by, self._all_by), answer)

    async def wait_all(self, answer: Awaitable[T]) -> T:
        return await self._until(self._all_by, answer)

    async def _until(self, by: float, answer: Awaitable[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        self._by = by
        self._set_timer()
        self._waiting = task
        try:
            return await answer
        except asyncio.CancelledError:
            # Our timer and somebody else may cancel the task in the same moment. It is a timeout
            # only if ours is the only cancellation; otherwise the task must end as cancelled.
            if self._expired and task.cancelling() - 1 <= cancels:
                text = f"the model was given up: {self._reason()}"
                raise ModelError("timeout", text, retryable=True) from None
            raise
        finally:
            self._waiting = None
            if self._expired:
                self._expired = False
                task.uncancel()  # of our own cancellation, or the caller's next await would end

    def _set_timer(self) -> None:
        if self._timer is not None:
            if self._timer_at <= self._by:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._by, self._on_timer)
        self._timer_at = self._by

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiting is None:  # the caller handles a token; its next wait sets the timer
            return
        if self._loop.time() < self._by:
            self._set_timer()
            return
        self._expired = True
        self._waiting.cancel()

    def _reason(self) -> str:
        if self._by == self._all_by:
            return f"not done within {self._total_s:g} s"
        if self._speaking:
            return f"no further token within {self._between_s:g} s"
        return f"no first token within {self._first_s:g} s"
