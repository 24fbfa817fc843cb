"""What a chat platform is to the rest of a gateway: what it can do, how a message gets there, and
what it answers.

A channel is one folder of `gateway/channels/`, or a package of somebody else, with one class that
fits `Platform`. Delivery, access, limits, streaming and who may listen are the gateway's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, Protocol

import msgspec

from shared.messages.inbound import InboundMessage

RunMode = Literal["webhook", "socket", "exclusive"]
"""How messages come in. A webhook may be called on any replica; of a socket every replica may have
one, up to `Abilities.sockets`, and each event goes to one of them; exclusive: one replica at a time
listens."""

ResendGuard = Literal["key", "look-up", "nothing"]
"""What the platform offers after a send of which nobody knows whether it arrived: it knows the key
of a post and does not show it twice; it can be asked for the post; or neither, and then the post is
sent again and counted."""

RateScope = Literal["bot", "chat", "group"]

RateOf = Literal["all", "posts", "edits"]
"""Which calls a platform counts together: all of them, new messages, or edits."""


class Rate(msgspec.Struct, frozen=True):
    """At most `per_s` calls a second and `burst` at once: of the bot, into one chat, or into one
    chat of several people (beside that of its chat). So within t seconds there are at most `burst +
    per_s * t`. Counted in Redis, for all replicas together. "Is typing" is one of `all` of the bot;
    what shows how a turn goes leaves half of a burst to replies."""

    scope: RateScope
    per_s: float
    burst: int
    of: RateOf = "all"


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform allows. `edit_every_s` is the shortest time between two edits of one message,
    0 = it has no edits and nothing is streamed; `typing_every_s` how often "is typing" is said
    again, 0 = never. `buttons`: on one message. `late_after_s`: an older reply is marked as late,
    `give_up_after_s`: and an even older one is a dead letter."""

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


GROUP_NOTE: Final = "group"
"""Key of the note of a target that is "1" where several people are; the inlet writes it."""


class PostTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message goes. `notes` is what the platform's own code left for it with an earlier
    message of this place (`PlatformMessage.notes`), such as the subject of a mail; beside it `group` is "1"
    where several people are."""

    session: str
    chat_id: str
    thread: str | None = None
    notes: Mapping[str, str] = {}


class Piece(msgspec.Struct, frozen=True):
    """Text that fits into one message: `text` in the platform's markup, `plain` without any."""

    text: str
    plain: str


class Button(msgspec.Struct, frozen=True):
    """Pressing it says `says` in the name of who pressed."""

    label: str
    says: str


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file that goes out, from the media store."""

    reference: str
    name: str
    media_type: str
    size_bytes: int
    data: bytes


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One message on a platform: a piece of text, or a file. `key` is the same for every try, and
    differs from that of every other post. With `as_plain` the markup was refused before. `reply_to`
    is the id of the message it answers."""

    target: PostTarget
    key: str
    piece: Piece | None = None
    file: File | None = None
    as_plain: bool = False
    reply_to: str | None = None
    buttons: tuple[Button, ...] = ()

    @property
    def text(self) -> str:
        """What is to be shown; '' for a file."""
        if self.piece is None:
            return ""
        return self.piece.plain if self.as_plain else self.piece.text


class NotDelivered(Exception):
    """Why a post is not there. `reason` is for operators and holds no text of a message."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Throttled(NotDelivered):
    """Surely not accepted, too many: try again after `retry_after_s`; with `whole_bot` nothing at
    all before that."""

    def __init__(self, retry_after_s: float, *, whole_bot: bool = False) -> None:
        super().__init__(f"too many requests; again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s
        self.whole_bot = whole_bot


class MarkupRefused(NotDelivered):
    """Surely not accepted: the platform cannot read the markup. As plain text it may pass."""


class PostRefused(NotDelivered):
    """Surely not accepted, and never will be, such as a text that is too long. Later posts may
    pass."""


class ChatClosed(NotDelivered):
    """Nothing may be said in this chat any more: the bot was blocked or put out."""


class NotAccepted(NotDelivered):
    """Surely not accepted, for no fault of the post: no connection, or the platform said that it is
    out of order."""


class MaybeSent(NotDelivered):
    """Nobody knows: the request may have arrived, and no answer came."""


class ChannelBroken(Exception):
    """Nothing works before a person mends it, such as a token that is not valid any more. Says what
    to do."""


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a person sent, not fetched yet. `handle` is the platform's own word for it."""

    handle: str
    name: str = ""
    media_type: str = ""
    size_bytes: int | None = None


class PlatformMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a platform told it, before anybody asked who may speak.

    `group`: several people can write there. `addressed`: it is meant for us: a mention, a reply to us, a command, or
    anything in a chat of two. `own` and `from_bot` are never answered. `replaces` is the id of an earlier message that
    this one is the edited form of. `name` is how the person is called there: shown to operators, never a reason to let
    anybody in.
    """

    message: InboundMessage
    group: bool = False
    addressed: bool = True
    own: bool = False
    from_bot: bool = False
    name: str = ""
    replaces: str | None = None
    files: tuple[RemoteFile, ...] = ()
    notes: Mapping[str, str] = {}


InletVerdict = Literal["taken", "duplicate", "command", "ignored", "not allowed", "refused"]
"""What became of a message. All of them are final: the platform need not tell it again."""


class Inlet(Protocol):
    """The way in, as a platform sees it."""

    async def take(self, event: PlatformMessage) -> InletVerdict:
        """Ask who may speak, fetch files, make the message durable. Then the platform may be told
        "got it".

        Raises RedisAway, and Refused with `retry_after_s` when the whole fleet has too much to do:
        let the platform tell it again (503), or ask again later.
        """
        ...

    async def on_delete(self, deleted: InboundMessage) -> None:
        """A person deleted this message; if no turn has begun with it, it is not read. Raises
        RedisAway."""
        ...


class HookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a webhook. `headers` in lower case; `body` as it came, within the limit of the
    settings."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class HookAnswer(msgspec.Struct, frozen=True):
    """What the platform is told."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"


class Platform(Protocol):
    """One chat platform, with its SDK or its HTTP API. Made with checked settings; nothing is
    connected before `open`."""

    @property
    def name(self) -> str:
        """The channel's name: first half of the names of its sessions."""
        ...

    @property
    def abilities(self) -> Abilities: ...

    @property
    def run_mode(self) -> RunMode:
        """Which of `abilities.run_modes` the settings chose."""
        ...

    async def open(self) -> None:
        """Connect for sending, and find out who we are. Raises ChannelBroken, NotAccepted (it is
        tried again)."""
        ...

    async def close(self) -> None:
        """Let go of every connection. Called once, also when `open` failed."""
        ...

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Take messages until `until` is set, then finish what is under way within a few seconds.
        Not called in the run mode webhook. May return or raise NotAccepted when the connection is
        lost: it is called again after a pause; raises ChannelBroken when that is no use."""
        ...

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        """Answer a call of the webhook: check its signature over the raw body, take what is in it.
        Called in the run mode webhook only. RedisAway and Refused may go up: the platform is told
        503 and Retry-After; what msgspec cannot decode, too: 400."""
        ...

    def render(self, markdown: str) -> list[Piece]:
        """A reply as pieces that fit. Pure, at least one piece."""
        ...

    async def send(self, post: Post) -> str:
        """Show a post; the platform's id of it. One try, no retries of an SDK. Raises NotDelivered in one of its
        forms: MaybeSent unless it is sure; ChannelBroken when no post can be shown before a person mends something."""
        ...

    async def edit(self, id: str, post: Post) -> None:
        """Put a post in the place of one that was sent. Raises NotDelivered."""
        ...

    async def find(self, post: Post) -> str | None:
        """The id of a post that an earlier try may have shown; None = it is not there. Only with
        `look-up`."""
        ...

    async def typing(self, target: PostTarget) -> None:
        """Say that an answer is under way. Errors are nobody's concern."""
        ...

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """The bytes of a file that a person sent, in parts. Raises NotDelivered."""
        ...
