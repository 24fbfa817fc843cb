"""The posts of a line, made when their turn comes: a file is read only then."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.delivery.line_posts import LineParts, replied_to, split_line
from gateway.delivery.rates import Rates
from gateway.delivery.rendering import render_off_loop
from gateway.platform.protocol import File, NotAccepted, Platform, Post, PostTarget
from shared.media.reference import MediaRef
from shared.media.store import MediaNotFound, MediaStore
from shared.messages.outbound import OutboundMessage
from shared.store.delivery.deliveries import PendingLine


class OutgoingLine(msgspec.Struct, frozen=True):
    """A line on its way: what it is, where it goes, what its calls cost. `quote`: it is shown as an
    answer to its message."""

    entry: PendingLine
    target: PostTarget
    rates: Rates
    parts: LineParts
    quote: bool

    @property
    def seq(self) -> int:
        return self.entry.seq


class PostBuilder:
    """Makes the posts of one channel."""

    def __init__(self, platform: Platform, media: MediaStore) -> None:
        self._platform = platform
        self._media = media

    async def outgoing_line(self, entry: PendingLine, target: PostTarget, rates: Rates, *, quote: bool) -> OutgoingLine:
        """A line with its parts."""
        line, able = entry.line, self._platform.abilities
        parts = await render_off_loop(
            line.content if isinstance(line, OutboundMessage) else "",
            lambda: split_line(line, self._platform.render, able, age_s=entry.age_s),
        )
        return OutgoingLine(entry, target, rates, parts, quote)

    async def build(self, outgoing: OutgoingLine, part: int, *, as_plain: bool) -> Post:
        """Post number `part`. Raises NotAccepted when the volume of the files is away."""
        pieces = outgoing.parts.pieces
        post = Post(
            target=outgoing.target,
            key=f"{outgoing.target.session}:{outgoing.seq}:{part}",
            piece=pieces[part] if part < len(pieces) else None,
            as_plain=as_plain,
            reply_to=replied_to(outgoing.entry.line) if outgoing.quote and part == 0 else None,
            buttons=outgoing.parts.buttons_of(part),
        )
        if post.piece is not None:
            return post
        ref = outgoing.parts.files[part - len(pieces)]
        try:
            data = await asyncio.to_thread(self._media.read, outgoing.target.session, ref)
        except MediaNotFound:
            notice = self._platform.render(f"*The file “{ref.name}” is not kept any more.*")[0]
            return msgspec.structs.replace(post, piece=notice)
        except OSError as exc:
            raise NotAccepted(f"the files of chats cannot be read: {exc.strerror}") from exc
        return msgspec.structs.replace(post, file=_file(ref, data))


def _file(ref: MediaRef, data: bytes) -> File:
    return File(reference=str(ref), name=ref.name, media_type=ref.kind.media_type, size_bytes=len(data), data=data)
