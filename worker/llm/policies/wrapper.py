"""What wrappers of a model share."""

from __future__ import annotations

from worker.agent.model.model import Model


class ModelWrapper:
    """The parts that all wrappers of a Model share: another model's name and connections."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self._model = model

    async def preload(self) -> None:
        await self._model.preload()

    async def close(self) -> None:
        await self._model.close()
