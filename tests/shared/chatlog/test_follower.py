"""The follower's promises to a reader that waits for one answer; tests/gateway/test_page_reader.py has every
interleaving, with readers that show a whole chat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shared.chatlog.follower import ChatFollower
from shared.chatlog.turn_reader import TurnReader
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.store.delivery.fanout import ChatNews
from tests.helpers.chat_log import LogByHand, NewsByHand
from tests.helpers.clock import HandClock

S = "api:owner/a"
ANSWER = OutboundMessage(content="42", turn=1, in_reply_to=("m1",))


class World:
    """A follower over a log and news by hand, and a reader that follows the log from its beginning."""

    def __init__(self) -> None:
        self.log, self.news, self.clock = LogByHand(), NewsByHand(), HandClock()

        def make_news(on_gap: Callable[[], Awaitable[None]]) -> NewsByHand:
            self.news.on_gap = on_gap
            return self.news

        self.follower = ChatFollower(self.log, make_news, self.clock)
        self.reader = TurnReader("m1", 0)
        self.reader.number = self.log.running = 1

    async def follow(self) -> None:
        await self.follower.follow(S, self.reader)

    async def hear(self, news: ChatNews) -> None:
        self.news.listeners[S](news)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    def ask(self) -> None:
        """The question is the first line of the log, and nobody heard of it."""
        self.log.append(UserLine(id="m1", text="6 x 7?"))


@pytest.fixture
async def world() -> World:
    made = World()
    await made.follow()
    return made


async def test_an_answer_that_arrives_live_costs_no_command(world: World) -> None:
    """The question and its answer are the very next lines."""
    await world.hear(world.log.append(UserLine(id="m1", text="6 x 7?")))
    await world.hear(world.log.append(ANSWER))
    assert (world.reader.end, world.log.reads) == (ANSWER, 0)


async def test_a_line_that_the_replicas_lack_is_shown_to_nobody(world: World) -> None:
    """With `redis.copies`: neither live, nor from the log, nor when its primary is left meanwhile. What comes after it
    waits, too."""
    world.log.settles = world.log.by_hand = True
    world.ask()
    world.reader.seq = 1
    line = world.log.append(ANSWER)
    await world.hear(line)
    await world.hear(TurnEvent(1, "done"))
    [settling] = world.log.questions
    assert world.reader.end is None
    settling.fail()
    await world.settle()
    world.log.questions[0].arrive()  # where the log is
    await world.settle()
    world.log.questions[0].arrive()  # its lines
    await world.settle()
    [settling] = world.log.questions
    assert world.reader.end is None
    settling.arrive()
    await world.settle()
    assert world.reader.end is ANSWER


async def test_a_line_of_a_primary_that_is_left_is_read_again(world: World) -> None:
    """The other one may not have it, although it has all that it has itself at its replicas."""
    world.log.settles = True
    world.ask()
    world.reader.seq = 1
    line = world.log.append(ANSWER)
    world.log.by_hand = True
    await world.hear(line)
    [settling] = world.log.questions
    del world.log.lines[2]
    world.log.last = 1
    await world.news.on_gap()
    settling.arrive()
    world.log.by_hand = False
    for question in list(world.log.questions):
        question.arrive()
    await world.settle()
    assert world.reader.end is None


async def test_an_answer_behind_a_gap_is_read(world: World) -> None:
    """A later line shows that one was missed."""
    world.ask()
    await world.hear(world.log.append(ANSWER))
    assert (world.reader.end, world.reader.seq) == (ANSWER, 2)


async def test_an_answer_that_did_not_arrive_live_is_read_after_a_silence_or_a_gap(world: World) -> None:
    """The log is the truth."""
    world.ask()
    world.log.append(ANSWER)
    world.clock.at += 1.9
    await world.follower.tick()
    await world.settle()
    assert world.reader.end is None
    world.clock.at += 0.2
    await world.follower.tick()
    await world.settle()
    assert world.reader.end is ANSWER
    other = TurnReader("m1", 0)
    await world.follower.follow(S, other)
    await world.news.on_gap()
    await world.settle()
    assert other.end is ANSWER


async def test_a_turn_that_was_stopped_without_an_answer_is_looked_up_at_once(world: World) -> None:
    """Its reader learns that no answer comes, as after `/new`."""
    world.ask()
    world.log.running = None
    await world.hear(TurnEvent(1, "stopped"))
    assert world.reader.lost


async def test_a_store_that_is_away_is_asked_again(world: World) -> None:
    """The reader knows meanwhile."""
    world.ask()
    world.log.append(ANSWER)
    world.log.by_hand = True
    await world.news.on_gap()
    await world.settle()
    world.log.questions[0].fail()
    await world.settle()
    assert world.reader.away
    world.log.by_hand = False
    world.clock.at += 1.1
    await world.follower.tick()
    await world.settle()
    assert (world.reader.away, world.reader.end) == (False, ANSWER)


async def test_a_log_that_lost_its_tail_is_read_from_its_beginning(world: World) -> None:
    """What was read before is forgotten."""
    for n in range(1, 4):
        aside = OutboundMessage(content=f"{n}", turn=1, kind="notice", sent_by_tool=True)
        await world.hear(world.log.append(aside))
    del world.log.lines[3]
    world.log.last = 2
    await world.news.on_gap()
    await world.settle()
    assert [line.content for line in world.reader.lines] == ["1", "2"]


async def test_an_answer_under_a_number_that_was_used_before_is_found(world: World) -> None:
    """The store lost two lines of the turn. A second attempt wrote others, and the answer, under their numbers."""
    for n in range(1, 4):
        await world.hear(world.log.append(OutboundMessage(content=f"{n}", turn=1, kind="notice", sent_by_tool=True)))
    world.log.last = 1
    world.log.append(OutboundMessage(content="again", turn=1, kind="notice", sent_by_tool=True))
    world.log.append(ANSWER)
    await world.news.on_gap()
    await world.settle()
    assert (world.reader.end, [line.content for line in world.reader.lines]) == (ANSWER, ["1", "again"])


async def test_a_chat_is_left_when_its_last_reader_is_gone_and_its_subscription_was_made() -> None:
    """One that was under way would else be made afterwards, and stay."""
    world = World()
    world.news.confirmed.clear()
    following = asyncio.ensure_future(world.follow())
    await world.settle()
    world.follower.unfollow(S, world.reader)
    await world.follower.tick()
    assert world.follower.chats == 1
    world.news.confirmed.set()
    await following
    await world.follower.tick()
    assert (world.follower.chats, world.news.listeners) == (0, {})


async def test_a_subscription_ends_with_its_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shared, so that it outlives each of those who wait for it."""
    world, asked = World(), asyncio.Event()

    async def never(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(world.news, "follow_chat", never)
    running = asyncio.create_task(world.follower.run())
    following = asyncio.create_task(world.follow())
    await asked.wait()
    before = asyncio.all_tasks() - {running, following}
    running.cancel()
    following.cancel()
    await asyncio.wait({running, following})
    assert [task for task in before & asyncio.all_tasks() if task is not asyncio.current_task()] == []
