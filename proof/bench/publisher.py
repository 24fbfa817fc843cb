"""Says deltas in chats at an even rate: `python -m proof.bench.publisher <redis url>`.

Each line on its input, `<chats> <deltas a second> <seconds>`, is answered with how many it published; with 0 chats in
the chat `shared`. The text of a delta is the moment at which it was published, in ns of the clock that all processes of
a machine share.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from shared.messages.live import DeltaEvent, encode_live
from shared.process.resp import RespConnection
from shared.store import keys

MARK: Final = "@"
STEP: Final = 7919
"""A prime: chats that are neighbours in time are none in the list."""


def say(connection: RespConnection, chats: int, rate: float, seconds: float) -> int:
    """Publish; how many."""
    began = time.monotonic()
    many = int(rate * seconds)
    for n in range(many):
        early_s = began + n / rate - time.monotonic()
        if early_s > 0:
            time.sleep(early_s)
        text = f"{MARK}{time.monotonic_ns()}{MARK} a few words more"
        event = encode_live(DeltaEvent(1, 1, n, text))
        chat = f"m{n * STEP % chats}" if chats else "shared"
        connection.command("PUBLISH", keys.live(f"web:owner/{chat}"), event)
    return many


def main() -> None:
    connection = RespConnection(sys.argv[1], timeout_s=20.0)
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        chats, rate, seconds = line.split()
        print(say(connection, int(chats), float(rate), float(seconds)), flush=True)


if __name__ == "__main__":
    main()
