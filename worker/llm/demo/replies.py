"""Replies of the demo model to results of tools and to facts."""

from __future__ import annotations

import re
from typing import Final

ABOUT_TO: Final = "One moment, I will use a tool for that."
_REPORT: Final = re.compile(
    r"\[Subagent '(?P<label>.*)' (?P<how>.+)\]\n.*?\nResult:\n(?P<result>.*?)(?:\n\nSummarise |\Z)", re.DOTALL
)


def describe_report(text: str) -> str | None:
    """Return the reports of subagents in a text, in words. None for other texts."""
    if not text.startswith("[Subagent '"):
        return None
    report = _REPORT.match(text)
    if report is None:
        return None
    if report["how"] != "completed successfully":
        return f"What I began in the background (“{report['label']}”) did not work out: {report['result']}"
    return f"Done in the background (“{report['label']}”): {report['result']}"


def confirm_fact(what: str, value: str) -> str:
    """Return the answer to a stated fact."""
    if what == "name":
        return f"Nice to meet you, {value}! Ask me for your name later in this chat, I will remember it."
    return f"Noted: your {what} is {value}. I will remember it within this chat."


def recall_fact(what: str, value: str | None) -> str:
    """Return the answer to a question about a fact."""
    if value is None:
        return f"You have not told me your {what} in this chat yet. Say “my {what} is …”, and I will remember it."
    return f"Your {what} is **{value}**."


def describe_result(name: str, text: str) -> str:
    """Return the answer of a tool, in words."""
    if text.startswith("Error: "):
        return f"That did not work: {text.removeprefix('Error: ')}"
    match name:
        case "calculate":
            return f"That makes **{text}**."
        case "current_time":
            return f"It is **{text}**."
        case "spawn":
            return f"{text} Until then you can go on talking to me."
        case "roll_dice":
            return f"The dice say **{text}**."
        case _:
            return f"The tool `{name}` answered: {text}"
