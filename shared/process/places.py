"""Places of a listener's connections: bounds for strangers, and room kept for known people."""

from __future__ import annotations

import ipaddress
import resource
import time
from collections.abc import Callable
from typing import Final, Literal

from shared.log import logger
from shared.metrics import CONNECTION_PLACES, CONNECTIONS, CONNECTIONS_CUT

NEARLY_FULL: Final = 0.8
WARN_EVERY_S: Final = 60.0
FILES_LIMIT: Final = 1 << 20
OWN_FILES: Final = 512  # for Redis, calls of platforms and models, files that people send

ListenerName = Literal["web", "hooks", "metrics"]

log = logger("listener")


def raise_file_limit() -> int:
    """Raise this process's soft limit of open files to the hard one, and return it. The usual soft
    limit, 1,024, is for programs that call select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = FILES_LIMIT if hard == resource.RLIM_INFINITY else min(hard, FILES_LIMIT)
    if soft < limit and soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def client_network(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 of an IPv6 one, which a single
    machine has."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


class ConnectionPlace:
    """The place of one connection, from its acceptance to its end. It belongs to a stranger until
    `become_known`. `cut` ends the connection at once."""

    __slots__ = ("_places", "cut", "ended", "known", "network", "waits")

    def __init__(self, places: ListenerPlaces, network: str) -> None:
        self._places = places
        self.network = network
        self.known = False
        self.waits = True  # for the client: the first to give way
        self.ended = False
        # What is accepted now looks at `ended` when it is connected
        self.cut: Callable[[], None] = lambda: None

    def become_known(self) -> bool:
        """Count the connection among those of known people. Return whether there is room."""
        return self.known or self._places.admit(self)

    def set_waits(self, waits: bool) -> None:
        """Note whether the connection waits for its client, or its client for us."""
        if waits != self.waits:
            self._places.move(self, waits)

    def release(self) -> None:
        """Give the place back. Harmless when it has been."""
        self._places.remove(self)


class ListenerPlaces:
    """All places of one listener: `limit`, of which strangers may have `strangers`. A new stranger
    always gets one. When an address has half of all strangers' places, its oldest connection gives
    way, and when all are in use, the oldest of all. One that waits for its client goes before one
    that is being served. So silence buys nothing: a page is loaded however many sockets are
    open."""

    def __init__(self, name: str, limit: int, strangers: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.limit = limit
        self.strangers = strangers  # while known people leave room
        self._least = max(4, self.strangers // 4)  # places that strangers have in any case
        self.known = 0
        # Strangers that wait for their clients, and those that are served, longest so first.
        self._all: dict[bool, dict[ConnectionPlace, None]] = {True: {}, False: {}}
        self._by_network: dict[str, dict[ConnectionPlace, None]] = {}
        self._clock = clock
        self._warn_at = -WARN_EVERY_S
        self._cut_since = 0
        CONNECTIONS.labels(name, "stranger").set_function(self._count_strangers)
        CONNECTIONS.labels(name, "known").set_function(lambda: self.known)
        CONNECTION_PLACES.labels(name, "stranger").set(self.strangers)
        CONNECTION_PLACES.labels(name, "known").set(self.limit - self._least)

    def open(self, host: str) -> ConnectionPlace:
        """Return a place for a new connection; others give way if none is free."""
        place = ConnectionPlace(self, client_network(host))
        own = self._by_network.setdefault(place.network, {})
        room = max(self._least, min(self.strangers, self.limit - self.known))
        cut = self._cut_since
        if len(own) >= max(2, room // 2):
            self._cut(next((one for one in own if one.waits), next(iter(own))), "address")
        elif self._count_strangers() >= room:
            self.cut_oldest("full")
        self._by_network.setdefault(place.network, {})[place] = None
        self._all[True][place] = None
        self._warn(self._cut_since > cut or self._count_strangers() >= NEARLY_FULL * room)
        return place

    def cut_oldest(self, reason: str) -> None:
        """End the stranger's connection that gives way first."""
        for waiting in (True, False):
            if self._all[waiting]:
                self._cut(next(iter(self._all[waiting])), reason)
                return

    def admit(self, place: ConnectionPlace) -> bool:
        """Move a stranger's place to the known people. Return False when they have theirs all."""
        if self.known >= self.limit - self._least or place not in self._all[place.waits]:
            return False
        self.remove(place)
        place.known = True
        self.known += 1
        self._warn(self.known >= NEARLY_FULL * (self.limit - self._least))
        return True

    def move(self, place: ConnectionPlace, waits: bool) -> None:
        """Move a place between those that wait for their clients and those that are served."""
        if place in self._all[place.waits]:
            own = self._by_network[place.network]
            del self._all[place.waits][place], own[place]
            self._all[waits][place] = own[place] = None
        place.waits = waits

    def remove(self, place: ConnectionPlace) -> None:
        """Forget a place."""
        if place.known:
            place.known = False
            self.known -= 1
        elif self._all[place.waits].pop(place, place) is None:
            own = self._by_network[place.network]
            del own[place]
            if not own:
                del self._by_network[place.network]

    def _count_strangers(self) -> int:
        return len(self._all[True]) + len(self._all[False])

    def _cut(self, place: ConnectionPlace, reason: str) -> None:
        self.remove(place)
        place.ended = True
        self._cut_since += 1
        CONNECTIONS_CUT.labels(self.name, reason).inc()
        place.cut()

    def _warn(self, crowded: bool) -> None:
        if crowded and (now := self._clock()) >= self._warn_at + WARN_EVERY_S:
            self._warn_at = now
            cut = self._cut_since
            self._cut_since = 0
            counts = {"strangers": self._count_strangers(), "known": self.known, "cut": cut}
            log.warning("places nearly used up", listener=self.name, limit=self.limit, **counts)


def listener_places(name: ListenerName) -> ListenerPlaces:
    """Return the places of a listener: a part of the files that this process may open and does not
    need for its own work, and at most so many for strangers that their connections (each costs
    about 10 kB) cannot fill its memory."""
    part, strangers = {"web": (0.75, 4096), "hooks": (0.2, 1024), "metrics": (0.05, 64)}[name]
    files = raise_file_limit()
    limit = max(16, int((files - min(files // 4, OWN_FILES)) * part))
    return ListenerPlaces(name, limit, min(strangers, limit // 2))
