"""Settings of webhooks that are not those of a chat platform: `[webhooks.in.<name>]` and
`[webhooks.out.<name>]`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from shared.errors import BadInput
from shared.ids import session_id, split_session
from shared.settings.secret import Secret
from shared.settings.sections.gateways import TOKEN_CHARS
from shared.settings.sections.kinds import Text

HOOK: Final = "hook"
"""Name of the channel of these webhooks."""

PREFIX: Final = "whsec_"
KEY_BYTES: Final = 24
MAKE_KEY: Final = "echo whsec_$(head -c 32 /dev/urandom | base64)"

PLACE: Final = re.compile(r"\{\{ *(body(?:\.[A-Za-z0-9_-]+)*) *\}\}")
"""A value of the body's JSON in a prompt: keys of objects and places in lists, with dots between."""

_NOT_CHATS: Final = ("system", HOOK)  # channels in which nobody reads
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_WEB_CHAT: Final = re.compile(r"[^/]+/[A-Za-z0-9_-]{1,64}")

EVENTS: Final = (
    *("turn.completed", "turn.stopped", "turn.failed", "approval.requested", "calls.requested"),
    *("response.completed", "response.incomplete", "response.cancelled", "response.failed"),
)

Verification = Literal["standard", "github", "bearer"]


class IncomingWebhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls of a program at `/hooks/in/<name>`, each of which becomes a message in `chat`, the name
    of a session such as `web:owner/alerts`. `verify` says how the program shows `secret`, or
    `old_secret` while one replaces the other. `prompt` is the text of the message, with values of
    the body's JSON such as `{{ body.alert.title }}`. One gateway takes `per_minute` calls."""

    secret: Secret
    chat: Text
    prompt: Text
    verify: Verification = "standard"
    old_secret: Secret | None = None
    per_minute: Annotated[int, Meta(ge=1, le=100_000)] = 60


class OutgoingWebhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that is called at `url` when one of `events` happens in a session that one of the
    patterns `sessions` fits. Calls are signed with `secret`, and with `old_secret` as well while
    one replaces the other. With `allow_private` the address may be private, and without TLS."""

    url: Text
    secret: Secret
    events: tuple[str, ...] = EVENTS
    sessions: tuple[str, ...] = ("*",)
    old_secret: Secret | None = None
    allow_private: bool = False


class WebhookSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Webhooks by name."""

    out: dict[str, OutgoingWebhook] = {}

    # `in` is a word of Python.
    in_: dict[str, IncomingWebhook] = field(default={}, name="in")


def webhook_problems(webhooks: WebhookSettings) -> Iterator[str]:
    """Yield a line for each value of a webhook that cannot be used."""
    for name, hook in webhooks.in_.items():
        key = f"webhooks.in.{name}"
        yield from _name_problems(name, "webhooks.in")
        secrets = {"secret": hook.secret} | ({"old_secret": hook.old_secret} if hook.old_secret else {})
        for which, secret in secrets.items():
            if hook.verify == "standard":
                yield from key_problems(f"{key}.{which}", secret)
            elif len(secret.reveal()) < TOKEN_CHARS:
                yield f"{key}.{which} is too short; use at least {TOKEN_CHARS} random characters"
        yield from _chat_problems(f"{key}.chat", hook.chat)
        yield from _prompt_problems(f"{key}.prompt", hook.prompt)

    for name, endpoint in webhooks.out.items():
        yield from _name_problems(name, "webhooks.out")
        yield from _endpoint_problems(f"webhooks.out.{name}", endpoint)


def signing_key(secret: str) -> bytes:
    """Return the key of a secret of the form `whsec_<base64>`. Raises ValueError."""
    if not secret.startswith(PREFIX):
        raise ValueError("no secret of a webhook")
    key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    if len(key) < KEY_BYTES:
        raise ValueError("a short secret")
    return key


def key_problems(key: str, secret: Secret) -> Iterator[str]:
    """Yield a line for a secret that is no key for signatures."""
    try:
        signing_key(secret.reveal())
    except (ValueError, binascii.Error):
        yield f"{key} must be {PREFIX} and the base64 of at least {KEY_BYTES} bytes; make one with: {MAKE_KEY}"


def _endpoint_problems(key: str, endpoint: OutgoingWebhook) -> Iterator[str]:
    yield from key_problems(f"{key}.secret", endpoint.secret)
    if endpoint.old_secret is not None:
        yield from key_problems(f"{key}.old_secret", endpoint.old_secret)
    if not endpoint.url.startswith(("https://", "http://") if endpoint.allow_private else "https://"):
        yield f"{key}.url must begin with https://; http:// needs allow_private = true"
    for event in endpoint.events:
        if event not in EVENTS:
            yield f"{key}.events has {event!r}; there are: {', '.join(EVENTS)}"


def _name_problems(name: str, section: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f"{section} has the name {name!r}; use 1 to 32 of a to z, 0 to 9 and -, none at the ends"


def _chat_problems(key: str, chat: str) -> Iterator[str]:
    channel, chat_id = split_session(chat)
    try:
        session_id(channel, chat_id)
    except BadInput:
        yield f"{key} is {chat!r}; write channel and chat, such as 'web:owner/alerts' or 'telegram:4242'"
        return
    if channel in _NOT_CHATS:
        yield f"{key} is {chat!r}, in which nobody reads; write another chat"
    elif channel == "web" and not _WEB_CHAT.fullmatch(chat_id):
        yield f"{key} is {chat!r}; a chat of the page is 'web:<person>/<chat>', of letters, digits, _ and -"


def _prompt_problems(key: str, prompt: str) -> Iterator[str]:
    for place in re.findall(r"\{\{(.*?)\}\}", prompt, re.DOTALL):
        if not PLACE.fullmatch(f"{{{{{place}}}}}"):
            yield f"{key} has '{{{{{place}}}}}'; only paths such as '{{{{ body.alert.title }}}}' are filled in"
