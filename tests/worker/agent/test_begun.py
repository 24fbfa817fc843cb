"""A successor goes on with the text that people have seen, and that no ledger has."""

from __future__ import annotations

import msgspec
import pytest

from shared.errors import ModelError
from shared.messages.transcript import AssistantEntry, JoinEntry, UserEntry
from tests.helpers.scripted_model import Broken, Reply, call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import BUSY, SPEC, Turn
from worker.agent.model.ask import CUT_OFF
from worker.agent.model.model import LLMResponse
from worker.agent.ports import FollowupMessage

BEGUN = "Once upon a time there was a shoal of a thousand small fish, and not one"
WHOLE = f"{BEGUN} of them in charge."


async def test_the_reply_is_what_was_shown_and_what_comes_after_it() -> None:
    """One text, on screens and in history; the model is asked to go on, not to begin."""
    turn = Turn(["one of them in charge."])
    done = await turn.run(begun=BEGUN)
    assert done.content == WHOLE
    assert done.entries[-1].content == WHOLE
    assert turn.progress.visible == WHOLE
    [so_far, (_, order)] = turn.seen(0)
    assert so_far == ("assistant", BEGUN)
    assert order is not None
    assert order.startswith(CUT_OFF)


async def test_text_on_the_screen_never_gets_shorter() -> None:
    """What was begun is there before the first new word, and is never withdrawn."""
    turn = Turn(["one of them in charge."])
    await turn.run(begun=BEGUN)
    assert turn.progress.log == [BEGUN, " of", " them", " in", " charge."]


async def test_a_reply_that_was_complete_ends_the_turn() -> None:
    """The worker died between the last letter and the commit: nothing is added."""
    for last in ("one", "", None):
        turn = Turn([LLMResponse(content=last)])
        assert (await turn.run(begun=BEGUN)).content == BEGUN


async def test_tools_that_the_text_announced_are_called_after_it() -> None:
    """The stored step has the whole text."""
    turn = Turn([calls(call("act", {"text": "x"}), text="one moment."), "Done."], RecordingTool("act", "read_only"))
    done = await turn.run(begun=BEGUN)
    [reply, *_] = [entry for entry in turn.journal.entries if isinstance(entry, AssistantEntry)]
    assert reply.content == f"{BEGUN} moment."
    assert done.content == "Done."


async def test_a_stream_that_breaks_goes_on_from_there_again() -> None:
    """What this call had added is taken back, what was begun stays."""
    turn = Turn([Broken(BUSY, ("one", " of us")), "one of them in charge."])
    assert (await turn.run(begun=BEGUN)).content == WHOLE
    assert turn.progress.visible == WHOLE


async def test_a_reply_that_is_cut_by_its_length_too_is_continued() -> None:
    """Both seams hold."""
    turn = Turn([LLMResponse(content="one of them", finish_reason="length"), " in charge."])
    assert (await turn.run(begun=BEGUN)).content == WHOLE


@pytest.mark.parametrize("begun", ["Too short.", ""])
async def test_a_few_words_are_written_again(begun: str) -> None:
    """They do not show whether a model begins again."""
    turn = Turn([WHOLE])
    assert (await turn.run(begun=begun)).content == WHOLE
    assert turn.seen(0) == []


async def test_a_model_that_begins_again_in_other_words_is_let() -> None:
    """Its text replaces what was begun; screens show it once it is longer."""
    other = f"{BEGUN[:50]} a hundred whales."
    turn = Turn([other])
    assert (await turn.run(begun=BEGUN)).content == other
    assert turn.progress.visible == other


@pytest.mark.parametrize("more", [" and so on.", " or two, said the eel"])
async def test_an_answer_whose_first_word_might_announce_the_rest_may_begin_again(more: str) -> None:
    """The first words are held back to the end of a short answer; they are not shown twice for that."""
    begun = "ok, this is a story of a thousand small fish"
    turn = Turn([begun + more])
    assert (await turn.run(begun=begun)).content == begun + more
    assert turn.progress.visible == begun + more


async def test_an_answer_whose_first_word_might_announce_the_rest_may_begin_again_in_other_words() -> None:
    """What was held back takes the place of what was begun, on screens, too."""
    other = "ok, this is a story of a thousand small whales."
    turn = Turn([other])
    assert (await turn.run(begun="ok, this is a story of a thousand small fish")).content == other
    assert turn.progress.visible == other


async def test_a_provider_that_refuses_such_a_conversation_is_asked_from_the_beginning() -> None:
    """A kill never turns an answer into an apology."""
    refused: Reply = ModelError("bad_request", "roles must alternate", retryable=False)
    turn = Turn([refused, WHOLE])
    assert (await turn.run(begun=BEGUN)).content == WHOLE
    assert turn.progress.visible == WHOLE
    assert turn.seen(1) == []


async def test_after_messages_that_joined_the_answers_before_them_stay_in_front() -> None:
    """The shown text has them, the model gets only its own reply."""
    joined = FollowupMessage(UserEntry(content="and?", turn=7))
    resume = (AssistantEntry(content="First.", turn=7), JoinEntry(turn=7, messages=(8,)))
    turn = Turn(["one of them in charge."], spec=msgspec.structs.replace(SPEC, resume=resume, joined={8: joined}))
    done = await turn.run(begun=f"First.\n\n{BEGUN}")
    assert done.content == turn.progress.visible == f"First.\n\n{WHOLE}"
    assert turn.seen(0)[-2] == ("assistant", BEGUN)
