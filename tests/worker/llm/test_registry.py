"""A name leads to a model."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.errors import SettingsError
from shared.settings import ModelSettings
from worker.llm.demo import DemoModel
from worker.llm.registry import build_model
from worker.llm.retry import RetryingModel


def test_demo_is_the_default_and_everything_else_goes_through_litellm() -> None:
    """With retries around what talks to the network."""
    assert isinstance(build_model(ModelSettings()), DemoModel)
    assert isinstance(build_model(ModelSettings(name="demo", client="litellm")), DemoModel)
    for settings in (ModelSettings(name="openai/x"), ModelSettings(name="openai/x", client="litellm")):
        model = build_model(settings)
        assert isinstance(model, RetryingModel)
        assert model.name == "openai/x"


def test_a_client_that_is_not_there_is_a_settings_error() -> None:
    """One line that names the key and what can be used."""
    with pytest.raises(SettingsError, match=r"model\.client is 'direct'.*auto or litellm"):
        build_model(ModelSettings(name="openai/x", client="direct"))


def test_building_a_model_imports_no_litellm() -> None:
    """A worker is ready before the library is there; with the demo model it never is."""
    script = (
        "import sys; from shared.settings import ModelSettings; from worker.llm.registry import build_model;"
        "build_model(ModelSettings()); build_model(ModelSettings(name='openai/x')); print('litellm' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
