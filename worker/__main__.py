"""`python -m worker [turns|jobs]`: a guardian and `worker.processes` workers. Or `python -m worker
runner`. This process is the guardian. It reads no settings, because it would have to load the code
that reads them. The first worker sends it what it needs. A mistake in the settings is one line of
that worker and the end."""

from __future__ import annotations

import argparse
import sys

from worker.process.guardian import Guardian
from worker.process.worker_handle import queue_name


def main() -> int:
    """Start workers and guard them, or run the sandbox runner."""
    if sys.argv[1:2] == ["runner"]:
        # Imported here: a worker does not need it, and a runner needs nothing below.
        from worker.sandbox.runner.main import main as run_runner

        return run_runner(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m worker", description="Run agent turns and jobs from the queues.")
    parser.add_argument("queues", nargs="*", type=queue_name, metavar="turns|jobs|runner", help="(default: turns jobs)")
    parser.add_argument("--spare", action="store_true", help="keep a started process to replace a worker that dies")
    arguments = parser.parse_args()
    return Guardian((sys.executable, "-m", "worker.main", *arguments.queues), spare=arguments.spare).run()


if __name__ == "__main__":
    sys.exit(main())
