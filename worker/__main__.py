"""`python -m worker [turns|jobs]`: a guardian and, under it, `worker.processes` workers. Or `python -m worker runner`.

The settings are read here, once, so that a mistake in them is one line and an end; then this process becomes the
guardian, without anything the reading has imported.
"""

from __future__ import annotations

import argparse
import os
import sys

from shared.errors import SettingsError
from shared.settings import load, redis_url
from worker.guardian import queue_name
from worker.ward import Config


def main() -> int:
    """Check the settings, then turn into the guardian; or be a runner."""
    if sys.argv[1:2] == ["runner"]:
        from worker.sandbox import runner_main  # a worker has no use for it, and a runner for nothing below

        return runner_main.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m worker", description="Run agent turns and jobs from the queues.")
    parser.add_argument("queues", nargs="*", type=queue_name, metavar="turns|jobs|runner", help="(default: turns jobs)")
    given = parser.parse_args()
    try:
        settings = load()
        url = redis_url(settings)
    except SettingsError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    command = (sys.executable, "-m", "worker.main", *given.queues)
    worker = settings.worker
    readable = not settings.log.as_json(terminal=sys.stderr.isatty())
    pipe = Config(url, worker.lease_s, worker.drain_s, command, worker.processes, readable=readable).hand_over()
    os.set_inheritable(pipe, True)
    return os.execv(sys.executable, [sys.executable, "-m", "worker.guardian", str(pipe)])  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    sys.exit(main())
