"""Messages that join a turn, as the loop treats them: where they stand, what is shown, what history keeps."""

from __future__ import annotations

import msgspec
import pytest

from shared.errors import TurnStopped
from shared.messages.transcript import (
    AssistantEntry,
    JoinEntry,
    LedgerEntry,
    ToolCall,
    ToolEntry,
    TranscriptEntry,
    UserEntry,
)
from tests.helpers.scripted_model import call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import SPEC, Turn
from worker.agent.history import saved_history
from worker.agent.model.model import Image
from worker.agent.ports import FollowupMessage


def followup(text: str, **more: str) -> FollowupMessage:
    return FollowupMessage(UserEntry(content=text, turn=7), **more)  # type: ignore[arg-type]


def contents(entries: tuple[TranscriptEntry, ...]) -> list[str | None]:
    return [entry.content for entry in entries]


async def test_a_follow_up_stands_behind_the_tools_it_came_during() -> None:
    """The model sees it there; history has what was said first, then the steps, then one answer."""
    turn = Turn([calls(call("look")), "done"], RecordingTool("look"))
    turn.journal.coming = [(), (followup("and this"),)]
    result = await turn.run(followups=turn.journal)
    assert turn.seen(1)[1:] == [("tool", "look says "), ("user", "and this")]
    assert contents(result.entries) == ["question", "and this", None, "look says ", "done"]


async def test_an_answer_with_a_follow_up_behind_it_goes_on_and_stays_in_view() -> None:
    """It is part of the reply, and history has one answer."""
    turn = Turn(["first answer", "second answer"])
    turn.journal.coming = [(), (followup("more"),)]
    result = await turn.run(followups=turn.journal)
    assert result.content == turn.progress.visible == "first answer\n\nsecond answer"
    assert turn.seen(1) == [("assistant", "first answer"), ("user", "more")]
    assert contents(result.entries) == ["question", "more", "first answer\n\nsecond answer"]


async def test_nothing_is_asked_for_behind_the_last_round() -> None:
    """People who keep typing cannot keep a turn for ever."""
    turn = Turn(["first", "second"], spec=msgspec.structs.replace(SPEC, max_rounds=2))
    turn.journal.coming = [(), (followup("a"),), (), (followup("b"),)]
    result = await turn.run(followups=turn.journal)
    assert result.content == "first\n\nsecond"
    assert len(turn.model.asked) == 2


@pytest.mark.parametrize("stored", [False, True], ids=["before the second call", "with the second answer stored"])
async def test_a_successor_goes_on_with_the_same_messages_at_the_same_place(stored: bool) -> None:
    """Whatever the ledger shows; no finished call is made again."""
    ledger: list[LedgerEntry] = [
        AssistantEntry(content=None, turn=7, tool_calls=(ToolCall("c", "look", "{}"),)),
        ToolEntry(call_id="c", name="look", content="seen", turn=7),
        JoinEntry(turn=7, messages=(8,)),
        AssistantEntry(content="first", turn=7),
        JoinEntry(turn=7, messages=(9,)),
    ]
    ledger += [AssistantEntry(content="second", turn=7)] if stored else []
    spec = msgspec.structs.replace(SPEC, resume=tuple(ledger), joined={8: followup("b"), 9: followup("c")})
    turn = Turn([] if stored else ["second"], RecordingTool("look"), spec=spec)
    result = await turn.run(followups=turn.journal)
    if not stored:
        assert turn.seen(0) == [
            ("assistant", None),
            ("tool", "seen"),
            ("user", "b"),
            ("assistant", "first"),
            ("user", "c"),
        ]
    assert result.content == "first\n\nsecond"
    assert contents(result.entries) == ["question", "b", "c", None, "seen", "first\n\nsecond"]


async def test_a_follow_up_has_its_images_and_in_groups_its_sender() -> None:
    """Also when a successor reads it from the ledger."""
    image = Image("image/png", b"hi")
    one = FollowupMessage(UserEntry(content="look", turn=7), (image,), "Ann", "u1")
    for resumed in (False, True):
        spec = msgspec.structs.replace(SPEC, resume=(JoinEntry(turn=7, messages=(8,)),), joined={8: one})
        turn = Turn(["fine"], spec=spec if resumed else SPEC)
        turn.journal.coming = [] if resumed else [(one,)]
        await turn.run(followups=turn.journal)
        picture, text = turn.model.asked[0][-1]["content"]
        assert picture["type"] == "image_url"
        assert text["text"] == "look\n\n[Runtime Context]\nSender: Ann\nSender ID: u1"


async def test_a_stop_behind_an_answer_keeps_it() -> None:
    """What is shown is what is kept."""
    turn = Turn(["first answer", "never said"])
    turn.journal.coming = [(), (followup("more"),)]
    turn.journal.on("checkpoint", TurnStopped(), skip=1)
    with pytest.raises(TurnStopped) as stopped:
        await turn.run(followups=turn.journal)
    assert stopped.value.partial == "first answer"


def test_history_of_a_stopped_turn_begins_with_its_messages() -> None:
    """An answer in the middle is in the final text; what was taken is there once."""
    steps: list[LedgerEntry] = [AssistantEntry(content="a", turn=7), JoinEntry(turn=7, messages=(8,))]
    final = AssistantEntry(content="a\n\nb [stopped]", turn=7)
    joined = UserEntry(content="more", turn=7)
    kept = saved_history(SPEC.entry, steps, final, joined=[joined])
    assert contents(kept) == ["question", "more", "a\n\nb [stopped]"]
