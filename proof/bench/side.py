"""A gateway or a worker as it is, watched: `python -m proof.bench.side gateway|worker [--ready] [--redis-py]
[--unkept] [--samples FILE]`.

A worker starts its guardian as its child, as it does under arq's own command. `--ready` puts `ready_model` in the place
of the direct client, `--redis-py` that library in the place of our own connection to Redis.
With `--unkept` text that grows is only shown.
"""

from __future__ import annotations

import argparse
import asyncio
import runpy
import sys
from pathlib import Path

from proof.bench import sampler


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.bench.side")
    parser.add_argument("kind", choices=["gateway", "worker"])
    parser.add_argument("--ready", action="store_true")
    parser.add_argument("--redis-py", action="store_true")
    parser.add_argument("--unkept", action="store_true")
    parser.add_argument("--samples", type=Path)
    given = parser.parse_args()
    if given.samples:
        sampler.install(given.samples)
    if given.redis_py:
        from proof.bench import redis_py

        redis_py.install()
    if given.kind == "gateway":
        sys.argv = ["gateway"]
        runpy.run_module("gateway", run_name="__main__")
    else:
        _worker(ready=given.ready, unkept=given.unkept)


def _worker(*, ready: bool, unkept: bool) -> None:
    from arq.worker import get_kwargs

    from worker.arq.lease_worker import LeaseWorker
    from worker.llm import registry
    from worker.main import WorkerSettings
    from worker.process.worker_process import event_loop

    if unkept:
        from worker.turn import live_updates

        live_updates.RECORD_CHARS = 0  # type: ignore[misc]
    if ready:
        registry.CLIENTS["direct"] = "proof.bench.ready_model:ReadyModel"
    asyncio.set_event_loop(event_loop())
    LeaseWorker(**get_kwargs(WorkerSettings)).run()  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
