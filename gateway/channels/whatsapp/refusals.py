"""Map errors of the Graph API
(developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes). Pure.

Only the number counts: most have HTTP status 400, and titles change. No text of the response is
passed on: it may quote the message.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.platform.protocol import ChannelBroken, ChatClosed, MaybeSent, NotAccepted, PostRefused, Throttled

PAIR_S: Final = 6.0
"""One message per person every six seconds, once the burst is used up."""

_WHOLE_BOT: Final = {130429: 5.0, 4: 60.0, 80007: 60.0, 131048: 60.0}
"""Limits of the whole bot and how long to wait: messages per second, calls per hour, complaints."""

_CLOSED: Final = {
    131047: "the person wrote more than 24 hours ago",
    131026: "this number cannot be written to",
    131030: "this number is none of those that a test number may write to",
    131021: "this is our own number",
    130497: "this country must not be written to",
    130403: "the number is blocked",
    131050: "the person wants no messages",
}
_FAILED: Final = {131000, 131057}
"""WhatsApp documents of these that the message was not sent."""

_OUT_OF_ORDER: Final = {1, 2, 131016, 133004}
_NO_TOKEN: Final = {0, 190}
_NO_RIGHT: Final = {3, 10, 131005, *range(200, 300)}
_NO_ACCOUNT: Final = {368, 131031, 131042, 131045, 133010}
_NO_NUMBER: Final = 33
"""Alone or as subcode of 100: the number does not exist, or not for this token."""

_INVALID: Final = 100


class _GraphError(msgspec.Struct, frozen=True):
    code: int = -1
    error_subcode: int = 0


class _ErrorReply(msgspec.Struct, frozen=True):
    error: _GraphError = _GraphError()


def map_error(status: int, body: bytes) -> Exception:
    """Return the error to raise: a form of NotDelivered, or ChannelBroken."""
    try:
        error = msgspec.json.decode(body, type=_ErrorReply).error
    except msgspec.DecodeError:
        error = _GraphError()
    code = error.code
    if code in _NO_TOKEN or (code == -1 and status == 401):
        return ChannelBroken(
            "WhatsApp does not take the access token: generate one for a system user, and write it into "
            "channels.whatsapp.access_token"
        )
    if code in _NO_RIGHT:
        return ChannelBroken(
            "the access token may not do this: give its system user the app and the WhatsApp account, and the token "
            "the permission whatsapp_business_messaging"
        )
    if code == _NO_NUMBER or (code == _INVALID and error.error_subcode == _NO_NUMBER):
        return ChannelBroken(
            "there is no such number for this token: copy the phone number ID of WhatsApp, API Setup, into "
            "channels.whatsapp.phone_number_id"
        )
    if code in _NO_ACCOUNT:
        return ChannelBroken(f"the WhatsApp account cannot send (error {code}): see what WhatsApp Manager says of it")
    if code == 131056:
        return Throttled(PAIR_S)
    if code in _WHOLE_BOT:
        return Throttled(_WHOLE_BOT[code], whole_bot=True)
    if code in _CLOSED:
        return ChatClosed(f"{code}: {_CLOSED[code]}")
    if code in _FAILED or (code in _OUT_OF_ORDER and status < 500):
        return NotAccepted(f"{code}: WhatsApp is out of order")
    return _map_status(status, code)


def _map_status(status: int, code: int) -> Exception:
    if status == 429:
        return Throttled(_WHOLE_BOT[130429], whole_bot=True)
    if status >= 500:
        return MaybeSent(f"{status if code == -1 else code}: WhatsApp does not know")
    if status < 400:
        return NotAccepted(f"{status}: no answer of the Graph API; is channels.whatsapp.api right?")
    return PostRefused(f"{code if code != -1 else status}: refused by WhatsApp")
