"""Names of sessions, processes and messages."""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from shared.errors import BadInput

SESSION_LIMIT_BYTES: Final = 200
FOLDER_NAME: Final = re.compile(r"[0-9a-f]{40}")  # the form of a name from `folder_name`
_SAFE: Final = "/@+=,!$'()*"

API: Final = "api"  # channel of requests over HTTP
MARK: Final = "~"  # begins the name of an ephemeral session; people cannot choose one
KEEP_MS: Final = 86_400_000  # of an ephemeral session; so long its request may be repeated


@lru_cache(4096)
def session_id(channel: str, chat_id: str) -> str:
    """Return the name of one conversation: `channel:chat`, percent-encoded, so that it can be part
    of any key. Raises BadInput when either part is empty or the whole is longer than 200 bytes."""
    if not channel or not chat_id:
        raise BadInput("bad_chat", "a session needs a channel and a chat id; one of them is empty")
    name = f"{quote(channel, safe='')}:{quote(chat_id, safe=_SAFE)}"
    if len(name) > SESSION_LIMIT_BYTES:
        limit = f"at most {SESSION_LIMIT_BYTES} are allowed"
        raise BadInput("bad_chat", f"the chat id is {len(name)} bytes long; {limit}")
    return name


def split_session(session: str) -> tuple[str, str]:
    """Return the (channel, chat id) of a session."""
    channel, _, chat = session.partition(":")
    return unquote(channel), unquote(chat)


def ephemeral_chat(principal: str, ticket: str) -> str:
    """Return the chat id of an ephemeral session, which is created for one request over HTTP and
    deleted with its answer; `ticket` is the request's own name."""
    return f"{principal}/{MARK}{ticket}"


def is_ephemeral(session: str) -> bool:
    """Tell whether a session is ephemeral."""
    channel, _, chat = session.partition(":")
    return channel == API and chat.partition("/")[2].startswith(MARK)


def account_of(session: str) -> str:
    """Return whose budget pays: the session, or its person's for all ephemeral sessions."""
    return session[: session.index(MARK) + 1] if is_ephemeral(session) else session


def folder_name(session: str) -> str:
    """Return the name of a session's folder: 40 hexadecimal digits of a hash. Two sessions never
    share one, even on a case-insensitive file system, and a chat id (perhaps a phone number) stays
    hidden."""
    return hashlib.blake2b(session.encode(), digest_size=20).hexdigest()


def nonce() -> str:
    """Draw 32 hex digits, the owner of a lease: never repeated, even if Redis loses writes."""
    return secrets.token_hex(16)


def log_id(session: str) -> str:
    """Hash a session for logs: a chat id can be a phone number or a name."""
    return hashlib.blake2s(session.encode(), digest_size=6).hexdigest()
