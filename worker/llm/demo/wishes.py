"""The tools that a message to the demo model asks for."""

from __future__ import annotations

import re
from typing import Any, Final

from worker.llm.demo import memory
from worker.llm.demo.reminders import reminder_call
from worker.llm.demo.text import FILE, FILE_TEXT, NEW_LINE, OLD_LINE

_EXPRESSION = re.compile(r"(?:\b(?:sqrt|abs|round|floor|ceil|log|sin|cos|tan)\b|[\d\s.()+\-*/%^×÷])+")
_SUM = re.compile(r"\d[\s)]*(?:[+*/%^×÷]|\*\*|\s-\s|-)[\s(]*[-\d(]|\b(?:sqrt|abs|round|floor|ceil|log|sin|cos|tan)\(")
_TIME = re.compile(r"\b(?:time is it|the time\b|current time|what time|the date\b|what day|time in)", re.IGNORECASE)
_ZONES: Final = {
    "beijing": "Asia/Shanghai",
    "berlin": "Europe/Berlin",
    "london": "Europe/London",
    "new york": "America/New_York",
    "paris": "Europe/Paris",
    "san francisco": "America/Los_Angeles",
    "sydney": "Australia/Sydney",
    "tokyo": "Asia/Tokyo",
}
_SPAWN = re.compile(
    r"\b(?:in the background|(?:ask|use|start|spawn) (?:a|another) (?:sub-?agent|helper))\b[\s:,]*(?:to\s+|and\s+)?",
    re.IGNORECASE,
)
_DICE = re.compile(r"\b(?:roll|dice|coin)\b", re.IGNORECASE)
_SEARCH = re.compile(r"\b(?:search|look)\b.*?\bfor (?P<words>[^\n]{2,100})", re.IGNORECASE)
_FILE = re.compile(
    r"\b(?P<verb>write|make|create|show|read|change|edit)\b[^.\n]{0,30}\b(?:file|list|note)\b", re.IGNORECASE
)
_FILE_CALLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "write": ("write_file", {"path": FILE, "content": FILE_TEXT}),
    "read": ("read_file", {"path": FILE}),
    "change": ("edit_file", {"path": FILE, "old_text": OLD_LINE, "new_text": NEW_LINE}),
}
_VERBS: Final = {"make": "write", "create": "write", "show": "read", "edit": "change"}
_COUNTS: Final = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def wanted_tools(text: str, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """Return names and arguments of the tools, in order. `now_ms` is the time of day."""
    wishes: list[tuple[str, dict[str, Any]]] = []
    if _SPAWN.search(text):
        task = " ".join(_SPAWN.sub(" ", text).split()).strip(" .,:")
        return [("spawn", {"task": task or "Tell a long story", "label": task[:30] or "a story"})]
    if reminder := reminder_call(text, now_ms):
        return [("cron", reminder)]
    if file := _FILE.search(text):
        verb = file["verb"].lower()
        return [_FILE_CALLS[_VERBS.get(verb, verb)]]
    if search := _SEARCH.search(text):
        return [("grep", {"words": search["words"].strip(" .?!“”\"'"), "limit": 5})]
    if _TIME.search(text):
        zone = next((zone for city, zone in _ZONES.items() if city in text.lower()), None)
        named = re.search(r"\b[A-Z]\w+/[A-Z]\w+\b", text)
        zone = named[0] if named else zone
        wishes.append(("current_time", {"timezone": zone} if zone else {}))
    if _DICE.search(text):
        wishes.append(("roll_dice", _dice(text.lower())))
    elif not memory.FACT.search(text):
        sums = [found.strip() for found in _EXPRESSION.findall(text) if _SUM.search(found)]
        wishes.extend(("calculate", {"expression": found}) for found in sums[:3])
    return wishes


def _dice(text: str) -> dict[str, int]:
    exact = re.search(r"\b(\d{1,3})\s*d\s*(\d{1,4})\b", text)
    if exact:
        return {"count": int(exact[1]), "sides": int(exact[2])}
    count = re.search(r"\b(\d{1,2}|two|three|four|five|six)\s+(?:dice|coins)\b", text)
    number = 1 if count is None else _COUNTS.get(count[1]) or int(count[1])
    return {"count": number, "sides": 2 if "coin" in text else 6}
