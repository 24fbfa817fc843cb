"""The message tool: to whom it may speak, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.errors import BadInput, ToolFailed
from shared.media.reference import read_reference
from shared.media.store import MediaStore
from shared.messages.effects import Effect, SayEffect
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.settings import MediaSettings
from tests.helpers.media_files import archive
from tests.helpers.scripted_model import call
from tests.helpers.text_files import TextFiles
from worker.agent.tools.tool import ToolContext, ToolOutcome
from worker.agent.tools.toolbox import Toolbox
from worker.guards.chats import ChatPolicy, ChatTarget
from worker.tools.message import BUTTONS, TEXT_CHARS, MessageTool

OWN = "web:owner/a"


@pytest.mark.parametrize(
    ("session", "chat", "target"),
    [
        (OWN, None, ChatTarget(OWN)),
        (OWN, "", ChatTarget(OWN)),
        (OWN, "a", ChatTarget(OWN)),
        (OWN, "owner/a", ChatTarget(OWN)),
        (OWN, OWN, ChatTarget(OWN)),
        (OWN, "b", ChatTarget("web:owner/b", "owner")),
        (OWN, "owner/b", ChatTarget("web:owner/b", "owner")),
        (OWN, "web:owner/b", ChatTarget("web:owner/b", "owner")),
        ("cli:direct", None, ChatTarget("cli:direct")),
        ("cli:direct", "direct", ChatTarget("cli:direct")),
        ("telegram:-100", "-100", ChatTarget("telegram:-100")),
    ],
)
def test_its_own_chat_and_those_of_the_same_person_can_be_written_to(
    session: str, chat: str | None, target: ChatTarget
) -> None:
    """However they are named."""
    assert ChatPolicy().resolve(session, chat) == target


FOREIGN = [
    (OWN, "ann/a"), (OWN, "web:ann/a"), (OWN, "web:owner"), (OWN, "web:owner/a/../../ann/a"), (OWN, "web:owner%2Fx/a"),
    (OWN, "web:ownerx/a"), (OWN, "web:OWNER/a"), (OWN, "owner/../ann/a"), (OWN, "/ann/a"), (OWN, "telegram:owner/a"),
    (OWN, "api:owner/a"), (OWN, "cli:direct"), (OWN, "system:web:owner/b"), (OWN, "web:owner/b c"), (OWN, "web:*"),
    (OWN, "web:owner/a#side"), ("cli:direct", "other"), ("cli:direct", "web:owner/a"), ("telegram:1", "2"),
    ("web:owner", "b"), ("web:owner/a/b", "owner/c"), (OWN, ":"), (OWN, "web:"), (OWN, "x" * 300),
]  # fmt: skip
"""Chats of others, and what only looks like one's own (security row 9)."""


@pytest.mark.parametrize(("session", "chat"), FOREIGN)
def test_no_other_chat_can_be_written_to(session: str, chat: str) -> None:
    """One policy, for every spelling."""
    with pytest.raises(ToolFailed):
        ChatPolicy().resolve(session, chat)


def test_an_operator_can_grant_more() -> None:
    """By patterns of whole sessions; what they do not cover stays closed."""
    policy = ChatPolicy(["web:ann/*", "telegram:-100"])
    assert policy.resolve(OWN, "web:ann/main") == ChatTarget("web:ann/main", "ann", granted=True)
    assert policy.resolve(OWN, "telegram:-100") == ChatTarget("telegram:-100", granted=True)
    for closed in ("web:bob/main", "telegram:-1001"):
        with pytest.raises(ToolFailed, match="not your chat"):
            policy.resolve(OWN, closed)


def test_no_grant_reaches_an_endpoint_of_a_webhook() -> None:
    """What the agent writes there would be sent, signed, as a webhook of ours."""
    with pytest.raises(ToolFailed, match="not your chat"):
        ChatPolicy(["*"]).resolve(OWN, "hook:erp")


class Effects:
    """Keeps what was carried out; `missing` are chats that are not there."""

    def __init__(self, *missing: str) -> None:
        self.done: list[SayEffect] = []
        self._missing = missing

    async def carry_out(self, effect: Effect) -> bool:
        assert isinstance(effect, SayEffect)
        if effect.session in self._missing:
            raise BadInput("no_chat", "there is no chat")
        self.done.append(effect)
        return True

    async def border(self) -> None:
        pass


class Speaker:
    """The tool in a turn of the chat `owner/a`."""

    def __init__(self, folder: Path, *missing: str) -> None:
        self.media = MediaStore(MediaSettings(dir=folder / "media"))
        self.effects = Effects(*missing)
        self.files = TextFiles({"notes/plan.txt": "the plan", "empty.txt": ""})
        self._box = Toolbox([MessageTool(ChatPolicy(), self.media, files=2)])

    async def call(self, **arguments: Any) -> ToolOutcome:
        context = ToolContext(session=OWN, turn=7, call_id="c", files=self.files, effects=self.effects)
        return await self._box.call(call("message", arguments), context)


async def test_a_line_to_its_own_chat_is_a_part_of_the_turn(tmp_path: Path) -> None:
    """It carries buttons and files; the chat's own history needs no more than the call."""
    speaker = Speaker(tmp_path)
    outcome = await speaker.call(text="Which?", buttons=["Yes ", "No"], media=["notes/plan.txt"])
    assert outcome.ok, outcome.content
    assert "will not be sent" in outcome.content
    [effect] = speaker.effects.done
    assert (effect.session, effect.listed_for, effect.history) == (OWN, "", ())
    assert (effect.line.content, effect.line.turn, effect.line.kind, effect.line.sent_by_tool) == (
        "Which?",
        7,
        "notice",
        True,
    )
    assert effect.line.buttons == ("Yes", "No")
    ref = read_reference(effect.line.media[0])
    assert (ref.name, speaker.media.read(OWN, ref)) == ("plan.txt", b"the plan")


async def test_a_button_says_what_is_read_on_it(tmp_path: Path) -> None:
    """No characters that nobody sees, and none that turn the text around: a press sends the label as it is."""
    speaker = Speaker(tmp_path)
    assert (await speaker.call(text="Sure?", buttons=["Yes\u202e\u200b,\n  go", "No\x1b[2J"])).ok
    [effect] = speaker.effects.done
    assert effect.line.buttons == ("Yes, go", "No[2J")


async def test_a_line_to_another_chat_is_known_there(tmp_path: Path) -> None:
    """It moves up in the person's list, its history says who said it, and the file is that chat's."""
    speaker = Speaker(tmp_path)
    assert (await speaker.call(text="Done!", chat="b", media=["notes/plan.txt"], buttons=["Fine"])).ok
    [effect] = speaker.effects.done
    assert (effect.session, effect.listed_for, effect.line.turn) == ("web:owner/b", "owner", 0)
    asked, answered = effect.history
    assert isinstance(asked, UserEntry)
    assert isinstance(answered, AssistantEntry)
    assert asked.content.startswith("[Nobody wrote here")
    assert answered.content == "Done!\n[file: plan.txt]\n[button: Fine]"
    assert speaker.media.read("web:owner/b", read_reference(effect.line.media[0])) == b"the plan"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"text": "x", "chat": "ann/a"}, "not your chat"),
        ({"text": "x", "chat": "gone"}, "there is no chat 'gone'"),
        ({"text": "  "}, "nothing to say"),
        ({"text": "x", "buttons": ["ok", " "]}, "no label"),
        ({"text": "x", "buttons": ["ok", "\u200b\u202e"]}, "no label"),
        ({"text": "x", "buttons": ["ok", " /forget"]}, "cannot be a command such as '/forget'"),
        ({"text": "x", "buttons": ["\u200b/forget"]}, "cannot be a command"),
        ({"text": "x", "media": ["missing.txt"]}, "there is no file 'missing.txt'"),
        ({"text": "x", "media": ["empty.txt"]}, "'empty.txt' cannot be sent: file refused: it is empty"),
        ({"text": "x", "media": ["notes/plan.txt"] * 3}, "at most 2 are allowed"),
    ],
)
async def test_what_cannot_be_sent_says_why_and_leaves_nothing(
    tmp_path: Path, arguments: dict[str, Any], expected: str
) -> None:
    """A text that the model can act on, and no line in any log."""
    speaker = Speaker(tmp_path, "web:owner/gone")
    outcome = await speaker.call(**arguments)
    assert outcome.outcome == "failed"
    assert expected in outcome.content
    assert speaker.effects.done == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "x" * (TEXT_CHARS + 1)},
        {"text": "x", "buttons": ["b"] * (BUTTONS + 1)},
        {"text": "x", "buttons": ["b" * 41]},
        {"text": "x", "buttons": [""]},
        {"text": "x", "colour": "red"},
        {},
    ],
)
async def test_arguments_over_their_limits_are_named(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Before anything is done."""
    speaker = Speaker(tmp_path)
    assert (await speaker.call(**arguments)).outcome == "bad_arguments"
    assert speaker.effects.done == []


async def test_an_archive_is_not_sent(tmp_path: Path) -> None:
    """What people may not send, the agent may not send either."""
    speaker = Speaker(tmp_path)

    class Binary(TextFiles):
        async def content(self, path: str) -> str | bytes:
            return archive("a.txt")

    speaker.files = Binary({})
    outcome = await speaker.call(text="x", media=["a.zip"])
    assert "zip archive" in outcome.content
    assert not (tmp_path / "media").exists() or not [one for one in (tmp_path / "media").rglob("*") if one.is_file()]
