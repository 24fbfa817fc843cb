"""Each engine against a server that answers as the real one does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.errors import SettingsError, ToolFailed
from tests.helpers.web_server import WebServer, redirect, reply, web_server
from worker.search.engine import ENGINES, SearchEngine, SearchHit, build_engine

KEY = "tvly-hunter2-hunter2"
JSON = "application/json"

FIRST = SearchHit("First & best", "https://first.example/a?b=c", "About the first")
SECOND = SearchHit("Second", "https://second.example/", "About the second")

DUCK = """<html><body><div id="links" class="results">
<div class="result results_links results_links_deep result--ad"><div class="links_main links_deep result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a"
 href="https://duckduckgo.com/y.js?ad_domain=ad.example&amp;ad_provider=bing">Buy</a></h2>
<a class="result__snippet" href="https://duckduckgo.com/y.js?ad_domain=ad.example">An <b>ad</b></a></div></div>
<div class="result results_links results_links_deep web-result "><div class="links_main links_deep result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ffirst.example%2Fa%3Fb%3Dc&amp;rut=77">First &amp; best</a></h2>
<div class="result__extras"><a class="result__url" href="//duckduckgo.com/l/?uddg=x">first.example</a></div>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">About the <b>first</b></a></div></div>
<div class="result results_links results_links_deep web-result "><div class="links_main links_deep result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a" href="https://second.example/">Second</a></h2>
<a class="result__snippet" href="https://second.example/">About the second</a></div></div>
</div></body></html>"""

SEARXNG = {
    "query": "q",
    "number_of_results": 0,
    "results": [
        {
            "url": one.url,
            "title": one.title,
            "content": one.text,
            "engine": "mojeek",
            "score": 1.0,
            "category": "general",
        }
        for one in (FIRST, SECOND)
    ],
    "answers": [],
    "infoboxes": [],
    "suggestions": [],
    "unresponsive_engines": [["brave", "too many requests"]],
}
BRAVE = {
    "type": "search",
    "query": {"original": "q", "more_results_available": True},
    "web": {
        "type": "search",
        "results": [
            {"type": "search_result", "title": one.title, "url": one.url, "description": one.text, "language": "en"}
            for one in (FIRST, SECOND)
        ],
    },
}
TAVILY = {
    "query": "q",
    "answer": None,
    "images": [],
    "results": [
        {"title": one.title, "url": one.url, "content": one.text, "score": 0.9, "raw_content": None}
        for one in (FIRST, SECOND)
    ],
    "response_time": 1.1,
}
ANSWERS = {
    "duckduckgo": (DUCK, "text/html; charset=UTF-8"),
    "searxng": (json.dumps(SEARXNG), JSON),
    "brave": (json.dumps(BRAVE), JSON),
    "tavily": (json.dumps(TAVILY), JSON),
}
NOTHING = {
    "duckduckgo": ('<html><div class="no-results">No results.</div></html>', "text/html"),
    "searxng": ('{"query": "q", "results": [], "answers": []}', JSON),
    "brave": ('{"type": "search", "query": {"original": "q"}}', JSON),
    "tavily": ('{"query": "q", "results": [], "response_time": 0.1}', JSON),
}
every_engine = pytest.mark.parametrize("name", sorted(ENGINES))


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with web_server() as server:
        yield server


def engine(web: WebServer, name: str) -> SearchEngine:
    return build_engine(name, url=web.url("/search"), key=KEY)


@every_engine
async def test_results_come_in_order_and_no_more_than_asked_for(web: WebServer, name: str) -> None:
    """Title, address and extract; advertisements are left out."""
    web.pages["/search"] = reply(*ANSWERS[name])
    assert list(await engine(web, name).search("q", 5)) == [FIRST, SECOND]
    assert list(await engine(web, name).search("q", 1)) == [FIRST]


@every_engine
async def test_no_results_are_no_error(web: WebServer, name: str) -> None:
    """Nothing found is an answer."""
    web.pages["/search"] = reply(*NOTHING[name])
    assert list(await engine(web, name).search("q", 5)) == []


async def test_each_engine_is_asked_in_its_own_way(web: WebServer) -> None:
    """Query, count and key stand where that engine wants them."""
    for name in ("duckduckgo", "searxng", "brave", "tavily"):
        web.pages["/search"] = reply(*ANSWERS[name])
        await engine(web, name).search("ä & b", 3)
    duck, searxng, brave, tavily = web.asked
    assert (duck.method, parse_qs(duck.body.decode())["q"]) == ("POST", ["ä & b"])
    assert KEY not in str(duck)
    assert parse_qs(urlsplit(searxng.target).query) == {"q": ["ä & b"], "format": ["json"]}
    assert parse_qs(urlsplit(brave.target).query) == {"q": ["ä & b"], "count": ["3"], "text_decorations": ["false"]}
    assert brave.headers["x-subscription-token"] == KEY
    assert tavily.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(tavily.body) == {"query": "ä & b", "max_results": 3, "search_depth": "basic"}
    assert all(KEY not in asked.target for asked in web.asked)


@every_engine
@pytest.mark.parametrize(
    ("status", "text"),
    [
        (401, "an operator has to check tools.search_key"),
        (429, "asked too often"),
        (500, "broken just now"),
        (503, "broken just now"),
        (400, "did not take the search"),
        (404, "did not take the search"),
    ],
)
async def test_a_refusal_says_what_to_do(web: WebServer, name: str, status: int, text: str) -> None:
    """No text of the server, and never the key, not even when the server sends it back."""
    web.pages["/search"] = reply(f'{{"detail": "wrong {KEY}"}}', JSON, status=status)
    with pytest.raises(ToolFailed, match=text) as failure:
        await engine(web, name).search("q", 5)
    assert name in str(failure.value)
    assert KEY not in str(failure.value)


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("searxng", 403, "search.formats"),
        ("brave", 422, "the query or the key"),
        ("brave", 403, "tools.search_key"),
        ("tavily", 432, "no searches left"),
        ("duckduckgo", 403, "asks for a human"),
    ],
)
async def test_an_engine_has_refusals_of_its_own(web: WebServer, name: str, status: int, text: str) -> None:
    """Requests follow its documentation."""
    web.pages["/search"] = reply("{}", JSON, status=status)
    with pytest.raises(ToolFailed, match=text):
        await engine(web, name).search("q", 5)


@every_engine
@pytest.mark.parametrize("body", ["", "null", "[]", '{"results": 5, "web": 5}', "<html>hello</html>", "[" * 100_000])
async def test_an_answer_of_another_shape_is_an_error_of_the_tool(web: WebServer, name: str, body: str) -> None:
    """An engine that changed must not look like one that found nothing."""
    web.pages["/search"] = reply(body, "text/html" if name == "duckduckgo" else JSON)
    with pytest.raises(ToolFailed, match=r"another shape|cannot be read"):
        await engine(web, name).search("q", 5)


async def test_duckduckgo_asking_for_a_human_ends_the_search(web: WebServer) -> None:
    """It does so with a page that looks like success."""
    for status in (200, 202):
        web.pages["/search"] = reply('<div class="anomaly-modal__title">Unfortunately, bots…</div>', status=status)
        with pytest.raises(ToolFailed, match="asks for a human"):
            await engine(web, "duckduckgo").search("q", 5)


@every_engine
async def test_an_engine_is_not_followed_elsewhere(web: WebServer, name: str) -> None:
    """The key goes to the server that it is for."""
    web.pages["/search"] = redirect("/elsewhere")
    with pytest.raises(ToolFailed, match="redirects too often"):
        await engine(web, name).search("q", 5)
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("name", "url", "key", "text"),
    [
        ("google", "", "", "there is no 'google'"),
        ("searxng", "", "", r"tools\.search_url is missing"),
        ("brave", "", "", r"tools\.search_key is missing"),
        ("tavily", "", "", r"tools\.search_key is missing"),
        ("searxng", "searxng:8080", "", r"tools\.search_url"),
    ],
)
def test_settings_that_do_not_fit_stop_the_start(name: str, url: str, key: str, text: str) -> None:
    """One line that names the key."""
    with pytest.raises(SettingsError, match=text):
        build_engine(name, url=url, key=key)


@every_engine
def test_every_engine_can_be_built_without_its_usual_place_being_private(name: str) -> None:
    """Every engine of the table exists."""
    assert build_engine(name, url="" if ENGINES[name][1] else "http://searxng:8080", key=KEY).name == name
