"""Letting people in by a code, on a real Valkey: told once, said once, in time, guessed five times, taken back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec
import pytest

from shared.errors import Refused
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.access import pairing
from shared.store.access.audit import Audit
from shared.store.access.pairing import (
    ALPHABET,
    PairedPerson,
    PairingFailed,
    Pairings,
    let_in_line,
    new_code,
    shown_code,
)
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.schedules.schedules import Schedules
from tests.helpers.schedules import schedule

ADA = PairedPerson(channel="telegram", sender="7", session="telegram:7", name="Ada")
BOB = PairedPerson(channel="telegram", sender="8", session="telegram:8")


@pytest.fixture
async def other(redis_url: str) -> AsyncIterator[Pairings]:
    """Another process."""
    client = RedisClient(redis_url)
    yield Pairings(client)
    await client.close()


@pytest.fixture
def pairings(client: RedisClient) -> Pairings:
    return Pairings(client)


def notice(code: str) -> OutboundMessage:
    return OutboundMessage(content=f"code {code}", turn=0, kind="notice")


async def ask(pairings: Pairings, person: PairedPerson = ADA) -> str:
    """What became of the request of a stranger."""
    return (await pairings.offer_code(person, notice, reason="unknown_sender")).outcome


async def code_of(client: RedisClient, person: PairedPerson = ADA) -> str:
    """The newest code that somebody was told in their chat."""
    notices = " ".join(await texts(client, person))
    found: list[str] = re.findall(r"code (\S+)", notices)
    return found[-1]


async def texts(client: RedisClient, person: PairedPerson = ADA) -> list[str]:
    lines = [one.line for one in await Outbox(client).read_after(person.session, after=0)]
    return [line.content for line in lines if isinstance(line, OutboundMessage)]


async def asked(pairings: Pairings, client: RedisClient, person: PairedPerson = ADA) -> str:
    """A code that this person was just told."""
    assert await ask(pairings, person) == "told"
    return await code_of(client, person)


async def approve(
    pairings: Pairings, code: str, *, by: str = "console", request: str = "", channel: str = ""
) -> PairedPerson:
    return await pairings.approve(code, let_in_line(0), by=by, request=request or nonce(), channel=channel)


async def refusal(pairings: Pairings, code: str, **options: str) -> PairingFailed:
    with pytest.raises(PairingFailed) as refused:
        await approve(pairings, code, **options)
    return refused.value


async def pass_time(client: RedisClient, ms: int) -> None:
    """Codes and guesses are so much older."""
    for digest, packed in _pairs(await client.command("HGETALL", keys.PAIRING)):
        one = msgspec.msgpack.decode(packed, type=PairedPerson)
        older = msgspec.structs.replace(one, expires_at=one.expires_at - ms)
        await client.command("HSET", keys.PAIRING, digest, msgspec.msgpack.encode(older))
    for key in await client.command("KEYS", keys.tries("*")):
        for guess, at in _pairs(await client.command("ZRANGE", key, 0, -1, "WITHSCORES")):
            await client.command("ZADD", key, int(at) - ms, guess)


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


async def outcomes(client: RedisClient) -> list[str]:
    """The audit record, the oldest line first."""
    return [line.outcome for line in reversed(await Audit(client).newest(100))]


# A stranger


def test_a_code_has_forty_random_bits_and_nothing_that_is_misread() -> None:
    """Eight of 32 signs, none of which looks like another one."""
    codes = {new_code() for _ in range(200)}
    assert len(codes) == 200
    assert all(re.fullmatch(rf"[{ALPHABET}]{{8}}", code) for code in codes)
    assert len(set(ALPHABET)) == 32
    assert not set(ALPHABET) & set("ILOU")
    assert shown_code("K7QM3XTD") == "K7QM-3XTD"


async def test_a_stranger_gets_a_code_once(pairings: Pairings, other: Pairings, client: RedisClient) -> None:
    """In their chat, by whichever replica; then silence until the code is over."""
    first = await pairings.offer_code(ADA, notice, reason="unknown_sender")
    assert (first.outcome, first.quiet_s) == ("told", 600)
    again = await other.offer_code(ADA, notice, reason="unknown_sender")
    assert again.outcome == "silent"
    assert 590 < again.quiet_s <= 600
    [text] = await texts(client)
    assert re.fullmatch(rf"code [{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", text)
    [line] = await Audit(client).newest(10)
    assert (line.kind, line.outcome, line.actor, line.channel) == ("access", "unknown_sender", "telegram:7", "telegram")
    assert line.session
    assert "7" not in line.session.split(":")


async def test_the_store_keeps_no_code_that_could_be_used(pairings: Pairings, client: RedisClient) -> None:
    """But in the line that tells it."""
    code = await asked(pairings, client)
    kept = b" ".join(await client.command("HGETALL", keys.PAIRING)).decode(errors="replace")
    assert code.replace("-", "") not in kept.upper()


async def test_a_new_code_follows_an_expired_one_three_times_a_day(pairings: Pairings, client: RedisClient) -> None:
    """Whoever missed the time is not shut out for ever, and cannot make us write for ever either."""
    codes = []
    for _ in range(3):
        codes.append(await asked(pairings, client))
        await pass_time(client, 600_001)
    assert len(set(codes)) == 3
    notices = await pairings.offer_code(ADA, notice, reason="unknown_sender")
    assert notices.outcome == "silent"
    assert notices.quiet_s > 80_000
    assert await ask(pairings, BOB) == "told"


async def test_who_cannot_be_paired_gets_one_notice_a_day(pairings: Pairings, client: RedisClient) -> None:
    """No code, and one notice; of a group one for all who speak in it."""
    notices = await pairings.turn_away(ADA, notice("none"), reason="sender_not_allowed")
    assert (notices.outcome, notices.quiet_s) == ("told", 86_400)
    assert (await pairings.turn_away(ADA, notice("none"), reason="sender_not_allowed")).outcome == "silent"
    group = msgspec.structs.replace(BOB, session="telegram:-1")
    for person in (group, msgspec.structs.replace(group, sender="9")):
        await pairings.turn_away(person, notice("none"), reason="group_not_allowed", in_name_of="group:-1")
    assert await texts(client, group) == ["code none"]
    assert await client.command("EXISTS", keys.PAIRING) == 0
    assert await outcomes(client) == ["sender_not_allowed", "group_not_allowed"]


async def test_a_flood_of_strangers_leaves_little_behind(
    pairings: Pairings, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many of a channel are told anything in a minute; another channel has a count of its own."""
    monkeypatch.setattr(pairing, "NOTICES_A_MINUTE", 3)
    crowd = [msgspec.structs.replace(ADA, sender=f"s{n}", session=f"telegram:s{n}") for n in range(8)]
    notices = [await pairings.offer_code(one, notice, reason="unknown_sender") for one in crowd]
    assert [one.outcome for one in notices] == ["told"] * 3 + ["crowded"] * 5
    assert 0 < notices[-1].quiet_s <= 60
    assert await client.command("HLEN", keys.PAIRING) == 3
    elsewhere = msgspec.structs.replace(ADA, channel="slack", session="slack:7")
    assert await ask(pairings, elsewhere) == "told"
    assert await client.command("PTTL", keys.brake("strangers:telegram")) > 0


@pytest.mark.parametrize(("limit", "also"), [("CODES_OPEN", "told"), ("CODES_IN_ALL", "crowded")])
async def test_so_many_codes_are_open_at_once(
    pairings: Pairings, client: RedisClient, monkeypatch: pytest.MonkeyPatch, limit: str, also: str
) -> None:
    """Of a channel, and of all; one that is over makes room, and who gets no code needs no room."""
    monkeypatch.setattr(pairing, limit, 1)
    assert await ask(pairings) == "told"
    assert await ask(pairings, BOB) == "crowded"
    assert (await pairings.turn_away(BOB, notice("none"), reason="x", in_name_of="g")).outcome == "told"
    assert await ask(pairings, msgspec.structs.replace(BOB, channel="slack", session="slack:8")) == also
    await pass_time(client, 600_001)
    assert await ask(pairings, BOB) == "told"
    assert await client.command("HLEN", keys.PAIRING) == 1


async def test_what_strangers_leave_behind_ends(pairings: Pairings, client: RedisClient) -> None:
    """Within a day, and what is somebody's chat already stays as long as it would."""
    await client.command("HSET", keys.session(BOB.session), "n", "1")
    await client.command("PEXPIRE", keys.session(BOB.session), 10**10)
    await asked(pairings, client)
    code = await asked(pairings, client, BOB)
    for key in (keys.session(ADA.session), keys.outbox(ADA.session), keys.PAIRING):
        assert 0 < await client.command("PTTL", key) <= 86_400_000, key
    assert await client.command("PTTL", keys.session(BOB.session)) > 86_400_000
    await approve(pairings, code)
    assert await client.command("PTTL", keys.session(BOB.session)) > 86_400_000
    await client.command("PEXPIRE", keys.session(ADA.session), 1000)
    await approve(pairings, await code_of(client, ADA))
    assert await client.command("PTTL", keys.session(ADA.session)) > 80_000_000, "as long as the log"
    await client.command("PEXPIRE", keys.session(ADA.session), 1000)
    await pairings.turn_away(ADA, notice("none"), reason="x", in_name_of="g")
    assert await client.command("PTTL", keys.session(ADA.session)) > 80_000_000
    left = set(await client.command("KEYS", "*")) - {
        b"shoal:{0ax}:pair",
        b"shoal:{0ax}:pair:telegram",
        b"shoal:{0ax}:audit",
    }
    assert [key for key in left if await client.command("PTTL", key) < 0] == []


async def test_a_chat_that_was_closed_is_open_for_the_notice(pairings: Pairings, client: RedisClient) -> None:
    """Who was blocked and writes again can be told."""
    await client.command("HSET", keys.out(ADA.session), "closed", "1")
    await ask(pairings)
    assert not await client.command("HEXISTS", keys.out(ADA.session), "closed")


async def test_a_full_store_refuses_strangers(pairings: Pairings, client: RedisClient) -> None:
    """They are the last for whom there must be room."""
    [_, limit] = await client.command("CONFIG", "GET", "maxmemory")
    await client.command("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(Refused):
            await ask(pairings)
    finally:
        await client.command("CONFIG", "SET", "maxmemory", limit)


# A code


async def test_a_code_lets_in_the_person_who_got_it(pairings: Pairings, client: RedisClient) -> None:
    """By id, in that channel alone, and they are told so; who else has no code is not let in."""
    assert not await pairings.is_let_in("telegram", "7")
    person = await approve(pairings, await asked(pairings, client))
    assert (person.channel, person.sender, person.name, person.by) == ("telegram", "7", "Ada", "console")
    assert person.at > 0
    assert await pairings.is_let_in("telegram", "7")
    assert not await pairings.is_let_in("slack", "7")
    assert not await pairings.is_let_in("telegram", "Ada")
    assert "You are let in" in (await texts(client))[-1]
    assert await pairings.people() == [person]
    assert await ask(pairings) == "let_in"
    assert await outcomes(client) == ["unknown_sender", "let_in"]
    [line] = await Audit(client).newest(1)
    assert (line.actor, line.about) == ("console", "telegram:7")


@pytest.mark.parametrize("typed", ["{}", " {} ", "`{}`"])
async def test_a_code_is_read_as_people_type_it(pairings: Pairings, client: RedisClient, typed: str) -> None:
    """Small letters, with or without its dash, O for 0, I and L for 1."""
    code = await asked(pairings, client)
    spelled = code.lower().replace("0", "o").replace("1", "l")
    await approve(pairings, typed.format(spelled))


async def test_a_code_counts_once(pairings: Pairings, other: Pairings, client: RedisClient) -> None:
    """The second use is refused by name, and is no guess; the same request again is the same answer."""
    code = await asked(pairings, client)
    first = await approve(pairings, code, request="r1")
    assert await approve(other, code, request="r1") == first
    for _ in range(6):
        assert (await refusal(other, code)).code == "pair_used"
    assert len(await texts(client)) == 2
    assert await pairings.revoke("telegram", "7", by="console")
    assert (await refusal(pairings, code)).code == "pair_used"
    assert not await pairings.is_let_in("telegram", "7")
    assert "used_code" in await outcomes(client)


async def test_of_two_approvals_at_once_exactly_one_counts(
    pairings: Pairings, other: Pairings, client: RedisClient
) -> None:
    """Two operators, two connections, a hundred times."""
    for n in range(100):
        person = msgspec.structs.replace(ADA, sender=f"p{n}", session=f"telegram:p{n}")
        await client.command("DEL", keys.brake("strangers:telegram"), keys.PAIRING)
        code = await asked(pairings, client, person)
        notices = await asyncio.gather(
            approve(pairings, code, by="telegram:1"), approve(other, code, by="telegram:2"), return_exceptions=True
        )
        winners = [one for one in notices if isinstance(one, PairedPerson)]
        losers = [one for one in notices if isinstance(one, PairingFailed)]
        assert ([one.sender for one in winners], [one.code for one in losers]) == ([f"p{n}"], ["pair_used"])
    noted = await outcomes(client)
    assert min(noted.count("let_in"), noted.count("used_code")) >= 30


async def test_a_code_is_good_for_ten_minutes(pairings: Pairings, client: RedisClient) -> None:
    """Then it is late, whether its record is still there or not."""
    code = await asked(pairings, client)
    await pass_time(client, 599_000)
    assert [one.sender for one in await pairings.waiting()] == ["7"]
    await pass_time(client, 1_001)
    assert (await refusal(pairings, code)).code == "pair_late"
    assert await pairings.waiting() == []
    await client.command("DEL", keys.PAIRING)
    assert (await refusal(pairings, code)).code == "pair_unknown"
    assert not await pairings.is_let_in("telegram", "7")


async def test_the_sixth_guess_is_refused_even_if_it_is_right(pairings: Pairings, client: RedisClient) -> None:
    """Five wrong codes within an hour, then nothing counts any more; others are not held up."""
    code = await asked(pairings, client)
    notices = [(await refusal(pairings, f"WRONG{n}")).message for n in range(5)]
    assert "4 more tries" in notices[0]
    assert "1 more try " in notices[3]
    assert "no more tries" in notices[4]
    late = await refusal(pairings, code)
    assert (late.code, "60 min" in late.message) == ("pair_guesses", True)
    assert not await pairings.is_let_in("telegram", "7")
    await pass_time(client, 3_500_000)
    assert "2 min" in (await refusal(pairings, code)).message
    assert await outcomes(client) == ["unknown_sender", *["wrong_code"] * 5, *["too_many_guesses"] * 2]
    await client.command("DEL", keys.PAIRING, keys.brake("strangers:telegram"))
    await client.command("DEL", *await client.command("KEYS", keys.brake("stranger:*")))
    code = await asked(pairings, client)
    await approve(pairings, code, by="telegram:1")


async def test_guesses_are_forgotten_after_an_hour(pairings: Pairings, client: RedisClient) -> None:
    """A window that moves: each guess by itself."""
    for n in range(5):
        await refusal(pairings, f"WRONG{n}")
    await pass_time(client, 3_600_001)
    assert "4 more tries" in (await refusal(pairings, "WRONG9")).message
    await approve(pairings, await asked(pairings, client))


async def test_a_repeated_guess_counts_once(pairings: Pairings) -> None:
    """A platform delivers a message twice."""
    for _ in range(5):
        notices = await refusal(pairings, "WRONG", request="r1")
    assert "4 more tries" in notices.message


async def test_an_admin_of_one_channel_lets_nobody_in_to_another(pairings: Pairings, client: RedisClient) -> None:
    """To them such a code does not exist, and it is a guess."""
    code = await asked(pairings, client)
    assert (await refusal(pairings, code, by="slack:1", channel="slack")).code == "pair_unknown"
    assert await outcomes(client) == ["unknown_sender", "wrong_code"]
    await approve(pairings, code, by="telegram:1", channel="telegram")


async def test_so_many_people_are_let_in_to_a_channel(
    pairings: Pairings, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code stays good: make room, and say it again."""
    monkeypatch.setattr(pairing, "PEOPLE", 1)
    await approve(pairings, await asked(pairings, client, BOB))
    code = await asked(pairings, client)
    assert (await refusal(pairings, code)).code == "pair_full"
    await pairings.revoke("telegram", "8", by="console")
    await approve(pairings, code)


# Taking back


async def test_a_revoked_person_is_a_stranger_again(pairings: Pairings, other: Pairings, client: RedisClient) -> None:
    """For every replica at once; others stay."""
    await approve(pairings, await asked(pairings, client))
    await approve(pairings, await asked(pairings, client, BOB))
    assert await other.revoke("telegram", "7", by="console")
    assert not await pairings.is_let_in("telegram", "7")
    assert [one.sender for one in await pairings.people()] == ["8"]
    assert not await other.revoke("telegram", "7", by="console")
    assert not await other.revoke("slack", "8", by="console")
    assert (await outcomes(client)).count("revoked") == 1
    await client.command("DEL", *await client.command("KEYS", keys.brake("*")))
    assert await ask(pairings) == "told"
    await pairings.revoke("telegram", "8", by="console")
    assert await client.command("EXISTS", keys.PAIRS) == 0


async def test_revoking_takes_an_open_code_back_too(pairings: Pairings, client: RedisClient) -> None:
    """Of that person alone."""
    code, bobs = await asked(pairings, client), await asked(pairings, client, BOB)
    slack = msgspec.structs.replace(ADA, channel="slack", session="slack:7")
    slacks = await asked(pairings, client, slack)
    assert await pairings.revoke("telegram", "7", by="console")
    assert (await refusal(pairings, code)).code == "pair_unknown"
    await approve(pairings, bobs)
    await approve(pairings, slacks)


async def test_what_a_revoked_person_had_planned_rests(pairings: Pairings, client: RedisClient) -> None:
    """In their chat and its threads; it goes on when they are let in again."""
    schedules = Schedules(client)
    mine = msgspec.structs.replace(schedule("aa", chat="7"), channel="telegram")
    thread = msgspec.structs.replace(mine, id="bb", thread="t")
    theirs = msgspec.structs.replace(mine, id="cc", chat_id="8")
    for one in (mine, thread, theirs):
        await schedules.add(one, 1)

    async def resting() -> list[str]:
        found = [one for session in (mine, thread, theirs) for one in await schedules.of_session(session.session)]
        return [one.schedule.id for one in found if one.paused]

    await approve(pairings, await asked(pairings, client))
    await pairings.revoke("telegram", "7", by="console")
    assert await resting() == ["aa", "bb"]
    await client.command("DEL", *await client.command("KEYS", keys.brake("*")))
    await approve(pairings, await asked(pairings, client))
    assert await resting() == []


async def test_records_of_a_newer_release_are_passed_over(pairings: Pairings, client: RedisClient) -> None:
    """A list is still a list."""
    await approve(pairings, await asked(pairings, client))
    await client.command("HSET", keys.pair("telegram"), "9", msgspec.msgpack.encode({"strange": 1}))
    assert [one.sender for one in await pairings.people()] == ["7"]
