"""A reply whose stream breaks off goes on with the text that people read."""

from __future__ import annotations

import pytest

from tests.helpers.scripted_model import Broken
from tests.worker.agent.turns import BUSY, Turn
from worker.agent.model.ask import GO_ON
from worker.agent.model.stream import GO_ON_CHARS

BEGUN = " ".join(f"w{number}" for number in range(80))
REST = "w79 and that is all."
WHOLE = f"{BEGUN} and that is all."


async def test_the_model_is_asked_for_the_rest_alone() -> None:
    """Nothing is taken back, and the tokens of the beginning are paid once."""
    turn = Turn([Broken(BUSY, (BEGUN,)), REST])
    assert (await turn.run()).content == WHOLE
    assert turn.progress.log[:2] == [BEGUN, f"<broken at {len(BEGUN)}>"]
    assert turn.progress.visible == WHOLE
    assert "<reset>" not in turn.progress.log
    assert turn.seen(1) == [("assistant", BEGUN), ("user", GO_ON)]


async def test_a_stream_may_break_twice() -> None:
    """The second time after the text of both calls."""
    more = f"w79 {'x' * GO_ON_CHARS}"
    turn = Turn([Broken(BUSY, (BEGUN,)), Broken(BUSY, (more,)), f"{'x' * GO_ON_CHARS} at last"])
    assert (await turn.run()).content == f"{BEGUN} {'x' * GO_ON_CHARS} at last"
    assert "<reset>" not in turn.progress.log


async def test_a_model_that_begins_again_replaces_the_text() -> None:
    other = f"{BEGUN[:60]} in quite other words"
    turn = Turn([Broken(BUSY, (BEGUN,)), other])
    assert (await turn.run()).content == other
    assert turn.progress.visible == other


@pytest.mark.parametrize("begun", ["Too short.", "<think>hm</think>Too short."])
async def test_a_short_text_is_asked_for_again(begun: str) -> None:
    """The words that ask for its rest would cost more."""
    turn = Turn([Broken(BUSY, (begun,)), WHOLE])
    assert (await turn.run()).content == WHOLE
    assert turn.seen(1) == []
    assert "<reset>" in turn.progress.log


async def test_thoughts_before_the_text_stay_hidden() -> None:
    turn = Turn([Broken(BUSY, (f"<think>plan</think>{BEGUN}",)), f"<think>where was I</think>{REST}"])
    assert (await turn.run()).content == WHOLE
    assert turn.progress.visible == WHOLE
    assert turn.seen(1)[0] == ("assistant", BEGUN)


async def test_it_can_be_turned_off() -> None:
    turn = Turn([Broken(BUSY, (BEGUN,)), WHOLE])
    assert (await turn.run(continue_partial=False)).content == WHOLE
    assert turn.seen(1) == []
