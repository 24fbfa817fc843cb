"""Thoughts in the text of an answer are hidden; tags that are spoken of are text."""

from __future__ import annotations

from typing import Final

import pytest

from tests.reports.one_turn import chunk, hear, recorded, recorded_input, say, sse

Inputs = dict[str, str]
THOUGHT: Final = "secret plan"
RECORDED: Final = recorded_input("p-think-literal")["answers"]

BLOCKS: Final = {
    "think": f"<think>{THOUGHT}</think>Hello",
    "thinking": f"<thinking>{THOUGHT}</thinking>\n\nHello",
    "thought": f"<thought>{THOUGHT}</thought>Hello",
    "thoughts": f"<thoughts>{THOUGHT}</thoughts>Hello",
    "reasoning": f"<reasoning>{THOUGHT}</reasoning>Hello",
    "antThinking": f"<antThinking>{THOUGHT}</antThinking>Hello",
    "capitals": f"<THINK>{THOUGHT}</Think>Hello",
    "blanks in front": f"\n\n  <think>\n{THOUGHT}\n</think>\n\nHello",
    "attributes": f'<think duration="3" type="x">{THOUGHT}</think>Hello',
    "a blank in the tag": f"<think >{THOUGHT}</think >Hello",
    "a namespace": f"<seed:think>{THOUGHT}</seed:think>Hello",
    "empty": "<think>\n\n</think>\n\nHello",
    "closed in itself": "<think/>Hello",
    "two blocks": f"<think>{THOUGHT}</think>\n<think>{THOUGHT}</think>Hello",
    "two families": f"<thinking>{THOUGHT}</thinking><thought>{THOUGHT}</thought>Hello",
    "closed by another name": f"<thinking>{THOUGHT}</think>Hello",
    "opened twice": f"<think><think>{THOUGHT}</think>Hello",
    "nested": f"<think>{THOUGHT}<think>{THOUGHT}</think>{THOUGHT}</think>Hello",
    "closed twice": f"<think>{THOUGHT}</think></think>Hello",
    "a quoted tag in it": f"<think>{THOUGHT}, not `</think>` yet</think>Hello",
    "triangles": f"◁think▷{THOUGHT}◁/think▷Hello",
    "brackets": f"[THINK]{THOUGHT}[/THINK]Hello",
    "bars: START_THINKING": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>Hello<|END_RESPONSE|>",
    "bars: begin_of_thought": (
        f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|>\n\n<|begin_of_solution|>Hello<|end_of_solution|>"
    ),
    "channels": (
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>"
    ),
    "channels without an end": (
        f"<|channel|>analysis<|message|>{THOUGHT}<|start|>assistant<|channel|>final<|message|>Hello"
    ),
    "channels, the answer alone": "<|channel|>final<|message|>Hello",
    "channels, one bar": f"<|channel>thought\n{THOUGHT}<channel|>Hello",
    "closed alone": f"{THOUGHT}</think>Hello",
    "closed alone, on a line": f"Okay, {THOUGHT}.\n\nSo:\n</think>\n\nHello",
    "closed alone, after paragraphs": f"{THOUGHT}\n\n{THOUGHT}\n{THOUGHT}.</think>\n\nHello",
    "closed alone: thinking": f"{THOUGHT}</thinking>Hello",
    "closed alone: triangles": f"{THOUGHT}◁/think▷Hello",
    "closed alone: brackets": f"{THOUGHT}[/THINK]Hello",
    "closed alone, at the very beginning": "</think>Hello",
    "recorded": "<think>plan</think>Hello",
}


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("text", BLOCKS.values(), ids=BLOCKS.keys())
async def test_thoughts_at_the_beginning_are_hidden(text: str, size: int, via: str) -> None:
    """Whatever the tags are, and wherever the deltas are cut."""
    deltas = [text[at : at + size] for at in range(0, len(text), size)]
    turn = await hear(sse(*map(chunk, deltas), chunk("", "stop")), client=via)
    assert (turn.text, turn.shown.strip(), turn.asked) == ("Hello", "Hello", 1)


LITERAL: Final = {
    "recorded: in code": RECORDED[0]["right"],
    "recorded: in a fence": RECORDED[1]["right"],
    "in a fence that is not closed": "Example:\n```\n<think>\nplan\n</think>",
    "in a fence of tildes": "Example:\n~~~\nplan\n</think>\n~~~\nDone.",
    "in a fence at the beginning": "```xml\n<think>plan</think>\n```",
    "in code at the beginning": "`<think>` begins a thought.",
    "in an indented block": "Example:\n\n    <think>\n    plan\n    </think>\n\nDone.",
    "in a sentence": "Models use <think> and </think> for it.",
    "in a sentence, quoted": 'It writes "<think>" and then "</think>".',
    "in a sentence, closing alone": "You close it with </think> and go on.",
    "in brackets": "The closing tag (</think>) is dropped.",
    "a block in a sentence": "A block such as <think>plan</think> is hidden.",
    "a block on its own line behind text": "So:\n<think>plan</think>\nThat is all.",
    "in a quotation": "> <think>plan</think>\n\nYou wrote this.",
    "in a list": "- <think> opens\n- </think> closes",
    "in a table": "| tag | use |\n|---|---|\n| <think> | opens |\n| </think> | closes |",
    "open, behind text": "This opens a thought: <think>",
    "an ellipsis between": "<think>...</think> is how models think.",
    "a sentence that begins with one": "<think> tags are used by some models.",
    "another tag": "<b>bold</b> and <thinker>no</thinker>",
    "a comparison": "1 < 2 and think > 3",
    "brackets": "[THINKING] is no tag, and [1] is a note.",
    "half a tag at the end": "It ends with <thi",
    "half a closing tag at the end": "It ends with </thi",
}


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("text", LITERAL.values(), ids=LITERAL.keys())
async def test_tags_that_are_spoken_of_are_text(text: str, size: int, via: str) -> None:
    """In code, in a sentence, in a quotation."""
    deltas = [text[at : at + size] for at in range(0, len(text), size)]
    turn = await hear(sse(*map(chunk, deltas), chunk("", "stop")), client=via)
    assert (turn.text, turn.shown.strip(), turn.asked) == (text, text, 1)


@pytest.mark.parametrize("block", ["<think>my plan</think>", "<thought>x</thought>", "◁think▷my plan◁/think▷"])
async def test_a_block_that_the_person_wrote_is_text(block: str, via: str) -> None:
    """The model repeats it."""
    turn = await hear(say(f"{block} is what you wrote."), client=via, asks=f"What is {block}?")
    assert turn.text == f"{block} is what you wrote."


@pytest.mark.parametrize("at", [0, 1, 2], ids=["in code", "in a fence", "a block"])
async def test_recorded_answers_are_shown_as_they_should(at: int, via: str) -> None:
    """The three of the report."""
    turn = await hear(recorded(RECORDED[at]["stream"]), client=via)
    assert (turn.text, turn.asked) == (RECORDED[at]["right"], 1)


PARTS: Final = {
    "the second call thinks, too": (["one ", "<think>secret plan</think>two"], "one two"),
    "a block over both": (["<think>secret ", "plan</think>two"], "two"),
    "a block over both, unopened": (["Okay, secret ", "plan\n</think>\n\ntwo"], "two"),
    "no thoughts": (["one ", "two"], "one two"),
}


@pytest.mark.parametrize(("parts", "right"), PARTS.values(), ids=PARTS.keys())
async def test_each_call_of_an_answer_that_was_cut_may_think(parts: list[str], right: str, via: str) -> None:
    """What was cut by its length goes on in a second call."""
    turn = await hear(say(parts[0], "length"), say(parts[1]), client=via)
    assert (turn.text, turn.shown.strip(), turn.asked) == (right, right, 2)


BEFORE: Final = {
    "test_thoughts_at_the_beginning_are_hidden": 27,
    "test_tags_that_are_spoken_of_are_text": 15,
    "test_a_block_that_the_person_wrote_is_text": 2,
    "test_recorded_answers_are_shown_as_they_should": 1,
    "test_each_call_of_an_answer_that_was_cut_may_think": 3,
}
"""How many inputs of a kind were right when it was first tried."""
