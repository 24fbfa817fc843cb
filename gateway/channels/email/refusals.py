"""Map replies of a mail server (RFC 5321, RFC 3463), and problems of its certificate. Pure."""

from __future__ import annotations

import re
import ssl
from typing import Final, Literal

from gateway.platform.protocol import ChannelBroken, ChatClosed, MaybeSent, NotAccepted, PostRefused, Throttled

Step = Literal["greeting", "login", "sender", "recipient", "content"]
"""The step that was answered: connection, login, MAIL FROM, RCPT TO, or DATA with the mail."""

Refusal = Throttled | PostRefused | ChatClosed | NotAccepted | MaybeSent | ChannelBroken

_ENHANCED: Final = re.compile(r"\s*([245]\.\d{1,3}\.\d{1,3})\b")
_FULL: Final = ("5.2.2", "5.2.3", "5.3.4")
_NOT_LOGGED_IN: Final = (530, 538)
_MOST_CAUSES: Final = 10
_STEP_WORDS: Final[dict[Step, str]] = {
    "greeting": "the connection",
    "login": "user and password",
    "sender": "our address",
    "recipient": "the address of the person",
    "content": "the mail",
}


def map_error(step: Step, code: int, text: str, *, slow_down_s: float) -> Refusal:
    """Return the error for a reply, without its text, which may contain addresses."""
    found = _ENHANCED.match(text)
    enhanced = found[1] if found else ""
    reason = f"the mail server said {f'{code} {enhanced}'.strip()} to {_STEP_WORDS[step]}"
    if 400 <= code < 500:
        # 4.7 is a matter of policy, such as too many mails, or greylisting.
        if not enhanced.startswith("4.7.") or step == "login":
            return NotAccepted(reason)
        return Throttled(slow_down_s, whole_bot=code == 421 or step in ("greeting", "sender"))
    if not 500 <= code < 600:
        return MaybeSent(reason) if step == "content" else NotAccepted(reason)
    if step == "login":
        return ChannelBroken(f"{reason}: write the right user and password into channels.email")
    if step == "greeting":
        return ChannelBroken(f"{reason}: it does not talk with this machine; ask whoever runs it")
    if code in _NOT_LOGGED_IN:
        return ChannelBroken(f"{reason}: it wants a user and a password; see channels.email.smtp_login")
    if code == 552 or enhanced in _FULL or step == "content":
        return PostRefused(reason)
    if step == "sender":
        return ChannelBroken(f"{reason}: channels.email.address is not an address that this user may write from")
    return ChatClosed(reason)


def certificate_problem(exc: BaseException) -> str | None:
    """Return the problem of a certificate, if one caused the error."""
    found: BaseException | None = exc
    for _ in range(_MOST_CAUSES):
        if isinstance(found, ssl.SSLCertVerificationError):
            return str(found.verify_message)
        found = (found.__cause__ or found.__context__) if found is not None else None
    return None
