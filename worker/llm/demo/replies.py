"""Replies of the demo model to results of tools and to facts."""

from __future__ import annotations

import re
from typing import Final

ABOUT_TO: Final = "One moment, I will use a tool for that."
_REPORT: Final = re.compile(
    r"\[Subagent '(?P<label>.*)' (?P<how>.+)\]\n.*?\nResult:\n(?P<result>.*?)(?:\n\nSummarise |\Z)", re.DOTALL
)

_PLANNED: Final = re.compile(r"^Schedule \w+ is made: (?:once, at (?P<once>.*)|.*; first (?P<first>.*))\.$")


def _describe_plan(planned: re.Match[str]) -> str:
    return f"I will remind you {f'at {once}' if (once := planned['once']) else 'first at ' + planned['first']}."


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


def fenced(text: str) -> str:
    """Return a text as a block of code, whatever marks of code it has."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


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
        case "cron":
            return (
                f"{_PLANNED.sub(_describe_plan, text)} You need not stay: I write here. `/cron` lists what is planned."
            )
        case "write_file":
            return (
                f"{text} It is in the workspace of this chat. "
                "Now try **Change the list**: under `shoal up` it waits for your yes."
            )
        case "read_file" | "grep":
            return f"I found this:\n\n{fenced(text)}"
        case "edit_file":
            return f"{text} **Show the list** reads it."
        case _:
            return f"The tool `{name}` answered: {text}"
