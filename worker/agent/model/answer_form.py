"""The form of an answer that a program asked for: where it stops, and the JSON schema that it
fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from shared.messages.inbound import TurnOptions
from worker.agent.tools.json_parameters import find_problem

_PROBLEM_CHARS: Final = 500
_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL | re.IGNORECASE)
_SYSTEM: Final = "# Instructions of the program that asks\n\n{}"
_FORM_TITLE: Final = "# Form of the answer"
_FORM: Final = (
    f"{_FORM_TITLE}\n\nA program reads your answer. It is one JSON value that fits this JSON schema, and "
    "nothing else: no fence, no words before or after it. Use tools as ever before you answer.\n\n{}"
)
_AGAIN: Final = (
    "This answer does not fit the JSON schema that was asked for: {}. "
    "Answer again with one JSON value that fits it, and nothing else."
)


def system_text(system: str, options: TurnOptions) -> str:
    """Return the system text with the instructions and the form that a program asked for."""
    parts = [system]
    if options.system:
        parts.append(_SYSTEM.format(options.system))
    if options.schema:
        parts.append(_FORM.format(options.schema))
    return "\n\n---\n\n".join(filter(None, parts))


def read_form(system: str) -> Any:
    """Return the schema in a system text, None if there is none."""
    form = system.rpartition(_FORM_TITLE)[2] if _FORM_TITLE in system else ""
    return msgspec.json.decode(form.rpartition("\n\n")[2]) if form else None


def again_messages(text: str, problem: str) -> list[dict[str, Any]]:
    """Return the messages that ask for an answer again."""
    answer = {"role": "assistant", "content": text or "(empty)"}
    return [answer, {"role": "user", "content": _AGAIN.format(problem)}]


def fit_schema(text: str, schema: str) -> tuple[str, str]:
    """Return the answer as one JSON text, repaired if need be, or `""` and what does not fit."""
    value, json = _read_json(text.strip())
    if json is None:
        return "", "it is not JSON"
    problem = find_problem(msgspec.json.decode(schema), value)
    return ("", problem[:_PROBLEM_CHARS]) if problem else (json, "")


def _read_json(text: str) -> tuple[Any, str | None]:
    """Return the JSON value in a text and the text of it alone, None if there is none."""
    # Models put a value into a fence, or a sentence around it.
    fenced = _FENCED.search(text)
    inner = text[text.find("{") : text.rfind("}") + 1]
    for candidate in filter(None, (text, fenced and fenced[1], inner)):
        try:
            return msgspec.json.decode(candidate), candidate
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    return None, None


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Return the text before the one of `stops` that is complete first."""
    # By its end: where one is a part of another, a stream is over before the longer one comes.
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(found)[1]] if found else text


class StopFilter:
    """Passes on a stream up to the first of `stops`, wherever its deltas are cut."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self._over = False

    def feed(self, text: str) -> str:
        """Return the text that may be shown now. The start of a possible stop is held back."""
        if self._over:
            return ""
        text = self._held + text
        shown = cut_at_stop(text, self._stops)
        self._over = len(shown) < len(text)
        held = 0
        if not self._over:
            # The longest end of the text that begins a stop.
            longest = min(len(text), max(map(len, self._stops), default=1) - 1)
            starts = (n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in self._stops))
            held = next(starts, 0)
        self._held = shown[len(shown) - held :] if held else ""
        return shown[: len(shown) - held]

    def flush(self) -> str:
        """Return what was held back: no stop came of it."""
        held = self._held
        self._held = ""
        return held
