from __future__ import annotations

import os
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from gateway.channels.web.http.auth import Principals, origin_allowed
from shared.errors import SettingsError
from shared.settings import Secret, Settings, WebSettings
from shared.settings.sections.processes import DataSettings


def test_each_secret_opens_to_its_own_principal_and_nothing_else_opens() -> None:
    """A token is one person."""
    principals = Principals({"owner": "sesame", "ann": "other"})
    owner, ann = principals.login("sesame"), principals.login("other")
    assert owner is not None
    assert ann is not None
    assert (owner.principal, ann.principal) == ("owner", "ann")
    for wrong in ("", "sesam", "sesame ", "SESAME", "sesame\n", "other\0", "é", "\ud800"):
        assert principals.login(wrong) is None


def test_a_bearer_header_opens_like_the_token_and_other_schemes_do_not() -> None:
    """HTTP and the socket know the same people."""
    principals = Principals({"owner": "sesame"})
    login = principals.bearer(request("bearer sesame"))
    assert login is not None
    assert login.principal == "owner"
    for header in (None, "", "sesame", "Basic sesame", "Bearer", "Bearer x"):
        assert principals.bearer(request(header)) is None


def request(authorization: str | None) -> Request:
    """A request with this header."""
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    return Request({"type": "http", "headers": headers, "client": ("10.0.0.1", 1)})


def write(file: Path, text: str) -> None:
    """As an operator or Kubernetes does it: a new file in the place of the old one."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, file)


def test_a_rotated_file_refuses_the_old_secret_at_once(tmp_path: Path) -> None:
    """No restart, no waiting: the next check reads the new one."""
    file = tmp_path / "token"
    write(file, "first\n")
    principals = Principals({}, {"owner": file})
    login = principals.login("first")
    assert login is not None
    assert principals.is_current(login)
    write(file, "second\n")
    assert not principals.is_current(login)
    assert principals.login("first") is None
    assert principals.login("second") is not None


def test_a_file_that_is_gone_or_empty_opens_to_nobody(tmp_path: Path) -> None:
    """Fail closed: also not to an empty token."""
    file = tmp_path / "token"
    write(file, "first")
    principals = Principals({}, {"owner": file})
    login = principals.login("first")
    assert login is not None
    write(file, "\n")
    assert not principals.is_current(login)
    assert principals.login("") is None
    file.unlink()
    assert principals.login("first") is None
    write(file, "first")
    assert principals.is_current(login)


def settings(data: Path, **web: object) -> Settings:
    return Settings(data=DataSettings(data), web=WebSettings(**web))  # type: ignore[arg-type]


def test_without_a_token_the_generated_one_is_used(tmp_path: Path) -> None:
    """`make up` writes it; nobody has to set anything."""
    (tmp_path / "web.token").write_text("generated\n")
    login = Principals.of(settings(tmp_path)).login("generated")
    assert login is not None
    assert login.principal == "owner"


def test_with_a_token_the_generated_one_opens_nothing(tmp_path: Path) -> None:
    """What an operator sets replaces it."""
    (tmp_path / "web.token").write_text("generated")
    principals = Principals.of(settings(tmp_path, token=Secret("mine"), tokens={"ann": Secret("hers")}))
    assert principals.login("generated") is None
    owner, ann = principals.login("mine"), principals.login("hers")
    assert owner is not None
    assert ann is not None
    assert (owner.principal, ann.principal) == ("owner", "ann")


def test_without_any_secret_the_start_is_refused(tmp_path: Path) -> None:
    """A blank configuration is not an open door; the error names the setting."""
    with pytest.raises(SettingsError, match=r"web\.token"):
        Principals.of(settings(tmp_path))


HOST = "chat.example.org:8080"


@pytest.mark.parametrize(
    ("origins", "host", "allowed", "fine"),
    [
        ([], HOST, (), True),
        (["http://chat.example.org:8080"], HOST, (), True),
        (["https://CHAT.example.org:8080"], HOST, (), True),
        (["https://chat.example.org"], "chat.example.org", (), True),
        (["https://chat.example.org"], "chat.example.org:443", (), True),
        (["http://[::1]:8080"], "[::1]:8080", (), True),
        (["https://other.example.org"], HOST, ("https://other.example.org",), True),
        (["https://other.example.org"], HOST, ("https://other.example.org:444",), False),
        (["http://chat.example.org"], HOST, (), False),
        (["http://evil.example.org"], HOST, (), False),
        (["http://chat.example.org:8080.evil.org"], HOST, (), False),
        (["http://chat.example.org:8080@evil.org"], HOST, (), False),
        (["http://chat.example.org:8080/"], HOST, (), False),
        (["null"], HOST, (), False),
        ([""], HOST, (), False),
        (["file://"], "", (), False),
        (["http://"], "", (), False),
        (["http://["], HOST, (), False),
        (["ftp://chat.example.org:8080"], HOST, (), False),
        (["http://chat.example.org:8080", "http://evil.example.org"], HOST, (), False),
    ],
)
def test_only_pages_of_this_host_or_of_an_allowed_origin_may_connect(
    origins: list[str], host: str, allowed: tuple[str, ...], fine: bool
) -> None:
    """A page somewhere else must not use a person's browser to talk to their Shoal."""
    sent = [(b"host", host.encode()), *((b"origin", one.encode()) for one in origins)]
    assert origin_allowed(Headers(raw=sent), allowed) is fine
