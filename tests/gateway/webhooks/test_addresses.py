"""Addresses of endpoints: the public web alone, unless the operator names a private one; looked up once a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from gateway.platform.protocol import (
    ChatClosed,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    Throttled,
)
from gateway.webhooks.endpoints import LONGEST_WAIT_S, REFUSALS, Endpoints
from shared.errors import SettingsError
from shared.settings import OutgoingWebhook, Secret
from tests.gateway.webhooks.stage import SECRET
from tests.helpers.web_server import WebServer, redirect, reply, web_server

METADATA = "169.254.169.254"


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with web_server() as server:
        server.pages["/hook"] = reply("ok")
        yield server


class Names:
    """A resolver that answers from a script, and counts."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not found:
            raise OSError("no such name")
        return found


def endpoints(url: str, names: Names | None = None, *, private: bool = False) -> Endpoints:
    endpoint = OutgoingWebhook(url=url, secret=Secret(SECRET), allow_private=private)
    return Endpoints({"erp": endpoint}, look_up=names or Names([METADATA]))


def post(endpoint: str = "erp") -> Post:
    target = PostTarget(session=f"hook:{endpoint}", chat_id=endpoint)
    body = '{"id":"evt_1"}'
    return Post(target=target, key=f"hook:{endpoint}:1:0", piece=Piece(body, body))


async def failure_of(made: Endpoints) -> NotDelivered:
    with pytest.raises(NotDelivered) as caught:
        await made.send(post())
    return caught.value


@pytest.mark.parametrize(
    "found",
    [
        (METADATA,),
        ("127.0.0.1",),
        ("10.0.0.7",),
        ("::1",),
        ("fd00:ec2::254",),
        ("::ffff:169.254.169.254",),
        ("93.184.215.14", METADATA),
    ],
)
async def test_a_name_that_leads_to_a_private_address_is_not_called(found: tuple[str, ...]) -> None:
    """All of its addresses count; the letter says why, and names none of them. A name server may be wrong for a
    moment, so that it takes as many tries as a refusal."""
    names = Names(found)
    made = endpoints("https://hooks.example.com/x", names)
    refused = [await failure_of(made) for _ in range(REFUSALS)]
    assert [type(one) for one in refused] == [NotAccepted] * (REFUSALS - 1) + [PostRefused]
    assert {one.reason for one in refused} == {"the address is not a public one; see allow_private"}
    assert names.asked == ["hooks.example.com"] * REFUSALS


async def test_a_name_that_changes_its_answer_is_looked_at_each_time(web: WebServer) -> None:
    """Rebinding: the first answer was fine, the second is another machine; none is used without a look."""
    names = Names(["127.0.0.1"], [METADATA])
    made = endpoints(web.url("/hook", "erp.example.com"), names, private=True)
    assert await made.send(post()) == "evt_1"
    assert isinstance(await failure_of(made), NotAccepted)
    assert (len(web.asked), names.asked) == (1, ["erp.example.com"] * 2)
    assert web.asked[0].headers["host"].startswith("erp.example.com")


async def test_a_redirect_to_a_private_address_is_not_followed(web: WebServer) -> None:
    """Nor any other: it is a failure."""
    web.pages["/hook"] = redirect(f"http://{METADATA}/latest/meta-data")
    names = Names(["127.0.0.1"])
    failed = await failure_of(endpoints(web.url("/hook", "erp.example.com"), names, private=True))
    assert isinstance(failed, NotAccepted)
    assert names.asked == ["erp.example.com"]


@pytest.mark.parametrize("host", [METADATA, "[fd00:ec2::254]", "168.63.129.16"])
def test_metadata_is_never_reached(host: str) -> None:
    """Whatever the operator allows."""
    with pytest.raises(SettingsError, match="blocked address"):
        endpoints(f"http://{host}/", private=True)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.1.2.3", "[::1]", "localhost", "2130706433", "0x7f.1", "erp", "erp.internal", "me:pw@x.com"],
)
def test_a_private_address_stops_the_start_unless_it_is_allowed(host: str) -> None:
    """A line that names the setting, rather than letters later."""
    with pytest.raises(SettingsError, match=r"^webhooks\.out\.erp\.url: "):
        endpoints(f"https://{host}/hook")


@pytest.mark.parametrize(
    ("status", "retry_after", "kind"),
    [
        (410, "", ChatClosed),
        (429, "", NotAccepted),
        (429, "7", Throttled),
        (503, "7", Throttled),
        (503, "Thu, 01 Jan 2998 00:00:00 GMT", Throttled),
        (503, "soon", MaybeSent),
        (503, "-1", MaybeSent),
        (503, "٧", MaybeSent),
        (503, "9" * 400, Throttled),
        (500, "", MaybeSent),
        (599, "", MaybeSent),
        (408, "", MaybeSent),
        (400, "7", NotAccepted),
        (304, "", NotAccepted),
    ],
)
async def test_each_answer_has_its_meaning(
    web: WebServer, status: int, retry_after: str, kind: type[NotDelivered]
) -> None:
    """Of 2xx alone nothing comes again."""
    web.pages["/hook"] = reply(status=status, **({"Retry_After": retry_after} if retry_after else {}))
    found = await failure_of(endpoints(web.url("/hook"), private=True))
    assert type(found) is kind
    if isinstance(found, Throttled):
        assert 0 < found.retry_after_s <= LONGEST_WAIT_S
        assert not found.whole_bot


async def test_a_line_that_is_no_webhook_is_not_sent(web: WebServer) -> None:
    """Whoever wrote it into the outbox."""
    text = Piece("hello", "hello")
    with pytest.raises(PostRefused):
        await endpoints(web.url("/hook"), private=True).send(replace(post(), piece=text))
    assert web.asked == []


async def test_refusals_are_counted_for_each_webhook(web: WebServer) -> None:
    """And forgotten once it was accepted."""
    made = endpoints(web.url("/hook"), private=True)
    web.pages["/hook"] = reply(status=404)
    kinds = [type(await failure_of(made)) for _ in range(REFUSALS)]
    assert kinds == [NotAccepted] * (REFUSALS - 1) + [PostRefused]
    assert isinstance(await failure_of(made), NotAccepted)
    web.pages["/hook"] = reply(status=204)
    await made.send(post())
    web.pages["/hook"] = reply(status=404)
    kinds = [type(await failure_of(made)) for _ in range(REFUSALS)]
    assert kinds == [NotAccepted] * (REFUSALS - 1) + [PostRefused]


async def test_refusals_of_a_webhook_that_was_dropped_do_not_count_for_the_next(web: WebServer) -> None:
    """An endpoint has one webhook at a time, so that nothing is kept of earlier ones."""
    made = endpoints(web.url("/hook"), private=True)
    web.pages["/hook"] = reply(status=404)
    for number in range(3 * REFUSALS):
        with pytest.raises(NotAccepted):
            await made.send(replace(post(), key=f"hook:erp:{number}:0"))
    kinds = [type(await failure_of(made)) for _ in range(REFUSALS)]
    assert kinds == [NotAccepted] * (REFUSALS - 1) + [PostRefused]


async def test_what_is_not_there_is_tried_again() -> None:
    """A name that is not found, a port that is closed, an endpoint that other gateways know."""
    for made, reason in (
        (endpoints("https://hooks.example.com/", Names([])), "the host was not found"),
        (endpoints("http://127.0.0.1:9/", private=True), "no connection"),
    ):
        failed = await failure_of(made)
        assert (type(failed), failed.reason) == (NotAccepted, reason)
    with pytest.raises(NotAccepted):
        await endpoints("https://hooks.example.com/").send(post("other"))
