"""Pages of other sites: those that are named may use the API, others may not."""

from __future__ import annotations

import pytest

from tests.gateway.channels.api.asking import HELLO, post, working
from tests.gateway.harness import gateway

SITE = "https://notes.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-stainless-os"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/responses/x", "/aisdk/chat"])
async def test_a_browser_asks_before_it_has_a_token(redis_url: str, path: str) -> None:
    """For every address, with whatever headers a client of OpenAI's protocol sends; never for cookies."""
    async with gateway(redis_url, allowed_origins=(SITE,)) as at:
        found = await post(at.address, path=path, method="OPTIONS", token=None, headers={"Origin": SITE, **PREFLIGHT})
    assert found.status == 200
    assert found.headers["access-control-allow-origin"] == SITE
    assert found.headers["access-control-allow-headers"] == "authorization, x-stainless-os"
    assert "POST" in found.headers["access-control-allow-methods"]
    assert "DELETE" in found.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in found.headers
    assert "Origin" in found.headers["vary"]


async def test_a_page_that_is_named_reads_the_answer(redis_url: str) -> None:
    """Errors, too, and the headers that say when to ask again."""
    async with gateway(redis_url, allowed_origins=(SITE,)) as at, working(redis_url):
        found = await post(at.address, HELLO, headers={"Origin": SITE})
        wrong = await post(at.address, HELLO, token="wrong", headers={"Origin": SITE})
    assert (found.status, wrong.status) == (200, 401)
    for one in (found, wrong):
        assert one.headers["access-control-allow-origin"] == SITE
        exposed = one.headers["access-control-expose-headers"]
        assert {"X-Request-Id", "Retry-After"} <= set(exposed.split(", "))


@pytest.mark.parametrize("origin", ["https://evil.example", f"{SITE}.evil.example", "http://notes.example", "null"])
async def test_other_pages_get_nothing(redis_url: str, origin: str) -> None:
    """Neither before nor with the request: the origin is compared whole."""
    async with gateway(redis_url, allowed_origins=(SITE,)) as at:
        asked = await post(
            at.address, path="/v1/responses", method="OPTIONS", token=None, headers={"Origin": origin, **PREFLIGHT}
        )
        found = await post(at.address, HELLO, headers={"Origin": origin})
    assert asked.status == 400
    assert found.status == 403
    for one in (asked, found):
        assert "access-control-allow-origin" not in one.headers


async def test_without_named_origins_nothing_is_allowed(redis_url: str) -> None:
    async with gateway(redis_url) as at:
        asked = await post(
            at.address, path="/v1/responses", method="OPTIONS", token=None, headers={"Origin": SITE, **PREFLIGHT}
        )
    assert asked.status == 405
    assert "access-control-allow-origin" not in asked.headers


async def test_the_page_itself_is_for_no_other_site(redis_url: str) -> None:
    async with gateway(redis_url, allowed_origins=(SITE,)) as at:
        found = await post(at.address, path="/", method="GET", token=None, headers={"Origin": SITE})
    assert "access-control-allow-origin" not in found.headers
