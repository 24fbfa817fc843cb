"""Parts of a request that one model does not take, or wants. Its refusal names the part: the request
is sent once more without it, and so are all later ones of this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from shared.log import logger
from worker.llm.clients.refusal_text import RefusalText

log = logger("models")

Body = dict[str, Any]
Message = dict[str, Any]
NOT_SHOWN: Final = "[A picture stood here. It cannot be shown: this model takes no pictures.]"
NOT_KEPT: Final = "(not kept)"
"""Stands for thoughts that are gone: those of another model, or of an earlier turn."""
_STATUSES: Final = frozenset({400, 404, 405, 415, 422, 500, 501})
_REFUSING: Final = (
    r"(not (be )?(support|allow|permit|enabl|available|recogni)|n't support|no support|unsupported|unrecogni|unknown|"
    r"unexpected|extra|invalid|deprecated|only (the default|1|be set)|must be (1|one)\b|cannot (both )?be|"
    r"no endpoints found|not implemented|is not a|remove|not be (included|passed|sent))"
)


class Omission(msgspec.Struct, frozen=True):
    """A part that can be left out. A refusal names it if it matches `named` and says that it is not
    taken, or matches `sure`. `without` returns the body without it, or None if it is not there."""

    name: str
    named: re.Pattern[str]
    sure: re.Pattern[str]
    without: Callable[[Body], Body | None]

    def is_named(self, text: RefusalText) -> bool:
        return text.says(self.sure) or (text.says(self.named) and text.says(_REFUSING_WORDS))


class Omissions:
    """What the requests to one model leave out: what the settings say, and what it has refused."""

    def __init__(self, model: str, names: Iterable[str] = ()) -> None:
        self._model = model
        self._names = set(names)

    def applied(self, body: Body) -> Body:
        """Return the body without what is left out."""
        for omission in OMISSIONS if self._names else ():
            if omission.name in self._names:
                body = omission.without(body) or body
        return body

    def learn(self, status: int, refusal: str, sent: Body) -> bool:
        """Return whether a refusal names a part of the body that was `sent`; later bodies lack it."""
        if status not in _STATUSES:
            return False
        text = RefusalText(refusal)
        named = (each for each in OMISSIONS if each.without(sent) is not None and each.is_named(text))
        cause = next(named, None)
        if cause is None:
            return False
        if cause.name not in self._names:
            self._names.add(cause.name)
            log.warning(
                "the model refused a part of requests: left out from now on", model=self._model, part=cause.name
            )
        return True


def _drop(*keys: str) -> Callable[[Body], Body | None]:
    def without(body: Body) -> Body | None:
        return {key: value for key, value in body.items() if key not in keys} if keys[0] in body else None

    return without


def _rename(old: str, new: str) -> Callable[[Body], Body | None]:
    def without(body: Body) -> Body | None:
        return {new if key == old else key: value for key, value in body.items()} if old in body else None

    return without


def _of_messages(change: Callable[[Message], Message]) -> Callable[[Body], Body | None]:
    def without(body: Body) -> Body | None:
        # The system text may be encoded already.
        messages = [change(one) if isinstance(one, dict) else one for one in body["messages"]]
        changed = any(new is not old for new, old in zip(messages, body["messages"], strict=True))
        return {**body, "messages": messages} if changed else None

    return without


def _without_thoughts(message: Message) -> Message:
    if "reasoning_content" not in message:
        return message
    return {name: value for name, value in message.items() if name != "reasoning_content"}


def _with_thoughts(message: Message) -> Message:
    bare = message.get("tool_calls") and not message.get("reasoning_content")
    return {**message, "reasoning_content": NOT_KEPT} if bare else message


def _text_alone(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or not any(part.get("type") == "image_url" for part in content):
        return message
    texts = [NOT_SHOWN if part.get("type") == "image_url" else part.get("text") or "" for part in content]
    return {**message, "content": "\n\n".join(texts)}


def _omission(
    name: str, without: Callable[[Body], Body | None], *, named: str = r"(?!)", sure: str = r"(?!)"
) -> Omission:
    return Omission(name, re.compile(named), re.compile(sure), without)


_REFUSING_WORDS: Final = re.compile(_REFUSING)
OMISSIONS: Final = (
    _omission(
        "images",
        _of_messages(_text_alone),
        sure=(
            r"unknown variant `image_url`|content (must|should) be a string|text-only model|not a multi-?modal|"
            r"(not|n't|that) support (image|vision|multi-?modal)|image_url is only supported by|"
            r"\bimage(s|_url)?( inputs?| content)?[`'\"]? (is |are )?(not |un)supported"
        ),
    ),
    _omission(
        "calls_without_thoughts",
        _of_messages(_with_thoughts),
        sure=(
            r"reasoning_content[`'\"]?( field)?( is| are)? (missing|required|needed|empty)|"
            r"reasoning_content[`'\"]?( field)? must be (passed|provided|non-?empty)|"
            r"(missing|requires?|expected|no|without)( a| the)?( non-?empty)? [`'\"]?reasoning_content|"
            r"reasoning_content[`'\"]?[^.]{0,60}must be passed back"
        ),
    ),
    _omission("reasoning_content", _of_messages(_without_thoughts), named=r"reasoning_content"),
    _omission(
        "stream_options",
        _drop("stream_options"),
        named=r"stream_options|stream options|include_usage",
    ),
    _omission(
        "max_tokens",
        _rename("max_tokens", "max_completion_tokens"),
        sure=r"use [`'\"]?max_completion_tokens|[`'\"]max_tokens[`'\"] is not supported",
    ),
    _omission(
        "max_completion_tokens",
        _rename("max_completion_tokens", "max_tokens"),
        named=r"max_completion_tokens",
    ),
    _omission(
        "parallel_tool_calls", _drop("parallel_tool_calls"), named=r"parallel[_ ]tool[_ ](calls?|use)|parallel tool"
    ),
    _omission("temperature", _drop("temperature"), named=r"temperature"),
    _omission("top_p", _drop("top_p"), named=r"\btop_p\b"),
    _omission("seed", _drop("seed"), named=r"\bseed\b"),
    _omission(
        "tool_choice",
        _drop("tool_choice"),
        sure=r"not support this tool_choice|[`'\"]tool_choice[`'\"]? (parameter )?(is )?(not supported|unsupported)",
    ),
    _omission(
        "tools",
        _drop("tools", "tool_choice"),
        sure=(
            r"enable-auto-tool-choice|(not|n't|that) support (tools|functions|tool (use|calling)|function[_ ]calling)|"
            r"(tool (use|calling)|tools|functions?|function[_ ]calling)[`'\"]? (is |are )?(not |un)(supported|enabled)|"
            r"unrecognized request arguments? supplied: [^.]*tools|tools: extra inputs"
        ),
    ),
)
NAMES: Final = tuple(omission.name for omission in OMISSIONS)
