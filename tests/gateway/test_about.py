"""The panel of a chat over HTTP: its plans, jobs, memory and files, for nobody but its person."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.media.reference import read_reference
from shared.messages.codec import encode
from shared.messages.outbound import UserLine
from shared.store import keys
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore
from shared.store.turns.inbox import SHARED_SCOPE
from tests.gateway.harness import TOKENS, Client, Gateway, client, gateway, session_of
from tests.helpers.children import Parent
from tests.helpers.schedules import schedule

SCOPE = f"chat:{session_of('a')}"


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


@pytest.fixture
async def owner(gw: Gateway) -> AsyncIterator[Client]:
    """With one chat, `a`."""
    async with client(gw.address) as person:
        await person.say("a", "hello")
        yield person


async def ask(
    gw: Gateway, path: str, *, method: str = "GET", body: object = None, token: str = TOKENS["owner"], **headers: str
) -> tuple[int, Any]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"http://{gw.address}/about/{path}", data, sent, method=method)

    def call() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.to_thread(call)


async def test_it_says_what_there_is(gw: Gateway, owner: Client) -> None:
    """Nothing is not an error."""
    status, about = await ask(gw, "a")
    memory = {"text": "", "version": "0", "of": "chat", "writable": True, "history": 0}
    assert (status, about) == (200, {"plans": [], "jobs": [], "memory": memory, "files": [], "share": {"days": 30}})


async def test_a_plan_is_shown_and_removed(gw: Gateway, owner: Client) -> None:
    """The answer to the change is what is so then; a second press changes nothing."""
    schedules = Schedules(gw.client)
    for id in ("p1", "p2"):
        await schedules.add(schedule(id), 2_000_000_000_000)
    _, about = await ask(gw, "a")
    assert [(one["id"], one["next"], one["paused"]) for one in about["plans"]] == [
        ("p1", 2_000_000_000_000, False), ("p2", 2_000_000_000_000, False),
    ]  # fmt: skip
    for _ in range(2):
        status, about = await ask(gw, "a/plans/p1", method="DELETE")
        assert (status, [one["id"] for one in about["plans"]]) == (200, ["p2"])
    assert (await ask(gw, "a/plans/p2%3Atick", method="DELETE"))[0] == 200
    assert [one.schedule.id for one in await schedules.of_session(session_of("a"))] == ["p2"]


async def test_a_job_is_shown_and_cancelled(gw: Gateway, owner: Client) -> None:
    """Only that one."""
    parent = await Parent.begin(gw.client)
    await parent.spawn("one", "two")
    _, about = await ask(gw, "a")
    assert {one["id"]: (one["open"], one["label"]) for one in about["jobs"]} == {
        "one": (True, "search"), "two": (True, "search"),
    }  # fmt: skip
    _, about = await ask(gw, "a/jobs/one", method="DELETE")
    assert {one["id"]: one["open"] for one in about["jobs"]} == {"one": False, "two": True}


async def test_the_memory_is_written_from_the_version_that_was_read(gw: Gateway, owner: Client) -> None:
    """A change in between is not overwritten; who lost the answer may send it again."""
    status, about = await ask(gw, "a/memory", method="PUT", body={"text": "# Otters", "version": "0"})
    assert (status, about["memory"]["text"]) == (200, "# Otters")
    again = await ask(gw, "a/memory", method="PUT", body={"text": "# Otters", "version": "0"})
    assert again == (status, about)
    status, fault = await ask(gw, "a/memory", method="PUT", body={"text": "# Seals", "version": "0"})
    assert (status, fault["detail"]) == (409, "the memory was changed meanwhile; open it again")
    version = about["memory"]["version"]
    await ask(gw, "a/memory", method="PUT", body={"text": "", "version": version})
    store = MemoryStore(gw.client)
    assert (await store.read_memory(SCOPE)).text == ""
    assert [one.text for one in await store.earlier_texts(SCOPE)] == ["# Otters"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no json", 400),
        ({"text": "a"}, 400),
        ({"text": 7, "version": "0"}, 400),
        ({"text": "a", "version": "0", "scope": "shared"}, 400),
        ({"text": "a", "version": "9" * 33}, 400),
        (b"\xff", 400),
        ({"text": "\u00e4" * 20_000, "version": "0"}, 413),
        ({"text": "a" * 200_000, "version": "0"}, 413),
        (b"", 413),
    ],
)
async def test_a_memory_that_makes_no_sense_is_refused(gw: Gateway, owner: Client, body: object, status: int) -> None:
    """Before anything is written."""
    assert (await ask(gw, "a/memory", method="PUT", body=body))[0] == status
    assert (await MemoryStore(gw.client).read_memory(SCOPE)).version == "0"


async def test_the_memory_of_all_is_changed_by_the_owner_alone(gw: Gateway, owner: Client) -> None:
    """Others read it, as by `/memory`."""
    async with client(gw.address, TOKENS["ann"]) as ann:
        await ann.say("b", "hello")
    for session in (session_of("a"), session_of("b", "ann")):
        await gw.client.command("HSET", keys.session(session), "scope", SHARED_SCOPE)
    body = {"text": "for all", "version": "0"}
    assert (await ask(gw, "b/memory", method="PUT", body=body, token=TOKENS["ann"]))[0] == 403
    assert (await ask(gw, "a/memory", method="PUT", body=body))[0] == 200
    _, about = await ask(gw, "b", token=TOKENS["ann"])
    assert (about["memory"]["text"], about["memory"]["of"], about["memory"]["writable"]) == (
        "for all",
        "everybody",
        False,
    )


async def test_files_of_both_sides_are_listed_once(gw: Gateway, owner: Client) -> None:
    """The newest first, with addresses that the person may open."""
    ref = f"media:{'0' * 64}.png;3;a.png"
    other = f"media:{'1' * 64}.pdf;3;b.pdf"
    session = session_of("a")
    records = [encode(UserLine(id="x", text="", media=(one,))) for one in (ref, other, ref)]
    await gw.client.pipeline(
        [("XADD", keys.outbox(session), f"{seq}-0", "m", one) for seq, one in enumerate(records, 10)]
    )
    _, about = await ask(gw, "a")
    assert [one["path"] for one in about["files"]] == [
        f"/media/a/{read_reference(one).file}?name={one[-5:]}" for one in (ref, other)
    ]


@pytest.mark.parametrize("path", ["a", "a/memory", "a/plans/x", "a/jobs/x"])
async def test_it_is_for_nobody_else(gw: Gateway, owner: Client, path: str) -> None:
    """Nor for a page of another origin."""
    method = {"a": "GET", "a/memory": "PUT"}.get(path, "DELETE")
    body = {"text": "a", "version": "0"} if method == "PUT" else None
    assert (await ask(gw, path, method=method, body=body, token=TOKENS["ann"]))[0] == 404
    assert (await ask(gw, path, method=method, body=body, token="wrong"))[0] == 401
    assert (await ask(gw, path, method=method, body=body, Origin="https://evil.example"))[0] == 403
    assert (await ask(gw, path.replace("a", "zz", 1), method=method, body=body))[0] == 404
