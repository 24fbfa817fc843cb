"""The conversation as the model sees it, and the steps of a running turn."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.messages.codec import Decoder

TRANSCRIBED: Final = "transcribed"
"""Kind of the step that holds what a recording says."""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model's request to use a tool. `arguments` is JSON as the model wrote it, valid or not;
    `extra` is JSON that it wants back with the call."""

    id: str
    name: str
    arguments: str
    extra: str = ""


class UserEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="user"):
    """Text of a person. `turn` is the number of the message in its session, `at` is in ms. In
    history each entry has `sources`, the mark of its turn (see shared.messages.sources)."""

    content: str
    turn: int
    at: int = 0
    sender_id: str = ""
    v: int = 1
    sources: tuple[str, ...] = ()


class AssistantEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="assistant"):
    """Output of a model: text, tool calls, or both. `model` is its name in the settings. Its
    `reasoning` goes back to that model alone, and only within the turn; history keeps its beginning
    for the work log. `context` are the tokens of the call that wrote an answer, `window` those that
    its model takes (0: unknown). `seen` is the state of
    shared files that the model had seen, as the turn's files encode it."""

    content: str | None
    turn: int
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    seen: str = ""
    at: int = 0
    v: int = 1
    sources: tuple[str, ...] = ()
    model: str = ""
    context: int = 0
    window: int = 0


class ToolEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="tool"):
    """Result of one tool call. `images` are paths of pictures in the workspace that the model
    sees while the turn runs; history has none. In a ledger, `sources` are those that mark the turn
    since the result before. `client`: its call was of a function of a program, see ClientTool."""

    call_id: str
    name: str
    content: str
    turn: int
    ok: bool = True
    at: int = 0
    v: int = 1
    images: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    client: bool = False


class IntentEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="intent"):
    """Written before a tool with side effects runs; without a result its outcome is unknown."""

    call_id: str
    turn: int
    at: int = 0
    v: int = 1


class EffectEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="effect"):
    """Written in one step with an effect of a call inside Shoal, so that it happens once. `kind`
    names it, such as `say`, and `to` is the session or the job that it went to. `text` is what a
    recording says (`transcribed`), which is asked for once."""

    call_id: str
    turn: int
    kind: str
    to: str = ""
    at: int = 0
    v: int = 1
    text: str = ""


class JoinEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="taken"):
    """Messages joined the turn here. They stay in the inbox until it ends. `take.lua` writes it."""

    turn: int
    messages: tuple[int, ...]
    at: int = 0
    v: int = 1


class ApprovalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="approval"):
    """A person was asked whether a call may run, and the turn waits for the answer. `id` names the
    question in its chat. `digest` is the SHA-256 of tool and arguments: only these may run.
    `arguments` are they as the chat showed them. `people` are the senders who may answer; empty
    means everybody who may write there. `sources` mark the turn: it asks after reading them.
    `touches` says what the call reaches, `label: value` each. `safe`: it is known to change
    nothing. `standing` is what a yes can cover for good in this chat, "" for nothing. Times are the
    server's, in ms."""

    id: str
    call_id: str
    turn: int
    tool: str
    digest: str
    arguments: str
    people: tuple[str, ...] = ()
    at: int = 0
    expires_at: int = 0
    v: int = 1
    sources: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    safe: bool = False
    standing: str = ""


class DecisionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="decision"):
    """Answer to an approval `by` a sender: for one call, once. `lib/approvals.lua` writes it."""

    call_id: str
    turn: int
    yes: bool
    by: str = ""
    at: int = 0
    v: int = 1


class CallsEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="calls"):
    """The turn waits for its program to run these functions. `id` names the wait. The results are
    `ToolEntry` steps that `submit.lua` writes. Times are the server's, in ms."""

    id: str
    turn: int
    calls: tuple[ToolCall, ...]
    at: int = 0
    expires_at: int = 0
    v: int = 1


TranscriptEntry = UserEntry | AssistantEntry | ToolEntry
LedgerEntry = (
    AssistantEntry | IntentEntry | ToolEntry | EffectEntry | JoinEntry | ApprovalEntry | DecisionEntry | CallsEntry
)

decode_transcript: Decoder[TranscriptEntry] = Decoder(TranscriptEntry)
decode_ledger: Decoder[LedgerEntry] = Decoder(LedgerEntry)
