"""Approval of tool calls by a person: the policy, and the question that is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from shared.messages.inbound import InboundMessage
from shared.messages.schedule import is_background
from shared.messages.subagent import ID_PREFIX, SENDER
from shared.messages.transcript import ApprovalEntry
from shared.redaction import REDACTOR
from shared.settings import Settings
from worker.agent.model.model import ToolCallRequest
from worker.agent.ports import FREE, ApprovalNeed
from worker.agent.tools.tool import Safety

# The recipient of a turn's reply: a person who can be asked in the chat, a schedule (with no person
# present), a program that cannot press a button, or another agent (for a subagent).
Seat = Literal["person", "schedule", "program", "subagent"]
Messages = Callable[[], Sequence[InboundMessage]]
# Channels in which a question cannot be answered.
PROGRAMS: Final = frozenset({"api", "cli"})
# Limit of the arguments that are shown; the rest is counted.
SHOWN_CHARS: Final = 4_000
ID_CHARS: Final = 10

_WEB: Final = ("web_fetch", "web_search", "mcp_*")
# Folders of a workspace with files that people sent and results of tools.
_FOREIGN_FOLDERS: Final = ("inbox", "results")
_REFUSALS: Final[dict[Seat, str]] = {
    "schedule": "a schedule's turn has nobody to ask. Say what should be done instead",
    "program": "nobody can be asked here. Say what should be done instead",
    "subagent": "a subagent cannot ask. Leave it to the agent that gave you the task",
}


class ApprovalPolicy:
    """Decides which calls need an approval. Nothing else does."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Final = settings.approval
        self._network = settings.tools.exec_network

    def need(self, name: str, safety: Safety | None, seat: Seat, *, untrusted: bool) -> ApprovalNeed:
        """Return what a call of tool `name` needs; nothing if `safety` is None: no such tool.
        `untrusted` means that the turn has read text that strangers may have written."""
        settings = self.settings
        by_name = any(fnmatchcase(name, pattern) for pattern in settings.tools)
        # Without network access a command stays in its sandbox and in the chat's own workspace.
        contained = name == "exec" and not self._network
        by_reading = settings.untrusted and untrusted and safety == "unsafe" and not contained
        if safety is None or not (by_name or safety in settings.classes or by_reading):
            return FREE
        if seat == "person" or (seat == "schedule" and settings.schedules):
            return ApprovalNeed("ask")
        return ApprovalNeed("refuse", f"it needs a person's yes, and {_REFUSALS[seat]}")

    def brings_untrusted(self, call: ToolCallRequest) -> bool:
        """Return whether the result of this call may hold text of strangers: pages, search results,
        MCP servers, files that people sent, files in which such results were stored, and results of
        a subagent or of a command with network access."""
        arguments = call.arguments or {}
        if any(fnmatchcase(call.name, pattern) for pattern in _WEB):
            return True
        if call.name == "spawn":
            return arguments.get("wait") is True
        if call.name == "exec" and self._network:
            return True
        if call.name == "grep":
            path = arguments.get("path")
            return not isinstance(path, str) or path in ("", ".", "./", "/") or _names_foreign_folder(path)
        return call.name in ("read_file", "exec") and any(map(_names_foreign_folder, arguments.values()))


class TurnConsent:
    """The approval rules of one turn, which answers `messages`; more may join it while it runs."""

    def __init__(self, policy: ApprovalPolicy, turn: int, seat: Seat, messages: Messages = tuple) -> None:
        self.wait_s: Final = policy.settings.wait_s
        self._policy = policy
        self._turn = turn
        self._seat: Seat = seat
        self._messages = messages
        self._read_untrusted = False

    def mark_seen(self, call: ToolCallRequest) -> None:
        self._read_untrusted = self._read_untrusted or self._policy.brings_untrusted(call)

    def need(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalNeed:
        if call.arguments is None:
            return FREE  # nothing can run with them
        brought = (one.media or _is_subagent_report(one) for one in self._messages())
        untrusted = self._read_untrusted or any(brought)
        return self._policy.need(call.name, safety, self._seat, untrusted=untrusted)

    def question(self, call: ToolCallRequest) -> ApprovalEntry:
        call_digest = digest(call)
        identity = f"{self._turn}\0{call.id}\0{call_digest}"
        people = (one.sender_id for one in self._messages() if not _is_subagent_report(one) and not is_background(one))
        return ApprovalEntry(
            id=hashlib.sha256(identity.encode()).hexdigest()[:ID_CHARS],
            call_id=call.id,
            turn=self._turn,
            tool=call.name,
            digest=call_digest,
            arguments=render_arguments(call.arguments or {}),
            people=tuple(dict.fromkeys(people)),
        )

    def covers(self, question: ApprovalEntry, call: ToolCallRequest) -> bool:
        asked = (question.call_id, question.tool, question.digest)
        return asked == (call.id, call.name, digest(call))


def build_consent(policy: ApprovalPolicy, turn: int, messages: Messages) -> TurnConsent:
    """Build the consent of a turn that answers `messages`."""
    return TurnConsent(policy, turn, seat_of(messages()[0]), messages)


def seat_of(message: InboundMessage) -> Seat:
    """Return the recipient of the reply to a message."""
    if message.channel in PROGRAMS:
        return "program"
    return "schedule" if is_background(message) else "person"


def digest(call: ToolCallRequest) -> str:
    """Return the SHA-256 of tool and arguments, independent of the order of the arguments."""
    exact = msgspec.json.encode([call.name, call.arguments], order="deterministic")
    return hashlib.sha256(exact).hexdigest()


def render_arguments(arguments: dict[str, Any]) -> str:
    """Render the arguments for people: JSON without secrets. Invisible characters and marks that
    change the direction of text are escaped, so that a person reads exactly what will run."""
    text = REDACTOR(msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode())
    plain = "".join(char if char.isprintable() or char == "\n" else _escape_char(char) for char in text)
    if len(plain) <= SHOWN_CHARS:
        return plain
    return f"{plain[:SHOWN_CHARS]}\n… {len(plain) - SHOWN_CHARS:,} more characters are not shown"


def _escape_char(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _names_foreign_folder(value: object) -> bool:
    return isinstance(value, str) and any(folder in value for folder in _FOREIGN_FOLDERS)


def _is_subagent_report(message: InboundMessage) -> bool:
    """Return whether a subagent wrote the message; it may have read anything."""
    return message.sender_id == SENDER and message.id.startswith(ID_PREFIX)
