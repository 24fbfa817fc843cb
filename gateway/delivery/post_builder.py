"""The posts of a line, made when their turn comes: a file is read only then."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.delivery.line_posts import Parts, answers, parts_of
from gateway.delivery.rates import Rates
from gateway.delivery.rendering import rendered
from gateway.platform.protocol import File, NotAccepted, Place, Platform, Post
from shared.media.reference import MediaRef
from shared.media.store import MediaStore, NoSuchMedia
from shared.messages.outbound import OutboundMessage
from shared.store.delivery.deliveries import Waiting


class Going(msgspec.Struct, frozen=True):
    """A line on its way: what it is, where it goes, what its calls cost. `quote`: it is shown as an
    answer to its message."""

    entry: Waiting
    place: Place
    rates: Rates
    parts: Parts
    quote: bool

    @property
    def seq(self) -> int:
        return self.entry.seq


class PostMaker:
    """Makes the posts of one channel."""

    def __init__(self, platform: Platform, media: MediaStore) -> None:
        self._platform = platform
        self._media = media

    async def going(self, entry: Waiting, place: Place, rates: Rates, *, quote: bool) -> Going:
        """A line with its parts."""
        line, able = entry.line, self._platform.abilities
        parts = await rendered(
            line.content if isinstance(line, OutboundMessage) else "",
            lambda: parts_of(line, self._platform.render, able, age_s=entry.age_s),
        )
        return Going(entry, place, rates, parts, quote)

    async def make(self, going: Going, part: int, *, as_plain: bool) -> Post:
        """Post number `part`. Raises NotAccepted when the volume of the files is away."""
        pieces = going.parts.pieces
        post = Post(
            place=going.place,
            key=f"{going.place.session}:{going.seq}:{part}",
            piece=pieces[part] if part < len(pieces) else None,
            as_plain=as_plain,
            reply_to=answers(going.entry.line) if going.quote and part == 0 else None,
            buttons=going.parts.buttons_of(part),
        )
        if post.piece is not None:
            return post
        ref = going.parts.files[part - len(pieces)]
        try:
            data = await asyncio.to_thread(self._media.read, going.place.session, ref)
        except NoSuchMedia:
            told = self._platform.render(f"*The file “{ref.name}” is not kept any more.*")[0]
            return msgspec.structs.replace(post, piece=told)
        except OSError as exc:
            raise NotAccepted(f"the files of chats cannot be read: {exc.strerror}") from exc
        return msgspec.structs.replace(post, file=_file(ref, data))


def _file(ref: MediaRef, data: bytes) -> File:
    return File(reference=str(ref), name=ref.name, media_type=ref.kind.media_type, size_bytes=len(data), data=data)
