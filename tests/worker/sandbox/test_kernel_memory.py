"""Memory that the kernel keeps for a command counts like its own: attacks end at the limit, on every tier.

Each program writes how many megabytes it has taken, step by step, and stops by itself at 512 MB.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from tests.worker.sandbox.test_escapes import MIB, python
from worker.sandbox.command import CommandLimits, Sandbox, SandboxCommand

pytestmark = pytest.mark.timeout(180)

LIMITS = CommandLimits(cpu_s=60, memory_bytes=128 * MIB, processes=40, file_bytes=8 * MIB, wall_s=60)

HEAD = """
import ctypes, mmap, os, socket, threading, time
BEYOND = 512
def took(mib):
    os.write(1, b"%f\\n" % mib)
def many(count, work):
    for _ in range(count):
        if os.fork() == 0:
            work()
            time.sleep(50)
            os._exit(0)
    time.sleep(50)
# A byte that is read takes a page of tables (4 kB) for its 2 MB, and no memory of the program's own.
def tables(mib):
    hole = mmap.mmap(-1, mib << 29, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)
    for at in range(0, len(hole), 1 << 21):
        hole[at]
        if at % (1 << 29) == 0: took(1)
    kept.append(hole)
def pairs():
    for _ in range(100):
        kept.extend(pair := socket.socketpair())
        for one in pair:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            try:
                while True:
                    took(one.send(bytes(65536)) / 2**20)
            except BlockingIOError:
                pass
def pipes():
    for _ in range(100):
        read, write = os.pipe()
        kept.append((read, write))
        os.set_blocking(write, False)
        took(os.write(write, bytes(65536)) / 2**20)
def files():
    for number in range(BEYOND << 10):
        os.close(os.open(f"{os.environ['TMPDIR']}/{number}", os.O_CREAT | os.O_WRONLY))
        if number % 1024 == 1023: took(1)
def fill():
    for _ in range(BEYOND // 4):
        kept.append(b"x" * (1 << 20))
        took(1)
    time.sleep(50)
# /proc shows neither memory nor handles of a process whose first thread has ended.
def behind():
    threading.Thread(target=fill).start()
    ctypes.CDLL(None).pthread_exit(None)
kept = []
"""
ATTACKS = {
    "page tables": "tables(BEYOND // 3); tables(BEYOND // 8); time.sleep(50)",
    "page tables of many": "many(16, lambda: tables(BEYOND // 16))",
    "bytes in flight": "many(24, pairs)",
    "full pipes": "many(32, pipes)",
    "empty files": "files(); time.sleep(50)",
    "memory behind a first thread that ended": "many(4, behind)",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_on_the_kernels_memory_ends_at_the_limit(walled: Sandbox, folder: Path, attack: str) -> None:
    """A machine with time loses at most 1.2 times what a command may have, whatever the memory is spent on."""
    line = python(*HEAD.splitlines(), ATTACKS[attack])
    # Files of a runner are on a disk, and slow to make.
    limits = msgspec.structs.replace(LIMITS, memory_bytes=48 * MIB) if attack == "empty files" else LIMITS
    finished = await walled.run(SandboxCommand(what=line, folder=str(folder), session=folder.name, limits=limits))
    assert finished.ended == "memory", finished
    # The census looks every few milliseconds, if it gets a processor: a busy machine finds the limit passed by more.
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    assert sum(map(float, finished.output.split())) * MIB <= (3.0 if busy else 1.2) * limits.memory_bytes
