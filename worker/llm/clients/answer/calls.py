"""Tool calls, put together from the pieces of a stream, whatever ids and indexes those have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.names import match_tool
from worker.llm.clients.answer.characters import join_halves
from worker.llm.clients.arguments import is_whole, parse_arguments, values_in
from worker.llm.clients.completion import CallPiece

_BEGINNINGS: Final = ("{", "[", '"')  # of an object, one in a list, one that is encoded twice


class _Piece(msgspec.Struct):
    """A piece with blanks instead of what is missing."""

    index: int | None
    id: str
    name: str
    text: str
    extra: str


class _OpenCall(msgspec.Struct):
    """A call whose pieces are being put together."""

    id: str = ""
    name: str = ""
    texts: list[str] = []
    extra: str = ""

    @property
    def text(self) -> str:
        return "".join(self.texts)


def assemble_calls(pieces: Iterable[CallPiece], tools: Collection[str]) -> tuple[ToolCallRequest, ...]:
    """Return the calls that the pieces of a stream make. `tools` are the names on offer: they tell
    a name in two pieces from the names of two calls.

    A piece goes on with the call at its index, else with that of its id, else with the last one,
    unless it begins another call. Only a piece with a name does.
    """
    calls: list[_OpenCall] = []
    by_index: dict[int, _OpenCall] = {}
    for given in pieces:
        piece = _read(given)
        call = _open_call(piece, calls, by_index)
        if call is None or _begins_another(piece, call, by_index, tools):
            call = _OpenCall()
            calls.append(call)
        if piece.index is not None:
            by_index[piece.index] = call
        call.id = call.id or piece.id
        call.name = _joined_name(call.name, piece.name, tools)
        call.texts.append(piece.text)
        call.extra = piece.extra or call.extra
    return _requests(_without_fragments(calls))


def separate_calls(pieces: Iterable[CallPiece]) -> tuple[ToolCallRequest, ...]:
    """Return the calls of an answer that came in one piece: each has all of its parts."""
    calls = [_OpenCall(one.id, one.name, [one.text], one.extra) for one in map(_read, pieces)]
    return _requests(call for call in calls if call.name or call.text)


def _read(piece: CallPiece) -> _Piece:
    function = piece.function
    name, text = (function.name or "", function.arguments or "") if function else ("", "")
    extra = msgspec.json.encode(piece.extra_content).decode() if piece.extra_content else ""
    return _Piece(piece.index, piece.id or "", name, text, extra)


def _open_call(piece: _Piece, calls: Sequence[_OpenCall], by_index: dict[int, _OpenCall]) -> _OpenCall | None:
    """Return the call that a piece goes on with, if it begins none."""
    at_index = by_index.get(piece.index) if piece.index is not None else None
    if at_index is not None and (not piece.id or piece.id == at_index.id):
        return at_index
    of_id = next((call for call in reversed(calls) if piece.id and call.id == piece.id), None)
    return of_id or at_index or (calls[-1] if calls else None)


def _begins_another(piece: _Piece, call: _OpenCall, by_index: dict[int, _OpenCall], tools: Collection[str]) -> bool:
    """Return whether a piece begins another call than the one it could go on with."""
    other_id = bool(piece.id and call.id and piece.id != call.id)
    same_id = bool(piece.id and piece.id == call.id)
    other_place = piece.index is not None and by_index.get(piece.index) is not call and not same_id
    if not piece.name:
        # A call may be announced before its name comes; what goes on with a named one is its arguments.
        return not call.name and (other_id or other_place) and not piece.text
    if not call.name:
        return other_id and other_place
    other_name = piece.name != call.name
    if other_name and (_goes_on(call.name, piece.name, tools) and not other_id):
        return False
    if other_name and _is_tool(call.name, tools) and _is_tool(piece.name, tools):
        return True
    if piece.text and not (other_name or other_place) and piece.text.lstrip()[:1] not in _BEGINNINGS:
        return False
    text = call.text
    if not text.strip():
        return other_name or other_place or (other_id and not piece.text)
    if piece.text.startswith(text) and not (other_id or other_place):
        return False  # repeated, or whole so far
    if is_whole(text):
        return other_id or other_place or other_name or text.strip() != "{}"
    # Its arguments break off, so what cannot begin an object goes on with them.
    another = other_id or other_place or other_name
    return another and (piece.text.lstrip().startswith("{") if piece.text else other_place)


def _goes_on(name: str, more: str, tools: Collection[str]) -> bool:
    """Return whether the two are one name in two pieces, or one that is written whole so far."""
    if _is_tool(name, tools) and _is_tool(more, tools):
        return False
    joined = name + more
    halves = bool(tools) and (_is_tool(joined, tools) or any(tool.startswith(joined) for tool in tools))
    return halves or more.startswith(name) or name.startswith(more)


def _joined_name(name: str, more: str, tools: Collection[str]) -> str:
    if not more or name.startswith(more):
        return name
    if not name or more.startswith(name):
        return more
    return name if _is_tool(name, tools) and not _is_tool(name + more, tools) else name + more


def _is_tool(name: str, tools: Collection[str]) -> bool:
    """Return whether a name is on offer; without an offer each is."""
    return not tools or match_tool(name, tools) in tools


def _without_fragments(calls: Sequence[_OpenCall]) -> list[_OpenCall]:
    """Return the calls without those that are none: a rest without a name belongs to the call
    before it, and a call that repeats the one before it says nothing, nor does the beginning of one
    that follows whole."""
    kept: list[_OpenCall] = []
    for call in calls:
        before = kept[-1] if kept else None
        if before is None:
            kept += [call] if call.name or call.text.strip() else []
        elif not call.name:
            before.texts += call.texts
        elif call.name == before.name and not is_whole(before.text) and _begins(before.text, call.text):
            kept[-1] = _OpenCall(before.id, call.name, call.texts, call.extra or before.extra)
        elif call.name != before.name or call.id not in ("", before.id) or call.text.strip():
            kept.append(call)
    return kept


def _begins(text: str, whole: str) -> bool:
    return bool(text.strip()) and whole.startswith(text)


def _requests(calls: Iterable[_OpenCall]) -> tuple[ToolCallRequest, ...]:
    found = []
    for call in calls:
        for at, raw in enumerate(_arguments(call.texts)):
            id_ = call.id if at == 0 else ""
            found.append(ToolCallRequest(id_, call.name, parse_arguments(raw), raw, call.extra if at == 0 else ""))
    return tuple(found)


def _arguments(texts: Sequence[str]) -> list[str]:
    """Return the arguments in the pieces of one call; several if objects stand behind each other,
    which is how some servers send calls of one tool."""
    raw = join_halves("".join(texts))
    given = [text for text in texts if text.strip()]
    if len(given) > 1 and is_whole(given[-1]) and all(given[-1].startswith(text) for text in given):
        return [join_halves(given[-1])]  # each piece repeats what came before it
    objects = [value for value in values_in(raw) if value.startswith("{")]
    if len(objects) < 2:
        return [raw]
    different = [value for value in dict.fromkeys(objects) if parse_arguments(value)]
    return different or objects[:1]
