"""The zone that a person has chosen, as a gateway knows it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.channels.web.settings.zones import KNOWN_S, ChosenZones
from shared.store import keys
from shared.store.access.person_choices import PersonChoices
from shared.store.client.redis_client import RedisClient
from tests.helpers.clock import HandClock


async def test_a_zone_chosen_elsewhere_counts_soon(client: RedisClient) -> None:
    """Within KNOWN_S, and here at once: messages must not cost a read each."""
    clock = HandClock()
    here, elsewhere = ChosenZones(client, clock), ChosenZones(client, clock)
    assert await here.zone_of("ann") == ""
    await elsewhere.choose("ann", "Asia/Tokyo")
    assert (await here.zone_of("ann"), await elsewhere.zone_of("ann")) == ("", "Asia/Tokyo")
    clock.at += KNOWN_S
    assert await here.zone_of("ann") == "Asia/Tokyo"
    assert await here.zone_of("owner") == ""


async def test_what_cannot_be_read_changes_nothing(client: RedisClient) -> None:
    """A broken record, or an older list of users: the last known zone stays, and a message goes its way."""
    clock = HandClock()
    zones = ChosenZones(client, clock)
    await zones.choose("ann", "Asia/Tokyo")
    await client.command("DEL", keys.person("web:ann"))
    await client.command("SET", keys.person("web:ann"), "broken")
    clock.at += KNOWN_S
    assert await zones.zone_of("ann") == "Asia/Tokyo"


@pytest.mark.parametrize("reader", ["zone_of", "read_zone"])
async def test_a_zone_chosen_during_a_read_stays(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """What was read is older than what the person chose meanwhile."""
    zones = ChosenZones(client, HandClock())
    read = asyncio.Event()
    answered = asyncio.Event()
    usual = PersonChoices.read_timezone

    async def late(self: PersonChoices, principal: str) -> str:
        zone = await usual(self, principal)
        read.set()
        await answered.wait()
        return zone

    monkeypatch.setattr(PersonChoices, "read_timezone", late)
    reading = asyncio.create_task(getattr(zones, reader)("ann"))
    await read.wait()
    await zones.choose("ann", "Asia/Tokyo")
    answered.set()
    assert await reading == "Asia/Tokyo"
    assert await zones.zone_of("ann") == "Asia/Tokyo"
