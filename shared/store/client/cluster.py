"""Finds the primary of a Redis Cluster that has our slot."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from shared.errors import ReplyError
from shared.store import keys
from shared.store.client.address import Address, Locator, WrongServer, read_moved
from shared.store.client.finder import Finder, Place

_FAILING: Final = ("fail", "fail?")


class NodeView(NamedTuple):
    """What a node says of its cluster: how many primaries vote, whether it is one, and whether it
    takes the primary of our slot, at the place that was asked about, for alive."""

    voters: int
    votes: bool
    sees_ours: bool


def read_view(nodes: str, ours: Place | None) -> NodeView:
    """Read the reply to CLUSTER NODES: `<id> <host>:<port>@<bus>[,<name>] <flags> <primary> <ping>
    <pong> <epoch> <link> <slots>...`. Raises ValueError."""
    voters = 0
    votes = False
    sees_ours = False
    for line in nodes.splitlines():
        _, place, flag_list, _, _, _, _, link, *slots = line.split()
        flags = flag_list.split(",")
        if "master" not in flags or not slots:
            continue  # a replica, or a primary without slots, which has no vote
        voters += 1
        mine = "myself" in flags
        votes = votes or mine
        if any(_has_our_slot(one) for one in slots):
            address, _, names = place.partition("@")
            host, _, port = address.rpartition(":")
            known = ours is not None and int(port) == ours[1] and (mine or ours[0] in (host, *names.split(",")[1:]))
            alive = not any(flag in _FAILING for flag in flags) and (mine or link == "connected")
            sees_ours = known and alive
    return NodeView(voters, votes, sees_ours)


def _has_our_slot(slots: str) -> bool:
    first, _, last = slots.partition("-")
    # `[545->-…]` is a slot on its way.
    return first.isdigit() and int(first) <= keys.SLOT <= int(last or first)


class _Node(Locator):
    """A node that is asked who has our slot: replicas answer that, too."""

    leave_on = ()

    def check(self, role: bytes | None, mode: bytes | None) -> None:
        """Accept every server."""


class ClusterNodes(Finder):
    """The nodes of an address. Each is asked for a key of ours: the primary that has the slot
    answers, and every other node says who that is (MOVED). That needs no right to CLUSTER commands,
    and host names and addresses are those that the cluster announces. The place that most of them
    name counts: a node that was cut off may be out of date."""

    hello = (("HSETNX", keys.META, "layout", "1"),)

    def __init__(self, address: Address, *, name: str, timeout_s: float, on_move: Callable[[], None]) -> None:
        nodes = [_Node(one) for one in address.nodes]
        # Another name than that of connections with which we write.
        super().__init__(address, nodes, name=f"asks-{name}", timeout_s=timeout_s, on_move=on_move)

    def check(self, role: bytes | None, mode: bytes | None) -> None:
        """Raise WrongServer for a replica."""
        super().check(role, None)

    async def sees_primary(self) -> bool:
        """Tell whether most of the cluster's primaries do not take ours for dead, so that no other
        can have been elected. Our own counts as one of them. Nodes that are not in the address are
        not asked."""
        views = [one for one in await asyncio.gather(*map(self._view, self._connections)) if one is not None]
        voters = max((view.voters for view in views), default=0)
        return sum(view.votes and view.sees_ours for view in views) * 2 > voters

    def _watched(self) -> Sequence[Place]:
        # One of the others: a primary that stood still says what it knew before.
        others = [place for place in self._connections if place != self._place]
        return [random.choice(others or [*self._connections])]

    async def _ask(self, asked: Place) -> Place | None:
        try:
            await self._connections[asked].call(("EXISTS", keys.NO_KEY))
        except ReplyError as reply:
            return read_moved(str(reply), asked[0])
        except OSError:
            return None
        return asked

    async def _view(self, asked: Place) -> NodeView | None:
        try:
            nodes: bytes = await self._connections[asked].call(("CLUSTER", "NODES"))
            return read_view(nodes.decode(), self._place)
        except (OSError, ReplyError, ValueError):  # away, or our user may not ask
            return None

    def _elect(self, votes: Counter[Place], asked: int) -> Place:
        # Of six nodes three may be down while the cluster goes on.
        if not votes:
            raise WrongServer(f"none of {asked} nodes of the cluster knows a primary for slot {keys.SLOT}")
        return votes.most_common(1)[0][0]
