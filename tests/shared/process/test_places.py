"""Places of connections: who gets one, and who gives way."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from shared.metrics import CONNECTIONS, CONNECTIONS_CUT, totals
from shared.process.places import ConnectionPlace, ListenerPlaces, client_network, listener_places, raise_file_limit


class Sockets:
    """Connections of a listener with 100 places, 40 of them for strangers."""

    def __init__(self, clock: list[float] | None = None) -> None:
        self.now = clock or [0.0]
        self.places = ListenerPlaces("web", 100, 40, clock=lambda: self.now[0])
        self.open: dict[ConnectionPlace, int] = {}
        self.cut: list[int] = []
        self._count = 0

    def arrive(self, host: str) -> ConnectionPlace:
        place = self.places.open(host)
        number, self._count = self._count, self._count + 1
        self.open[place] = number
        place.cut = lambda: self._end(place)
        return place

    def _end(self, place: ConnectionPlace) -> None:
        self.cut.append(self.open.pop(place))
        place.release()  # as when its connection is lost


def test_a_new_stranger_gets_a_place_however_many_are_silent() -> None:
    """The oldest gives way; never more connections are open than there are places."""
    sockets = Sockets()
    for number in range(200):
        sockets.arrive(f"10.0.0.{number}")
        assert len(sockets.open) <= 40
    assert sockets.cut == list(range(160))


def test_one_address_has_at_most_half_of_the_places() -> None:
    """Others do not notice it."""
    sockets = Sockets()
    others = [sockets.arrive(f"10.0.0.{number}") for number in range(15)]
    for _ in range(100):
        sockets.arrive("10.9.9.9")
    assert all(place in sockets.open for place in others)
    assert len(sockets.open) == 15 + 20


def test_who_is_being_served_gives_way_last() -> None:
    """Also within an address. One that waits again is the last of those that wait."""
    sockets = Sockets()
    served, again = sockets.arrive("10.0.0.1"), sockets.arrive("10.0.0.1")
    served.set_waits(False)
    again.set_waits(False)
    for _ in range(18):
        sockets.arrive("10.0.0.1")
    again.set_waits(True)
    for _ in range(18):
        sockets.arrive("10.0.0.1")
    assert sockets.cut == list(range(2, 20))
    sockets.arrive("10.0.0.1")
    assert sockets.cut[-1] == 1
    for number in range(100):
        sockets.arrive(f"10.1.0.{number}")
    assert served in sockets.open


def test_known_people_have_room_that_strangers_cannot_use_and_the_other_way_round() -> None:
    """A known person's connection never gives way. A part is left for strangers, among them the next to log in."""
    sockets = Sockets()
    known = []
    for number in range(200):
        place = sockets.arrive(f"10.0.{number}.1")
        if place.become_known():
            known.append(place)
    assert len(known) == 90
    for number in range(100):
        sockets.arrive(f"10.1.0.{number}")
    assert all(place in sockets.open for place in known)
    assert len(sockets.open) == 100
    known[0].release()
    known[0].release()
    assert sockets.places.known == 89
    assert sockets.arrive("10.2.0.1").become_known()


@given(st.lists(st.tuples(st.sampled_from(["open", "known", "waits", "served", "release"]), st.integers(0, 60))))
def test_the_books_are_right_after_any_history(history: list[tuple[str, int]]) -> None:
    """Strangers and known people, each within their limits, are those that are open."""
    sockets = Sockets()
    every: list[ConnectionPlace] = []
    for what, number in history:
        if what == "open":
            every.append(sockets.arrive(f"10.0.0.{number % 3}"))
            continue
        if not every:
            continue
        place = every[number % len(every)]
        match what:
            case "known":
                place.become_known()
            case "waits" | "served":
                place.set_waits(what == "waits")
            case _:
                place.release()
                sockets.open.pop(place, None)
        known = sum(one.known for one in sockets.open)
        assert known == sockets.places.known
        strangers = len(sockets.open) - known
        [family] = CONNECTIONS.labels("web", "stranger").collect()
        value = family.samples[0].value
        assert value == strangers <= 40


def test_eighty_percent_is_a_line_a_minute_with_what_was_cut() -> None:
    """And a count by reason in the metrics."""
    sockets = Sockets()
    before = totals(CONNECTIONS_CUT).get(("web", "full"), 0)
    with capture_logs() as logs:
        for number in range(31):
            sockets.arrive(f"10.0.0.{number}")
        assert logs == []
        for number in range(31, 100):
            sockets.arrive(f"10.0.0.{number}")
        assert [line["strangers"] for line in logs] == [32]
        sockets.now[0] += 61
        sockets.arrive("10.0.1.1")
    assert [(line["event"], line["listener"], line["cut"]) for line in logs] == [
        ("places nearly used up", "web", 0),
        ("places nearly used up", "web", 61),
    ]
    assert totals(CONNECTIONS_CUT)[("web", "full")] == before + 61


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("nonsense:", "nonsense:"),
    ],
)
def test_one_machine_is_one_address(host: str, network: str) -> None:
    """It can use every address of its IPv6 network."""
    assert client_network(host) == network


def test_the_soft_limit_of_files_becomes_the_hard_one() -> None:
    """And the listeners together leave files for everything else."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        files = raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (files, before[1])
        assert files == min(before[1], 1 << 20)
        parts = [listener_places(name).limit for name in ("web", "hooks", "metrics")]
        assert files - sum(parts) >= min(files // 4, 512)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
