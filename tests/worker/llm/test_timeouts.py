"""Waiting has an end, and only waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.errors import ModelError
from shared.metrics import REGISTRY
from shared.settings import ModelSettings
from tests.helpers.wait import eventually
from worker.llm.policies.timeouts import CallTimeouts


def timeouts(first_token_s: float = 30, between_tokens_s: float = 30, total_s: float = 30) -> CallTimeouts:
    return CallTimeouts(ModelSettings(first_token_s=first_token_s, between_tokens_s=between_tokens_s, total_s=total_s))


async def silence() -> None:
    await asyncio.Event().wait()


async def word() -> str:
    return "word"


def pending() -> int:
    """How often the running task was cancelled and not forgiven."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@pytest.mark.parametrize(
    ("limits", "spoken", "says"),
    [
        ({"first_token_s": 0.02}, False, r"no first token within 0\.02 s"),
        ({"between_tokens_s": 0.02}, True, r"no further token within 0\.02 s"),
        ({"total_s": 0.02}, False, r"not done within 0\.02 s"),
        ({"total_s": 0.02}, True, r"not done within 0\.02 s"),
    ],
)
async def test_each_silence_has_its_end(limits: dict[str, Any], spoken: bool, says: str) -> None:
    """Also one that is shorter than the one before; the task goes on as if it had never been cancelled."""
    with timeouts(**limits) as limit:
        assert await limit.wait_next(word()) == "word"
        if spoken:
            limit.on_token()
        with pytest.raises(ModelError, match=says) as raised:
            await limit.wait_next(silence())
        assert (raised.value.kind, raised.value.retryable, pending()) == ("timeout", True, 0)


async def test_the_first_token_is_timed_once_for_each_call() -> None:
    """By model, so that a slow provider is seen."""

    def count() -> float:
        return REGISTRY.get_sample_value("shoal_model_first_token_seconds_count", {"model": ModelSettings().name}) or 0

    before = count()
    with timeouts() as limit:
        limit.on_token()
        limit.on_token()
    assert count() == before + 1


async def test_only_the_whole_counts_for_a_whole_answer() -> None:
    """Nobody waits for a first token of what is not streamed."""
    with timeouts(first_token_s=0.01, total_s=0.05) as limit:
        with pytest.raises(ModelError, match="not done"):
            await limit.wait_all(silence())


async def test_what_the_caller_does_meanwhile_is_its_own_time() -> None:
    """A slow reader of deltas is not cancelled; what is already there is still taken."""
    loop = asyncio.get_running_loop()
    with timeouts(first_token_s=0.01) as limit:
        await limit.wait_next(word())
        began = loop.time()
        await eventually(lambda: loop.time() > began + 0.05)
        assert await limit.wait_next(word()) == "word"
        with pytest.raises(ModelError):
            await limit.wait_next(silence())


async def test_a_cancellation_stays_one() -> None:
    """Also one that comes at the moment when the time is over."""

    async def wait() -> None:
        with timeouts(first_token_s=0.01) as limit:
            await limit.wait_next(stubborn())

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # the limit's
            task.cancel()
            raise

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_what_the_answer_raises_goes_up() -> None:
    """A TimeoutError of somebody else is theirs."""

    async def fail() -> None:
        raise TimeoutError("theirs")

    with timeouts() as limit:
        with pytest.raises(TimeoutError, match="theirs"):
            await limit.wait_next(fail())


async def test_nothing_is_left_behind() -> None:
    """A timer of a call that is over would hold it for minutes."""
    with timeouts(first_token_s=0.02) as limit:
        await limit.wait_next(word())
    done = asyncio.get_running_loop().time() + 0.05
    await eventually(lambda: asyncio.get_running_loop().time() > done)
    assert pending() == 0
