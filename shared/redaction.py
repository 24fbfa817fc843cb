"""Masking of secrets in text: known ones by value, unknown ones by their shape. A secret that was
never registered and looks like an ordinary word is not found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

MASK: Final = "***"
# A shorter one stands in too many words; masking it would only make the log unreadable
_SHORTEST: Final = 4

_LOOKS_SECRET: Final = re.compile(
    r"(?P<bearer>\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}"
    r"|(?P<url>\b[a-z][a-z0-9+.-]*://[^\s/@:?#]*:)[^\s/@]+(?=@)"
    r"|(?P<pair>\b(?:api[_-]?key|access[_-]?token|auth[_-]?token|token|secret|password|passwd)\b[\"']?\s*[=:]\s*[\"']?)"
    r"[^\s\"'&,;)}\]]{4,}"
    r"|\bsk-[\w-]{8,}"
    r"|\b(?:xox[abprs]|xapp)-[\w-]{8,}"
    r"|\bgh[pousr]_\w{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[\w-]{30,}"
    r"|(?<!\d)\d{6,12}:[\w-]{30,}"  # a Telegram bot token
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # a JSON web token
    re.IGNORECASE,
)


class Redactor:
    """Masks every registered secret and everything that looks like one."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, secret: str, name: str = "") -> None:
        """Mask `secret`, also percent-encoded or escaped, unless it has under 4 characters. `name`
        is what people may read instead of it; the first one counts."""
        if len(secret) < _SHORTEST or secret in self._names:
            return
        # A secret also appears as repr, as JSON and percent-encoded in logs of libraries.
        escaped = {repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        for form in (secret, quote(secret, safe=""), *sorted(escaped)):
            self._names.setdefault(form, name if form == secret else f"{name}, encoded".lstrip(", "))
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(known) for known in longest_first))

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Yield the text in pieces: each with None, or a registered secret with its name."""
        end = 0
        for found in self._pattern.finditer(text) if self._pattern is not None else ():
            yield text[end : found.start()], None
            yield found[0], self._names[found[0]]
            end = found.end()
        yield text[end:], None

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _LOOKS_SECRET.sub(_keep_label, text)


def _keep_label(found: re.Match[str]) -> str:
    return (found["bearer"] or found["url"] or found["pair"] or "") + MASK


REDACTOR: Final = Redactor()
redact: Final = REDACTOR.add  # never show this secret in this process's log again
redacted: Final = REDACTOR  # the text with secrets masked
