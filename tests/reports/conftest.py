"""Which client of models the inputs go through: the direct one, or LiteLLM's by `SHOAL_REPORTS_CLIENT=litellm`."""

from __future__ import annotations

import os
from typing import Final

import pytest

CLIENT: Final = os.environ.get("SHOAL_REPORTS_CLIENT", "direct")


@pytest.fixture
def via() -> str:
    """The name of the client."""
    return CLIENT


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With another client only the tests are run that ask a model."""
    if CLIENT != "direct":
        items[:] = [item for item in items if "via" in getattr(item, "fixturenames", ())]
