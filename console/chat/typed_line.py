"""What a person means who typed a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = re.compile(r"[1-9][0-9]?")


def button_by_number(text: str, buttons: Sequence[str]) -> str:
    """The label of the button whose number is all of `text`; else the text as it is."""
    typed = text.strip()
    number = int(typed) if _NUMBER.fullmatch(typed) else 0
    return buttons[number - 1] if 1 <= number <= len(buttons) else text


def unknown_command(text: str, commands: Sequence[str]) -> str:
    """The `/word` at the beginning of a text that looks like a command and is none; `""` for
    everything else."""
    word = text.split(maxsplit=1)[0]
    looks = bool(commands) and re.fullmatch(r"/\w+", word) is not None
    return word if looks and word.lower() not in commands else ""
