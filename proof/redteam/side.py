"""A worker as it is, with the worst-case model in the place of the direct client: `python -m proof.redteam.side`."""

from __future__ import annotations

import asyncio


def main() -> None:
    """Run until SIGTERM. The guardian is its child, as under arq's own command."""
    from arq.worker import get_kwargs

    from worker.arq.lease_worker import LeaseWorker
    from worker.llm import registry
    from worker.main import WorkerSettings
    from worker.process.worker_process import event_loop

    registry.CLIENTS["direct"] = "proof.redteam.obeying_model:ObeyingModel"
    asyncio.set_event_loop(event_loop())
    LeaseWorker(**get_kwargs(WorkerSettings)).run()  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
