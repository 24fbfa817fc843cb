"""One prompt that its provider cannot bear, and a provider that is down: what others notice of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from shared.errors import ModelError
from shared.messages.transcript import UserEntry
from shared.settings import ModelSettings, Secret
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import ProviderLimits, read_routes
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.turn_borders import MemoryJournal
from worker.agent.loop import run_agent
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.llm.registry import Models

BEFORE: Final = {
    "test_one_prompt_that_fails_closes_the_model_for_nobody": 1,
    "test_a_provider_that_fails_several_is_left_alone": 11,
}

FAULTS: Final[dict[str, dict[str, Any]]] = {
    "500": {"status": 500},
    "501 not implemented for this input": {"status": 501},
    "502 of a gateway": {"status": 502},
    "503 without a time": {"status": 503},
    "503 with a time": {"status": 503, "retry_after": "0.05"},
    "504": {"status": 504},
    "520 of a proxy": {"status": 520},
    "529 overloaded": {"status": 529},
    "408": {"status": 408},
    "429 without a time, as for a prompt over the tokens of a minute": {"status": 429},
    "silence": {"fault": "hang"},
    "a connection that is cut at once": {"text": "a b", "cut_after": 0},
}


class Asking:
    """Turns of several sessions on one model, without waits between its tries."""

    def __init__(self, server: ScriptedOpenAI, client: RedisClient) -> None:
        settings = ModelSettings(
            name="openai/scripted",
            api_base=server.base_url,
            api_key=Secret("sk-x"),
            client="direct",
            retry_waits_s=(0.01,),
            total_s=0.1,
        )
        self.client = client
        self.models = Models(settings, ProviderLimits(client))

    async def ask(self, session: str, text: str) -> str:
        spec = AgentRunSpec(session=session, entry=UserEntry(content=text, turn=1))
        async with asyncio.timeout(5):
            return (await run_agent(spec, self.models.get(), Toolbox([]), MemoryJournal())).content

    async def fail(self, session: str, text: str = "poison") -> None:
        with pytest.raises(ModelError):
            await self.ask(session, text)

    async def state(self) -> str:
        [reading] = await read_routes(self.client, list(self.models.provider_routes.values()))
        return reading.state


@pytest.fixture
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as model:
        yield model


@pytest.mark.parametrize("name", FAULTS)
async def test_one_prompt_that_fails_closes_the_model_for_nobody(
    client: RedisClient, server: ScriptedOpenAI, name: str
) -> None:
    """Whatever the provider makes of it, and however often it is tried: the next hello is answered at once."""
    server.script(Answer(match="poison", times=0, **FAULTS[name]), Answer(text="fine", times=0))
    asking = Asking(server, client)
    try:
        for _ in range(3):
            await asking.fail("web:ill/a")
        assert await asking.ask("web:well/a", "hello") == "fine"
        for _ in range(3):
            await asking.fail("web:ill/a")
        assert await asking.ask("web:other/a", "hello") == "fine"
        assert await asking.state() == "open"
    finally:
        await asking.models.close()


@pytest.mark.parametrize("name", FAULTS)
async def test_a_provider_that_fails_several_is_left_alone(
    client: RedisClient, server: ScriptedOpenAI, name: str
) -> None:
    """One session alone changes nothing; some more, and nobody is answered."""
    server.script(Answer(times=0, **FAULTS[name]))
    asking = Asking(server, client)
    try:
        await asking.fail("web:a/a", "hello")
        assert await asking.state() == "open", "it may be the prompt"
        for who in "bcdef":
            if await asking.state() == "open":
                await asking.fail(f"web:{who}/a", "hello")
        assert await asking.state() == "closed"
    finally:
        await asking.models.close()
