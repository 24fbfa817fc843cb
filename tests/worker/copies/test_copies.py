"""Workspaces in a foreign S3 server: each worker's copy, written back as one state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared.errors import LeaseLost, SettingsError
from shared.object_store import ObjectStore, StoreAway
from tests.helpers.s3_server import BUCKET, CREDENTIALS, FlakyProxy, moto_server
from tests.helpers.wait import eventually
from worker.copies.copies import WorkspaceCopies, WorkspaceCopy

NAME = "a" * 40


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto_server() as address:
        yield address


@pytest.fixture
def proxy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyProxy]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    proxy = FlakyProxy(urlsplit(server).port or 0)
    yield proxy
    proxy.close()


@pytest.fixture
def store(proxy: FlakyProxy) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}/{secrets.token_hex(4)}", endpoint=proxy.address)


def files(copy: WorkspaceCopy) -> dict[str, str]:
    return {str(one.relative_to(copy.folder)): one.read_text() for one in copy.folder.rglob("*") if one.is_file()}


def write(copy: WorkspaceCopy, **texts: str) -> None:
    for name, text in texts.items():
        file = copy.folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def copies(store: ObjectStore, tmp_path: Path) -> tuple[WorkspaceCopy, WorkspaceCopy]:
    """The copies of two machines."""
    made = WorkspaceCopy(store, tmp_path / "one", NAME), WorkspaceCopy(store, tmp_path / "two", NAME)
    for copy in made:
        with copy.locked():
            copy.fetch(alone=True)
    return made


def test_what_one_machine_writes_back_another_has(copies: tuple[WorkspaceCopy, WorkspaceCopy]) -> None:
    """Folders, links, rights and removals, too."""
    one, two = copies
    write(one, a="1", deep__er__b="2")
    (one.folder / "link").symlink_to("a")
    (one.folder / "a").chmod(0o700)
    assert one.keep("turn:x", 1)
    assert not one.keep("turn:x", 1)  # nothing has changed
    two.fetch(alone=True)
    assert files(two) == {"a": "1", "deep/er/b": "2", "link": "1"}
    assert (two.folder / "a").stat().st_mode & 0o777 == 0o700
    assert os.readlink(two.folder / "link") == "a"
    (two.folder / "deep/er/b").unlink()
    (two.folder / "deep/er").rmdir()
    write(two, a="3")
    two.keep("turn:x", 2)
    one.fetch(alone=True)
    assert files(one) == {"a": "3", "link": "3"}


def test_a_warm_copy_costs_one_request(copies: tuple[WorkspaceCopy, WorkspaceCopy], proxy: FlakyProxy) -> None:
    one, _ = copies
    write(one, a="1")
    one.keep("turn:x", 1)
    proxy.seen.clear()
    one.fetch(alone=True)
    assert len(proxy.seen) == 1


def test_what_a_crash_left_over_goes(copies: tuple[WorkspaceCopy, WorkspaceCopy]) -> None:
    one, _ = copies
    write(one, a="1", b="1")
    one.keep("turn:x", 1)
    write(one, a="half", c="half")
    (one.folder / "b").unlink()
    one.fetch(alone=True)
    assert files(one) == {"a": "1", "b": "1"}


def test_a_later_lease_refuses_an_older_one(copies: tuple[WorkspaceCopy, WorkspaceCopy]) -> None:
    one, two = copies
    write(one, a="old")
    write(two, a="new")
    two.keep("turn:x", 2)
    with pytest.raises(LeaseLost):
        one.keep("turn:x", 1)
    one.fetch(alone=True)
    assert files(one) == {"a": "new"}


def test_a_subagent_and_its_turn_both_write(copies: tuple[WorkspaceCopy, WorkspaceCopy]) -> None:
    """On two machines: what each has changed is kept."""
    one, two = copies
    write(one, a="turn")
    write(two, b="subagent")
    two.keep("sub:1", 9)
    one.keep("turn:x", 1)
    two.fetch(alone=True)
    assert files(one) == files(two) == {"a": "turn", "b": "subagent"}


@pytest.mark.parametrize("fault", ["503", "cut", "lost", "slow"])
@pytest.mark.parametrize("at", [0, 1])
def test_faults_of_the_network_lose_and_double_nothing(
    copies: tuple[WorkspaceCopy, WorkspaceCopy], proxy: FlakyProxy, fault: str, at: int
) -> None:
    """`lost`: the first attempt was applied, and its repetition answered with 412."""
    one, two = copies
    write(one, a="1")
    proxy.faults.extend([""] * at + [fault])
    try:
        one.keep("turn:x", 1)
    except StoreAway:
        one.keep("turn:x", 1)  # as the turn does that is tried again
    proxy.faults.extend([""] * at + [fault])
    try:
        two.fetch(alone=True)
    except StoreAway:
        two.fetch(alone=True)
    assert files(one) == files(two) == {"a": "1"}


def test_forget_deletes_in_the_store_and_here(store: ObjectStore, tmp_path: Path) -> None:
    copies, copy = WorkspaceCopies(store, tmp_path), WorkspaceCopy(store, tmp_path, NAME)
    with copy.locked():
        copy.fetch(alone=True)
        write(copy, a="secret")
        copy.keep("turn:x", 1)
    assert copies.erase(NAME, time.time() - 60) == 0  # written since
    assert files(copy) == {"a": "secret"}
    assert copies.erase(NAME, time.time() + 60) == 1
    assert files(copy) == {}
    assert [key for key, _ in store.list("workspaces") if "blobs" in key] == []


def test_a_store_is_checked_before_the_first_turn(store: ObjectStore, proxy: FlakyProxy) -> None:
    store.check()
    assert list(store.list("")) == []
    with pytest.raises(SettingsError, match="no such bucket"):
        ObjectStore("s3://missing-bucket", endpoint=proxy.address).check()


def test_credentials_of_the_settings_are_used(proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a Secret is a file, no variable has it."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    address = f"s3://{BUCKET}/{secrets.token_hex(4)}"
    ObjectStore(address, endpoint=proxy.address, keys=("another", "test")).check()
    assert proxy.signers == {"another"}


def test_unused_copies_leave_the_machine(store: ObjectStore, tmp_path: Path) -> None:
    copies, copy = WorkspaceCopies(store, tmp_path), WorkspaceCopy(store, tmp_path, NAME)
    used = copies._begin(NAME)
    write(copy, a="1")
    copies._keep(NAME, "turn:x", 1)
    assert copies.drop_unused(-1) == 0  # somebody works with it
    os.close(used)
    assert copies.drop_unused() == 0
    assert copies.drop_unused(-1) == 1
    assert not copy.folder.exists()
    os.close(copies._begin(NAME))
    assert files(copy) == {"a": "1"}


async def test_a_copy_whose_fetch_was_cancelled_is_in_use_no_more(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on and takes the lock, which would hold the copy for as long as this process lives."""
    copies, fetched = WorkspaceCopies(store, tmp_path), threading.Event()
    begin, begun, handles = copies._begin, asyncio.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def slow(name: str) -> int:
        loop.call_soon_threadsafe(begun.set)
        fetched.wait()
        handles.append(begin(name))
        return handles[0]

    monkeypatch.setattr(copies, "_begin", slow)

    async def use() -> None:
        async with copies.in_use("web:a/1"):
            raise AssertionError("the turn has ended")

    using = asyncio.create_task(use())
    await begun.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    fetched.set()

    def is_closed() -> bool:
        with contextlib.suppress(OSError):
            return bool(handles) and os.fstat(handles[0]).st_nlink < 0
        return True

    await eventually(is_closed, what="the lock to be given up")
