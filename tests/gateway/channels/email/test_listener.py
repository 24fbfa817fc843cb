"""From the mailbox to the inlet: where it goes on, what stays unread, and what a mailbox can do to a listener."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from gateway.channels.email.body import read_content
from gateway.channels.email.channel import BEGINNING, MAX_TRIES, EmailChannel
from gateway.channels.email.mailbox import DedicatedThread
from gateway.channels.email.settings import read_email
from gateway.channels.email.wire import HEADER_BYTES
from gateway.platform.protocol import ChannelBroken, InletVerdict, NotAccepted, PlatformMessage, PostRefused
from shared.confinement.parser_process import ParserFailed, ParserProcess
from shared.errors import RedisAway
from shared.messages.inbound import InboundMessage
from shared.metrics import MESSAGES_REFUSED
from shared.tasks import cancel_all
from tests.fakes.email import BOT, PASSWORD, FakeMail
from tests.gateway.channels.email.mails import ANNA, SERVER, raw
from tests.helpers.wait import eventually

SOON_S = 30.0
BORDERS = "--b\n\nx\n" * 450_000
"""The body of 4 MB whose parts took a minute to make."""


class InProcess(ParserProcess):
    """Decodes mails in this process; those with the word `costly` take too long, and while `away` none is decoded."""

    def __init__(self) -> None:
        super().__init__("none:at_all", cpu_s=0, wall_s=0, memory_bytes=0, result_bytes=0)
        self.away = False
        self.parsed = 0
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    async def parse(self, data: bytes) -> bytes:
        self.parsed += 1
        if self.away:
            raise OSError("no process can be started")
        if b"costly" in data:
            raise ParserFailed("it takes too long to read, or cannot be read")
        return read_content(data)


class Listener:
    """One start of the channel: what it took, and what is kept of how far it is."""

    def __init__(self, fake: FakeMail) -> None:
        self.saved = b""
        self.saves = 0
        self.received: list[PlatformMessage] = []
        self.files: list[bytes] = []
        self.away = False
        self.answer: InletVerdict = "taken"
        self.go = asyncio.Event()
        self.go.set()
        self.parser = InProcess()
        self.channel = self._made(fake)
        self._fake = fake

    def _made(self, fake: FakeMail, **more: Any) -> EmailChannel:
        table = {
            "imap_host": "127.0.0.1", "imap_port": fake.imap_port, "imap_tls": "off", "smtp_host": "127.0.0.1",
            "user": BOT, "password": PASSWORD, "authserv_id": SERVER, "allow_from": [ANNA], "mail_mb": 1, "poll_s": 1,
            **more,
        }  # fmt: skip
        return EmailChannel("email", read_email("email", table), self, self.parser)

    def read(self) -> bytes:
        return self.saved

    async def save(self, value: bytes) -> None:
        self.saved = value
        self.saves += 1

    async def take(self, event: PlatformMessage) -> InletVerdict:
        if self.away:
            raise RedisAway("away")
        await self.go.wait()
        self.received.append(event)
        for file in event.files:
            with contextlib.suppress(PostRefused):
                self.files.append(b"".join([part async for part in self.channel.fetch(file)]))
        return self.answer if event.message.sender_id and not event.from_bot and not event.own else "ignored"

    async def on_delete(self, deleted: InboundMessage) -> None:
        raise AssertionError("nobody takes a mail back")

    @property
    def texts(self) -> list[str]:
        return [one.message.content.rpartition("\n")[2] for one in self.received]

    async def hears(self, *texts: str) -> None:
        await eventually(
            lambda: self.texts == list(texts), within_s=SOON_S, what=lambda: f"{texts}, heard: {self.texts}"
        )

    @contextlib.asynccontextmanager
    async def listening(self, **more: Any) -> AsyncIterator[asyncio.Task[None]]:
        """Listens inside, having begun."""
        self.channel = self._made(self._fake, **more)
        until = asyncio.Event()
        task = asyncio.create_task(self.channel.listen(self, until))
        try:
            await eventually(lambda: self._fake.imap.open or task.done(), within_s=SOON_S, what="the listener")
            yield task
            until.set()
            await asyncio.wait({task}, timeout=SOON_S)
        finally:
            await cancel_all([task])
            await self.channel.close()
        await eventually(lambda: not self._fake.imap.open, within_s=SOON_S, what="its end")


@pytest.fixture
async def fake() -> AsyncIterator[FakeMail]:
    async with FakeMail().serving() as server:
        server.imap.somebody_watches()
        yield server


@pytest.fixture
async def listener(fake: FakeMail) -> Listener:
    return Listener(fake)


def unread(fake: FakeMail) -> list[int]:
    return [number for number, letter in enumerate(fake.imap.letters, 1) if not letter.seen]


async def comes(fake: FakeMail, text: str, **changes: str | None) -> None:
    """A mail of Anna's."""
    await fake.imap.deliver(raw(text, **{"Message_ID": f"<{text.split()[0]}@x>", **changes}))


async def test_nothing_of_before_the_first_start_is_answered(fake: FakeMail, listener: Listener) -> None:
    """It was said to somebody else, perhaps years ago. Everything behind it is."""
    await comes(fake, "old")
    async with listener.listening():
        await eventually(lambda: listener.saves, within_s=SOON_S, what="the beginning")
        await comes(fake, "one")
        await comes(fake, "two")
        await listener.hears("one", "two")
    await comes(fake, "three")
    async with listener.listening():
        await listener.hears("one", "two", "three")
        await eventually(lambda: unread(fake) == [1], within_s=SOON_S, what="read mails")


async def test_a_mailbox_without_idle_is_asked_again_and_again(listener: Listener, fake: FakeMail) -> None:
    """Every `poll_s`."""
    fake.imap.mode = "polling"
    async with listener.listening():
        await eventually(lambda: listener.saves, within_s=SOON_S, what="the beginning")
        await comes(fake, "one")
        await listener.hears("one")
        await comes(fake, "two")
        await listener.hears("one", "two")


async def test_a_mail_that_arrives_with_the_answer_to_idle_is_accepted_at_once(
    fake: FakeMail, listener: Listener
) -> None:
    """Its notice lies in a buffer then, and no more bytes come until the next mail."""
    fake.imap.when_idle = [raw("one", Message_ID="<1@x>")]
    async with listener.listening(idle_s=1500):
        await listener.hears("one")


async def test_a_mail_is_marked_read_once_it_was_accepted(fake: FakeMail, listener: Listener) -> None:
    """Whoever dies in between hears it again."""
    listener.go.clear()
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        before = listener.saved
        await comes(fake, "one")
        await eventually(lambda: fake.imap.fetched, within_s=SOON_S, what="the mail")
        assert (unread(fake), listener.saved) == ([1], before)
        listener.go.set()
        await eventually(lambda: not unread(fake) and listener.saved != before, within_s=SOON_S, what="the mark")


async def test_a_mail_that_could_not_be_accepted_is_tried_again(fake: FakeMail, listener: Listener) -> None:
    """Redis is away: nothing is marked, nothing is saved."""
    async with listener.listening() as task:
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        before, listener.away = listener.saved, True
        await comes(fake, "one")
        await asyncio.wait({task}, timeout=SOON_S)
        assert isinstance(task.exception(), RedisAway)
    assert (unread(fake), listener.saved) == ([1], before)
    listener.away = False
    async with listener.listening():
        await listener.hears("one")


@pytest.mark.parametrize(
    ("changes", "asked", "reason"),
    [
        ({"Auto_Submitted": "auto-replied"}, True, None),
        ({"From": BOT}, True, None),
        ({"Authentication_Results": None}, True, None),
        ({"From": "Anna <eve@people.example>"}, False, "sender_not_allowed"),
        ({"X_Broken": "a\rb"}, False, "bad_mail"),
    ],
)
async def test_what_is_not_for_us_stays_unread(
    fake: FakeMail, listener: Listener, changes: dict[str, str | None], asked: bool, reason: str | None
) -> None:
    """Robots', our own, without a sender, strangers', broken ones: a person may look at them."""
    before = MESSAGES_REFUSED.labels("email", reason)._value.get() if reason else 0
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, "one", **changes)
        await comes(fake, "two")
        await listener.hears(*(["Subject: Ponds"] if asked else []), "two")  # of its text nothing was fetched
        await eventually(lambda: unread(fake) == [1], within_s=SOON_S, what="the mark")
    if reason:
        assert MESSAGES_REFUSED.labels("email", reason)._value.get() == before + 1


@pytest.mark.parametrize(
    "changes",
    [
        {"From": "Eve <eve@people.example>"},
        {"Authentication_Results": f"{SERVER}; spf=softfail; dkim=none; dmarc=none"},
        {"Auto_Submitted": "auto-replied"},
        {"X_Long": "x" * HEADER_BYTES},
    ],
)
async def test_of_a_mail_that_is_not_for_us_only_the_header_is_fetched(
    fake: FakeMail, listener: Listener, changes: dict[str, str | None]
) -> None:
    """A stranger's 4 MB of borders cost nothing, and the mailbox goes on; nor does a header without end."""
    async with listener.listening(mail_mb=25):
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(
            fake, "--b\n\nx\n" * 600_000, Message_ID="<1@x>", Content_Type="multipart/mixed; boundary=b", **changes
        )
        await comes(fake, "two")
        await eventually(lambda: "two" in listener.texts, within_s=SOON_S, what="the next one")
    assert (fake.imap.fetched, listener.parser.parsed) == ([2], 1)


async def test_a_mail_that_takes_too_long_to_decode_is_left_and_the_next_one_is_read(
    fake: FakeMail, listener: Listener
) -> None:
    """Also one of a person who may write; it stays unread and is counted."""
    before = MESSAGES_REFUSED.labels("email", "bad_mail")._value.get()
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, "costly")
        await comes(fake, "two")
        await listener.hears("two")
        await eventually(lambda: unread(fake) == [1], within_s=SOON_S, what="the mark")
    assert MESSAGES_REFUSED.labels("email", "bad_mail")._value.get() == before + 1


async def test_a_mail_waits_for_a_machine_that_starts_no_process(fake: FakeMail, listener: Listener) -> None:
    """It is not to blame: it is read by the next attempt."""
    async with listener.listening() as task:
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        listener.parser.away = True
        await comes(fake, "one")
        await asyncio.wait({task}, timeout=SOON_S)
        assert isinstance(task.exception(), OSError)
    listener.parser.away = False
    async with listener.listening():
        await listener.hears("one")


async def test_strangers_get_a_code_where_the_settings_want_it(fake: FakeMail, listener: Listener) -> None:
    """Then the inlet is asked; and whoever it does not let in stays unread."""
    listener.answer = "not allowed"
    async with listener.listening(pairing=True):
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, "one", From="eve@people.example")
        await listener.hears("one")
        await comes(fake, "two")
        await listener.hears("one", "two")
        assert unread(fake) == [1, 2]


async def test_a_mailbox_that_was_made_anew_is_read_by_what_is_unread(fake: FakeMail, listener: Listener) -> None:
    """Its numbers mean other mails. What was read is not taken again; what came meanwhile is, and what comes."""
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, "one")
        await listener.hears("one")
        await eventually(lambda: not unread(fake), within_s=SOON_S, what="the mark")
    await comes(fake, "two")
    fake.imap.make_anew()
    async with listener.listening():
        await listener.hears("one", "two")
        await comes(fake, "three")
        await listener.hears("one", "two", "three")
    async with listener.listening():
        await comes(fake, "four")
        await listener.hears("one", "two", "three", "four")


async def test_unread_mails_of_before_the_first_start_stay_so(fake: FakeMail, listener: Listener) -> None:
    """Also when the mailbox is made anew."""
    await comes(fake, "old")
    fake.imap.letters[0].at = time.gmtime(time.time() - 3 * 86_400)
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
    fake.imap.make_anew()
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, "new")
        await listener.hears("new")


async def test_another_mailbox_is_begun_anew(fake: FakeMail, listener: Listener) -> None:
    """Its numbers are its own."""
    await comes(fake, "old")
    listener.saved = b'{"of":"other@pond.example@127.0.0.1/INBOX","validity":1,"uid":0,"began_ms":0}'
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, "new")
        await listener.hears("new")


async def test_a_connection_that_is_cut_is_made_again(fake: FakeMail, listener: Listener) -> None:
    """By whoever calls `listen` again; what came meanwhile is there."""
    async with listener.listening() as task:
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        fake.imap.cut()
        await asyncio.wait({task}, timeout=SOON_S)
        assert isinstance(task.exception(), NotAccepted)
    await comes(fake, "one")
    async with listener.listening():
        await listener.hears("one")


async def test_a_mail_that_is_not_handed_out_is_passed_over_at_last(fake: FakeMail, listener: Listener) -> None:
    """It must not stand in the way of all others for ever."""
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
    fake.imap.keeps_back = {1}
    await comes(fake, "one")
    await comes(fake, "two")
    channel = listener._made(fake)
    for _ in range(MAX_TRIES - 1):
        with pytest.raises(NotAccepted, match="hand out"):
            await channel.listen(listener, asyncio.Event())
    assert listener.texts == []
    until = asyncio.Event()
    task = asyncio.create_task(channel.listen(listener, until))
    await listener.hears("two")
    until.set()
    await task
    assert unread(fake) == [1]


async def test_of_a_mail_that_is_too_large_the_beginning_is_read(fake: FakeMail, listener: Listener) -> None:
    """Its words come first; its file is refused, by its size."""
    body = (
        "--b\nContent-Type: text/plain\n\nhello\n"
        "--b\nContent-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\n" + "x" * 2_000_000
    )
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, body, Message_ID="<1@x>", Content_Type="multipart/mixed; boundary=b")
        await listener.hears("hello")
    [file] = listener.received[0].files
    assert file.size_bytes is not None
    assert file.size_bytes > 2_000_000
    assert len(listener.files[0]) < BEGINNING


async def test_files_are_available_while_their_mail_is_accepted(fake: FakeMail, listener: Listener) -> None:
    """And gone afterwards: nothing keeps them in memory."""
    body = (
        "--b\nContent-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\nThe pond is deep.\n--b--\n"
    )
    async with listener.listening():
        await eventually(lambda: fake.imap.idling, within_s=SOON_S, what="the listener")
        await comes(fake, body, Content_Type="multipart/mixed; boundary=b")
        await eventually(lambda: listener.files == [b"The pond is deep."], within_s=SOON_S, what="the file")
        with pytest.raises(PostRefused):
            _ = [part async for part in listener.channel.fetch(listener.received[0].files[0])]


@pytest.mark.parametrize("doing", ["idle", "polling", "taking", "connecting"])
async def test_a_listener_that_shall_end_ends_at_once(fake: FakeMail, listener: Listener, doing: str) -> None:
    """Whatever the mailbox is doing: another gateway waits for its turn."""
    fake.imap.mode = "polling" if doing == "polling" else "idle"
    fake.imap.silent = doing == "connecting"
    channel, until = listener._made(fake, poll_s=3600, idle_s=1500, timeout_s=120), asyncio.Event()
    task = asyncio.create_task(channel.listen(listener, until))
    if doing != "connecting":
        await eventually(lambda: listener.saves, within_s=SOON_S, what="the beginning")
    if doing == "taking":
        listener.go.clear()
        await comes(fake, "one")
        await eventually(lambda: fake.imap.fetched, within_s=SOON_S, what="the mail")
    until.set()
    listener.go.set()
    await asyncio.wait_for(task, SOON_S)  # the shortest of the times above is four times as long
    await eventually(lambda: doing == "connecting" or not fake.imap.open, within_s=SOON_S, what="its end")


@pytest.mark.parametrize(
    ("more", "refusal", "kind", "reason"),
    [
        ({"password": "wrong"}, "", ChannelBroken, "user and"),
        ({}, "NO [UNAVAILABLE] Later", NotAccepted, "at the moment"),
        ({}, "NO [ALERT] Too many simultaneous connections", NotAccepted, "at the moment"),
        ({"folder": "Elsewhere"}, "", ChannelBroken, "there is no folder 'Elsewhere'"),
        ({"imap_port": 1}, "", NotAccepted, "lost"),
        ({"imap_tls": "starttls"}, "", ChannelBroken, "STARTTLS"),
    ],
)
async def test_each_problem_has_its_error(
    fake: FakeMail, listener: Listener, more: dict[str, Any], refusal: str, kind: type[Exception], reason: str
) -> None:
    """What a person must mend apart from what passes; never with the password."""
    fake.imap.refuses_login = refusal
    with pytest.raises(kind, match=reason) as caught:
        await listener._made(fake, **more).listen(listener, asyncio.Event())
    assert "wrong" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


async def test_calls_of_a_thread_come_one_after_the_other_and_end_with_the_last() -> None:
    """What they raise comes back; whoever is cancelled leaves its call behind."""
    thread, order, stop = DedicatedThread("test"), list[str](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def last() -> None:
        loop.call_soon_threadsafe(stop.set)

    def fail() -> None:
        order.append("fail")
        raise ValueError("no")

    def slow() -> None:
        time.sleep(0.2)
        order.append("slow")

    first = asyncio.create_task(thread.run(slow))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(ValueError, match="no"):
        await thread.run(fail)
    assert await thread.run(lambda: 7) == 7
    thread.end(last)
    await asyncio.wait_for(stop.wait(), SOON_S)
    assert order == ["slow", "fail"]


async def test_a_listener_that_is_cancelled_while_it_ends_still_ends_its_parser(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whoever ends it does who waits no longer: else the process of the parser stays."""

    async def interrupted(tasks: Iterable[asyncio.Task[Any]]) -> None:
        await cancel_all(tasks)
        raise asyncio.CancelledError

    monkeypatch.setattr("gateway.channels.email.channel.cancel_all", interrupted)
    async with listener.listening() as task:
        task.cancel()
        await asyncio.wait({task})
    assert listener.parser.closed
