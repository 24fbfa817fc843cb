"""The dashboards; docs/metrics.md says what each metric means."""

from __future__ import annotations

from typing import Final

from tools.dashboards.channels import CHANNELS
from tools.dashboards.fleet import FLEET
from tools.dashboards.llm import MODELS
from tools.dashboards.redis import REDIS
from tools.dashboards.workers import WORKERS

BOARDS: Final = (FLEET, WORKERS, MODELS, REDIS, CHANNELS)
