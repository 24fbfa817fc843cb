"""What is shown of a running turn: bundles, full texts, silence when nobody looks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.chatlog.live_text import LiveText
from shared.messages.live import DeltaEvent, ProgressEvent, Takeover, decode_deltas
from shared.metrics import REGISTRY
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.queue import Claim
from tests.helpers.build import claim_of
from tests.helpers.clock import HandClock
from tests.helpers.fleet import Seen, watching
from tests.helpers.wait import eventually
from worker.turn.conversation import ShownBy
from worker.turn.live_updates import CONTINUES, FULL_EVERY_S, RECORD_CHARS, UNWATCHED_PAUSE_S, LiveUpdates

SESSION = "web:owner/a"
CLAIM = claim_of(SESSION)


async def leased(client: RedisClient, *, turn: int = 1, attempt: int = 1) -> Claim:
    """A turn whose lease holds; an earlier one is lost."""
    claim = claim_of(SESSION, turn=turn, attempt=attempt)
    await client.command("HSET", keys.leases("turns"), *claim.fence)
    return claim


async def record(client: RedisClient) -> list[DeltaEvent]:
    """What a page finds that opens now."""
    return list(decode_deltas(await client.command("LRANGE", keys.live(SESSION), 0, -1)))


async def recorded_text(client: RedisClient) -> str:
    live = LiveText()
    assert all(live.add(delta) for delta in await record(client))
    return live.text


def texts(seen: Seen) -> list[tuple[str, bool]]:
    return [(delta.text, delta.full) for delta in seen.deltas()]


async def test_the_first_text_is_full_and_later_ones_are_what_is_new(client: RedisClient) -> None:
    """Deltas carry turn, attempt and a sequence number without holes."""
    clock = HandClock()
    show = LiveUpdates(client, await leased(client, turn=7, attempt=2), clock=clock)
    async with watching(client, SESSION) as seen:
        for piece in ("One ", "two ", "three"):
            await show.add_text(piece)
            await show.send_once()
        await eventually(lambda: len(seen.deltas()) == 3)
    assert texts(seen) == [("One ", True), ("two ", False), ("three", False)]
    assert [(delta.turn, delta.attempt, delta.seq) for delta in seen.deltas()] == [(7, 2, 0), (7, 2, 1), (7, 2, 2)]


async def test_several_pieces_travel_in_one_bundle(client: RedisClient) -> None:
    """A model's tokens are not messages of their own."""
    async with watching(client, SESSION) as seen, LiveUpdates(client, await leased(client)) as show:
        for i in range(100):
            await show.add_text(f"{i} ")
        await eventually(lambda: "".join(text for text, _ in texts(seen)).endswith("99 "))
    assert len(seen.deltas()) <= 3


async def test_the_whole_text_is_sent_again_from_time_to_time(client: RedisClient) -> None:
    """For those who came in the middle or missed a piece."""
    clock = HandClock()
    show = LiveUpdates(client, await leased(client), clock=clock)
    async with watching(client, SESSION) as seen:
        await show.add_text("a")
        await show.send_once()
        clock.at += FULL_EVERY_S
        await show.add_text("b")
        await show.send_once()
        await eventually(lambda: len(seen.deltas()) == 2)
    assert texts(seen) == [("a", True), ("ab", True)]


async def test_text_that_is_reset_is_replaced_by_a_full_one(client: RedisClient) -> None:
    """A retry starts over in the same bubble."""
    clock = HandClock()
    show = LiveUpdates(client, await leased(client), clock=clock)
    async with watching(client, SESSION) as seen:
        await show.add_text("wrong")
        await show.send_once()
        await show.reset_text()
        await show.add_text("right")
        await show.send_once()
        await eventually(lambda: len(seen.deltas()) == 2)
    assert texts(seen) == [("wrong", True), ("right", True)]
    assert show.visible == "right"


async def test_nothing_is_sent_for_a_while_when_nobody_looks(client: RedisClient) -> None:
    """A worker that sees no receiver stops sending; who comes later gets the text from its beginning."""
    clock = HandClock()
    show = LiveUpdates(client, await leased(client), clock=clock)
    await show.add_text("unseen ")
    await show.send_once()
    async with watching(client, SESSION) as seen:
        await show.add_text("still ")
        await show.send_once()
        clock.at += UNWATCHED_PAUSE_S
        await show.add_text("now")
        await show.send_once()
        await eventually(lambda: seen.deltas())
    assert texts(seen) == [("unseen still now", True)]


async def test_a_suspended_lease_shows_nothing(client: RedisClient) -> None:
    """Self-fence: past three quarters of the lease nothing is sent; afterwards the text is whole."""
    clock, held = HandClock(), True
    show = LiveUpdates(client, await leased(client), suspended=lambda: held, clock=clock)
    async with watching(client, SESSION) as seen:
        await show.add_text("a")
        await show.send_once()
        await show.add_activity("nothing")
        held = False
        await show.add_text("b")
        await show.send_once()
        await show.add_activity('calculate("2+2")')
        await eventually(lambda: len(seen.news) == 2)
    [delta, progress] = [news for _, news in seen.news]
    assert isinstance(delta, DeltaEvent)
    assert (delta.text, delta.full) == ("ab", True)
    assert progress == ProgressEvent(1, 'calculate("2+2")')


async def test_a_redis_that_is_away_does_not_disturb_the_turn() -> None:
    """What is shown may be lost; the turn goes on."""
    client = RedisClient("redis://127.0.0.1:1", timeout_s=0.2)
    async with LiveUpdates(client, CLAIM) as show:
        await show.add_text("a")
        await show.add_activity("b")
    await client.close()


async def test_text_is_left_out_once_the_message_tool_has_spoken(client: RedisClient) -> None:
    """What the agent says at the end of such a turn is not sent, so it is not shown either; what it does is."""
    spoken = False
    show = LiveUpdates(client, CLAIM, reply_sent=lambda: spoken)
    await show.add_text("before")
    assert show.visible == "before"
    await show.reset_text()
    spoken = True
    await show.add_text("after")
    assert show.visible == ""


async def test_the_time_to_the_first_text_is_measured_once(client: RedisClient) -> None:
    """From the claim on; later text, also after a reset, is no first one, and neither is text that nobody is sent."""

    def measured() -> tuple[float, float]:
        names = ("shoal_first_token_seconds_count", "shoal_first_token_seconds_sum")
        count, total = (REGISTRY.get_sample_value(name) or 0.0 for name in names)
        return count, total

    clock = HandClock()
    (count, total), show = measured(), LiveUpdates(client, CLAIM, clock=clock)
    clock.at += 2.5
    await show.add_text("One ")
    clock.at += 10
    await show.add_text("two")
    await show.reset_text()
    await show.add_text("anew")
    await LiveUpdates(client, CLAIM, reply_sent=lambda: True).add_text("unsent")
    assert measured() == (count + 1, total + 2.5)


async def test_what_people_see_is_recorded(client: RedisClient) -> None:
    """Every delta that was shown, from a whole text on, for an hour at most."""
    clock = HandClock()
    show = LiveUpdates(client, await leased(client), steps=lambda: 3, clock=clock)
    async with watching(client, SESSION) as seen:
        for piece in ("One ", "two ", "three"):
            await show.add_text(piece)
            await show.send_once()
        assert await recorded_text(client) == "One two three"
        clock.at += FULL_EVERY_S
        await show.add_text(".")
        await show.send_once()
        await eventually(lambda: len(seen.deltas()) == 4)
        assert await record(client) == seen.deltas()[-1:]
        assert {delta.step for delta in seen.deltas()} == {3}
        assert 0 < int(await client.command("PTTL", keys.live(SESSION))) <= 3_600_000


async def test_a_turn_that_nobody_watches_is_recorded_once_a_second(client: RedisClient) -> None:
    """By what is new, so that a successor goes on with it; whoever comes later is sent the whole."""
    clock = HandClock()
    show = LiveUpdates(client, await leased(client), clock=clock)
    for piece in ("One ", "two ", "three "):
        await show.add_text(piece)
        await show.send_once()
        clock.at += UNWATCHED_PAUSE_S / 2
    assert [delta.text for delta in await record(client)] == ["One ", "two three "]
    async with watching(client, SESSION) as seen:
        clock.at += UNWATCHED_PAUSE_S
        for piece in ("four ", "five"):
            await show.add_text(piece)
            await show.send_once()
        await eventually(lambda: len(seen.deltas()) == 2)
        assert texts(seen) == [("One two three four ", True), ("five", False)]
        assert await recorded_text(client) == "One two three four five"


async def test_a_worker_that_lost_its_lease_shows_and_records_nothing(client: RedisClient) -> None:
    """Its successor owns the text."""
    clock = HandClock()
    old = LiveUpdates(client, await leased(client), clock=clock)
    new = LiveUpdates(client, claim_of(SESSION, attempt=2, token="2"), clock=clock)
    async with watching(client, SESSION) as seen:
        await old.add_text("old ")
        await old.send_once()
        await client.command("HSET", keys.leases("turns"), *claim_of(SESSION, token="2").fence)
        await new.add_text("old new")
        await new.send_once()
        clock.at += FULL_EVERY_S
        await old.add_text("and late")
        await old.send_once()
        assert await recorded_text(client) == "old new"
        await eventually(lambda: len(seen.deltas()) == 2)
    assert [delta.attempt for delta in seen.deltas()] == [1, 2]


async def test_an_attempt_that_begins_again_is_recorded_once_it_is_longer(client: RedisClient) -> None:
    """Until then screens keep the earlier text, and a page that opens finds it, too. So it is with a next round."""
    clock = HandClock()
    async with watching(client, SESSION):
        first = LiveUpdates(client, await leased(client), clock=clock)
        await first.add_text("The long text of a first attempt")
        await first.send_once()
        show = LiveUpdates(client, await leased(client, attempt=2), standing=32, clock=clock)
        for piece in ("Another ", "text"):
            await show.add_text(piece)
            await show.send_once()
            assert await recorded_text(client) == "The long text of a first attempt"
        await show.add_text(", which is longer than that one")
        await show.send_once()
        await show.add_text(".")
        await show.send_once()
        assert await recorded_text(client) == "Another text, which is longer than that one."
        await show.reset_text()
        await show.add_text("Round two")
        await show.send_once()
        assert await recorded_text(client) == "Another text, which is longer than that one."


@pytest.mark.parametrize(("crashes", "lost"), [(1, ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]), (0, ["aaaaaaaaaaaa"])])
async def test_a_worker_that_goes_on_says_who_died(client: RedisClient, crashes: int, lost: list[str]) -> None:
    """Once its own text is there, with the pause that a person has seen; not when the turn was handed over."""
    clock = HandClock()
    before = ShownBy("bbbbbbbbbbbb", clock.now_ms() - 87, (Takeover("aaaaaaaaaaaa", "bbbbbbbbbbbb", 9),))
    claim = await leased(client, attempt=3)
    assert claim.turn is not None
    claim = replace(claim, turn=replace(claim.turn, crashes=crashes))
    show = LiveUpdates(client, claim, standing=4, shown_by=before, clock=clock)
    async with watching(client, SESSION):
        await show.add_text("Once")
        assert [takeover.lost for takeover in show.takeovers] == ["aaaaaaaaaaaa"]
        await show.add_text(" upon")
        await show.send_once()
        [delta] = await record(client)
    assert (delta.at, delta.worker, delta.takeovers) == (clock.now_ms(), "w" * 12, show.takeovers)
    assert [takeover.lost for takeover in show.takeovers] == lost
    if crashes:
        assert show.takeovers[-1] == Takeover("bbbbbbbbbbbb", "w" * 12, 87)


async def test_a_record_has_its_limit_and_may_be_broken_or_gone(client: RedisClient) -> None:
    """Text is shown all the same; after a loss the record begins with the next whole text."""
    clock = HandClock()
    show = LiveUpdates(client, await leased(client), clock=clock)
    async with watching(client, SESSION) as seen:
        await show.add_text("a")
        await show.send_once()
        await client.command("SET", keys.live(SESSION), "junk")
        await show.add_text("b")
        await show.send_once()
        await client.command("DEL", keys.live(SESSION))
        await show.add_text("c")
        await show.send_once()
        assert await record(client) == []
        clock.at += FULL_EVERY_S
        await show.add_text("d")
        await show.send_once()
        assert await recorded_text(client) == "abcd"
        await show.add_text("x" * RECORD_CHARS)
        await show.send_once()
        assert await recorded_text(client) == "abcd"
        await eventually(lambda: len(seen.deltas()) == 5)


@pytest.mark.parametrize(("worker", "explained"), [("b" * 12, True), ("", False)])
async def test_a_pause_after_a_takeover_is_explained(client: RedisClient, worker: str, explained: bool) -> None:
    """After 300 ms, if the text still stands where another worker left it."""
    claim = await leased(client)
    async with (
        watching(client, SESSION) as seen,
        LiveUpdates(client, claim, standing=5, shown_by=ShownBy(worker, 0)) as show,
    ):
        await show.add_text("Once ")
        if explained:
            await eventually(lambda: ProgressEvent(1, CONTINUES, True) in [news for _, news in seen.news])
        assert (show._teller is not None) is explained


async def test_a_takeover_that_goes_on_at_once_needs_no_words(client: RedisClient) -> None:
    claim = await leased(client)
    shown_by = ShownBy("b" * 12, 0)
    async with LiveUpdates(client, claim, standing=5, shown_by=shown_by) as show, watching(client, SESSION) as seen:
        await show.add_text("Once upon")
        await eventually(lambda: show._teller is not None and show._teller.done())
    assert not [news for _, news in seen.news if isinstance(news, ProgressEvent)]
