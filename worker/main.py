"""A worker process, for `python -m worker` (guarded) or `arq worker.main.WorkerSettings`."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from typing import Any

from shared.confinement.own_process import hide_process
from shared.errors import SettingsError
from shared.process.stderr import unbuffer_stderr, write_stderr
from shared.settings import load, redis_url
from worker.process.worker_handle import guardian_config, queue_name


def main() -> int:
    """Run one worker under a guardian: `--guard FD,OWNER --slot N [--tell] [--spare] [queue
    ...]`."""
    unbuffer_stderr()
    hide_process()
    parser = argparse.ArgumentParser(prog="python -m worker.main")
    parser.add_argument("queues", nargs="*", type=queue_name)
    parser.add_argument("--guard", required=True, help="file descriptor of the link to the guardian, and our nonce")
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--tell", action="store_true", help="send the guardian its part of the settings")
    parser.add_argument("--spare", action="store_true", help="begin when the guardian names the slot to fill")
    arguments = parser.parse_args()
    # Ctrl-C in a terminal reaches the whole process group; the guardian decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fd, owner = arguments.guard.split(",")
    link = socket.socket(fileno=int(fd))
    try:
        settings = load()
        config = guardian_config(settings, redis_url(settings))
        if arguments.tell:
            try:
                config.send(link)
            except OSError:
                write_stderr("the guardian has ended; so does its worker")
                return 1
        # Most of all imports, after the configuration was sent: neither the guardian nor the other
        # workers wait for them.
        from worker.arq import settings as arq_settings

        slot = None if arguments.spare else arguments.slot
        arq_settings.run(settings, queues=arguments.queues, owner=owner, link=link, slot=slot)
    except SettingsError as exc:
        write_stderr(str(exc))
        return 2
    return 0


def __getattr__(name: str) -> Any:
    """Make `WorkerSettings` on demand: only arq's command asks for it."""
    if name != "WorkerSettings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from worker.arq.lease_worker import redis_settings
    from worker.arq.settings import ArqSettings

    try:
        # For `arq --check`, which connects by itself.
        ArqSettings.redis_settings = redis_settings(redis_url(load()))
    except SettingsError as exc:
        write_stderr(str(exc))
        raise SystemExit(2) from exc
    return ArqSettings


if __name__ == "__main__":
    sys.exit(main())
