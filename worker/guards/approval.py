"""Approval of tool calls by a person: the policy, and the question that is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from shared.log import logger
from shared.messages.inbound import STRANGER, InboundMessage
from shared.messages.schedule import is_background
from shared.messages.sources import Sources, join_sources, source_label
from shared.messages.standing import STANDING_CHARS, coverage
from shared.messages.subagent import is_subagent_report
from shared.messages.transcript import ApprovalEntry
from shared.metrics import APPROVALS
from shared.settings import Settings
from shared.store.turns.standing import StandingApprovals
from worker.agent.model.model import ToolCallRequest
from worker.agent.ports import FREE, ApprovalNeed
from worker.agent.tools.tool import Safety
from worker.agent.tools.toolbox import Toolbox
from worker.guards.card import CARD_CHARS, describe_touches, render_card
from worker.guards.marks import TurnMark, WorkspaceMark

# The recipient of a turn's reply: a person who can be asked in the chat, a schedule (with no person
# present), a program that cannot press a button, or another agent (for a subagent).
Seat = Literal["person", "schedule", "program", "subagent", "stranger"]
Messages = Callable[[], Sequence[InboundMessage]]
# Channels in which a question cannot be answered.
PROGRAMS: Final = frozenset({"api", "cli"})
ID_CHARS: Final = 10

# Folders of a workspace with files that people sent and results of tools: the release before did
# not mark the workspace itself.
_FOREIGN_FOLDERS: Final = ("inbox", "results")
# Tools whose results are ours, or marked by what they read (`worker/turn`).
_OWN: Final = frozenset({"exec", "spawn", "cron", "message"})
# Tools that ask while the demo model answers under `shoal up`.
_DEMO_ASKS: Final = ("edit_file",)
_REFUSALS: Final[dict[Seat, str]] = {
    "schedule": "a schedule's turn has nobody to ask. Say what should be done instead",
    "program": "nobody can be asked here. Say what should be done instead",
    "stranger": "nobody who wrote may give it. Say that the operator has to name them in the settings",
    "subagent": "a subagent cannot ask. Leave it to the agent that gave you the task",
}


log = logger("worker")


class ApprovalPolicy:
    """Decides which calls need an approval, and whose text they bring. Nothing else does. Results
    of the tools `trusted` are never text of strangers."""

    def __init__(self, settings: Settings, trusted: Iterable[str] = ()) -> None:
        self.settings: Final = settings.approval
        # The first run shows what a question looks like.
        first = settings.web.first_run and settings.model.name == "demo"
        self._names = (*settings.approval.tools, *(_DEMO_ASKS if first else ()))
        self._network = settings.tools.exec_network
        self._trusted = frozenset(trusted)

    def touches(self, call: ToolCallRequest, folder: str) -> tuple[str, ...]:
        """Return what a call reaches, for a chat that works on `folder` ("" = its workspace)."""
        return describe_touches(call.name, call.arguments or {}, folder=folder, network=self._network)

    def need(
        self,
        call: ToolCallRequest,
        safety: Safety | None,
        seat: Seat,
        *,
        sources: Sources = (),
        session: str = "",
        unsafe_subagents: bool = False,
    ) -> ApprovalNeed:
        """Return what a call needs in `session`; nothing if `safety` is None: no such tool.
        `sources` mark the turn. With `unsafe_subagents` a subagent has unsafe tools."""
        settings = self.settings
        name = call.name
        by_name = any(fnmatchcase(name, pattern) for pattern in self._names)
        match name:
            case "exec":
                # Without network access a command stays in its sandbox and in the chat's workspace.
                spreads = self._network
            case "cron":
                spreads = (call.arguments or {}).get("action") != "list"
            case "message":
                chat = (call.arguments or {}).get("chat")
                here = "", session, session.partition(":")[2]
                spreads = chat is not None and str(chat).strip() not in here
            case "spawn":
                spreads = unsafe_subagents
            case _:
                spreads = safety == "unsafe"
        by_reading = settings.untrusted and bool(sources) and spreads
        if safety is None or not (by_name or safety in settings.classes or by_reading):
            return FREE
        if seat == "person" or (seat == "schedule" and settings.schedules):
            return ApprovalNeed("ask")
        after = f" after reading {join_sources(sources)}" if by_reading else ""
        return ApprovalNeed("refuse", f"it needs a person's yes{after}, and {_REFUSALS[seat]}")

    def has_unsafe(self, tools: Toolbox) -> bool:
        """Return whether one of the tools is unsafe where this runs."""
        return any(tools.safety(one.name) == "unsafe" for one in tools.specs() if one.name != "exec" or self._network)

    def brings(self, call: ToolCallRequest) -> Sources:
        """Return the strangers whose text the result of this call may hold: pages, search results,
        MCP servers, packages, files in which such results were stored, and commands with network
        access. What lies in the workspace and in memory has marks of its own."""
        name = call.name
        arguments = call.arguments or {}
        if name == "web_fetch":
            return (source_label(_host_of(arguments.get("url"))),)
        if name == "web_search":
            return ("web search",)
        if name.startswith("mcp_"):
            return (source_label(f"mcp {name.split('_')[1]}"),)
        if name == "exec" and self._network:
            return ("exec with network",)
        if name in ("read_file", "grep", "exec"):
            values = [value for value in arguments.values() if isinstance(value, str)]
            return tuple(folder for folder in _FOREIGN_FOLDERS if any(folder in value for value in values))
        return () if name in _OWN or name in self._trusted else (source_label(f"tool {name}"),)


class TurnConsent:
    """The approval rules of one turn, which answers `messages`; more may join it while it runs."""

    def __init__(
        self,
        policy: ApprovalPolicy,
        turn: int,
        seat: Seat,
        messages: Messages = tuple,
        *,
        mark: WorkspaceMark | None = None,
        session: str = "",
        unsafe_subagents: bool = False,
        standing: StandingApprovals | None = None,
    ) -> None:
        self.wait_s: Final = policy.settings.wait_s
        self.brings: Final = policy.brings
        self._policy = policy
        self._turn = turn
        self._seat: Seat = seat
        self._messages = messages
        marked = mark or WorkspaceMark(TurnMark())
        self._mark: Final = marked.turn
        self.mark: Final = marked.turn.add
        self.pop_unwritten: Final = marked.turn.pop_unwritten
        self.settle: Final = marked.settle
        self._session = session
        self._unsafe_subagents = unsafe_subagents
        self._standing = standing
        self._marked = marked
        # Whether strangers' text lies in the workspace; `stands` looks before each question.
        self._files_marked = True

    @property
    def sources(self) -> Sources:
        self._mark.add_messages(self._messages())  # more may have joined
        return self._mark.sources

    def need(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalNeed:
        if call.arguments is None:
            return FREE  # nothing can run with them
        reach = self._unsafe_subagents
        spoke = self._people()
        strangers = bool(spoke) and all(one.metadata.get(STRANGER) == "1" for one in spoke)
        seat: Seat = "stranger" if strangers else self._seat
        need = self._policy.need(
            call, safety, seat, sources=self.sources, session=self._session, unsafe_subagents=reach
        )
        if need.kind == "ask" and (chars := len(render_card(call.name, call.arguments))) > CARD_CHARS:
            return ApprovalNeed(
                "refuse",
                "it needs a person's yes, and "
                f"with {chars:,} characters it is too long to be shown whole (at most {CARD_CHARS:,}). "
                "Do it in smaller steps",
            )
        return need

    def _people(self) -> list[InboundMessage]:
        """Return the messages that people wrote."""
        return [one for one in self._messages() if not is_subagent_report(one) and not is_background(one)]

    async def stands(self, call: ToolCallRequest) -> bool:
        if self._standing is None:
            return False
        self._files_marked = bool(await self._marked.read_mark())
        if not self._can_stand(call):
            return False
        found = await self._standing.of_session(self._session)
        covers = coverage(call.name, digest(call), self._marked.folder)
        people = self._askable()
        given = [one for one in found if one.covers == covers and one.by in people]
        # Looked at again: strangers' text may have come meanwhile, with a message that joined.
        if not given or not self._can_stand(call):
            return False
        APPROVALS.labels("standing").inc()
        log.info("standing approval used", tool=call.name, question=given[0].id)
        return True

    def _can_stand(self, call: ToolCallRequest) -> bool:
        """Return whether a standing approval may be given for a call, and cover it: a person wrote,
        and neither the turn nor the workspace, nor what the call returns, has strangers' words. A
        command may run a file that holds them, so a marked workspace is enough."""
        if not self._policy.settings.always or self._seat != "person" or not self._askable():
            return False
        return not (self.sources or self._files_marked or self.brings(call))

    def _askable(self) -> tuple[str, ...]:
        """Return the people who may answer a question of this turn."""
        people = (one.sender_id for one in self._people() if one.metadata.get(STRANGER) != "1")
        return tuple(dict.fromkeys(people))

    def _coverage(self, call: ToolCallRequest, call_digest: str, card: str) -> str:
        """Return what a standing approval would cover; "" where none can be given."""
        covers = coverage(call.name, call_digest, self._marked.folder)
        listed = not covers.startswith("call ") or len(card) <= STANDING_CHARS
        return covers if self._standing is not None and listed and self._can_stand(call) else ""

    def question(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalEntry:
        call_digest = digest(call)
        identity = f"{self._turn}\0{call.id}\0{call_digest}"
        card = render_card(call.name, call.arguments or {})
        return ApprovalEntry(
            id=hashlib.sha256(identity.encode()).hexdigest()[:ID_CHARS],
            call_id=call.id,
            turn=self._turn,
            tool=call.name,
            digest=call_digest,
            arguments=card,
            people=self._askable(),
            sources=self.sources if self._policy.settings.untrusted else (),
            touches=self._policy.touches(call, self._marked.folder),
            safe=safety == "read_only" and not self.sources,
            standing=self._coverage(call, call_digest, card),
        )

    def covers(self, question: ApprovalEntry, call: ToolCallRequest) -> bool:
        asked = (question.call_id, question.tool, question.digest)
        return asked == (call.id, call.name, digest(call))


def build_consent(
    policy: ApprovalPolicy,
    turn: int,
    messages: Messages,
    *,
    mark: WorkspaceMark | None = None,
    unsafe_subagents: bool = False,
    standing: StandingApprovals | None = None,
) -> TurnConsent:
    """Build the consent of a turn that answers `messages`."""
    first = messages()[0]
    return TurnConsent(
        policy,
        turn,
        seat_of(first),
        messages,
        mark=mark,
        session=first.session,
        unsafe_subagents=unsafe_subagents,
        standing=standing,
    )


def seat_of(message: InboundMessage) -> Seat:
    """Return the recipient of the reply to a message."""
    if message.channel in PROGRAMS:
        return "program"
    return "schedule" if is_background(message) else "person"


def digest(call: ToolCallRequest) -> str:
    """Return the SHA-256 of tool and arguments, independent of the order of the arguments."""
    exact = msgspec.json.encode([call.name, call.arguments], order="deterministic")
    return hashlib.sha256(exact).hexdigest()


def _host_of(url: object) -> str:
    try:
        return urlsplit(str(url)).hostname or "a page"
    except ValueError:
        return "a page"
