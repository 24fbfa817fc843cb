"""A real Prometheus and a real Alertmanager on loopback, as processes of their own."""

from __future__ import annotations

import json
import math
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from tests.gateway.harness import free_port
from tests.helpers.wait import eventually

ROOT: Final = Path(__file__).parents[2]
PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
RULES: Final = tuple(sorted((PROMETHEUS / "rules").glob("*.yaml")))
EVERY: Final = "1s"

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(url: str) -> str:
    """The page."""
    with _direct.open(url, timeout=10) as answer:
        return bytes(answer.read()).decode()


def filled_in(expr: str, namespace: str = ".*") -> str:
    """An expression of a dashboard, as Grafana asks it for these installations."""
    return expr.replace("$__rate_interval", "1m").replace("$namespace", namespace).replace("$budget", "10")


class Server:
    """A program that listens on a port of 127.0.0.1 until `stop`."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent)

    async def ready(self) -> None:
        """Wait until it says that it is."""

        def there() -> bool:
            assert self._process.poll() is None, self.log.read_text()
            try:
                return bool(fetch(f"{self.url}/-/ready"))
            except OSError:
                return False

        await eventually(there, within_s=60, every_s=0.1, what=f"{self.log.stem}: {self.url}")

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)


class Prometheus(Server):
    """Our configuration with fixed targets instead of names to look up, scraping and evaluating once a second.

    `targets` are ports by the name of a scrape job of deploy/prometheus/prometheus.yaml. `namespaces` are the labels
    that a ServiceMonitor adds, by port.
    """

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Sequence[int]],
        *,
        rules: Sequence[Path] = RULES,
        alertmanager: Server | None = None,
        namespaces: Mapping[int, str] | None = None,
    ) -> None:
        config = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": EVERY, "evaluation_interval": EVERY}
        config["rule_files"] = [str(path) for path in rules]
        for job in config["scrape_configs"]:
            del job["dns_sd_configs"]
            job["static_configs"] = [
                {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": (namespaces or {}).get(port, "")}}
                for port in targets[job["job_name"]]
            ]
        if alertmanager is not None:
            there = alertmanager.url.removeprefix("http://")
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [there]}]}]}
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        port = free_port()
        command = [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        super().__init__(command, port, folder / "prometheus.log")

    def ask(self, page: str, **query: str) -> Any:
        """The data of a page of its API."""
        answer = json.loads(fetch(f"{self.url}/api/v1/{page}?{urllib.parse.urlencode(query)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expr: str) -> list[float]:
        """What an expression gives now, without what is no number."""
        data = self.ask("query", query=expr)
        samples = [data["result"]] if data["resultType"] == "scalar" else [one["value"] for one in data["result"]]
        return [float(value) for _, value in samples if not math.isnan(float(value))]


class Alertmanager(Server):
    """Sends every alert at once, in groups by name, to `webhook`."""

    def __init__(self, folder: Path, webhook: str) -> None:
        route = {"receiver": "test", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"}
        receivers = [{"name": "test", "webhook_configs": [{"url": webhook}]}]
        file = folder / "alertmanager.yaml"
        file.write_text(yaml.safe_dump({"route": route, "receivers": receivers}))
        port = free_port()
        command = [
            "prometheus-alertmanager",
            f"--config.file={file}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]
        super().__init__(command, port, folder / "alertmanager.log")
