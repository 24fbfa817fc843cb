"""Which model a name stands for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

from shared.errors import SettingsError
from shared.settings import ModelSettings
from worker.agent.model import Model

BUILDERS: Final = {
    "demo": "worker.llm.demo:build",
    "litellm": "worker.llm.litellm_client:build",
}


def build_model(settings: ModelSettings) -> Model:
    """The model of the settings. Imports only what that model needs; raises SettingsError for one that is not there."""
    client = "demo" if settings.name == "demo" else settings.client.replace("auto", "litellm")
    path = BUILDERS.get(client)
    if path is None:
        known = ", ".join(name for name in BUILDERS if name != "demo")
        raise SettingsError(f"model.client is {client!r}, which this release does not have; use auto or {known}")
    module, _, name = path.partition(":")
    return cast(Callable[[ModelSettings], Model], getattr(import_module(module), name))(settings)
