"""Memory of the demo model: facts about a person, and a short account of a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from worker.agent.tools.text import shorten

TOOL: Final = "save_memory"

_PARTS = re.compile(
    r"<memory>\n(?P<memory>.*?)\n</memory>(?:.*<conversation>\n(?P<said>.*)\n</conversation>)?", re.DOTALL
)
_REWORK_PARTS = re.compile(r"<memory>\n(?P<memory>.*?)\n</memory>\n\n<history>\n(?P<told>.*)\n</history>", re.DOTALL)
_QUOTED = re.compile(r"“([^“”]*)”")
_LINE = re.compile(r"^\[(?P<at>[^\]]*)\] (?P<who>USER|ASSISTANT)[^:\n]*: (?P<text>.*(?:\n    .*)*)", re.MULTILINE)
_NOTE = re.compile(r"^(?:> )?- The person's (?P<what>[\w ]+) is (?P<value>.+)\.$", re.MULTILINE)
FACT = re.compile(r"\bmy (?P<what>[\w ]{1,40}?) (?:is|are) (?P<value>[^.,!?\n]{1,80})", re.IGNORECASE)
_NAME = re.compile(r"\b(?:call me|i am called) (?P<value>[\w-]{1,40})", re.IGNORECASE)


def facts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the facts that a person states about themselves: kind and value."""
    for found in FACT.finditer(text):
        yield found["what"].lower(), found["value"].strip()
    for found in _NAME.finditer(text):
        yield "name", found["value"]


def parse_notes(text: str) -> Iterator[tuple[str, str]]:
    """Yield the facts among the notes in a text."""
    for found in _NOTE.finditer(text):
        yield found["what"], found["value"]


def save_arguments(prompt: str) -> dict[str, Any]:
    """Return the arguments of `save_memory` for a conversation."""
    parts = _PARTS.search(prompt)
    old, conversation = (parts["memory"], parts["said"] or "") if parts else ("", prompt)
    lines = list(_LINE.finditer(conversation))
    asked = [" ".join(line["text"].split()) for line in lines if line["who"] == "USER"]
    memory = _with_facts(old, (fact for text in asked for fact in facts(text)))
    at = lines[-1]["at"] if lines else ""
    return {"history_entry": _summarise(at, asked), "memory_update": memory}


def rework_arguments(prompt: str) -> dict[str, Any]:
    """Return the arguments of `save_memory` that rewrite MEMORY.md from the accounts in HISTORY.md.
    Facts that the notes lack are added. A note beats an account, which has only the beginning and
    the end of a conversation; of several accounts the latest wins."""
    parts = _REWORK_PARTS.search(prompt)
    old, history = (parts["memory"], parts["told"]) if parts else ("", "")
    stated = (fact for quote in _QUOTED.findall(history) for fact in facts(quote))
    known = {what: value for what, value in stated if not value.endswith("…")}
    lines = old.splitlines()
    once = (line for at, line in enumerate(lines) if not line.strip() or line not in lines[:at])
    memory = _with_facts("\n".join(once), [*known.items(), *parse_notes(old)])
    return {"memory_update": memory or "Unchanged."}


def _with_facts(old: str, news: Iterable[tuple[str, str]]) -> str:
    """Return the notes with these facts; a fact of the same kind is replaced, other notes stay."""
    known = dict(parse_notes(old)) | dict(news)
    lines = (line for line in old.splitlines() if line != "(nothing yet)")
    others = [line for line in lines if not _NOTE.match(line)]
    notes = [f"- The person's {what} is {value}." for what, value in known.items()]
    return "\n".join([*others, *notes]).strip()


def _summarise(at: str, asked: list[str]) -> str:
    stamp = f"[{at}] " if at and at != "?" else ""
    if not asked:
        return f"{stamp}Nothing was asked in this part of the conversation."
    if len(asked) == 1:
        return f"{stamp}The person wrote one message: “{shorten(asked[0], 80)}”."
    first = shorten(asked[0], 80)
    last = shorten(asked[-1], 80)
    return f"{stamp}The person wrote {len(asked)} messages. It began with “{first}” and ended with “{last}”."
