from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import arq.constants
import arq.jobs
import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from console.doctor.checks import EXTRAS, extras_check, fail_over_check
from console.main import _COMMANDS, cli
from shared.messages.codec import encode
from shared.messages.transcript import AssistantEntry, IntentEntry, LedgerEntry, ToolCall, ToolEntry
from shared.process.resp import RespConnection
from shared.settings.secret import RedisUrl
from shared.settings.sections.redis_access import RedisSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, announce
from shared.store.jobs.jobs import JobResult, Jobs
from shared.version import VERSION
from tests.helpers.fleet_seen import REDIS
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.valkey import command

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shoal(*arguments: str, **environ: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, list(arguments), env=environ)


def test_it_lists_its_commands_and_its_release() -> None:
    """`shoal --help` is the way in."""
    text = shoal("--help").output
    assert all(name in text for name in ("config", "status", "up"))
    assert shoal("--version").output == f"shoal, version {VERSION}\n"
    assert shoal("frobnicate").exit_code == 2


def test_the_release_is_the_same_everywhere() -> None:
    """The package's metadata and what the processes say of themselves."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    assert project["scripts"]["shoal"] == "console.main:main"


def test_it_runs_as_a_module_too() -> None:
    """`python -m console`, where no script is installed."""
    result = subprocess.run(
        [sys.executable, "-m", "console", "config", "check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "The settings are fine.\n"


def test_config_check_lists_every_problem_and_fails() -> None:
    """A deployment runs it before anything starts."""
    result = shoal("config", "check", SHOAL_WORKER__TRUNS="1", SHOAL_WEB__PORT="x")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 2
    assert "Traceback" not in result.output
    assert json.loads(shoal("config", "check", "--json").output) == {"ok": True}


def test_config_show_masks_secrets_in_both_forms() -> None:
    """It can be pasted into a bug report."""
    secret = "canary-77"
    environ = {"SHOAL_MODEL__API_KEY": secret, "SHOAL_REDIS__URL": f"redis://:{secret}@h:1/0"}
    plain, as_json = shoal("config", "show", **environ), shoal("config", "show", "--json", **environ)
    assert secret not in plain.output + as_json.output
    assert 'model.api_key = "***"' in plain.output.splitlines()
    assert "worker.lease_s = 15.0" in plain.output.splitlines()
    assert json.loads(as_json.output)["redis"]["url"] == "redis://:***@h:1/0"


def test_status_says_where_to_start_when_nothing_runs() -> None:
    """No traceback on a fresh machine."""
    result = shoal("status")
    assert result.exit_code == 2
    assert "no embedded Valkey is running" in result.stderr


def test_status_of_a_redis_that_is_away_is_one_line() -> None:
    """The operator's first question is whether Redis answers, and where it was looked for."""
    result = shoal("status", SHOAL_REDIS__URL="redis://:canary@127.0.0.1:1/0")
    assert result.exit_code == 3
    assert result.stderr.startswith("Redis is away")
    assert result.stderr.endswith("looked at redis://:***@127.0.0.1:1/0: is it running, and is redis.url right?\n")


def one(kind: str = "worker", **fields: Any) -> Presence:
    """A process that lives."""
    details = {"model": "m", "queues": "turns,jobs"} if kind == "worker" else {"channels": "web", "web.sockets": "3"}
    given = {"name": "w1", "host": "h", "pid": 7, "started_at": 1000, "version": VERSION, "details": details}
    return Presence(kind=kind, **{**given, **fields})


def appear(redis_url: str, *processes: Presence) -> None:
    async def announce_all() -> None:
        client = RedisClient(redis_url)
        for process in processes:
            await announce(client, process)
        await client.close()

    asyncio.run(announce_all())


@pytest.fixture
def durable(redis_url: str) -> Iterator[str]:
    """A Valkey with the settings of production, for one test."""
    command(redis_url, "CONFIG", "SET", "appendfsync", "always")
    yield redis_url
    for name, value in (("appendfsync", "no"), ("maxmemory-policy", "noeviction"), ("maxmemory", "0")):
        command(redis_url, "CONFIG", "SET", name, value)


def test_status_shows_queues_and_processes(durable: str) -> None:
    """Due, running, delayed and the age of the oldest; each live process with its slots; nothing is wrong."""
    now = int(command(durable, "TIME").split()[0]) * 1000
    command(
        durable,
        "ZADD",
        "shoal:{0ax}:queue:turns",
        str(now - 9000),
        "turn:web:a",
        str(now),
        "turn:web:b",
        "9e15",
        "turn:c",
    )
    appear(durable, one(running=2, slots=100), one("gateway", name="g1"))
    outcome = json.loads(shoal("status", "--json", SHOAL_REDIS__URL=durable).output)
    turns, background, jobs = outcome["queues"]
    assert 9 <= turns.pop("oldest_due_s") < 30
    assert turns == {"name": "turns", "due": 2, "running": 0, "delayed": 1}
    assert (background["name"], background["due"], jobs["due"]) == ("background", 0, 0)
    gateway, worker = outcome["processes"]
    assert (worker["name"], worker["running"], worker["draining"], worker["details"]["model"]) == ("w1", 2, False, "m")
    assert gateway["kind"] == "gateway"
    assert (outcome["problems"], outcome["dead_letters"], outcome["newest_dead_letter"]) == ([], 0, None)
    result = shoal("status", SHOAL_REDIS__URL=durable)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "all is well"
    assert lines[2].split() == ["people", "oldest", "waits", *lines[2].split()[3:5], "2", "wait", "0", "run"]
    rows = [line.split() for line in lines]
    assert next(row for row in rows if row[:1] == ["turns"])[:4] == ["turns", "2", "0", "1"]
    [worker_row] = [row for row in rows if row[:1] == ["w1"]]
    assert worker_row[:6] == ["w1", "h", "ready", "2", "of", "100"]
    assert lines[-1].startswith("redis    valkey ")
    assert "noeviction   fsync always" in lines[-1]


def test_the_keys_of_status_are_always_there(durable: str) -> None:
    """Whoever reads the JSON needs no `if`: a process that said nothing of a thing has its default."""
    appear(durable, Presence(kind="worker", name="w", host="h", pid=1, started_at=0, version="0"))
    result = json.loads(shoal("status", "--json", SHOAL_REDIS__URL=durable).output)
    assert set(result) == {
        "at_ms", "problems", "figures", "queues", "processes", "models", "model_waits", "deliveries",
        "dead_letters", "newest_dead_letter", "redis",
    }  # fmt: skip
    assert set(result["processes"][0]) == {
        "kind", "name", "host", "pid", "started_at", "version", "running", "slots", "job_slots", "draining",
        "details", "ways", "vitals",
    }  # fmt: skip
    assert result["processes"][0]["vitals"] is None
    assert {"product", "version", "policy", "append_only", "fsync", "used_bytes", "limit_bytes"} <= set(result["redis"])
    assert set(result["figures"]) == {
        "accepted_per_s", "refused_per_s", "ended_per_s", "failed_per_s", "first_token", "turn", "answer",
    }  # fmt: skip


def test_status_counts_dead_letters(durable: str) -> None:
    """They are no emergency, but somebody should look: how many, since when, and why the newest."""
    appear(durable, one(), one("gateway", name="g1"))
    command(
        durable, "XADD", "shoal:{0ax}:dead", "*", "member", "turn:web:owner/a", "n", "1", "reason", "error 00", "m", "x"
    )
    result = shoal("status", SHOAL_REDIS__URL=durable)
    assert "1 letter   the newest" in result.output
    assert "ago (error)" in result.output
    assert "owner" not in result.output
    assert result.exit_code == 0
    outcome = json.loads(shoal("status", "--json", SHOAL_REDIS__URL=durable).output)
    assert (outcome["newest_dead_letter"]["reference"], outcome["newest_dead_letter"]["reason"]) == ("00", "error")


def codes(url: str) -> list[str]:
    """The problems that status has, with its exit code checked and each one a red line."""
    result = shoal("status", "--json", SHOAL_REDIS__URL=url)
    problems = json.loads(result.output)["problems"]
    assert result.exit_code == (1 if problems else 0)
    lines = shoal("status", SHOAL_REDIS__URL=url, FORCE_COLOR="1", TERM="xterm").output.splitlines()
    red = [click.unstyle(line) for line in lines if "\x1b[1;31m! " in line]
    assert red == [f"! {problem['text']}" for problem in problems]
    return [problem["code"] for problem in problems]


def test_status_is_red_while_work_is_due_and_nobody_takes_it(durable: str) -> None:
    """No worker, one of another queue, one that drains: all the same to who waits."""
    command(
        durable, "ZADD", "shoal:{0ax}:queue:turns", str(int(command(durable, "TIME").split()[0]) * 1000), "turn:web:a"
    )
    appear(durable, one("gateway", name="g1"))
    assert codes(durable) == ["no_worker"]
    appear(durable, one(details={"queues": "jobs"}))
    assert codes(durable) == ["no_worker"]
    appear(durable, one(name="w2", draining=True))
    assert codes(durable) == ["no_worker"]
    appear(durable, one(name="w3"))
    assert codes(durable) == []


def test_status_is_red_while_nobody_is_there(durable: str) -> None:
    """Nothing is due, because nobody can say anything."""
    assert codes(durable) == ["no_gateway", "no_worker"]
    appear(durable, one(draining=True), one("gateway", name="g1"))
    assert codes(durable) == ["no_worker"]
    result = shoal("status", SHOAL_REDIS__URL=durable)
    assert "every worker is draining, so nobody is answered: start `python -m worker`" in result.output


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("appendfsync", "everysec", "fsync"),
        ("maxmemory-policy", "allkeys-lru", "evicting"),
        ("maxmemory", "2mb", "memory"),
    ],
)
def test_status_is_red_when_redis_may_lose_messages(durable: str, setting: str, value: str, code: str) -> None:
    """What a default configuration gets wrong, each by itself."""
    appear(durable, one(), one("gateway", name="g1"))
    assert codes(durable) == []
    command(durable, "CONFIG", "SET", setting, value)
    assert codes(durable) == [code]


def test_status_lives_with_a_server_that_hides_its_settings(durable: str) -> None:
    """Hosted ones refuse CONFIG: what is not told is unknown, not wrong."""
    appear(durable, one(), one("gateway", name="g1"))
    command(durable, "ACL", "SETUSER", "guest", "on", ">pw", "~*", "&*", "+@all", "-config", "-info")
    try:
        url = urlsplit(durable)._replace(netloc=f"guest:pw@127.0.0.1:{urlsplit(durable).port}").geturl()
        result = json.loads(shoal("status", "--json", SHOAL_REDIS__URL=url).output)
        assert (result["redis"]["policy"], result["redis"]["fsync"], result["problems"]) == (None, None, [])
        assert "policy unknown   persistence unknown" in shoal("status", SHOAL_REDIS__URL=url).output
        checks = {
            check["name"]: check
            for check in json.loads(shoal("doctor", "--json", SHOAL_REDIS__URL=url).output)["checks"]
        }
        assert checks["appendfsync"]["outcome"] == "skipped"
    finally:
        command(durable, "ACL", "DELUSER", "guest")


def test_status_and_doctor_are_red_when_a_restart_of_redis_would_forget(durable: str) -> None:
    """Before the restart; what to do is said with it."""
    appear(durable, one(), one("gateway", name="g1"))
    rights = command(durable, "ACL", "LIST").split("user default ")[1].splitlines()[0]
    command(durable, "ACL", "SETUSER", "default", "-xadd")
    try:
        assert codes(durable) == ["restart_forgets"]
        outcome, found = diagnosis(durable)[1]["restart"]
        assert (outcome, "ACL LOAD before Redis restarts" in found) == ("failed", True)
    finally:
        command(durable, "ACL", "SETUSER", "default", *rights.split())


def test_status_with_no_process_says_what_to_start(redis_url: str) -> None:
    """An empty table would be a riddle."""
    assert "no gateway is running, so nobody can reach Shoal" in shoal("status", SHOAL_REDIS__URL=redis_url).output


def diagnosis(url: str, *arguments: str, **environ: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The doctor's exit code, and its checks by name."""
    result = shoal("doctor", "--json", *arguments, SHOAL_REDIS__URL=url, **environ)
    outcome = json.loads(result.output)
    assert outcome["ok"] is (result.exit_code == 0)
    return result.exit_code, {check["name"]: (check["outcome"], check["found"]) for check in outcome["checks"]}


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    """As a mistyped setting is."""
    result = CliRunner().invoke(cli, ["sessions"])
    assert (result.exit_code, "Did you mean 'session'?" in result.stderr) == (2, True)
    assert "Did you mean" not in CliRunner().invoke(cli, ["xyzzy"]).stderr


def test_doctor_finds_nothing_where_nothing_is_wrong(durable: str, tmp_path: Path) -> None:
    """Every check by name, in an order that does not change; what workers and gateways say of themselves."""
    appear(durable, one(), one("gateway", name="g1"))
    tmp_path.chmod(0o700)
    code, checks = diagnosis(durable, SHOAL_DATA__DIR=str(tmp_path))
    skipped = "no worker took the question in time"  # this one only says that it is there
    assert checks.pop("model answers") == ("skipped", skipped)
    assert (code, {outcome for outcome, _ in checks.values()}) == (0, {"ok"})
    assert list(checks) == [
        "settings", "data folder", "extras", "redis reachable", "redis version", "maxmemory-policy", "appendonly",
        "appendfsync", "restart", "memory", "clock", "fail-over", "gateways", "workers", "channels", "work is taken",
        "model",
    ]  # fmt: skip
    assert re.fullmatch(r"valkey [\d.]+, compatible with Redis [\d.]+", checks["redis version"][1])
    assert checks["channels"] == ("ok", "web")
    assert checks["model"] == ("ok", "m")
    assert "w1 model=m queues=turns,jobs" in checks["workers"][1]
    text = shoal("doctor", SHOAL_REDIS__URL=durable, SHOAL_DATA__DIR=str(tmp_path)).output
    assert all(line.startswith("ok ") for line in text.splitlines() if skipped not in line)


def test_doctor_asks_the_model_one_question_and_prints_what_came(durable: str) -> None:
    """Once, as a turn asks: its answer, or the provider's own words without the key."""
    with ScriptedOpenAI(in_thread=True) as server:
        model = {
            "SHOAL_MODEL__NAME": "openai/gpt-4p",
            "SHOAL_MODEL__API_BASE": server.base_url,
            "SHOAL_MODEL__API_KEY": "sk-canary-of-the-key",
            "SHOAL_MODEL__CLIENT": "direct",
        }
        server.script(Answer(text="OK."))
        outcome, found = diagnosis(durable, **model)[1]["model answers"]
        assert (outcome, "'openai/gpt-4p' said 'OK.'" in found) == ("ok", True)
        assert [request.body["messages"][-1]["content"] for request in server.requests()] == ["Say OK."]
        words = "The model `gpt-4p` does not exist, says sk-canary-of-the-key"
        server.script(Answer(status=404, error={"message": words}))
        code, checks = diagnosis(durable, **model)
        outcome, found = checks["model answers"]
        assert (code, outcome, "canary" in found) == (1, "failed", False)
        assert "there is no model of this name" in found
        assert "it says: The model `gpt-4p` does not exist, says ***" in found
        assert server.stats()["requests"] == 2


def test_doctor_says_what_to_do_about_each_thing(durable: str, tmp_path: Path) -> None:
    """A sick one: exit code 1, every check still made."""
    command(durable, "CONFIG", "SET", "appendfsync", "everysec")
    command(durable, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    command(durable, "ZADD", "shoal:{0ax}:queue:turns", "1000", "turn:web:a")
    tmp_path.chmod(0o755)
    (tmp_path / "web.token").write_text("s")
    (tmp_path / "web.token").chmod(0o644)
    code, checks = diagnosis(durable, "--probe", SHOAL_DATA__DIR=str(tmp_path))
    failed = {name: found for name, (outcome, found) in checks.items() if outcome == "failed"}
    assert code == 1
    assert list(failed) == [
        "data folder", "maxmemory-policy", "appendfsync", "gateways", "workers", "work is taken", "probe",
    ]  # fmt: skip
    assert checks["open calls"][0] == "ok"
    assert f"chmod 700 {tmp_path}" in failed["data folder"]
    assert f"chmod 600 {tmp_path / 'web.token'}" in failed["data folder"]
    assert "set maxmemory-policy noeviction" in failed["maxmemory-policy"]
    assert "set appendfsync always" in failed["appendfsync"]
    assert "start `python -m gateway`" in failed["gateways"]
    assert "start `python -m worker`" in failed["probe"]


def test_doctor_names_the_extras_that_are_not_installed() -> None:
    """With what installs them; each is known by a package that `pyproject.toml` names for it."""
    check = extras_check({"channels": "slack-sdk", "tracing": "no-such-package"})
    assert (check.outcome, "not installed here: tracing; " in check.found) == ("skipped", True)
    assert "`make channels` installs all, or install shoal[tracing]" in check.found
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert EXTRAS.keys() == optional.keys() - {"dev"}
    for extra, package in EXTRAS.items():
        assert any(re.match(rf"{re.escape(package)}>", one) for one in optional[extra])


@pytest.mark.parametrize(
    ("replicas", "copies", "url", "outcome", "found"),
    [
        (None, 1, "redis://a", "skipped", "the server does not tell of replicas"),
        (0, 1, "redis://a", "ok", "there is none: one server"),
        (1, 1, "redis+sentinel://a/b", "skipped", "up to about 1 s may be lost: set redis.copies = 2"),
        (1, 2, "redis+sentinel://a/b", "ok", "none lost: writes are confirmed on 2 servers"),
        (2, 2, "redis://a", "ok", "none lost if the freshest replica is promoted; redis.copies = 3 for any"),
        (3, 3, "redis://a", "ok", "none lost if the freshest replica is promoted"),
        (0, 2, "redis://a", "failed", "redis.copies is 2, and 1 of them are there: no write counts"),
        (0, 2, "redis+sentinel://a/b", "failed", "writes count with those left"),
    ],
)
def test_doctor_says_what_a_fail_over_loses(
    replicas: int | None, copies: int, url: str, outcome: str, found: str
) -> None:
    """In one line, as docs/reliability.md has it."""
    facts = msgspec.structs.replace(REDIS, replicas=replicas)
    check = fail_over_check(facts, RedisSettings(url=RedisUrl(url), copies=copies))
    assert (check.outcome, found in check.found) == (outcome, True), check.found


def test_doctor_names_tokens_that_can_be_guessed(durable: str) -> None:
    """The name of the setting, never the token, and how to make another one."""
    env = {"SHOAL_WEB__TOKEN": "sesame-open-up", "SHOAL_WEB__TOKENS__ANN": "0123456789abcdef"}
    outcome, found = diagnosis(durable, **env)[1]["tokens"]
    assert outcome == "failed"
    assert found.startswith("web.token: shorter than 16 characters")
    assert "sesame" not in found


def test_doctor_says_which_way_calls_go_out(durable: str, tmp_path: Path) -> None:
    """Whether the proxy answers, without its password; nothing where there is none."""
    assert "network" not in diagnosis(durable)[1]
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        env = {"SHOAL_NETWORK__PROXY": f"http://me:sesame@127.0.0.1:{proxy.getsockname()[1]}"}
        outcome, found = diagnosis(durable, **env)[1]["network"]
        assert outcome == "ok"
        assert found.startswith("outgoing calls go through http://me:***@127.0.0.1:")
        assert found.endswith(", but to localhost, 127.0.0.0/8, ::1")
    outcome, found = diagnosis(durable, **env)[1]["network"]
    assert (outcome, "does not answer here" in found, "sesame" in found) == ("failed", True, False)
    outcome, found = diagnosis(durable, SHOAL_NETWORK__CA_FILE=str(tmp_path / "none.pem"))[1]["network"]
    assert (outcome, "cannot be read; mount it" in found) == ("failed", True)


def test_doctor_names_models_of_unknown_size(durable: str) -> None:
    """Once, with what is assumed and what to set; it is safe, so it is not a failure."""
    env = {"SHOAL_MODEL__NAME": "vllm/own", "SHOAL_MODEL__FALLBACKS": "openai/gpt-4o"}
    outcome, found = diagnosis(durable, **env)[1]["model context"]
    assert (outcome, found.partition(";")[0]) == (
        "skipped",
        "vllm/own: no table has it, so 32,768 tokens are assumed",
    )
    assert "model context" not in diagnosis(durable, **env, SHOAL_MODEL__CONTEXT_TOKENS="8192")[1]
    wrong = diagnosis(durable, SHOAL_MODEL__NAME="claude-x", SHOAL_MODEL__CLIENT="direct")[1]["model"]
    assert wrong[0] == "failed"
    assert "set model.api_base" in wrong[1]


def test_doctor_lists_calls_without_a_result_before_workers_start(durable: str) -> None:
    """After a restore: what an operator has to look at, by chat, tool and time."""
    call = ToolCall(id="c1", name="pay", arguments="{}")
    done = msgspec.structs.replace(call, id="c2", name="look")
    steps: list[LedgerEntry] = [
        AssistantEntry(content="", turn=1, tool_calls=(call, done)),
        IntentEntry(call_id="c1", turn=1, at=1_782_043_200_000),
        IntentEntry(call_id="c2", turn=1, at=1),
        ToolEntry(call_id="c2", name="look", content="seen", turn=1),
    ]
    with contextlib.closing(RespConnection(durable)) as connection:
        for n, step in enumerate(steps, start=1):
            connection.command("XADD", keys.ledger("web:owner/a"), f"{n}-0", "m", encode(step))
    outcome, found = diagnosis(durable)[1]["open calls"]
    assert outcome == "failed"
    assert found.startswith("pay of web:owner/a at 2026-06-21 12:00:00 UTC: begun, and without a result.")
    appear(durable, one())
    assert "open calls" not in diagnosis(durable)[1]


def test_doctor_names_a_broken_key_of_the_fleet(durable: str) -> None:
    """That comes first: what else there is to see may stand on it."""
    command(durable, "SET", keys.PRESENCE, "x")
    command(durable, "SET", keys.queue("turns"), "x")
    code, checks = diagnosis(durable)
    assert (code, checks["keys"][0]) == (1, "failed")
    assert checks["keys"][1].startswith("shoal:{0ax}:presence, shoal:{0ax}:queue:turns are of another type")


def test_doctor_stops_where_it_cannot_go_on() -> None:
    """Wrong settings are all there is to say; without Redis what can be seen from here is still said."""
    code, checks = diagnosis("redis://127.0.0.1:1/0")
    assert (code, list(checks)) == (1, ["settings", "data folder", "extras", "redis reachable"])
    assert checks["redis reachable"][0] == "failed"
    code, checks = diagnosis("redis://127.0.0.1:1/0", SHOAL_WORKER__TRUNS="1")
    assert (code, list(checks)) == (1, ["settings"])
    assert "worker.truns" in checks["settings"][1]
    code, checks = diagnosis("embedded")
    assert "start `shoal up`" in checks["redis reachable"][1]


def test_a_probe_that_no_worker_takes_is_withdrawn(durable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that says it is there and does nothing: the check fails in time and leaves nothing behind."""
    monkeypatch.setattr("console.doctor.checks.PROBE_WITHIN_S", 0.1)
    appear(durable, one())
    _, checks = diagnosis(durable, "--probe")
    assert checks["probe"][0] == "failed"
    assert command(durable, "EXISTS", "shoal:{0ax}:queue:jobs") == "0"
    assert command(durable, "KEYS", "arq:*") == ""


async def test_a_job_is_written_as_arq_reads_it(client: RedisClient) -> None:
    """And its result is read as arq writes it; only arq's own code can say so."""
    jobs = Jobs(client)
    id = await jobs.enqueue("probe", "said")
    record = await client.command("GET", arq.constants.job_key_prefix + id)
    job = arq.jobs.deserialize_job(record, deserializer=msgspec.msgpack.decode)
    assert (job.function, list(job.args), job.kwargs) == ("probe", ["said"], {})
    assert await client.command("ZRANGE", keys.queue("jobs"), 0, -1) == [id.encode()]
    assert await client.command("LLEN", keys.wake("jobs")) == 1
    assert await jobs.result(id) is None
    for success in (True, False):
        ended = arq.jobs.serialize_result(
            "probe", ("said",), {}, 1, 0, success, "said", 0, 0, "ref", "q", id, serializer=msgspec.msgpack.encode
        )
        assert ended is not None
        await client.command("SET", arq.constants.result_key_prefix + id, ended)
        assert await jobs.result(id) == JobResult(success, "said")
    await jobs.forget(id)
    assert await client.command("EXISTS", keys.queue("jobs"), *(p + id for p in ("arq:job:", "arq:result:"))) == 0


@pytest.mark.parametrize("name", list(_COMMANDS))
def test_a_command_is_described_in_help_without_being_imported(name: str) -> None:
    """The words of the list are beside the name, so that --help is quick; the command is where the list says."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.help
    assert _COMMANDS[name].help in shoal("--help").output


def test_the_list_of_commands_has_the_words_that_people_look_for() -> None:
    """Words of the field, no paraphrase."""
    listed = shoal("--help").output
    for words in ("Manage schedules", "Manage dead letters", "Manage background jobs", "Approve or revoke access"):
        assert words in listed
    assert "Look after" not in listed


def test_help_comes_at_once() -> None:
    """Nothing heavy is imported on the way. Counted in seconds of a core, with room for a slow one."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "console", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 3
    assert not {"asyncio", "msgspec", "redis", "rich", "websockets"} & {
        line.rpartition("|")[2].strip() for line in result.stderr.splitlines()
    }


def spelled(command: click.Command, path: str) -> Iterator[str]:
    """Every command and option as a person types it."""
    yield path
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from spelled(inner, f"{path} {name}")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield max(parameter.opts, key=len)


@pytest.mark.parametrize("name", list(_COMMANDS))
def test_what_can_be_typed_is_documented(name: str) -> None:
    """docs/console.md names every command, option and problem."""
    text = (ROOT / "docs" / "console.md").read_text()
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    aliases = {"--message": "-m"}
    assert [word for word in spelled(command, f"shoal {name}") if aliases.get(word, word) not in text] == []


def test_every_problem_is_documented() -> None:
    """Programs read the codes."""
    codes = set(re.findall(r'Problem\(\s*"(\w+)"', (ROOT / "console/top/problems.py").read_text()))
    assert {"no_worker", "fsync", "old"} <= codes
    text = (ROOT / "docs" / "console.md").read_text()
    assert [code for code in codes if f"| `{code}` |" not in text] == []
