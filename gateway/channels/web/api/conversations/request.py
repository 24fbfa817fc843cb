"""Reads requests about conversations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gateway.channels.web.api.errors import ApiError, bad_parameter
from gateway.channels.web.api.parameters import Parameters, check_parameters
from gateway.channels.web.api.request import hash_of, parse_object, read_entries, read_metadata, session_name
from gateway.channels.web.api.responses.items import as_messages, place_in_input
from gateway.channels.web.api.responses.items import read_items as read_list
from gateway.channels.web.api.responses.request import CONVERSATION
from shared.errors import BadInput
from shared.ids import API, session_id
from shared.messages.sources import OF_PROGRAMS, merge_sources
from shared.messages.transcript import TranscriptEntry

_METADATA: Final[Mapping[str, Any]] = {"metadata": dict[str, str] | None}
_ITEMS: Final[Mapping[str, Any]] = {"items": list[dict[str, Any]] | None}


def _parameters(used: Mapping[str, Any], required: tuple[str, ...]) -> Parameters:
    return Parameters(used=used, without_effect={}, fixed={}, offered=(), required=required, instead={})


CREATE: Final = _parameters({**_METADATA, **_ITEMS}, ())
CHANGE: Final = _parameters(_METADATA, ("metadata",))
ADD: Final = _parameters({"items": list[dict[str, Any]]}, ("items",))


class ConversationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a request brings: metadata, and entries of a conversation. The same `hash` is the same
    request. `ignored` names parameters that were left out of account."""

    metadata: dict[str, str]
    entries: tuple[TranscriptEntry, ...]
    hash: str
    ignored: tuple[str, ...]

    def make(self, at_ms: int) -> Callable[[int], list[TranscriptEntry]]:
        """Return a function that makes the entries with their number in the session. Their times
        keep apart those with equal texts."""
        return lambda turn: [
            replace(entry, turn=turn, at=at_ms + at, sources=merge_sources((OF_PROGRAMS,), entry.sources))
            for at, entry in enumerate(self.entries)
        ]


def parse_conversation_request(body: bytes, known: Parameters, *, strict: bool) -> ConversationRequest:
    """Parse a body with the parameters of one address. Raises ApiError."""
    fields = parse_object(body)
    ignored = check_parameters(fields, strict=strict, known=known)
    entries = _read_entries(fields.get("items") or [])
    return ConversationRequest(
        metadata=read_metadata(fields), entries=entries, hash=hash_of("conversation", fields), ignored=ignored
    )


def conversation_session(principal: str, id: str) -> str:
    """Return the session of a conversation; `""` for an id of another form: it names none."""
    name = id.removeprefix(CONVERSATION)
    try:
        return session_id(API, f"{principal}/{session_name(name, 'conversation')}") if name != id else ""
    except (ApiError, BadInput):
        return ""


def _read_entries(raw: Sequence[Mapping[str, Any]]) -> tuple[TranscriptEntry, ...]:
    for at, item in enumerate(raw):
        if item.get("type") == "item_reference":
            where = f"items[{at}]"
            raise bad_parameter(where, f"{where} is a reference; send the item itself", code="item_not_found")
    try:
        messages, places = as_messages(read_list(raw))
    except ApiError as exc:
        raise _placed(exc, ()) from None
    try:
        return read_entries(messages)
    except ApiError as exc:
        raise _placed(exc, places) from None


def _placed(exc: ApiError, places: Sequence[int]) -> ApiError:
    """Return an error about messages as one about items."""
    message, param = (_in_items(text, places) for text in (exc.message, exc.param or "items"))
    return ApiError(exc.status, message, code=exc.code, param=param)


def _in_items(text: str, places: Sequence[int]) -> str:
    text = place_in_input(text, places).replace("input[", "items[")
    return "items" if text in ("messages", "input") else text
