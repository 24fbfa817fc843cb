"""Kills a process at any moment while it writes a workspace back to S3, and looks what is left:
`python -m proof.chaos.workspace_s3 --kills 1000`. The state must be an old or a new one whole."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from shared.object_store import ObjectStore
from tests.helpers.s3_server import BUCKET, CREDENTIALS, moto_server
from worker.copies.copies import WorkspaceCopy

NAME: Final = "b" * 40
FILES: Final = 4
LONGEST_S: Final = 0.06  # from the first request of a write back to the kill; most take half of it


def run(kills: int, address: str, seed: int = 1) -> tuple[int, int, int]:
    """Return how many states were torn, how many kills left the new one, and how many the old one."""
    chance, torn, new, old = random.Random(seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore(f"s3://{BUCKET}/{seed}", endpoint=address)
        reader = WorkspaceCopy(store, Path(folder) / "reader", NAME)
        state, forks = 0, multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(["worker.copies.copies", "obstore"])
        for number in range(1, kills + 1):
            begun = forks.Event()
            child = forks.Process(target=write, args=(number, f"{folder}/writer", address, seed, begun))
            child.start()
            begun.wait(30)
            time.sleep(chance.uniform(0, LONGEST_S))
            child.kill()
            child.join()
            with reader.locked():
                reader.fetch(alone=True)
            texts = {file.read_text() for file in reader.folder.glob("*")}
            count = len(list(reader.folder.glob("*")))
            if len(texts) > 1 or count not in (0, FILES) or not texts <= {f"{state}", f"{number}"}:
                torn += 1
            elif texts == {f"{number}"}:
                state, new = number, new + 1
            else:
                old += 1
    return torn, new, old


def write(number: int, root: str, address: str, seed: int, begun: Event) -> None:
    """Write all files back with this number in them."""
    copy = WorkspaceCopy(ObjectStore(f"s3://{BUCKET}/{seed}", endpoint=address), Path(root), NAME)
    with copy.locked():
        copy.fetch(alone=True)
        copy.folder.mkdir(parents=True, exist_ok=True)
        for one in range(FILES):
            (copy.folder / f"file{one}").write_text(f"{number}")
        begun.set()
        copy.keep("turn:x", number)
    time.sleep(60)


def warm_ms(address: str, times: int = 50) -> float:
    """Return the median of the time from a turn's start to its first tool, with a warm copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = WorkspaceCopy(ObjectStore(f"s3://{BUCKET}/warm", endpoint=address), Path(folder), NAME)
        with copy.locked():
            copy.fetch(alone=True)
            copy.folder.mkdir(exist_ok=True)
            for one in range(100):
                (copy.folder / f"file{one}").write_text("x" * 1000)
            copy.keep("turn:x", 1)
            took = []
            for _ in range(times):
                began = time.monotonic()
                copy.fetch(alone=True)
                took.append(time.monotonic() - began)
    return statistics.median(took) * 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.environ |= CREDENTIALS
    with moto_server() as address:
        torn, new, old = run(args.kills, address, args.seed)
        print(
            f"{args.kills} kills: {torn} torn, {new} new, {old} old; warm copy of 100 files: {warm_ms(address):.1f} ms"
        )
    sys.exit(1 if torn else 0)


if __name__ == "__main__":
    main()
