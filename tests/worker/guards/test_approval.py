"""Calls that need a person's approval, and the exact question."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.messages.inbound import InboundMessage
from shared.messages.schedule import BACKGROUND
from shared.messages.subagent import SENDER
from shared.redaction import REDACTOR
from shared.settings import Settings, ToolsSettings
from shared.settings.sections.tool_use import ApprovalSettings
from tests.helpers.build import message
from tests.helpers.scripted_model import call
from worker.agent.tools.tool import Safety
from worker.guards.approval import ApprovalPolicy, Seat, TurnConsent, build_consent, digest, render_arguments, seat_of

ASKS, FREE, REFUSES = "ask", "free", "refuse"


def policy(*, network: bool = False, **approval: Any) -> ApprovalPolicy:
    return ApprovalPolicy(Settings(approval=ApprovalSettings(**approval), tools=ToolsSettings(exec_network=network)))


@pytest.mark.parametrize(
    ("settings", "name", "safety", "seat", "untrusted", "kind"),
    [
        # nothing was set, and nothing foreign was read
        ({}, "exec", "unsafe", "person", False, FREE),
        ({}, "mcp_mail_send", "unsafe", "person", False, FREE),
        # by what was read
        ({}, "mcp_mail_send", "unsafe", "person", True, ASKS),
        ({}, "deploy", "unsafe", "person", True, ASKS),
        ({}, "exec", "unsafe", "person", True, FREE),
        ({"network": True}, "exec", "unsafe", "person", True, ASKS),
        ({}, "write_file", "idempotent", "person", True, FREE),
        ({}, "mcp_mail_list", "read_only", "person", True, FREE),
        ({"untrusted": False}, "mcp_mail_send", "unsafe", "person", True, FREE),
        # by name
        ({"tools": ("exec",)}, "exec", "unsafe", "person", False, ASKS),
        ({"tools": ("exec",)}, "exec2", "unsafe", "person", False, FREE),
        ({"tools": ("mcp_*",)}, "mcp_mail_list", "read_only", "person", False, ASKS),
        ({"tools": ("mcp_*",)}, "MCP_mail", "unsafe", "person", False, FREE),
        ({"tools": ("*",)}, "read_file", "read_only", "person", False, ASKS),
        ({"tools": ("*",)}, "made_up", None, "person", True, FREE),
        # by class
        ({"classes": ("unsafe",)}, "exec", "unsafe", "person", False, ASKS),
        ({"classes": ("unsafe",)}, "write_file", "idempotent", "person", False, FREE),
        ({"classes": ("idempotent", "unsafe")}, "write_file", "idempotent", "person", False, ASKS),
        # nobody there
        ({"tools": ("exec",)}, "exec", "unsafe", "schedule", False, REFUSES),
        ({"tools": ("exec",), "schedules": True}, "exec", "unsafe", "schedule", False, ASKS),
        ({"tools": ("exec",), "schedules": True}, "exec", "unsafe", "program", False, REFUSES),
        ({"tools": ("exec",), "schedules": True}, "exec", "unsafe", "subagent", False, REFUSES),
        ({}, "mcp_mail_send", "unsafe", "subagent", True, REFUSES),
        ({}, "mcp_mail_send", "unsafe", "program", True, REFUSES),
        ({}, "exec", "unsafe", "program", False, FREE),
    ],
)
def test_what_needs_a_yes(
    settings: dict[str, Any], name: str, safety: Safety | None, seat: Seat, untrusted: bool, kind: str
) -> None:
    """One table for one policy: names, classes, what was read, and who can be asked."""
    need = policy(**settings).need(name, safety, seat, untrusted=untrusted)
    assert need.kind == kind
    assert bool(need.why) == (kind == REFUSES)


@pytest.mark.parametrize(
    ("name", "arguments", "network", "untrusted"),
    [
        ("web_fetch", {"url": "https://a"}, False, True),
        ("web_search", {"query": "a"}, False, True),
        ("mcp_mail_list", {}, False, True),
        ("calculate", {"expression": "1"}, False, False),
        ("read_file", {"path": "notes.md"}, False, False),
        ("read_file", {"path": "inbox/1-a.pdf"}, False, True),
        ("read_file", {"path": "./inbox/1-a.pdf"}, False, True),
        ("read_file", {"path": "results/1-c.txt"}, False, True),
        ("grep", {"pattern": "a"}, False, True),
        ("grep", {"pattern": "a", "path": "notes"}, False, False),
        ("grep", {"pattern": "a", "path": "inbox"}, False, True),
        ("exec", {"command": "ls"}, False, False),
        ("exec", {"command": "cat inbox/*"}, False, True),
        ("exec", {"command": "ls"}, True, True),
        ("spawn", {"task": "look"}, False, False),
        ("spawn", {"task": "look", "wait": True}, False, True),
    ],
)
def test_what_brings_text_of_strangers(name: str, arguments: dict[str, Any], network: bool, untrusted: bool) -> None:
    """Pages, servers, files that people sent, results kept of them, and agents that may have read any of it."""
    assert policy(network=network).brings_untrusted(call(name, arguments)) is untrusted


def with_metadata(**values: str) -> InboundMessage:
    return msgspec.structs.replace(message(), metadata=values)


def test_who_can_be_asked() -> None:
    """A person in a chat; a schedule has nobody just now, and a program cannot press a button."""
    assert seat_of(message()) == "person"
    assert seat_of(with_metadata(**{BACKGROUND: "1"})) == "schedule"
    assert [seat_of(message(channel=name)) for name in ("api", "cli", "telegram")] == ["program", "program", "person"]


def test_a_turn_remembers_what_it_read_also_when_it_joined_it_later() -> None:
    """A result makes the next unsafe call ask; so does a file that somebody sent, and a subagent's report."""
    unsafe = call("mcp_mail_send", {"to": "bob"})
    messages = [message()]
    consent = build_consent(policy(), 1, lambda: messages)
    assert consent.need(unsafe, "unsafe").kind == FREE
    messages.append(msgspec.structs.replace(message(), media=("file:1",)))
    assert consent.need(unsafe, "unsafe").kind == ASKS
    report = msgspec.structs.replace(message(id="child:abcd1234"), sender_id=SENDER)
    assert build_consent(policy(), 1, lambda: [report]).need(unsafe, "unsafe").kind == ASKS
    fetched = build_consent(policy(), 1, lambda: [message()])
    fetched.mark_seen(call("calculate"))
    assert fetched.need(unsafe, "unsafe").kind == FREE
    fetched.mark_seen(call("web_fetch", {"url": "https://a"}))
    assert fetched.need(unsafe, "unsafe").kind == ASKS
    assert fetched.need(msgspec.structs.replace(unsafe, arguments=None), "unsafe").kind == FREE


def test_only_people_who_spoke_in_the_turn_may_answer() -> None:
    """Neither a schedule nor a subagent is a person; if there is none, whoever may write in the chat may answer."""
    ann = msgspec.structs.replace(message(), sender_id="ann")
    tick = msgspec.structs.replace(with_metadata(**{BACKGROUND: "1"}), sender_id="cron")
    asked = build_consent(policy(), 1, lambda: [ann, message(), ann]).question(call("exec", {"command": "ls"}))
    assert asked.people == ("ann", "owner")
    assert build_consent(policy(), 1, lambda: [tick]).question(call("exec")).people == ()


def test_a_question_means_exactly_these_arguments_of_this_call() -> None:
    """The order of names is nothing; every value, the tool, the call and the turn are."""
    consent = TurnConsent(policy(), 1, "person")
    first = call("exec", {"command": "ls", "seconds": 1}, id="c1")
    question = consent.question(first)
    assert consent.covers(question, call("exec", {"seconds": 1, "command": "ls"}, id="c1"))
    others = [
        call("exec", {"command": "ls -a", "seconds": 1}, id="c1"),
        call("exec", {"command": "ls"}, id="c1"),
        call("exec2", {"command": "ls", "seconds": 1}, id="c1"),
        call("exec", {"command": "ls", "seconds": 1}, id="c2"),
        call("exec", {"command": "ls", "seconds": "1"}, id="c1"),
    ]
    assert not any(consent.covers(question, other) for other in others)
    ids = {consent.question(other).id for other in others}
    assert len(ids - {question.id}) == len(others)
    assert TurnConsent(policy(), 2, "person").question(first).id != question.id
    assert (question.tool, question.digest, question.expires_at) == ("exec", digest(first), 0)


def test_what_is_shown_hides_nothing_and_has_no_secret_in_it() -> None:
    """Control characters and those that turn text around are spelled out; what is cut is counted."""
    assert (
        render_arguments({"command": "rm\u202e -rf\u200b \x1b[2J\n"})
        == '{\n  "command": "rm\\u202e -rf\\u200b \\u001b[2J\\n"\n}'
    )
    REDACTOR.add("planted-secret-123")
    text = render_arguments({"header": "Bearer planted-secret-123", "url": "https://user:hunter2hunter2@host"})
    assert "planted-secret-123" not in text
    assert "hunter2" not in text
    long = render_arguments({"text": "a" * 10_000})
    assert len(long) < 4_100
    assert "more characters are not shown" in long
