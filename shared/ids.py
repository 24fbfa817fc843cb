"""Names of sessions, processes and messages."""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from shared.errors import BadInput

SESSION_LIMIT_BYTES: Final = 200
FOLDER_NAME: Final = re.compile(r"[0-9a-f]{40}")  # the form of a name from `folder_name`
_SAFE: Final = "/@+=,!$'()*"
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_THREAD: Final = "%23"  # `#`, between a chat and its thread

API: Final = "api"  # channel of requests over HTTP
WEB: Final = "web"  # channel of the page
MARK: Final = "~"  # begins the name of an ephemeral session; people cannot choose one
STORED: Final = "~-"  # begins the name of a session of stored responses; people cannot choose one either
KEEP_MS: Final = 86_400_000  # of an ephemeral session; so long its request may be repeated


class SessionName(NamedTuple):
    """The parts of a session's name, `[tenant/]channel:chat[;agent]`. Tenant and agent are empty
    until there are several: percent-encoding writes neither `/` before the colon nor `;`, so names
    without them stay what they are."""

    channel: str
    chat_id: str
    tenant: str = ""
    agent: str = ""

    def __str__(self) -> str:
        chat = f"{self.channel_key}:{quote(self.chat_id, safe=_SAFE)}"
        return f"{chat};{self.agent}" if self.agent else chat

    @property
    def channel_key(self) -> str:
        """What stands before the colon, and names what a tenant has once for a channel."""
        channel = quote(self.channel, safe="")
        return f"{self.tenant}/{channel}" if self.tenant else channel

    @classmethod
    def parse(cls, session: str) -> SessionName:
        """Take a name apart; one that was not made here gives what it can."""
        place, _, chat = session.partition(":")
        tenant, _, channel = place.rpartition("/")
        chat, _, agent = chat.partition(";")
        return cls(unquote(channel), unquote(chat), tenant, agent)

    def check(self) -> None:
        """Raise BadInput when channel or chat is empty, a tenant or agent is no plain word, or the
        whole is longer than 200 bytes."""
        if not self.channel or not self.chat_id:
            raise BadInput("bad_chat", "a session needs a channel and a chat id; one of them is empty")
        for what, word in (("tenant", self.tenant), ("agent", self.agent)):
            if word and not _WORD.fullmatch(word):
                raise BadInput("bad_chat", f"{what} {word!r} is none: use a to z, 0 to 9 and -, at most 32")
        if (size := len(str(self))) > SESSION_LIMIT_BYTES:
            raise BadInput("bad_chat", f"the chat id is {size} bytes long; at most {SESSION_LIMIT_BYTES} are allowed")


@lru_cache(4096)
def session_id(channel: str, chat_id: str) -> str:
    """Return the name of one conversation: `channel:chat`, percent-encoded, so that it can be part
    of any key. Raises BadInput (see `SessionName.check`)."""
    name = SessionName(channel, chat_id)
    name.check()
    return str(name)


def split_session(session: str) -> tuple[str, str]:
    """Return the (channel, chat id) of a session."""
    return SessionName.parse(session)[:2]


def is_ephemeral(session: str) -> bool:
    """Tell whether a session is ephemeral: created for one request over HTTP and deleted with its
    answer."""
    return _unnamed_chat(session) != "" and not is_stored(session)


def is_stored(session: str) -> bool:
    """Tell whether a session has no name: it is of stored responses, which continue one another."""
    return _unnamed_chat(session).startswith(STORED)


def account_of(session: str) -> str:
    """Return whose budget pays: the session, or its person's for all those without a name."""
    return session[: session.index(MARK) + 1] if _unnamed_chat(session) else session


def _unnamed_chat(session: str) -> str:
    """Return what follows the principal in the name of a session that no person named, else `""`."""
    place, _, chat = session.partition(":")
    chat = chat.partition("/")[2]
    return chat if place.rpartition("/")[2] == API and chat.startswith(MARK) else ""


def person_of(session: str) -> str:
    """Return who pays for the disk space of a session: the principal on the page and over HTTP. On
    a platform it is the chat with all its threads, which in a chat of two is the person."""
    place, _, chat = session.partition(":")
    tenant, slash, channel = place.rpartition("/")
    chat = chat.partition(";")[0]
    if channel in (WEB, API):
        return f"{tenant}{slash}{chat.partition('/')[0]}"
    return f"{place}:{chat.rpartition(_THREAD)[0] or chat}"


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
