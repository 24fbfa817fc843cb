"""How Slack shows a text: marks of mrkdwn, references in angle brackets, three entities."""

from __future__ import annotations

import re
from typing import Final

_JOINTS: Final = re.compile("[\u200b\u2060]")
_FENCE: Final = re.compile(r"```\n?(.*?)\n?```", re.DOTALL)
_REFERENCE: Final = re.compile(r"<([^<>\n]+)>")
_MARKS: Final = [
    re.compile(rf"(?<![\w{mark}]){mark}(?!\s)([^{mark}\n]+?)(?<!\s){mark}(?![\w{mark}])") for mark in "*_~`"
]
_MARKS[0] = re.compile(r"(?<![\w*])\*(?!\s)([^*\n]+?)(?<!\s)\*(?![\w*])")


def shown(raw: str, *, mrkdwn: bool = True) -> tuple[str, bool]:
    """The text as a person sees it, and whether there was any markup."""
    text = _REFERENCE.sub(_written, raw)
    marked = False
    if mrkdwn:
        before = text
        text = _FENCE.sub(lambda found: found[1], text)
        for mark in _MARKS:
            text = mark.sub(lambda found: found[1], text)
        text = re.sub(r"^&gt; ?", "", text, flags=re.MULTILINE)
        marked = text != before
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return _JOINTS.sub("", text), marked or (mrkdwn and _REFERENCE.search(raw) is not None)


def _written(found: re.Match[str]) -> str:
    target, bar, label = found[1].partition("|")
    if target[:1] in "@#!":
        return f"[calls {target}]"  # people would be called: a text of ours never does that
    return label if bar else target
