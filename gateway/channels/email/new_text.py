"""Extract the new part of a mail's text, without the quoted mail and the signature. Pure.

When in doubt, everything stays: an extra quote costs less than a missing sentence.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.text.incoming import strip_quoted

_FORWARDS: Final = re.compile(r"\s*(?:fwd?|wg|tr|rv|enc|i|vs|doorst|pd|vl|перешл)\s*:", re.IGNORECASE)
_FORWARDED: Final = re.compile(
    r"^(?:-{3,}\s*(?:Forwarded message|Weitergeleitete Nachricht|Message transféré|Mensaje reenviado|"
    r"Messaggio inoltrato|Doorgestuurd bericht)\s*-{3,}|Begin forwarded message:|Anfang der weitergeleiteten .*:)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_FROM: Final = re.compile(r"\*?(?:From|Von|De|Da|Van|Od|Från|Fra|От|发件人|差出人)\s*:\*?\s*\S", re.IGNORECASE)
_SENT: Final = re.compile(
    r"\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado( el)?|Inviato|Data|Verzonden|Wysłano|Skickat|Sendt|Дата|"
    r"Отправлено|发送时间|送信日時)\s*:\*?\s*\S",
    re.IGNORECASE,
)
_SUBJECT: Final = re.compile(
    r"\*?(?:Subject|Betreff|Objet|Asunto|Oggetto|Assunto|Onderwerp|Temat|Ämne|Emne|Тема|主题|件名)\s*:", re.IGNORECASE
)
_RULE: Final = re.compile(r"\s*(?:[_-]{5,}|-{2,}\s*[^-\n]{1,40}?\s*-{2,})?\s*")
_SIGNATURE_LINES: Final = 15
_HEAD_LINES: Final = 8


def is_forward(subject: str) -> bool:
    """Return whether a mail forwards another one: the quoted part is then what it is about."""
    return _FORWARDS.match(subject) is not None


def new_text(text: str, *, answers: bool, forwards: bool) -> str:
    """Return the new text. `answers`: the mail is a reply."""
    text = text.strip("\n").rstrip()
    if forwards or _FORWARDED.search(text):
        return text
    if answers:
        text = strip_quoted(_cut_outlook_quote(text))
    return _cut_signature(text)


def _cut_outlook_quote(text: str) -> str:
    """Cut the text at the headers that Outlook writes above an otherwise unmarked quote."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        head = lines[at + 1 : at + _HEAD_LINES]
        if _FROM.match(line) and any(map(_SENT.match, head[:4])) and any(map(_SUBJECT.match, head)):
            while at and _RULE.fullmatch(lines[at - 1]):
                at -= 1
            return "\n".join(lines[:at]).rstrip() or text
    return text


def _cut_signature(text: str) -> str:
    """Cut the text at a signature separator (RFC 3676) near the end."""
    lines = text.split("\n")
    for at in range(len(lines) - 1, max(0, len(lines) - 1 - _SIGNATURE_LINES), -1):
        if lines[at] in ("-- ", "--"):
            return "\n".join(lines[:at]).rstrip() or text
    return text
