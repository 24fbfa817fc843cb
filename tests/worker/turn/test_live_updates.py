"""What is shown of a running turn: bundles, full texts, silence when nobody looks."""

from __future__ import annotations

from shared.messages.live import DeltaEvent, ProgressEvent
from shared.metrics import REGISTRY
from shared.store.client.redis_client import RedisClient
from tests.helpers.clock import HandClock
from tests.helpers.fleet import Seen, watching
from tests.helpers.wait import eventually
from worker.turn.live_updates import FULL_EVERY_S, UNWATCHED_PAUSE_S, LiveUpdates

SESSION = "web:owner/a"


def texts(seen: Seen) -> list[tuple[str, bool]]:
    return [(delta.text, delta.full) for delta in seen.deltas()]


async def test_the_first_text_is_full_and_later_ones_are_what_is_new(client: RedisClient) -> None:
    """Deltas carry turn, attempt and a sequence number without holes."""
    clock = HandClock()
    show = LiveUpdates(client, SESSION, 7, 2, clock=clock)
    async with watching(client, SESSION) as seen:
        for piece in ("One ", "two ", "three"):
            await show.add_text(piece)
            await show.send_once()
        await eventually(lambda: len(seen.deltas()) == 3)
    assert texts(seen) == [("One ", True), ("two ", False), ("three", False)]
    assert [(delta.turn, delta.attempt, delta.seq) for delta in seen.deltas()] == [(7, 2, 0), (7, 2, 1), (7, 2, 2)]


async def test_several_pieces_travel_in_one_bundle(client: RedisClient) -> None:
    """A model's tokens are not messages of their own."""
    async with watching(client, SESSION) as seen, LiveUpdates(client, SESSION, 1, 1) as show:
        for i in range(100):
            await show.add_text(f"{i} ")
        await eventually(lambda: "".join(text for text, _ in texts(seen)).endswith("99 "))
    assert len(seen.deltas()) <= 3


async def test_the_whole_text_is_sent_again_from_time_to_time(client: RedisClient) -> None:
    """For those who came in the middle or missed a piece."""
    clock = HandClock()
    show = LiveUpdates(client, SESSION, 1, 1, clock=clock)
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
    show = LiveUpdates(client, SESSION, 1, 1, clock=clock)
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
    show = LiveUpdates(client, SESSION, 1, 1, clock=clock)
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
    show = LiveUpdates(client, SESSION, 1, 1, suspended=lambda: held, clock=clock)
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
    async with LiveUpdates(client, SESSION, 1, 1) as show:
        await show.add_text("a")
        await show.add_activity("b")
    await client.close()


async def test_text_is_left_out_once_the_message_tool_has_spoken(client: RedisClient) -> None:
    """What the agent says at the end of such a turn is not sent, so it is not shown either; what it does is."""
    spoken = False
    show = LiveUpdates(client, "web:owner/a", 1, 1, reply_sent=lambda: spoken)
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
    (count, total), show = measured(), LiveUpdates(client, SESSION, 1, 1, clock=clock)
    clock.at += 2.5
    await show.add_text("One ")
    clock.at += 10
    await show.add_text("two")
    await show.reset_text()
    await show.add_text("anew")
    await LiveUpdates(client, SESSION, 1, 1, reply_sent=lambda: True).add_text("unsent")
    assert measured() == (count + 1, total + 2.5)
