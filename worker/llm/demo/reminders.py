"""Reminders of the demo model: what a person asks for, as a call of `cron`, and what it says when
one is due."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_ASKED: Final = re.compile(r"\bremind me\b\s*(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_IN: Final = re.compile(r"(?i)\bin (?P<many>\d{1,4}|an?|one|two|three|five|ten) (?P<unit>second|minute|hour|day)s?\b")
_DAILY: Final = re.compile(r"(?i)\bevery (?P<days>weekday|day|morning) at (?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\b")
_DUE: Final = re.compile(r"^\[(?:Schedule|The heartbeat) .*?\]\n\n(?P<task>.*)", re.DOTALL)
_NUMBERS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "five": 5, "ten": 10}
_TASK: Final = "Remind the person: "


def reminder_call(text: str, now_ms: int) -> dict[str, Any] | None:
    """Return the arguments of `cron` for a text that asks for a reminder, else None. Without a time
    that the demo understands it is due in one minute."""
    asked = _ASKED.search(text)
    if asked is None:
        return None
    rest = asked["rest"]
    when = _when(asked["rest"], now_ms)
    for pattern in (_DAILY, _IN):
        rest = pattern.sub(" ", rest)
    task = re.sub(r"^(?:to|of|that|about)\b", "", " ".join(rest.split()).strip(" .,:!")).strip()
    return {"action": "add", "message": f"{_TASK}{task or 'this is your reminder'}", **when}


def due_reminder(text: str) -> str | None:
    """Return what to say for the message of a schedule that is due; None for other texts."""
    due = _DUE.match(text)
    if due is None:
        return None
    task = due["task"].strip().removeprefix(_TASK)
    return f"Here is your reminder: **{task}**. Nobody had to write to me; a schedule started this turn."


def _when(text: str, now_ms: int) -> dict[str, str]:
    if (daily := _DAILY.search(text)) and int(daily["hour"]) < 24 and int(daily["minute"] or 0) < 60:
        days = "1-5" if daily["days"].lower() == "weekday" else "*"
        return {"cron_expr": f"{int(daily['minute'] or 0)} {int(daily['hour'])} * * {days}"}
    found = _IN.search(text)
    many = (_NUMBERS.get(found["many"].lower()) or int(found["many"])) if found else 1
    unit = f"{found['unit'].lower()}s" if found else "minutes"
    due = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(**{unit: many})
    return {"at": due.isoformat(timespec="seconds")}
