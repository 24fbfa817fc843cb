"""The seam between a gateway and a chat platform: its abilities, its calls, and its messages.

A channel is a folder of `gateway/channels/`, or an installed package, with a class that fits
`Platform`. Delivery, access, limits, streaming and the choice of who listens are the gateway's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, Protocol

import msgspec

from shared.messages.inbound import InboundMessage

RunMode = Literal["webhook", "socket", "exclusive"]
"""The way in of messages. `webhook`: any replica may be called. `socket`: up to `Abilities.sockets`
replicas have one, each event goes to one of them. `exclusive`: one replica at a time listens."""

ResendGuard = Literal["key", "look-up", "nothing"]
"""A platform's guard against showing a post twice after a send that may have arrived. `key`: it
knows the key of a post. `look-up`: it can be asked. `nothing`: it is sent again, and counted."""

RateScope = Literal["bot", "chat", "group"]

RateOf = Literal["all", "posts", "edits"]  # the calls that are counted together


class Rate(msgspec.Struct, frozen=True):
    """At most `per_s` calls a second and `burst` at once, so `burst + per_s * t` in t seconds: of
    the bot, into a chat, or into a group (besides its chat's). Counted in Redis, for all replicas.
    "Is typing" counts as one of `all` of the bot; streaming leaves half of each burst to
    replies."""

    scope: RateScope
    per_s: float
    burst: int
    of: RateOf = "all"


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and features of a platform.

    `edit_every_s` is the shortest time between two edits of one message, 0 = no edits, so nothing
    is streamed. `typing_every_s` is the time between two "is typing", 0 = never. `buttons` is the
    limit for one message. A reply older than `late_after_s` is marked as late, one older than
    `give_up_after_s` becomes a dead letter."""

    run_modes: tuple[RunMode, ...]
    resend_guard: ResendGuard
    sockets: int = 0
    edit_every_s: float = 0.0
    typing_every_s: float = 0.0
    buttons: int = 0
    media: bool = False
    threads: bool = False
    rates: tuple[Rate, ...] = ()
    late_after_s: float = 600.0
    give_up_after_s: float = 86_400.0


GROUP_NOTE: Final = "group"  # key of the note of a target that is "1" where several people are


class PostTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The chat or thread that a message goes to. `notes` has what the platform's code left with an
    earlier message of it (`PlatformMessage.notes`), such as the subject of a mail, and
    GROUP_NOTE."""

    session: str
    chat_id: str
    thread: str | None = None
    notes: Mapping[str, str] = {}


class Piece(msgspec.Struct, frozen=True):
    """Text that fits into one message: `text` in the platform's markup, `plain` without any."""

    text: str
    plain: str


class Button(msgspec.Struct, frozen=True):
    """A button that sends the text `says` in the name of whoever presses it."""

    label: str
    says: str


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file that goes out, from the media store."""

    reference: str
    name: str
    media_type: str
    size_bytes: int
    data: bytes

    @property
    def is_voice_note(self) -> bool:
        """True for Opus in Ogg, which platforms play where they show it."""
        return self.media_type == "audio/ogg" and b"OpusHead" in self.data[:64]


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One message on a platform: a piece of text, or a file. `key` is the same for every try and
    unique among posts. `as_plain`: the markup was refused before. `reply_to`: the message
    answered."""

    target: PostTarget
    key: str
    piece: Piece | None = None
    file: File | None = None
    as_plain: bool = False
    reply_to: str | None = None
    buttons: tuple[Button, ...] = ()

    @property
    def text(self) -> str:
        """The text to be shown; '' for a file."""
        if self.piece is None:
            return ""
        return self.piece.plain if self.as_plain else self.piece.text


class NotDelivered(Exception):
    """A post was not, or may not have been, shown. `reason` is for operators, without its text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Throttled(NotDelivered):
    """Surely not accepted, for there were too many: try again after `retry_after_s`; with
    `whole_bot` the bot may send nothing at all before that."""

    def __init__(self, retry_after_s: float, *, whole_bot: bool = False) -> None:
        super().__init__(f"too many requests; again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s
        self.whole_bot = whole_bot


class MarkupRefused(NotDelivered):
    """Surely not accepted: the platform cannot read the markup. As plain text it may pass."""


class PostRefused(NotDelivered):
    """Surely not accepted, and never will be, such as a text that is too long; later posts may."""


class ChatClosed(NotDelivered):
    """Nothing may be sent to this chat any more: the bot was blocked or removed."""


class NotAccepted(NotDelivered):
    """Surely not accepted, through no fault of the post: no connection, or the platform's fault."""


class MaybeSent(NotDelivered):
    """The request may have arrived, but no answer came, or one that does not say so (a 5xx)."""


class ChannelBroken(Exception):
    """Nothing works until a person mends it, such as an invalid token. The text says what to do."""


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a person sent, not fetched yet. `handle` is the platform's own name for it."""

    handle: str
    name: str = ""
    media_type: str = ""
    size_bytes: int | None = None


class PlatformMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it came from a platform, before access is checked.

    `group`: several people can write there. `addressed`: it is for the bot: a mention, a reply to
    the bot, a command, or anything in a direct chat. `own` and `from_bot` are never answered.
    `replaces` is the id of an earlier message of which this is the edited form. `name` is the
    person's name there: shown to operators, never a reason to let anyone in. `forwarded`: it holds
    words of somebody else. `album` is the same for messages that a person sent as one, where the
    platform sends each file as a message of its own: they are answered together.
    """

    message: InboundMessage
    group: bool = False
    addressed: bool = True
    own: bool = False
    from_bot: bool = False
    forwarded: bool = False
    name: str = ""
    replaces: str | None = None
    files: tuple[RemoteFile, ...] = ()
    album: str = ""
    notes: Mapping[str, str] = {}


InletVerdict = Literal["taken", "duplicate", "command", "ignored", "not allowed", "refused"]
"""The inlet's final decision on a message: the platform need not send it again."""


class Inlet(Protocol):
    """The way in of a gateway, as a platform sees it."""

    async def take(self, event: PlatformMessage) -> InletVerdict:
        """Check access, fetch files, make the message durable. When this returns, the platform may
        be told "got it".

        Raises RedisAway, and Refused with `retry_after_s` when the whole fleet is overloaded: let
        the platform send it again (503), or ask again later.
        """

    async def on_delete(self, deleted: InboundMessage) -> None:
        """Withdraw a deleted message, unless a turn has begun with it. Raises RedisAway."""


class HookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a webhook. Names of `headers` are in lower case; `body` is as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class HookAnswer(msgspec.Struct, frozen=True):
    """The response to a call of a webhook."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"


class Platform(Protocol):
    """One chat platform, made with checked settings; nothing is connected before `open`."""

    @property
    def name(self) -> str:
        """The channel's name: first half of the names of its sessions."""

    @property
    def abilities(self) -> Abilities: ...

    @property
    def run_mode(self) -> RunMode:
        """The one of `abilities.run_modes` that the settings chose."""

    async def open(self) -> None:
        """Connect for sending, and find out who the bot is. Raises ChannelBroken, NotAccepted."""

    async def close(self) -> None:
        """Close every connection. Called once, also when `open` failed."""

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Take messages until `until` is set, then finish what is under way within a few seconds.

        Not called in the run mode webhook. May return or raise NotAccepted when the connection is
        lost: it is called again after a pause. Raises ChannelBroken when that would be useless."""

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        """Answer a call of the webhook: check its signature over the raw body, take its messages.

        Called in the run mode webhook only. RedisAway and Refused may be raised, which answers 503
        with Retry-After, and msgspec's DecodeError, which answers 400."""

    def render(self, markdown: str) -> list[Piece]:
        """Return a reply as pieces that fit into one message each, at least one. Pure."""

    async def send(self, post: Post) -> str:
        """Show a post and return the platform's id of it. One try, without retries of an SDK.

        Raises NotDelivered in one of its forms, MaybeSent unless it is sure, and ChannelBroken when
        no post can be shown before a person mends something."""

    async def edit(self, id: str, post: Post) -> None:
        """Replace the message `id` by a post. Raises NotDelivered."""

    async def find(self, post: Post) -> str | None:
        """Return the id of a post that an earlier try showed, or None. For the guard `look-up`."""

    async def typing(self, target: PostTarget) -> None:
        """Show that an answer is under way. Errors are dropped."""

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent, in parts. Raises NotDelivered."""
