"""What a gateway does when a delivery goes wrong in itself: its code, its lease, Redis, its places, its end."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from itertools import count
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.delivery.egress import FINISH_S, GIVE_BACK_S
from gateway.delivery.line_posts import LONG_CHARS
from gateway.platform.protocol import ChannelBroken, MaybeSent, NotAccepted, Piece, Post, PostTarget, Rate
from shared.embedded import EmbeddedValkey
from shared.messages.outbound import OutboundMessage
from shared.messages.schedule import BACKGROUND
from shared.metrics import DELIVERY_NOT_FOUND, DELIVERY_UNKNOWN
from shared.store import keys
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.outbox import LeasedChat
from tests.contracts.channels.echo import Turn
from tests.gateway.delivery_stage import DeliveryStage, dead_letters, run_delivery
from tests.gateway.fake_platform import FakePlatform


@pytest.fixture
def quick_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again almost at once."""
    monkeypatch.setattr("gateway.delivery.line_delivery.FIRST_S", 0.02)


@pytest.mark.usefixtures("quick_tries")
async def test_code_that_breaks_over_a_line_is_tried_again_and_the_line_is_not_lost(
    redis_url: str, tmp_path: Path
) -> None:
    """A library's error that nobody thought of passes, perhaps."""
    async with run_delivery(redis_url, tmp_path) as d:
        d.platform.fault("send", KeyError("a bug"))
        await d.say("hello")
        await d.receives("<echo: hello>")
        assert await dead_letters(d.client) == []


@pytest.mark.usefixtures("quick_tries")
async def test_code_that_breaks_over_a_line_again_and_again_gives_it_up(redis_url: str, tmp_path: Path) -> None:
    """One reply that a channel cannot handle does not stop its chat for ever."""
    async with run_delivery(redis_url, tmp_path) as d:
        d.platform.fault("send", *[KeyError("a bug")] * 6)
        await d.say("one")
        await d.say("two")
        await d.receives("<echo: two>")
        assert await dead_letters(d.client) == ["undeliverable"]


async def test_what_waited_too_long_is_a_dead_letter(redis_url: str, tmp_path: Path) -> None:
    """A day later nobody wants the answer any more."""
    async with run_delivery(redis_url, tmp_path, give_up_after_s=1.0) as d:
        d.platform.fault("send", *[NotAccepted("away")] * 3)
        await d.say("one")

        async def given_up() -> bool:
            return await dead_letters(d.client) == ["too_late"]

        await d.until(given_up, "the dead letter")
        d.platform.faults.clear()
        await d.say("two")
        await d.receives("<echo: two>")


async def test_a_late_reply_says_so(redis_url: str, tmp_path: Path) -> None:
    """And the one after it, which is not late, does not. How late it is depends on the clock of the machine, which may
    be set in between."""
    async with run_delivery(redis_url, tmp_path, width=100, late_after_s=-1e9) as d:
        await d.say("one")
        await d.until(lambda: d.platform.posts, "the first reply")
        assert re.fullmatch(r"<\*This answer is .+ late\.\*\n\necho: one>", d.platform.texts[0])
        d.platform.abilities = msgspec.structs.replace(d.platform.abilities, late_after_s=600.0)
        await d.say("two")
        await d.until(lambda: len(d.platform.posts) == 2, "the second reply")
        assert d.platform.texts[1] == "<echo: two>"


@pytest.mark.usefixtures("quick_tries")
async def test_a_call_has_its_time_and_then_nobody_knows(redis_url: str, tmp_path: Path) -> None:
    """A platform that hangs holds a chat up for so long, not for ever."""
    async with run_delivery(redis_url, tmp_path, call_s=0.5) as d:
        d.platform.fault("send", asyncio.Event().wait)
        await d.say("one")
        await d.say("other", chat="b")
        await d.until(lambda: sorted(d.platform.texts) == ["<echo: one>", "<echo: other>"], "both replies")


@pytest.mark.usefixtures("quick_tries")
async def test_a_platform_that_needs_a_person_is_reported(redis_url: str, tmp_path: Path) -> None:
    """The channel is turned off by whoever hears it; the line waits."""
    async with run_delivery(redis_url, tmp_path) as d:
        d.platform.fault("send", ChannelBroken("the token is not valid any more"))
        await d.say("one")
        await d.until(lambda: d.broken, "the word")
        await d.receives("<echo: one>")


async def test_redis_that_goes_between_a_post_and_its_record_doubles_nothing_in_silence(
    redis_url: str, tmp_path: Path, valkey: EmbeddedValkey
) -> None:
    """The record is written as soon as it is back: the post is there once."""

    async def gone() -> None:
        valkey.kill()

    async with run_delivery(redis_url, tmp_path) as d:
        d.platform.fault("send", gone)
        await d.say("one")
        await d.until(lambda: d.platform.posts, "the post")
        valkey.start()
        await d.until(d.quiet, "the record")
        await d.say("two")
        await d.receives("<echo: one>", "<echo: two>")


async def test_redis_that_stays_away_for_longer_than_a_lease_after_a_post_doubles_nothing(
    redis_url: str, tmp_path: Path, valkey: EmbeddedValkey
) -> None:
    """Whoever made the post tells so when it is back, and is believed; until then nobody has the chat, neither another
    gateway nor this one."""
    lease_s, killed, counted = 2.0, list[float](), DELIVERY_UNKNOWN.labels("fake")
    before = counted._value.get()

    async def gone() -> None:
        if not killed:
            valkey.kill()
            killed.append(time.monotonic())

    async with (
        run_delivery(redis_url, tmp_path, lease_s=lease_s) as d,
        run_delivery(redis_url, tmp_path, lease_s=lease_s) as other,
    ):
        for one in (d, other):
            one.platform.fault("send", gone)
        await d.say("one")
        await d.until(lambda: d.platform.posts or other.platform.posts, "the post")
        await d.until(lambda: time.monotonic() > killed[0] + 2 * lease_s, "the end of the lease")
        valkey.start()
        await d.until(d.quiet, "the record")
        await d.say("two")
        await d.until(lambda: "<echo: two>" in d.platform.texts + other.platform.texts, "the next reply")
        assert sorted(d.platform.texts + other.platform.texts) == ["<echo: one>", "<echo: two>"]
    assert counted._value.get() == before


async def test_a_lease_in_doubt_lets_nothing_out(redis_url: str, tmp_path: Path, valkey: EmbeddedValkey) -> None:
    """Past three quarters of it without a renewal a call under way is ended: another gateway may have the chat."""
    ended = asyncio.Event()

    async def hang() -> None:
        valkey.kill()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise

    async with run_delivery(redis_url, tmp_path, call_s=60.0, lease_s=3.0) as d:
        d.platform.fault("send", hang)
        await d.say("one")
        async with asyncio.timeout(30):
            await ended.wait()
        assert d.platform.posts == []
        valkey.start()
        await d.receives("<echo: one>")


async def test_more_chats_than_places_are_all_served(redis_url: str, tmp_path: Path) -> None:
    """A place is free again when its chat is quiet."""
    async with run_delivery(redis_url, tmp_path, chats=2) as d:
        for number in range(9):
            await d.say(f"hello {number}", chat=str(number))
        wanted = sorted(f"<echo: hello {number}>" for number in range(9))
        await d.until(lambda: sorted(d.platform.texts) == wanted, "all replies")
        assert d.egress.chats <= 2


async def test_long_turns_step_aside_when_others_wait(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat that only waits for its turn gives its place away, and comes back with its reply."""
    monkeypatch.setattr("gateway.delivery.chat_delivery.ASIDE_S", 0.2)
    monkeypatch.setattr("gateway.delivery.chat_delivery.RECHECK_S", 0.1)
    go = asyncio.Event()

    async def long(turn: Turn) -> str:
        await go.wait()
        return "at last"

    async with run_delivery(redis_url, tmp_path, chats=1, typing_every_s=5.0) as d:
        d.worker.scripts["long"] = long
        await d.say("long", chat="a")
        await d.until(lambda: d.egress.chats == 1, "its place")
        await d.say("quick", chat="b")
        await d.receives("<echo: quick>")
        go.set()
        await d.receives("<echo: quick>", "<at last>")


async def test_an_end_gives_every_chat_back_at_once(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that are answered are finished, one that hangs is cut: within two seconds nothing is held any more."""
    assert FINISH_S + GIVE_BACK_S < 2
    monkeypatch.setattr("gateway.delivery.egress.FINISH_S", 0.3)
    async with run_delivery(redis_url, tmp_path, call_s=60.0) as d:
        d.platform.fault("send", asyncio.Event().wait)
        await d.say("one")
        await d.until(lambda: "send" in d.platform.calls, "the call")
        d.draining.set()
        done, _ = await asyncio.wait({d.running}, timeout=30)
        assert done  # not after the minute that the call may take
        queued, held, state = await d.client.pipeline(
            [
                ("ZCARD", keys.outqueue("fake")),
                ("HLEN", keys.outleases("fake")),
                ("HKEYS", keys.out("fake:a")),
            ]
        )
        assert (queued, held) == (1, 0)
        assert b"sending" in state, "whoever comes next knows that the post may be there"
        assert b"tries" not in state, "an end is no try"
    d.running.result()


@pytest.mark.usefixtures("quick_tries")
async def test_an_unclear_send_is_remembered_for_whoever_comes_next(redis_url: str, tmp_path: Path) -> None:
    """With a look-up the platform is asked before anything is sent again."""
    async with run_delivery(redis_url, tmp_path, resend_guard="look-up") as d:

        async def accepted_and_lost() -> None:
            place = PostTarget(session="fake:a", chat_id="a")
            d.platform.posts.append(Post(target=place, key="fake:a:1:0", piece=Piece("<echo: one>", "echo: one")))
            raise MaybeSent("cut")

        d.platform.fault("send", accepted_and_lost)
        await d.say("one")
        await d.until(lambda: d.platform.posts, "the post")
        await d.until(d.quiet, "the end")
        assert (d.platform.calls.count("find"), d.platform.calls.count("send"), len(d.platform.posts)) == (1, 1, 1)


@pytest.mark.usefixtures("quick_tries")
async def test_a_post_that_a_look_up_does_not_find_is_sent_again_and_counted(redis_url: str, tmp_path: Path) -> None:
    """Whoever asks why something is there twice finds it in a metric and in the log."""
    counted = DELIVERY_NOT_FOUND.labels("fake")
    before = counted._value.get()
    async with run_delivery(redis_url, tmp_path, resend_guard="look-up") as d:

        async def lost() -> None:
            raise MaybeSent("cut")

        d.platform.fault("send", lost)
        with capture_logs() as lines:
            await d.say("one")
            await d.receives("<echo: one>")
            await d.until(d.quiet, "the end")
    assert counted._value.get() - before == 1
    assert "post not found, sent again" in [line["event"] for line in lines]


async def test_lines_with_nothing_to_show_are_done_with_at_once(redis_url: str, tmp_path: Path) -> None:
    """The end of a turn that said its answer itself; a message that was withdrawn."""

    async def send_by_tool(turn: Turn) -> list[OutboundMessage]:
        return [turn.line("Listen!", kind="notice", sent_by_tool=True), turn.line("", kind="withdrawn"), turn.line("")]

    async with run_delivery(redis_url, tmp_path) as d:
        d.worker.scripts["tell me"] = send_by_tool
        await d.say("tell me")
        await d.receives("<Listen!>")
        await d.until(d.quiet, "the end")


async def test_a_turn_that_nobody_waits_for_types_and_streams_nothing(redis_url: str, tmp_path: Path) -> None:
    """A heartbeat that has nothing to say is not noticed."""
    go = asyncio.Event()

    async def tick(turn: Turn) -> str:
        await turn.begin()
        await turn.doing("read_file")
        await go.wait()
        return ""

    async with run_delivery(redis_url, tmp_path, typing_every_s=0.1, edit_every_s=0.1) as d:
        d.worker.scripts["tick"] = tick
        await d.say("tick", metadata={BACKGROUND: "1"})
        await d.until(lambda: d.worker.received, "the turn")
        await d.until(d.quiet, "its chat let go")
        go.set()
        await d.say("hello")
        await d.receives("<echo: hello>")
        assert "edit" not in d.platform.calls


async def test_quick_replies_follow_their_news_and_not_the_next_poll(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that comes between the taking of its chat and the hearing of its news waits for nobody's next look."""
    monkeypatch.setattr("gateway.delivery.chat_delivery.RECHECK_S", 1000.0)
    async with run_delivery(redis_url, tmp_path, typing_every_s=5.0) as d:
        for number in range(40):
            await d.say(f"hello {number}", chat=str(number))
            await d.until(lambda number=number: len(d.platform.posts) == number + 1, "the reply")


class Running:
    """A turn that says what a test wants, and is answered when `go` is set."""

    def __init__(self, d: DeliveryStage, *, reply: str) -> None:
        self.turns: list[Turn] = []
        self.go = asyncio.Event()
        self._d, self._reply = d, reply
        d.worker.scripts["go"] = self._conducted

    async def begin(self) -> None:
        await self._d.say("go")
        await self._d.until(lambda: self.turns, "the turn")

    async def _conducted(self, turn: Turn) -> str:
        await turn.begin()
        self.turns.append(turn)
        await self.go.wait()
        return self._reply


async def test_a_reply_has_what_edits_that_show_a_turn_may_not_use_up(redis_url: str, tmp_path: Path) -> None:
    """Of four at once that never come again here, a message to stream into takes one, an edit another; two stay."""
    never = Rate("bot", 0.001, 4, "edits")
    async with run_delivery(redis_url, tmp_path, edit_every_s=0.01, rates=(never,)) as d:
        running, words = Running(d, reply="the reply"), count(1)
        await running.begin()

        async def edited() -> bool:
            await running.turns[0].stream(f"word {next(words)}", full=True)
            return d.platform.calls.count("edit") == 1

        await d.until(edited, "an edit")
        for _ in range(20):
            await running.turns[0].stream(f"word {next(words)}", full=True)
        running.go.set()
        await d.receives("<the reply>")
        assert d.platform.calls.count("edit") == 2


@pytest.mark.parametrize("long", [False, True])
async def test_long_texts_are_rendered_beside_the_event_loop(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    """While they are streamed and when they are sent; a short one is not worth a thread."""
    threads: dict[str, set[int]] = {}
    render = FakePlatform.render

    def seen(self: FakePlatform, markdown: str) -> list[Piece]:
        threads.setdefault(markdown[:4], set()).add(threading.get_ident())
        return render(self, markdown)

    monkeypatch.setattr(FakePlatform, "render", seen)
    more = "x" * (LONG_CHARS if long else LONG_CHARS // 2)
    async with run_delivery(redis_url, tmp_path, edit_every_s=0.01, width=100_000) as d:
        running = Running(d, reply=f"all of {more}")
        await running.begin()

        async def shown() -> bool:
            await running.turns[0].stream(f"some {more}", full=True)
            return bool(d.platform.posts)

        await d.until(shown, "the unfinished text")
        running.go.set()
        await d.receives(f"<all of {more}>")
    assert set(threads) == {"some", "all "}
    assert (threading.get_ident() in threads["some"] | threads["all "]) is not long


async def test_an_end_that_is_cancelled_again_and_again_gives_every_chat_back(redis_url: str, tmp_path: Path) -> None:
    """Each give-back is finished: else the chats would belong to nobody until their leases have lapsed."""
    async with run_delivery(redis_url, tmp_path, call_s=60.0) as d:
        d.platform.fault("send", asyncio.Event().wait)
        await d.say("one")
        await d.until(lambda: "send" in d.platform.calls, "the call")
        d.draining.set()
        for _ in range(50):
            d.running.cancel()
            await asyncio.sleep(0)
        await asyncio.wait({d.running})
        assert await d.client.command("HLEN", keys.outleases("fake")) == 0


async def test_chats_that_are_claimed_at_the_end_are_given_back(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim was on its way when the end began."""
    async with run_delivery(redis_url, tmp_path, call_s=60.0) as d:
        acquire, claimed = DeliveryQueue.acquire, asyncio.Event()

        async def slow(queue: DeliveryQueue, many: int) -> tuple[list[LeasedChat], float]:
            found = await acquire(queue, many)
            if found[0]:
                claimed.set()
                await d.draining.wait()
                for _ in range(20):
                    await asyncio.sleep(0)
            return found

        monkeypatch.setattr(DeliveryQueue, "acquire", slow)
        await d.say("one")
        await claimed.wait()
        d.draining.set()
        await asyncio.wait({d.running})
        assert await d.client.command("HLEN", keys.outleases("fake")) == 0
