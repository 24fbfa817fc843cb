"""What a person has trusted in a chat by `/trust`: turns of a conversation, with the sources that
the answer named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.messages.sources import Sources, parse_sources

TRUST_FIELDS: Final = ("trusted", "trusted_after", "trusted_sources")
"""Of a session, as `Trust.parse` takes them."""


class Trust(msgspec.Struct, frozen=True):
    """A person has trusted the turns after `after` up to `until`, where they read nothing but
    `sources`. An earlier conversation may have read others, which the person was not told of."""

    after: int = 0
    until: int = 0
    sources: Sources = ()

    @staticmethod
    def parse(fields: Sequence[bytes | None]) -> Trust:
        """Parse the fields. Without sources nothing is trusted: the release before wrote none."""
        until, after, sources = fields
        return Trust(int(after or 0), int(until or 0), parse_sources(sources))

    def left_of(self, turn: int, sources: Sources) -> Sources:
        """Return what still marks an entry of a turn, which these sources have marked."""
        covered = self.after < turn <= self.until and set(sources) <= set(self.sources)
        return () if covered else sources


NO_TRUST: Final = Trust()
