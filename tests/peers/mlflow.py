"""A real MLflow server on loopback, which takes traces by OTLP: sqlite, nothing of machine learning installed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from tests.gateway.harness import free_port
from tests.helpers.need import need
from tests.helpers.wait import eventually

MLFLOW: Final = Path(__file__).parents[2] / ".venv" / "peers" / "bin" / "mlflow"
UP_S: Final = 120.0
EXPERIMENT: Final = "0"
"""The one that every new server has; its name is "Default"."""


class MlflowServer(msgspec.Struct, frozen=True):
    """A running one. `call` asks it something by its REST API."""

    address: str
    http: aiohttp.ClientSession

    async def call(self, method: str, path: str, **given: Any) -> Any:
        """The answer as JSON; raises what aiohttp raises for an error."""
        url = f"{self.address}/api/3.0/mlflow/{path}"
        async with self.http.request(method, url, raise_for_status=True, **given) as answer:
            return await answer.json()

    async def traces(self) -> list[dict[str, Any]]:
        """What its list of traces shows of each, newest first."""
        place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": EXPERIMENT}}
        found = await self.call("POST", "traces/search", json={"locations": [place], "max_results": 100})
        return list(found.get("traces", ()))

    async def spans(self, trace_id: str) -> list[dict[str, Any]]:
        """The spans of a trace as they are stored; each value of `attributes` is decoded."""
        found = await self.call("GET", "traces/get", params={"trace_id": trace_id, "allow_partial": "true"})
        return [
            {**span, "attributes": {one["key"]: _plain(one["value"]) for one in span["attributes"]}}
            for span in found["trace"]["spans"]
        ]


@contextlib.asynccontextmanager
async def mlflow(home: Path) -> AsyncIterator[MlflowServer]:
    """One that lives as long as this; its files are in `home`."""
    need("mlflow", install="run `make peers`", found=MLFLOW.exists())
    port = free_port()
    command = [
        str(MLFLOW), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}", "--artifacts-destination", str(home / "artifacts"),
    ]  # fmt: skip
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with (home / "out.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)
    async with aiohttp.ClientSession() as http:
        server = MlflowServer(f"http://127.0.0.1:{port}", http)

        async def listens() -> bool:
            if process.poll() is not None:
                pytest.fail(f"MLflow ended: {(home / 'out.log').read_text()[-2000:]}")
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{server.address}/health") as answer:
                    return answer.status == 200
            return False

        try:
            await eventually(listens, within_s=UP_S, every_s=0.1, what="MLflow listens")
            yield server
        finally:
            # Its program starts another one that listens; both are of one process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _plain(value: dict[str, Any]) -> Any:
    """A value of OTLP as JSON; its names are those of protobuf."""
    [(kind, plain)] = value.items()
    if kind == "array_value":
        return [_plain(one) for one in plain.get("values", ())]
    if kind == "kvlist_value":
        return {one["key"]: _plain(one["value"]) for one in plain.get("values", ())}
    return plain
