"""Fixtures: a fleet of real processes on a real Valkey, with a scripted model server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.processes import ROOT, Process
from tests.helpers.valkey import fresh

Spawn = Callable[..., Process]


@pytest.fixture(scope="session")
def model_server() -> Iterator[ScriptedOpenAI]:
    """One scripted model server for all; `model` empties it for each test."""
    with ScriptedOpenAI() as server:
        yield server


@pytest.fixture
def model(model_server: ScriptedOpenAI) -> ScriptedOpenAI:
    """The model server without a script."""
    model_server.reset()
    return model_server


@pytest.fixture
def spawn(redis_url: str, model: ScriptedOpenAI, tmp_path: Path) -> Iterator[Spawn]:
    """Starts `python -m worker` or `python -m gateway`; kills what is left of them afterwards.

    A worker asks the model by its direct client, as an installation would. LiteLLM takes four seconds of processor time
    to import: `MODEL__CLIENT="litellm"` is for tests that are about it.
    """
    with spawning(redis_url, model, tmp_path) as start:
        yield start


class KeptFleet(NamedTuple):
    """What the tests of a module share: their fleet, its folder, and a Redis that is emptied once."""

    spawn: Spawn
    folder: Path
    redis_url: str


@pytest.fixture(scope="module")
def kept_fleet(
    valkey: EmbeddedValkey, model_server: ScriptedOpenAI, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KeptFleet]:
    """For cases that differ in little and end where they began: each has a chat of its own. In such a module no test
    asks for `redis_url` or what needs it."""
    folder = tmp_path_factory.mktemp("fleet")
    redis_url = fresh(valkey)
    with spawning(redis_url, model_server, folder) as start:
        yield KeptFleet(start, folder, redis_url)


@pytest.fixture
async def kept_client(kept_fleet: KeptFleet) -> AsyncIterator[RedisClient]:
    """A client of the test's own, on the Redis of the fleet that is kept."""
    made = RedisClient(kept_fleet.redis_url)
    yield made
    await made.close()


@contextmanager
def spawning(redis_url: str, model: ScriptedOpenAI, folder: Path) -> Iterator[Spawn]:
    """Starts processes; kills what is left of them at the end."""
    started: list[Process] = []

    def start(
        module: str, *args: str, env: Mapping[str, str] | None = None, root: Path = ROOT, **settings: str
    ) -> Process:
        variables = {
            "SHOAL_REDIS__URL": redis_url,
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            # Tests count the requests of the model: only those of titles want another one. An earlier version, in a
            # folder of its own, does not know the setting.
            **({"SHOAL_AGENT__TITLES": "false"} if root == ROOT else {}),
            **{f"SHOAL_{name}": value for name, value in settings.items()},
            **(env or {}),
        }
        process = Process(module, *args, env=variables, log=folder / f"{module}-{len(started)}.log", root=root)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            if process.alive:
                process.kill_group()
