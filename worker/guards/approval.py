"""What needs a person's yes before it runs. One policy, and the question in which it is asked."""

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

Seat = Literal["person", "schedule", "program", "subagent"]
"""Who waits for what comes of a turn: somebody who can be asked in the chat, nobody just now, a
program that cannot press a button, or another agent."""

PROGRAMS: Final = frozenset({"api", "cli"})
"""Channels in which nobody can answer a question."""

SHOWN_CHARS: Final = 4_000
"""As much of the arguments is shown; what is cut is counted."""

ID_CHARS: Final = 10

_WEB: Final = ("web_fetch", "web_search", "mcp_*")
_FOREIGN_FOLDERS: Final = ("inbox", "results")
"""Folders of a workspace that hold what people sent and what tools brought."""

_REFUSALS: Final[dict[Seat, str]] = {
    "schedule": "it needs a person's yes, and a schedule's turn has nobody to ask. Say what should be done instead",
    "program": "it needs a person's yes, and nobody can be asked here. Say what should be done instead",
    "subagent": "it needs a person's yes, and a subagent cannot ask. Leave it to the agent that gave you the task",
}


class ApprovalPolicy:
    """The one place that says which calls need a yes."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Final = settings.approval
        self._network = settings.tools.exec_network

    def need(self, name: str, safety: Safety | None, seat: Seat, *, untrusted: bool) -> ApprovalNeed:
        """What a call of tool `name` needs. `untrusted` says that the turn has read what strangers
        may have written.

        A tool that does not exist (`safety` None) needs nothing: it does nothing.
        """
        settings = self.settings
        by_name = any(fnmatchcase(name, pattern) for pattern in settings.tools)
        # Without the network a command stays in its sandbox and in the chat's own workspace.
        contained = name == "exec" and not self._network
        by_reading = settings.untrusted and untrusted and safety == "unsafe" and not contained
        if safety is None or not (by_name or safety in settings.classes or by_reading):
            return FREE
        if seat == "person" or (seat == "schedule" and settings.schedules):
            return ApprovalNeed("ask")
        return ApprovalNeed("refuse", _REFUSALS[seat])

    def brings_untrusted(self, call: ToolCallRequest) -> bool:
        """Whether what this call answers may have been written by strangers: pages, search results,
        MCP servers, files that people sent, what such results were kept in, and what a subagent or
        a command on the network brings."""
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
    """The Consent of one turn. `files` says whether people sent files with its messages."""

    def __init__(
        self,
        policy: ApprovalPolicy,
        turn: int,
        seat: Seat,
        *,
        people: Callable[[], Sequence[str]] = tuple,
        untrusted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._policy = policy
        self._turn = turn
        self._seat: Seat = seat
        self._people = people
        self._messages_untrusted = untrusted
        self._read_untrusted = False

    @property
    def wait_s(self) -> float:
        return self._policy.settings.wait_s

    def mark_seen(self, call: ToolCallRequest) -> None:
        self._read_untrusted = self._read_untrusted or self._policy.brings_untrusted(call)

    def need(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalNeed:
        if call.arguments is None:
            return FREE  # nothing can run with them
        return self._policy.need(
            call.name, safety, self._seat, untrusted=self._read_untrusted or self._messages_untrusted()
        )

    def question(self, call: ToolCallRequest) -> ApprovalEntry:
        call_digest = digest(call)
        identity = f"{self._turn}\0{call.id}\0{call_digest}"
        return ApprovalEntry(
            id=hashlib.sha256(identity.encode()).hexdigest()[:ID_CHARS],
            call_id=call.id,
            turn=self._turn,
            tool=call.name,
            digest=call_digest,
            arguments=render_arguments(call.arguments or {}),
            people=tuple(self._people()),
        )

    def covers(self, question: ApprovalEntry, call: ToolCallRequest) -> bool:
        return question.call_id == call.id and question.tool == call.name and question.digest == digest(call)


def build_consent(policy: ApprovalPolicy, turn: int, messages: Callable[[], Sequence[InboundMessage]]) -> TurnConsent:
    """That of a turn which answers `messages`: more may join it while it runs."""
    first = messages()[0]

    def people() -> list[str]:
        return list(
            dict.fromkeys(one.sender_id for one in messages() if not (_is_subagent_report(one) or is_background(one)))
        )

    return TurnConsent(
        policy,
        turn,
        seat_of(first),
        people=people,
        untrusted=lambda: any(one.media or _is_subagent_report(one) for one in messages()),
    )


def seat_of(message: InboundMessage) -> Seat:
    """Who waits for the answer to a message."""
    if message.channel in PROGRAMS:
        return "program"
    return "schedule" if is_background(message) else "person"


def digest(call: ToolCallRequest) -> str:
    """SHA-256 of tool and arguments, whatever the order of their names."""
    exact = msgspec.json.encode([call.name, call.arguments], order="deterministic")
    return hashlib.sha256(exact).hexdigest()


def render_arguments(arguments: dict[str, Any]) -> str:
    """The arguments for people: JSON without secrets, in which nothing hides or turns around what
    stands beside it."""
    text = REDACTOR(msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode())
    plain = "".join(char if char.isprintable() or char == "\n" else _escape_char(char) for char in text)
    if len(plain) <= SHOWN_CHARS:
        return plain
    return f"{plain[:SHOWN_CHARS]}\n… {len(plain) - SHOWN_CHARS:,} more characters are not shown"


def _escape_char(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _names_foreign_folder(value: object) -> bool:
    """Whether a path, or a command, speaks of a folder of what others wrote."""
    return isinstance(value, str) and any(folder in value for folder in _FOREIGN_FOLDERS)


def _is_subagent_report(message: InboundMessage) -> bool:
    """Whether a subagent wrote it, which may have read anything."""
    return message.sender_id == SENDER and message.id.startswith(ID_PREFIX)
