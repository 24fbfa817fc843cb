"""The budgets that a call into one place takes from. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gateway.platform.protocol import Abilities, PostTarget, Rate, RateOf
from shared.store.delivery.deliveries import RateKey


class Rates(msgspec.Struct, frozen=True):
    """Those of one place: what a platform counts together is one budget, what it counts apart is
    another."""

    all: tuple[tuple[Rate, RateKey], ...] = ()

    @property
    def posts(self) -> Sequence[RateKey]:
        """Of a new message."""
        return self._of("posts")

    @property
    def edits(self) -> Sequence[RateKey]:
        """Of an edit."""
        return self._of("edits")

    @property
    def typing(self) -> Sequence[RateKey]:
        """Of a sign that an answer is under way: it is no message of the chat."""
        return spare(key for rate, key in self.all if rate.scope == "bot" and rate.of == "all")

    def _of(self, kind: RateOf) -> list[RateKey]:
        return [key for rate, key in self.all if rate.of in ("all", kind)]


def rates_of(target: PostTarget, abilities: Abilities, *, group: bool) -> Rates:
    """The budgets of a platform for this place. Threads of a chat share its own; several of one
    kind, of a second and of a minute say, are several budgets."""
    kinds = Counter[str]()
    found = []
    for rate in abilities.rates:
        kind = rate.scope if rate.of == "all" else f"{rate.of}:{rate.scope}"
        kinds[kind] += 1
        if rate.scope != "group" or group:
            name = kind if kinds[kind] == 1 else f"{kinds[kind]}:{kind}"
            name = name if rate.scope == "bot" else f"{name}:{target.chat_id}"
            found.append((rate, RateKey(name, rate.per_s, rate.burst)))
    return Rates(tuple(found))


def spare(keys: Iterable[RateKey]) -> list[RateKey]:
    """The same budgets for what may be left out: half of each burst stays for what may not. Each is
    there once."""
    found = {key.name: key for key in keys}
    return [msgspec.structs.replace(key, reserve=key.burst // 2) for key in found.values()]
