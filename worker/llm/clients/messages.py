"""Messages of a conversation as one model may get them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from worker.agent.model.ask import GOES_ON

Message = Mapping[str, Any]

ID_CHARS: Final = 40
_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{ID_CHARS}}}")
_OF_ITS_OWN: Final = ("thoughts_of", "reasoning_content")


def messages_for(
    model: str, messages: Sequence[Message], *, keep_ids: bool = False, prefix: Mapping[str, Any] | None = None
) -> Sequence[Message]:
    """Return the messages for `model`, named as in the settings. Thoughts and signatures stay only
    with calls that it made itself: other providers refuse them. An id of a call that some provider
    refuses gets one that each takes, the same in call and result, unless `keep_ids`. A reply that
    was cut off is the last message, with the fields of `prefix`, where its provider goes on with it
    by itself; elsewhere a message asks for its rest."""
    if messages and messages[-1].get(GOES_ON):
        *before, begun, asking = messages
        if prefix is None:
            messages = [*before, begun, {name: value for name, value in asking.items() if name != GOES_ON}]
        else:
            # Some providers refuse white space at the end; the seam knows what was shown.
            messages = [*before, {**begun, "content": begun["content"].rstrip(), **prefix}]
    return [
        _prepared(one, model, keep_ids) if "tool_calls" in one or "tool_call_id" in one else one for one in messages
    ]


def wire_id(id_: str) -> str:
    """Return the id of a call in the form that every provider takes, for one id always the same."""
    if _ID.fullmatch(id_):
        return id_
    mark = hashlib.sha256(id_.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', id_)[: ID_CHARS - 1 - len(mark)]}_{mark}"


def _prepared(message: Message, model: str, keep_ids: bool) -> Message:
    if "tool_call_id" in message:
        id_ = message["tool_call_id"]
        return message if keep_ids or _ID.fullmatch(id_) else {**message, "tool_call_id": wire_id(id_)}
    calls = message["tool_calls"]
    thinker = message.get("thoughts_of")
    foreign = thinker is not None and thinker != model
    if not keep_ids and not all(_ID.fullmatch(call["id"]) for call in calls):
        calls = [{**call, "id": wire_id(call["id"])} for call in calls]
    if foreign:
        calls = [{name: value for name, value in call.items() if name != "extra_content"} for call in calls]
    if thinker is None and calls is message["tool_calls"]:
        return message
    left_out = _OF_ITS_OWN if foreign else ("thoughts_of",)
    return {name: value for name, value in message.items() if name not in left_out} | {"tool_calls": calls}
