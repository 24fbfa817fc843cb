"""Streams of stored responses: read again, followed elsewhere, and gone on with after a cut."""

from __future__ import annotations

import asyncio
from typing import Any

import openai as official
import pytest

from gateway.channels.web.api.responses.numbers import SCALE
from shared.store.client.redis_client import RedisClient
from tests.gateway.channels.api.asking import answering, asker, post, working
from tests.gateway.channels.api.by_hand import TurnByHand, turn_by_hand
from tests.gateway.harness import TOKENS, gateway, process
from tests.helpers.wait import eventually

PATH = "/v1/responses"
HELLO: Any = {"model": "shoal", "input": "hello"}
BACKGROUND: Any = HELLO | {"background": True}
DELTA = "response.output_text.delta"


class Received:
    """Text, last event and final response, as a program has them."""

    def __init__(self) -> None:
        self.id = ""
        self.texts: dict[str, str] = {}
        self.after = 0
        self.final: Any = None

    async def add(self, stream: Any, until: str = "") -> None:
        """Read events, to the end or until the text is this one; then the connection is closed."""
        async for event in stream:
            assert event.sequence_number > self.after or event.type == "response.created"
            self.after = event.sequence_number
            match event.type:
                case "response.created":
                    self.id = event.response.id
                case "response.output_item.added":
                    self.texts[event.item.id] = ""
                case "response.output_text.delta":
                    self.texts[event.item_id] += event.delta
                case "response.completed" | "response.incomplete" | "response.failed":
                    self.final = event.response
            if until and until in self.texts.values():
                break
        await stream.close()

    async def resume(self, one: official.AsyncOpenAI, until: str = "") -> None:
        """Go on after the last event."""
        await self.add(await one.responses.retrieve(self.id, stream=True, starting_after=self.after), until)

    @property
    def text(self) -> str:
        """The text of the message that the response has in the end."""
        [item] = self.final.output
        return self.texts[item.id]


async def show_words(turn: TurnByHand, *words: str) -> None:
    for word in words:
        await turn.show(word)


@pytest.mark.parametrize("body", [HELLO, BACKGROUND], ids=["plain", "background"])
async def test_a_stream_that_is_cut_goes_on_at_another_gateway(redis_url: str, client: RedisClient, body: Any) -> None:
    """While the turn runs, and once more after it has ended: each word comes once."""
    received = Received()
    async with gateway(redis_url) as a, gateway(redis_url) as b, asker(a.address) as one, asker(b.address) as other:
        stream = await one.responses.create(**body, stream=True)
        async with turn_by_hand(client) as turn:
            await turn.show("Once")
            await received.add(stream, until="Once")
            following = asyncio.create_task(received.resume(other, until="Once upon a"))
            await show_words_until(turn, following)
            await turn.end("Once upon a time")
        await received.resume(one)
        assert received.text == received.final.output_text == "Once upon a time"
        assert await one.responses.retrieve(received.id) == received.final


async def show_words_until(turn: TurnByHand, following: asyncio.Task[None]) -> None:
    """Show the text, whole each time, until the other gateway has passed it on."""

    async def passed_on() -> bool:
        await turn.show("Once upon a", full=True)
        return following.done()

    await eventually(passed_on, within_s=60)
    await following


async def test_a_killed_gateway_costs_no_word(redis_url: str, client: RedisClient) -> None:
    """OpenAI's client notices, and goes on through another one."""
    received = Received()
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        async with asker(a.address) as one, asker(b.address) as other, turn_begun(one, client) as (stream, turn):
            await turn.show("Once upon")
            await received.add(stream, until="Once upon")
            a.popen.kill()
            await turn.end("Once upon a time")
            await received.resume(other)
    assert received.text == received.final.output_text == "Once upon a time"


class turn_begun:
    """A stream in the background, and its turn by hand."""

    def __init__(self, one: official.AsyncOpenAI, client: RedisClient) -> None:
        self._one = one
        self._turn = turn_by_hand(client)

    async def __aenter__(self) -> tuple[Any, TurnByHand]:
        stream = await self._one.responses.create(**BACKGROUND, stream=True)
        return stream, await self._turn.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        await self._turn.__aexit__(*raised)


async def test_an_ended_response_is_replayed(redis_url: str, client: RedisClient) -> None:
    """The same events but for deltas, and the same final response, of the client's helper too."""
    async with gateway(redis_url) as a, gateway(redis_url) as b, asker(a.address) as one, asker(b.address) as other:
        async with turn_begun(one, client) as (stream, turn):
            await show_words(turn, "Once", " upon")
            await turn.end("Once upon a time")
        events = [event async for event in stream]
        id = events[0].response.id
        replay = [event async for event in await other.responses.retrieve(id, stream=True)]
        assert [event for event in replay if event.type != DELTA] == [event for event in events if event.type != DELTA]
        for after in [event.sequence_number for event in events]:
            rest = [event async for event in await other.responses.retrieve(id, stream=True, starting_after=after)]
            assert rest[-1:] == [event for event in events[-1:] if event.sequence_number > after]
        async with other.responses.stream(response_id=id) as helper:
            async for _ in helper:
                pass
            final = await helper.get_final_response()
        assert final.output_text == "Once upon a time"
        assert final.to_dict() | {"output": 0} == events[-1].response.to_dict() | {"output": 0}


async def test_text_that_was_withdrawn_is_not_continued(redis_url: str, client: RedisClient) -> None:
    """A client that has other words than the answer's gets the whole answer, as another item."""
    received = Received()
    async with gateway(redis_url) as at, asker(at.address) as one, turn_begun(one, client) as (stream, turn):
        await turn.show("First words")
        await received.add(stream, until="First words")
        await turn.end("Another answer of the agent")
        await received.resume(one)
    assert received.text == received.final.output_text == "Another answer of the agent"
    assert sorted(received.texts.values()) == ["Another answer of the agent", "First words"]


async def test_a_remark_before_a_tool_is_not_doubled(redis_url: str, client: RedisClient) -> None:
    """Another gateway knows it only once the turn has ended, and is silent until then."""
    received = Received()
    async with gateway(redis_url) as a, gateway(redis_url) as b, asker(a.address) as one, asker(b.address) as other:
        async with turn_begun(one, client) as (stream, turn):
            await turn.show("Let me see.")
            await turn.say("A file.")
            await turn.show("The answer", attempt=2)
            await received.add(stream, until="Let me see.\n\nA file.\n\nThe answer")
            following = asyncio.create_task(received.resume(other))
            await turn.end("Let me see.\n\nThe answer is 4")
            await following
    assert received.text == received.final.output_text


async def test_a_failed_response_is_replayed_as_failed(redis_url: str, client: RedisClient) -> None:
    """An error and `response.failed`, not an error of HTTP: the response was found."""
    line = {"content": "Sorry.", "kind": "apology", "failed": "error"}
    async with gateway(redis_url) as at, asker(at.address) as one, answering(client, line):
        events = [event async for event in await one.responses.create(**BACKGROUND, stream=True)]
        id = events[0].response.id
        replay = [event async for event in await one.responses.retrieve(id, stream=True)]
    assert [event.type for event in replay] == [
        "response.created", "response.in_progress", "error", "response.failed",
    ]  # fmt: skip
    assert replay[-1].response == events[-1].response  # type: ignore[union-attr]


async def test_a_waiting_response_is_followed_and_cancelled(redis_url: str, client: RedisClient) -> None:
    """Two may follow one response; both end with it."""
    async with gateway(redis_url) as at, asker(at.address) as one:
        made = await one.responses.create(**BACKGROUND)
        streams = [await one.responses.retrieve(made.id, stream=True) for _ in range(2)]
        await one.responses.cancel(made.id)
        for stream in streams:
            events = [event async for event in stream]
            assert events[-1].type == "response.incomplete"
            assert events[-1].response.status == "cancelled"


async def test_a_number_inside_a_structured_answer_is_refused(redis_url: str, client: RedisClient) -> None:
    """It comes in one piece, so the only number of a delta is that of all of it."""
    form: Any = {"format": {"type": "json_object"}}
    async with gateway(redis_url) as at, asker(at.address) as one, answering(client, {"content": '{"a": 1}'}):
        stream = await one.responses.create(**HELLO, text=form, stream=True)
        events = [event async for event in stream]
        id = events[0].response.id
        [delta] = [event for event in events if event.type == "response.output_text.delta"]
        rest = await one.responses.retrieve(id, stream=True, starting_after=delta.sequence_number)
        assert [event async for event in rest] == events[events.index(delta) + 1 :]
        for made_up in (delta.sequence_number - 1, delta.sequence_number - SCALE, delta.sequence_number + SCALE):
            wrong = await post(at.address, path=f"{PATH}/{id}?stream=true&starting_after={made_up}", method="GET")
            assert (wrong.status, wrong.error["param"]) == (400, "starting_after"), made_up


async def test_bad_questions_for_a_stream_are_refused(redis_url: str) -> None:
    """Each with the error that it has elsewhere; another token's response is unknown."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        made = await one.responses.create(**HELLO)
        events = [event async for event in await one.responses.retrieve(made.id, stream=True)]
        last = events[-1].sequence_number
        for after in ("x", "-1", "1.5", "", "9" * 30, "7", str(2**53), str(last + 1)):
            wrong = await post(at.address, path=f"{PATH}/{made.id}?stream=true&starting_after={after}", method="GET")
            assert (wrong.status, wrong.error["param"]) == (400, "starting_after"), after
        whole = await post(at.address, path=f"{PATH}/{made.id}?starting_after=1", method="GET")
        assert (whole.status, whole.error["param"]) == (400, "starting_after")
        async with asker(at.address, TOKENS["ann"]) as ann:
            for who, id in ((ann, made.id), (one, "resp_" + "0" * 32), (one, "nonsense")):
                with pytest.raises(official.NotFoundError) as refused:
                    await who.responses.retrieve(id, stream=True, starting_after=1)
                assert refused.value.code == "response_not_found"
