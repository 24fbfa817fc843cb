"""Calls that need a person's approval, and the exact question."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.messages.inbound import STRANGER, InboundMessage
from shared.messages.schedule import BACKGROUND
from shared.messages.standing import coverage
from shared.messages.subagent import SENDER
from shared.settings import ModelSettings, Settings, ToolsSettings, WebSettings
from shared.settings.sections.tool_use import ApprovalSettings
from tests.helpers.build import message
from tests.helpers.scripted_model import call
from worker.agent.tools.tool import Safety
from worker.guards.approval import ApprovalPolicy, Seat, TurnConsent, build_consent, digest, seat_of
from worker.tools.registry import TOOLS

ASKS, FREE, REFUSES = "ask", "free", "refuse"


def policy(*, network: bool = False, **approval: Any) -> ApprovalPolicy:
    settings = Settings(approval=ApprovalSettings(**approval), tools=ToolsSettings(exec_network=network))
    return ApprovalPolicy(settings, TOOLS)


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
    sources = ("evil.example",) if untrusted else ()
    need = policy(**settings).need(call(name, {"action": "add"}), safety, seat, sources=sources)
    assert need.kind == kind
    assert bool(need.why) == (kind == REFUSES)


@pytest.mark.parametrize(
    ("first_run", "model", "kind"), [(True, "demo", ASKS), (False, "demo", FREE), (True, "x", FREE)]
)
def test_the_first_run_shows_a_question(first_run: bool, model: str, kind: str) -> None:
    """Only while `shoal up` runs the demo model: a real one asks what the settings name."""
    settings = Settings(model=ModelSettings(name=model), web=WebSettings(first_run=first_run))
    assert ApprovalPolicy(settings, TOOLS).need(call("edit_file", {}), "idempotent", "person").kind == kind


MARKED = ("evil.example",)


@pytest.mark.parametrize(
    ("name", "arguments", "unsafe_subagents", "kind"),
    [
        ("cron", {"action": "add", "message": "x"}, False, ASKS),
        ("cron", {"action": "remove", "id": "1"}, False, ASKS),
        ("cron", {"action": "list"}, False, FREE),
        ("spawn", {"task": "x"}, True, ASKS),
        ("spawn", {"task": "x"}, False, FREE),
        ("message", {"text": "x"}, False, FREE),
        ("message", {"text": "x", "chat": ""}, False, FREE),
        ("message", {"text": "x", "chat": "web:owner/a"}, False, FREE),
        ("message", {"text": "x", "chat": "owner/a"}, False, FREE),
        ("message", {"text": "x", "chat": "b"}, False, ASKS),
        ("message", {"text": "x", "chat": 7}, False, ASKS),
        ("write_file", {"path": "a", "content": "x"}, False, FREE),
        ("web_fetch", {"url": "https://a"}, False, FREE),
        ("exec", {"command": "ls"}, False, FREE),
    ],
)
def test_what_spreads_text_needs_a_yes_when_marked(
    name: str, arguments: dict[str, Any], unsafe_subagents: bool, kind: str
) -> None:
    """Plans, other chats, and subagents that could act; what stays in the chat is free, as everything is unmarked."""
    safety: Safety = "unsafe" if name == "exec" else "idempotent"
    asked = call(name, arguments)

    def need(*sources: str, seat: Seat = "person", **settings: Any) -> Any:
        return policy(**settings).need(
            asked, safety, seat, sources=sources, session="web:owner/a", unsafe_subagents=unsafe_subagents
        )

    assert need(*MARKED).kind == kind
    assert need().kind == need(*MARKED, untrusted=False).kind == FREE
    refused = need(*MARKED, seat="program")
    assert refused.kind == (FREE if kind == FREE else REFUSES)
    assert ("after reading evil.example" in refused.why) == (kind == ASKS)


@pytest.mark.parametrize(
    ("name", "arguments", "network", "sources"),
    [
        ("web_fetch", {"url": "https://Evil.example/a?b"}, False, ("evil.example",)),
        ("web_fetch", {"url": "http://[::1"}, False, ("a page",)),
        ("web_fetch", {}, False, ("a page",)),
        ("web_search", {"query": "a"}, False, ("web search",)),
        ("mcp_my-mail_list", {}, False, ("mcp my-mail",)),
        ("jira_issue", {}, False, ("tool jira_issue",)),
        ("add_up", {}, False, ()),
        ("calculate", {"expression": "1"}, False, ()),
        ("cron", {"action": "list"}, False, ()),
        ("spawn", {"task": "look", "wait": True}, False, ()),
        ("read_file", {"path": "notes.md"}, False, ()),
        ("read_file", {"path": "./inbox/1-a.pdf"}, False, ("inbox",)),
        ("read_file", {"path": "results/1-c.txt"}, False, ("results",)),
        ("grep", {"pattern": "a", "path": "inbox"}, False, ("inbox",)),
        ("exec", {"command": "ls"}, False, ()),
        ("exec", {"command": "cat inbox/*"}, False, ("inbox",)),
        ("exec", {"command": "ls"}, True, ("exec with network",)),
    ],
)
def test_what_brings_text_of_strangers(
    name: str, arguments: dict[str, Any], network: bool, sources: tuple[str, ...]
) -> None:
    """Pages, servers, packages, and folders that hold such text also where the workspace has no mark yet."""
    settings = Settings(tools=ToolsSettings(exec_network=network))
    assert ApprovalPolicy(settings, trusted=[*TOOLS, "add_up"]).brings(call(name, arguments)) == sources


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
    fetched.mark(fetched.brings(call("calculate")))
    assert fetched.need(unsafe, "unsafe").kind == FREE
    fetched.mark(fetched.brings(call("web_fetch", {"url": "https://a"})))
    assert fetched.need(unsafe, "unsafe").kind == ASKS
    assert fetched.question(unsafe, "unsafe").sources == ("a",)
    assert fetched.need(msgspec.structs.replace(unsafe, arguments=None), "unsafe").kind == FREE


def test_only_people_who_spoke_in_the_turn_may_answer() -> None:
    """Neither a schedule nor a subagent is a person; if there is none, whoever may write in the chat may answer."""
    ann = msgspec.structs.replace(message(), sender_id="ann")
    tick = msgspec.structs.replace(with_metadata(**{BACKGROUND: "1"}), sender_id="cron")
    asked = build_consent(policy(), 1, lambda: [ann, message(), ann]).question(
        call("exec", {"command": "ls"}), "unsafe"
    )
    assert asked.people == ("ann", "owner")
    assert build_consent(policy(), 1, lambda: [tick]).question(call("exec"), "unsafe").people == ()


def test_a_question_means_exactly_these_arguments_of_this_call() -> None:
    """The order of names is nothing; every value, the tool, the call and the turn are."""
    consent = TurnConsent(policy(), 1, "person")
    first = call("exec", {"command": "ls", "seconds": 1}, id="c1")
    question = consent.question(first, "unsafe")
    assert consent.covers(question, call("exec", {"seconds": 1, "command": "ls"}, id="c1"))
    others = [
        call("exec", {"command": "ls -a", "seconds": 1}, id="c1"),
        call("exec", {"command": "ls"}, id="c1"),
        call("exec2", {"command": "ls", "seconds": 1}, id="c1"),
        call("exec", {"command": "ls", "seconds": 1}, id="c2"),
        call("exec", {"command": "ls", "seconds": "1"}, id="c1"),
    ]
    assert not any(consent.covers(question, other) for other in others)
    ids = {consent.question(other, "unsafe").id for other in others}
    assert len(ids - {question.id}) == len(others)
    assert TurnConsent(policy(), 2, "person").question(first, "unsafe").id != question.id
    assert (question.tool, question.digest, question.expires_at) == ("exec", digest(first), 0)


def test_what_is_too_long_to_be_read_is_refused_and_the_model_reads_why() -> None:
    """Nothing is cut; it may ask in smaller steps."""
    consent = TurnConsent(policy(tools=("exec",)), 1, "person")
    assert consent.need(call("exec", {"command": "a" * 90_000}), "unsafe").kind == ASKS
    need = consent.need(call("exec", {"command": "a" * 100_000}), "unsafe")
    assert (need.kind, "100,002 characters" in need.why) == (REFUSES, True)
    free = TurnConsent(policy(), 1, "person")
    assert free.need(call("exec", {"command": "a" * 100_000}), "unsafe").kind == FREE


def test_members_whom_nobody_named_can_be_asked_nothing() -> None:
    """Alone they are refused; beside somebody who is named, only that person may answer."""
    unsafe = call("mcp_mail_send")
    stranger = msgspec.structs.replace(with_metadata(**{STRANGER: "1"}), sender_id="eve", sources=("group member Eve",))
    messages = [stranger]
    consent = build_consent(policy(), 1, lambda: messages)
    assert consent.need(unsafe, "unsafe").kind == REFUSES
    assert "after reading group member Eve, and nobody who wrote may give it" in consent.need(unsafe, "unsafe").why
    messages.append(message())
    assert consent.need(unsafe, "unsafe").kind == ASKS
    assert consent.question(unsafe, "unsafe").people == ("owner",)


@pytest.mark.parametrize(
    ("name", "arguments", "touches"),
    [
        ("exec", {"command": "rm -rf a"}, ("files: the workspace of this chat", "network: none")),
        ("write_file", {"path": "a/b\u202e.txt", "content": "x"}, ("writes: a/b⟨U+202E⟩.txt", "network: none")),
        ("edit_file", {"path": "a" * 300}, ("network: none",)),
        ("web_fetch", {"url": "https://user:x@evil.example/a"}, ("address: evil.example",)),
        ("web_fetch", {"url": "http://[bad"}, ()),
        ("message", {"text": "x", "chat": "b"}, ("chat: b",)),
        ("mcp_mail_send", {"path": "a", "url": "https://b"}, ()),
        ("deploy", {}, ()),
    ],
)
def test_a_card_names_what_a_call_surely_touches(
    name: str, arguments: dict[str, Any], touches: tuple[str, ...]
) -> None:
    """Nothing of tools of others, nor of what cannot be read; every character can be seen."""
    assert build_consent(policy(), 1, lambda: [message()]).question(call(name, arguments), "unsafe").touches == touches


def test_only_what_is_known_to_change_nothing_is_called_safe() -> None:
    """After strangers' text not even that: an address can carry words away."""
    consent = build_consent(policy(), 1, lambda: [message()])
    asked = call("web_fetch", {"url": "https://a"})
    assert [consent.question(asked, safety).safe for safety in ("read_only", "idempotent", "unsafe")] == [
        True, False, False,
    ]  # fmt: skip
    consent.mark(("evil.example",))
    assert not consent.question(asked, "read_only").safe


def test_a_yes_for_good_is_for_the_folder_in_which_it_was_given() -> None:
    """The same command does something else in a folder of the operator."""
    covered = {coverage(tool, "d", folder) for tool in ("exec", "write_file") for folder in ("", "docs", "code")}
    assert len(covered) == 6
