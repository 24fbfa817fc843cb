"""Fixtures: a fleet of real processes on a real Valkey, with a scripted model server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.processes import ROOT, Process

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
    """Starts `python -m worker` or `python -m gateway`; kills what is left of them afterwards."""
    started: list[Process] = []

    def start(
        module: str, *args: str, env: Mapping[str, str] | None = None, root: Path = ROOT, **settings: str
    ) -> Process:
        variables = {
            "SHOAL_REDIS__URL": redis_url,
            "SHOAL_DATA__DIR": str(tmp_path),
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "litellm",
            **{f"SHOAL_{name}": value for name, value in settings.items()},
            **(env or {}),
        }
        process = Process(module, *args, env=variables, log=tmp_path / f"{module}-{len(started)}.log", root=root)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.alive:
            process.kill_group()
