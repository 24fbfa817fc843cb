"""`shoal pair` and `shoal audit`: who an operator lets in and out, and what the record says of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from console.main import cli
from shared.messages.outbound import OutboundMessage
from shared.store.access.audit import Audit
from shared.store.access.pairing import PairedPerson, Pairings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox

ADA = PairedPerson(channel="telegram", sender="7", session="telegram:7", name="Ada \x1b[2Jevil")

T = TypeVar("T")
Shoal = Callable[..., Result]


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shoal:
    """`shoal ...` on the test's Valkey."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), env={"SHOAL_REDIS__URL": redis_url})

    return run


def on(redis_url: str, work: Callable[[RedisClient], Awaitable[T]]) -> T:
    async def run() -> T:
        client = RedisClient(redis_url)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def asked(redis_url: str, person: PairedPerson = ADA) -> str:
    """The code that somebody was told."""

    async def ask(client: RedisClient) -> str:
        await Pairings(client).offer_code(
            person, lambda code: OutboundMessage(content=code, turn=0, kind="notice"), reason="unknown_sender"
        )
        return (await sent(client, person))[-1]

    return on(redis_url, ask)


async def sent(client: RedisClient, person: PairedPerson = ADA) -> list[str]:
    lines = [one.line for one in await Outbox(client).read_after(person.session, after=0)]
    return [line.content for line in lines if isinstance(line, OutboundMessage)]


def test_a_person_is_let_in_listed_and_removed(shoal: Shoal, redis_url: str) -> None:
    """The way of an operator, from the code to the end."""
    assert shoal("pair", "list").stdout == "Nobody was let in by a code.\n"
    code = asked(redis_url)
    waiting = shoal("pair", "list").stdout
    assert re.search(r"telegram:7 +Ada evil +\d+ (min|s)", waiting)
    assert code not in waiting
    done = shoal("pair", "approve", code)
    assert (done.exit_code, done.stdout) == (0, "Let in: telegram:7 (Ada evil).\n")
    assert on(redis_url, sent)[-1].startswith("You are let in")
    assert re.search(r"telegram:7 +Ada evil +\d+ s +console", shoal("pair", "list").stdout)
    assert shoal("pair", "revoke", "telegram:7").stdout == "Not let in any more: telegram:7.\n"
    again = shoal("pair", "revoke", "telegram:7")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "Nobody of this id" in again.stderr


def test_programs_read_json(shoal: Shoal, redis_url: str) -> None:
    """The same keys in every answer; times as others have them."""
    code = asked(redis_url)
    [waiting] = json.loads(shoal("pair", "list", "--json").stdout)["waiting"]
    assert (waiting["person"], waiting["by"], waiting["let_in_at"]) == ("telegram:7", None, None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", waiting["code_until"])
    result = json.loads(shoal("pair", "approve", code, "--json").stdout)
    assert {name: result[name] for name in ("person", "channel", "id", "by")} == {
        "person": "telegram:7", "channel": "telegram", "id": "7", "by": "console",
    }  # fmt: skip
    assert json.loads(shoal("pair", "list", "--json").stdout) == {"people": [result], "waiting": []}
    assert json.loads(shoal("pair", "revoke", "telegram:7", "--json").stdout) == {
        "person": "telegram:7",
        "revoked": True,
    }
    again = shoal("pair", "revoke", "telegram:7", "--json")
    assert (again.exit_code, json.loads(again.stdout)["revoked"]) == (1, False)


def test_a_wrong_code_is_refused_and_the_sixth_guess_is(shoal: Shoal, redis_url: str) -> None:
    """All consoles together are one who guesses."""
    code = asked(redis_url)
    for _ in range(5):
        wrong = shoal("pair", "approve", "0000-0000")
        assert (wrong.exit_code, wrong.stdout) == (1, "")
        assert "there is no such code" in wrong.stderr
    sixth = shoal("pair", "approve", code)
    assert sixth.exit_code == 1
    assert "too many wrong codes; try again in 60 min" in sixth.stderr
    assert on(redis_url, lambda client: Pairings(client).is_let_in("telegram", "7")) is False


@pytest.mark.parametrize("person", ["telegram", ":7", "telegram:"])
def test_who_is_to_be_removed_must_be_named(shoal: Shoal, person: str) -> None:
    """Channel and id; an id may have a colon."""
    refused = shoal("pair", "revoke", person)
    assert refused.exit_code == 1
    assert "write channel:id" in refused.stderr
    assert "Nobody of this id" in shoal("pair", "revoke", "matrix:@ada:example.org").stderr


def test_a_store_that_is_away_is_one_line(shoal: Shoal, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the exit code of every command."""
    for words in (("pair", "list"), ("pair", "revoke", "telegram:7"), ("audit",)):
        result = CliRunner().invoke(cli, list(words), env={"SHOAL_REDIS__URL": "redis://127.0.0.1:1/0"})
        assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)


def test_the_record_is_shown_newest_last(shoal: Shoal, redis_url: str) -> None:
    """So many lines, of one kind if wanted; what others wrote moves no cursor."""
    assert shoal("audit").stdout == "Nothing is in the record.\n"

    async def write(client: RedisClient) -> None:
        audit = Audit(client)
        await audit.record("access", "unknown_sender", actor="telegram:\x1b[2J7", session="telegram:7")
        await audit.record("exec", "run", session="web:owner/a", turn=3, about="1f2e")

    on(redis_url, write)
    head, first, second = shoal("audit").stdout.splitlines()
    assert head.split() == ["at", "kind", "outcome", "actor", "channel", "session", "turn", "about"]
    assert first.split()[1:5] == ["access", "unknown_sender", "telegram:7", "telegram"]
    assert second.split()[1:5] == ["exec", "run", "agent", "web"]
    assert second.split()[-2:] == ["3", "1f2e"]
    assert [line.split()[1] for line in shoal("audit", "-n", "1").stdout.splitlines()[1:]] == ["exec"]
    assert [line.split()[1] for line in shoal("audit", "--kind", "access").stdout.splitlines()[1:]] == ["access"]
    lines = json.loads(shoal("audit", "--json").stdout)["lines"]
    assert [(one["kind"], one["turn"]) for one in lines] == [("access", None), ("exec", 3)]
    assert lines[0].keys() == {"id", "at", "kind", "outcome", "actor", "channel", "session", "turn", "about"}
