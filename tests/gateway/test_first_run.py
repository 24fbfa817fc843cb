"""Who may choose the model of a page that the demo model answers, and what of the choice gets out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from gateway.channels.web.http.auth import Principals
from gateway.channels.web.http.first_run import BODY_BYTES, FirstRun
from tests.helpers.clock import HandClock

TOKENS = {"owner": "owner-of-this-page", "anna": "anna-reads-along"}
CHOICE = {"provider": "own", "model": "m", "api_base": "http://127.0.0.1:9/v1", "key": "sk-secret"}
ECHO = "import sys; sys.exit(' '.join(['Traceback\\nError:', sys.stdin.read(), 'is wrong', *sys.argv]))"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def page() -> Iterator[TestClient]:
    made = FirstRun(Principals(TOKENS), command=(sys.executable, "-c", ECHO), clock=HandClock())
    with TestClient(Starlette(routes=[Route("/first-run", made.choose, methods=["POST"])])) as client:
        yield client


def ask(page: TestClient, choice: Any = CHOICE, *, who: str = "owner", **headers: str) -> tuple[int, str]:
    own = {"Authorization": f"Bearer {TOKENS.get(who)}", "Origin": "http://testserver"}
    sent = {name: value for name, value in {**own, **headers}.items() if value}
    answer = page.post("/first-run", json=choice, headers=sent)
    return answer.status_code, answer.json().get("detail", "")


def test_the_key_comes_back_in_no_error_and_is_on_no_command_line(page: TestClient) -> None:
    status, detail = ask(page)
    assert (status, "sk-secret" in detail) == (422, False)
    assert detail.startswith("… is wrong -c --provider=own --model=m --json")


@pytest.mark.parametrize(
    ("who", "headers", "status"),
    [
        ("anna", {}, 404),
        ("nobody", {}, 401),
        ("owner", {"Origin": "https://evil.example"}, 403),
        ("owner", {"Origin": "null"}, 403),
        ("owner", {"Origin": ""}, 403),
    ],
)
def test_nobody_but_the_owner_on_this_page_chooses(
    page: TestClient, who: str, headers: dict[str, str], status: int
) -> None:
    assert ask(page, who=who, **headers)[0] == status


def test_settings_that_exist_are_not_replaced(page: TestClient, folder: Path) -> None:
    (folder / "shoal.toml").touch()
    assert ask(page)[0] == 404


@pytest.mark.parametrize(
    "choice",
    [
        {**CHOICE, "provider": "--force"},
        {**CHOICE, "model": "m\n[redis]"},
        {**CHOICE, "force": True},
        {**CHOICE, "key": "k\nk"},
        [],
        {},
        {"provider": "own", "model": "m" * 501},
    ],
)
def test_what_is_no_choice_is_refused_before_anything_runs(page: TestClient, choice: Any) -> None:
    assert ask(page, choice)[0] == 400


def test_a_large_body_and_many_tries_are_refused(page: TestClient) -> None:
    assert ask(page, {**CHOICE, "key": "k" * BODY_BYTES})[0] == 413
    assert [ask(page, {})[0] for _ in range(5)][-1] == 429
