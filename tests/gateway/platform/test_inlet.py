"""The way in of a platform: every situation of the table, strangers, codes, forms, files, notes, refusals."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.platform.access import AccessSettings
from gateway.platform.inlet import PlatformInlet
from gateway.platform.protocol import NotAccepted, Platform, PlatformMessage, RemoteFile
from gateway.platform.received_files import ReceivedFiles
from shared.errors import RedisAway, Refused, SettingsError
from shared.media.disk import DISK_FULL, DiskFull
from shared.media.reference import read_reference
from shared.media.store import MediaStore, Upload
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.outbound import OutboundMessage
from shared.metrics import REGISTRY
from shared.settings import MediaSettings, Settings, load
from shared.store import keys
from shared.store.access import pairing
from shared.store.access.audit import Audit
from shared.store.access.pairing import Pairings, let_in_line
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from tests.helpers.access_table import ENTRIES, PLAIN, SITUATIONS, Entry, Person, Situation, platform_message, rules
from tests.helpers.clock import HandClock
from tests.helpers.media_files import PDF, png
from tests.helpers.wait import eventually

CHANNEL = PLAIN.channel
ADMIN, LISTED, STRANGER = (
    Situation(person="admin", expected="allowed"),
    Situation(person="listed", expected="allowed"),
    Situation(person="stranger", expected="unknown"),
)


class FileSource:
    """As much of a platform as is asked on the way in. A file's handle is the key of its parts."""

    name = CHANNEL

    def __init__(self) -> None:
        self.files: dict[str, list[bytes | Exception | asyncio.Event]] = {}
        self.fetched: list[str] = []
        self.closed = 0

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        self.fetched.append(file.handle)
        try:
            for part in self.files[file.handle]:
                match part:
                    case bytes():
                        yield part
                    case asyncio.Event():
                        await part.wait()
                    case _:
                        raise part
        finally:
            self.closed += 1


class Notebook:
    """Keeps notes, and how often it was asked to."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, Mapping[str, str]]] = []

    async def save_notes(self, session: str, notes: Mapping[str, str]) -> None:
        self.notes.append((session, notes))


class Replica:
    """One replica: a way in over a real store, and what came of it."""

    def __init__(
        self,
        client: RedisClient,
        folder: Path,
        access: AccessSettings | None = None,
        limits: InboxLimits | None = None,
        media: MediaSettings | None = None,
    ) -> None:
        self.client = client
        self.files, self.notebook, self.clock = FileSource(), Notebook(), HandClock(time.time())
        settings = Settings(
            media=media or MediaSettings(dir=folder / "media", file_mb=1), channels={CHANNEL: {"admins": ["2"]}}
        )
        self.media = MediaStore(settings.media)
        self.inlet = PlatformInlet(
            cast(Platform, self.files),
            access or rules(),
            Ingress(client, build_commands(settings, client), limits),
            self.notebook,
            client,
            settings,
            clock=self.clock,
        )

    async def say(self, situation: Situation = LISTED, text: str | None = None, id: str = "m1", **more: Any) -> str:
        event = platform_message(situation, id=id, **more)
        if text is not None:
            event = msgspec.structs.replace(event, message=msgspec.structs.replace(event.message, content=text))
        return await self.inlet.take(event)

    async def waiting(self, chat: str = "c1") -> list[InboundMessage]:
        entries = await self.client.command("XRANGE", keys.inbox(f"{CHANNEL}:{chat}"), "-", "+")
        return [decode_inbound(fields[3]) for _, fields in entries]

    async def notices(self, chat: str = "c1") -> list[str]:
        lines = [one.line for one in await Outbox(self.client).read_after(f"{CHANNEL}:{chat}", after=0)]
        return [line.content for line in lines if isinstance(line, OutboundMessage) and line.kind != "withdrawn"]

    async def noted(self) -> list[str]:
        return [line.outcome for line in reversed(await Audit(self.client).newest(100))]

    async def begin_turn(self) -> None:
        """A worker begins with what is due."""
        assert len(await LeaseQueue(self.client, "turns", owner="w", lease_s=60).acquire(1)) == 1

    def send(self, *files: RemoteFile) -> PlatformMessage:
        return platform_message(LISTED, files=files)


@pytest.fixture
def replica(client: RedisClient, tmp_path: Path) -> Replica:
    return Replica(client, tmp_path)


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"shoal_{name}_total", {"channel": CHANNEL, **labels}) or 0.0


def code_in(notices: list[str]) -> str:
    found = re.search(r"\*\*(\S{4}-\S{4})\*\*", notices[-1])
    assert found is not None
    return found[1]


# Who may speak


@pytest.mark.parametrize("entry", ENTRIES)
async def test_only_what_the_table_allows_is_read(client: RedisClient, tmp_path: Path, entry: Entry) -> None:
    """Whatever way it came: an edit of a message that is not there is no message; all else that is allowed comes into
    the inbox or is a command, and nothing of anybody else does."""
    usual = {"command": "command", "pressed": "command", "edited": "ignored"}
    for situation in (one for one in SITUATIONS if one.entry == entry):
        await client.command("FLUSHALL")
        replica = Replica(client, tmp_path)
        replica.files.files["f1"] = [b"text"]
        await client.command("HSET", keys.pair(CHANNEL), PLAIN.people["paired"], b"let in")
        verdict = await replica.say(situation)
        read = bool(await client.command("EXISTS", keys.inbox(platform_message(situation).message.session)))
        if situation.expected == "allowed":
            assert verdict == usual.get(entry, "taken"), situation.id
            assert read is (verdict == "taken"), situation.id
            continue
        assert verdict == ("ignored" if situation.expected == "ignored" else "not allowed"), situation.id
        assert (read, replica.files.fetched, replica.notebook.notes) == (False, [], []), situation.id
        if verdict == "ignored":
            assert await client.command("KEYS", "*") == [b"shoal:{0ax}:pair:pond"], situation.id


@pytest.mark.parametrize("person", ["listed", "admin", "member"])
@pytest.mark.parametrize("groups", [("*",), ("*", "g1")])
async def test_who_is_only_read_because_of_a_star_is_a_stranger(
    client: RedisClient, tmp_path: Path, person: Person, groups: tuple[str, ...]
) -> None:
    """Their text marks the turn, and they can allow nothing. A group that is listed by its id was chosen."""
    access = msgspec.structs.replace(rules(), allow_groups=groups)
    replica = Replica(client, tmp_path, access)
    event = platform_message(Situation(person=person, group="listed", expected="allowed"))
    event = msgspec.structs.replace(event, message=msgspec.structs.replace(event.message, chat_id="g1"), forwarded=True)
    assert await replica.inlet.take(event) == "taken"
    [sent] = await replica.waiting("g1")
    stranger = person == "member" and "g1" not in groups
    assert sent.sources == ("a forwarded message", *(["group member Mallory"] if stranger else []))
    assert (sent.metadata.get("stranger") == "1") is stranger


async def test_what_is_of_another_channel_is_a_fault(replica: Replica) -> None:
    """A platform's code cannot write into chats of the page."""
    forged = platform_message(LISTED, message=msgspec.structs.replace(platform_message(LISTED).message, channel="web"))
    with pytest.raises(ValueError, match="'pond' brought a message of 'web'"):
        await replica.inlet.take(forged)


async def test_a_platform_says_nothing_in_the_name_of_shoal(replica: Replica) -> None:
    """What metadata may say is the sender's name; whether it is a group is asked of the parser's own field."""
    forged = {"group": "1", "bot": "1", "outside": "1", "background": "1", "joins": "1", "preset": "x", "admin": "1"}
    message = msgspec.structs.replace(platform_message(LISTED).message, metadata=forged, media=("media:forged",))
    await replica.inlet.take(platform_message(LISTED, message=message, name=""))
    await replica.say(id="m2", name="x\n" * 500)
    alone, named = await replica.waiting()
    assert (alone.metadata, alone.media) == ({}, ())
    assert named.metadata == {"sender_name": "x" * 80}
    in_group = Situation(person="stranger", group="listed", expected="allowed")
    await replica.say(in_group)
    [group] = await replica.waiting("-1")
    assert group.metadata == {"sender_name": "Mallory", "group": "1"}
    await replica.say(ADMIN)
    [admin] = await replica.waiting("c2")
    assert admin.metadata == {"sender_name": "Mallory", "admin": "1"}


# Strangers


async def test_a_stranger_is_sent_a_code_once_and_read_when_let_in(replica: Replica, tmp_path: Path) -> None:
    """By any replica; the first message was not read. Taken out again, they are strangers within a second."""
    other = Replica(replica.client, tmp_path)
    assert await replica.say(STRANGER, "let me in") == "not allowed"
    assert await other.say(STRANGER, "hello?", id="m2") == "not allowed"
    assert await replica.say(STRANGER, "hello!", id="m3") == "not allowed"
    [notice] = await replica.notices("c4")
    assert "good for 10 minutes, and once. Your id here is `4`" in notice
    pairings = Pairings(replica.client)
    await pairings.approve(code_in([notice]), let_in_line(0), by="console", request="r")
    replica.clock.at += 1
    assert await replica.say(STRANGER, "now?", id="m4") == "taken"
    assert [message.content for message in await replica.waiting("c4")] == ["now?"]
    await pairings.revoke(CHANNEL, "4", by="console")
    replica.clock.at += 0.9
    assert await replica.say(STRANGER, "still?", id="m5") == "taken", "what was known less than a second ago"
    replica.clock.at += 0.1
    assert await replica.say(STRANGER, "and now?", id="m6") == "not allowed"
    other.clock.at += 1
    assert await other.say(STRANGER, "there?", id="m7") == "not allowed"
    assert len(await replica.notices("c4")) == 2, "silence for as long as the first code is good"
    replica.clock.at += 600
    assert await replica.say(STRANGER, "please?", id="m8") == "not allowed"
    assert code_in(await replica.notices("c4")) != code_in([notice])
    assert await replica.noted() == ["unknown_sender", "let_in", "revoked", "unknown_sender"]


async def test_a_stranger_who_was_just_let_in_is_read(replica: Replica) -> None:
    """Between two looks of one replica."""
    assert not await replica.inlet._strangers.is_let_in("4")
    await replica.client.command("HSET", keys.pair(CHANNEL), "4", b"let in")
    assert await replica.say(STRANGER) == "taken"
    assert await replica.notices("c4") == []


async def test_what_strangers_write_costs_little(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand messages: one notice, one line of the record, one look a second, every message counted."""
    asked: list[str] = []
    ask, look = Pairings.offer_code, Pairings.is_let_in

    async def counting_ask(self: Pairings, *args: object, **more: object) -> object:
        asked.append("ask")
        return await ask(self, *args, **more)  # type: ignore[arg-type]

    async def counting_look(self: Pairings, channel: str, sender: str) -> bool:
        asked.append("look")
        return await look(self, channel, sender)

    monkeypatch.setattr(Pairings, "offer_code", counting_ask)
    monkeypatch.setattr(Pairings, "is_let_in", counting_look)
    before = counted("messages_refused", reason="unknown_sender")
    for n in range(1000):
        await replica.say(STRANGER, id=f"m{n}")
    assert asked == ["look", "ask"]
    assert counted("messages_refused", reason="unknown_sender") == before + 1000
    assert len(await replica.notices("c4")) == 1
    assert await replica.noted() == ["unknown_sender"]


async def test_without_pairing_a_stranger_is_answered_once_without_a_code(client: RedisClient, tmp_path: Path) -> None:
    """But the id that an operator would need."""
    replica = Replica(client, tmp_path, AccessSettings(pairing=False))
    for n in range(3):
        assert await replica.say(STRANGER, id=f"m{n}") == "not allowed"
    [notices] = await replica.notices("c4")
    assert "your id, `4`" in notices
    assert "code" not in notices
    assert await client.command("EXISTS", keys.PAIRING) == 0


async def test_a_group_that_is_not_allowed_is_answered_once(replica: Replica, tmp_path: Path) -> None:
    """Whoever speaks there, on whichever replica; the notice names the id for the settings."""
    other = Replica(replica.client, tmp_path)
    for n, person in enumerate(("listed", "stranger", "admin")):
        there = Situation(person=person, group="other", expected="not allowed")  # type: ignore[arg-type]
        assert await (replica if n % 2 else other).say(there, id=f"m{n}") == "not allowed"
    [notices] = await replica.notices("-5")
    assert "`-5`" in notices
    narrow = Situation(person="stranger", group="narrow", expected="not allowed")
    for n in range(2):
        assert await replica.say(narrow, id=f"n{n}") == "not allowed"
    [notices] = await replica.notices("-2")
    assert "your id here is `4`" in notices
    assert await replica.noted() == ["group_not_allowed", "group_sender_not_allowed"]


async def test_a_name_or_an_id_cannot_write_markup_of_its_own(client: RedisClient, tmp_path: Path) -> None:
    """They are a stranger's words in our notice."""
    replica = Replica(client, tmp_path, AccessSettings(pairing=False))
    bad = msgspec.structs.replace(platform_message(STRANGER).message, sender_id="4`\n# [x](http://evil)\x1b[2J`")
    await replica.inlet.take(platform_message(STRANGER, message=bad))
    [notices] = await replica.notices("c4")
    assert "`4# [x](http://evil)[2J`" in notices
    assert notices.count("`") == 2


async def test_a_full_store_silences_strangers_and_nobody_else_hears_of_it(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again after a while."""

    async def full(*_: object, **__: object) -> object:
        raise Refused("overloaded", "the store is full", 60)

    with monkeypatch.context() as patched:
        patched.setattr(Pairings, "offer_code", full)
        assert await replica.say(STRANGER) == "not allowed"
    assert await replica.say(STRANGER) == "not allowed"
    assert await replica.notices("c4") == []
    replica.clock.at += 60
    assert await replica.say(STRANGER) == "not allowed"
    assert len(await replica.notices("c4")) == 1


# /pair


async def asked_for_code(replica: Replica) -> str:
    await replica.say(STRANGER, id=f"ask-{len(await replica.notices('c4'))}")
    return code_in(await replica.notices("c4"))


async def pair(replica: Replica, text: str, situation: Situation = ADMIN, id: str = "p1") -> str:
    """What a command is answered."""
    chat = platform_message(situation).message.chat_id
    assert await replica.say(situation, text, id=id) == "command"
    return (await replica.notices(chat))[-1]


async def test_an_admin_lets_somebody_in_from_the_chat(replica: Replica) -> None:
    """Told again, it is the same answer and one approval."""
    code = await asked_for_code(replica)
    assert await pair(replica, f"/pair {code.lower()}") == "Let in: Mallory (`4`)."
    assert await replica.say(ADMIN, f"/pair {code.lower()}", id="p1") == "duplicate"
    assert "used already" in await pair(replica, f"/pair {code}", id="p2")
    replica.clock.at += 1
    assert await replica.say(STRANGER, id="m2") == "taken"
    [line] = [line for line in await Audit(replica.client).newest(9) if line.outcome == "let_in"]
    assert (line.actor, line.about) == ("pond:2", "pond:4")


async def test_nobody_else_lets_anybody_in(replica: Replica) -> None:
    """Not who is merely allowed, not an admin in a group, not a stranger; and it is no guess."""
    code = await asked_for_code(replica)
    assert "Only who is named" in await pair(replica, f"/pair {code}", LISTED)
    in_group = Situation(person="admin", group="listed", expected="allowed")
    assert "to me alone" in await pair(replica, f"/pair {code}", in_group)
    assert "Which code?" in await pair(replica, "/pair", id="p2")
    assert await replica.say(STRANGER, f"/pair {code}", id="m2") == "not allowed"
    assert not await Pairings(replica.client).is_let_in(CHANNEL, "4")
    assert await replica.noted() == ["unknown_sender", "no_admin"]


async def test_the_sixth_guess_in_a_chat_is_refused(replica: Replica) -> None:
    """Counted for the admin, whichever replica hears them; the console has guesses of its own."""
    code = await asked_for_code(replica)
    for n in range(5):
        assert "there is no such code" in await pair(replica, f"/pair WRONG-{n}", id=f"g{n}")
    assert "too many wrong codes" in await pair(replica, f"/pair {code}", id="g5")
    await Pairings(replica.client).approve(code, let_in_line(0), by="console", request="r")


def test_the_command_is_there_where_there_are_admins(client: RedisClient) -> None:
    """A word that nobody can use is not offered."""
    assert "pair" not in build_commands(Settings(channels={CHANNEL: {"admins": []}}), client)
    assert "pair" in build_commands(Settings(channels={"web": {}, CHANNEL: {"admins": ["1"]}}), client)


# Forms of a message


EDIT = Situation(person="listed", entry="edited", expected="allowed")


async def test_an_edit_takes_the_place_of_what_waits(replica: Replica) -> None:
    """Also the second edit, and one that is told again; a delete takes back the newest form."""
    assert await replica.say(text="frist", id="m0") == "taken"
    assert await replica.say(EDIT, "first", id="e1") == "taken"
    assert await replica.say(EDIT, "first", id="e1") == "duplicate"
    assert await replica.say(EDIT, "first!", id="e2") == "taken"
    assert [message.content for message in await replica.waiting()] == ["first!"]
    await replica.inlet.on_delete(platform_message(LISTED, id="m0").message)
    assert await replica.waiting() == []


async def test_an_edit_that_was_cut_off_in_the_middle_is_made_whole(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway died when the old form was withdrawn, and the platform tells it again."""
    await replica.say(text="frist", id="m0")

    async def away(*_: object, **__: object) -> object:
        raise RedisAway("away")

    with monkeypatch.context() as patched:
        patched.setattr(Inbox, "ingest", away)
        with pytest.raises(RedisAway):
            await replica.say(EDIT, "first", id="e1")
    assert await replica.waiting() == []
    assert await replica.say(EDIT, "first", id="e1") == "taken"
    assert [message.content for message in await replica.waiting()] == ["first"]


@pytest.mark.parametrize(("begun", "reason"), [(True, "edited_late"), (False, "edited_unknown")])
async def test_an_edit_that_comes_too_late_is_passed_over(replica: Replica, begun: bool, reason: str) -> None:
    """Its turn has begun, or nobody ever read it: no second answer."""
    before = counted("messages_ignored", reason=reason)
    if begun:
        await replica.say(text="first", id="m0")
        await replica.begin_turn()
    assert await replica.say(EDIT, "second", id="e1") == "ignored"
    assert [message.content for message in await replica.waiting()] == (["first"] if begun else [])
    assert counted("messages_ignored", reason=reason) == before + 1


async def test_a_deleted_message_that_is_being_answered_stays(replica: Replica) -> None:
    """Only what waits can be taken back."""
    await replica.say(id="m0")
    await replica.begin_turn()
    await replica.inlet.on_delete(platform_message(LISTED, id="m0").message)
    assert len(await replica.waiting()) == 1


async def test_the_same_message_twice_is_one(replica: Replica) -> None:
    """A hundred times at once, on two replicas."""
    before = counted("messages_accepted"), counted("messages_duplicate")
    verdict = await asyncio.gather(*(replica.say() for _ in range(100)))
    assert sorted(verdict) == ["duplicate"] * 99 + ["taken"]
    assert (counted("messages_accepted"), counted("messages_duplicate")) == (before[0] + 1, before[1] + 99)
    assert len(await replica.waiting()) == 1


async def test_what_says_nothing_is_no_message(replica: Replica) -> None:
    """A sticker, or "somebody has joined"."""
    assert await replica.say(text=" \n") == "ignored"
    assert await replica.waiting() == []


# Files


async def test_files_are_kept_and_named_in_the_message(replica: Replica) -> None:
    """In parts, by content; a message of files alone is one."""
    replica.files.files = {"a": [PDF[:5], PDF[5:]], "b": [png()]}
    files = (RemoteFile(handle="a", name="../../x/plan.pdf", size_bytes=len(PDF)), RemoteFile(handle="b"))
    assert await replica.say(text="", files=files) == "taken"
    [message] = await replica.waiting()
    plan, picture = map(read_reference, message.media)
    assert (plan.name, plan.suffix, picture.suffix) == ("plan.pdf", "pdf", "png")
    assert replica.media.read(message.session, plan) == PDF
    assert message.content == ""
    assert await replica.notices() == []
    assert replica.files.closed == 2


class Strange(Exception):
    """What some library raises."""


@pytest.mark.parametrize(
    ("file", "parts", "why"),
    [
        (RemoteFile(handle="a", name="big.pdf", size_bytes=2**21), [], "it is larger than 1 MB"),
        (RemoteFile(handle="a", name="big.pdf"), [b"x" * 2**19] * 3, "it is larger than 1 MB"),
        (RemoteFile(handle="a", name="x.exe"), [b"MZ\0"], "it is a program"),
        (RemoteFile(handle="a", name="x"), [], "it is empty"),
        (RemoteFile(handle="a", name="x"), [b"ab", NotAccepted("503")], "it could not be fetched; send it again"),
        (RemoteFile(handle="a", name="x"), [Strange("secret")], "it could not be fetched"),
        (RemoteFile(handle="a", name="x"), [OSError("disk")], "files cannot be kept just now; send it again later"),
        (RemoteFile(handle="a", name="x"), [DiskFull(28, "full")], DISK_FULL),
    ],
)
async def test_a_file_that_is_refused_is_a_line_for_the_person_and_the_model(
    replica: Replica, file: RemoteFile, parts: list[bytes | Exception | asyncio.Event], why: str
) -> None:
    """With the reason; the rest of the message is read. Its name, which others may have chosen, marks the chat."""
    replica.files.files = {"a": parts, "ok": [b"text"]}
    assert await replica.say(text="look", files=(file, RemoteFile(handle="ok", name="note.txt"))) == "taken"
    [message] = await replica.waiting()
    line = f"{file.name}: {why}"
    assert message.content == f"look\n\n[A file was not taken, and the person was told so: {line}]"
    assert message.sources == (f"file {file.name}",)
    assert [read_reference(one).name for one in message.media] == ["note.txt"]
    assert await replica.notices() == [f"I could not take:\n- {line}"]
    assert await replica.say(text="look", files=(file,)) == "duplicate"
    assert len(await replica.notices()) == 1
    assert replica.files.closed == len(replica.files.fetched)
    assert list((replica.media._settings.dir).rglob(".part-*")) == []


async def test_a_message_has_so_many_files(replica: Replica) -> None:
    """The first of them are taken."""
    replica.files.files = {f"f{n}": [b"text"] for n in range(6)}
    files = tuple(RemoteFile(handle=f"f{n}", name=f"{n}.txt") for n in range(6))
    await replica.say(text="look", files=files)
    [message] = await replica.waiting()
    assert len(message.media) == 4
    assert "4.txt: a message may have 4 files" in message.content
    assert replica.files.fetched == ["f0", "f1", "f2", "f3"]


async def test_files_have_a_time(replica: Replica) -> None:
    """All of a message together; a platform that never ends one holds nobody up for long."""
    replica.files.files = {"a": [b"text", asyncio.Event()], "b": [b"text"]}
    received = ReceivedFiles(cast(Platform, replica.files), replica.media, per_message=4, within_s=0.2)
    both = await received.fetch_all("pond:c1", [RemoteFile(handle="a", name="a"), RemoteFile(handle="b", name="b")])
    assert both[1][0] == "a: it did not come in time; send it again"
    assert replica.files.closed == len(replica.files.fetched)
    await eventually(lambda: len(asyncio.all_tasks()) == 1, what="the end of what was being opened")


async def test_a_file_that_is_given_up_while_it_is_opened_leaves_nothing(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume is slow, and the time of the message is over before there is anything to write into."""
    slow, opened = threading.Event(), list[Upload]()
    upload = MediaStore.upload

    def slowly(self: MediaStore, session: str) -> Upload:
        slow.wait(30)
        opened.append(upload(self, session))
        return opened[-1]

    monkeypatch.setattr(MediaStore, "upload", slowly)
    replica.files.files = {"a": [b"text"]}
    received = ReceivedFiles(cast(Platform, replica.files), replica.media, per_message=4, within_s=0.05)
    given_up = await received.fetch_all("pond:c1", [RemoteFile(handle="a", name="a")])
    assert given_up[1] == ["a: it did not come in time; send it again"]
    slow.set()
    await eventually(lambda: opened and opened[0]._part.file.closed, within_s=30)
    assert list(replica.media._settings.dir.rglob(".part-*")) == []


async def test_a_second_delivery_fetches_no_file_again(replica: Replica) -> None:
    """The platform told it again because we were slow."""
    replica.files.files = {"a": [b"text"]}
    files = (RemoteFile(handle="a"),)
    assert [await replica.say(text="", files=files) for _ in range(3)] == ["taken", "duplicate", "duplicate"]
    assert replica.files.fetched == ["a"]


async def test_messages_of_a_chat_keep_their_order_and_other_chats_do_not_wait(replica: Replica) -> None:
    """A file that takes its time, and the question about it right behind."""
    arrived = asyncio.Event()
    replica.files.files = {"a": [b"te", arrived, b"xt"]}
    slow = asyncio.create_task(replica.say(text="", files=(RemoteFile(handle="a"),)))
    await eventually(lambda: replica.files.fetched)
    quick = asyncio.create_task(replica.say(text="what is in it?", id="m2"))
    assert await replica.say(ADMIN, "meanwhile", id="m3") == "taken"
    assert not quick.done()
    arrived.set()
    assert [await slow, await quick] == ["taken", "taken"]
    assert [bool(message.media) for message in await replica.waiting()] == [True, False]


# Notes


async def test_notes_are_written_when_they_change(replica: Replica) -> None:
    """Before the message, so that its answer finds them; by chat."""
    for n, notes in enumerate(({"subject": "a"}, {"subject": "a"}, {}, {"subject": "b"})):
        await replica.say(id=f"m{n}", notes=notes)
    await replica.say(ADMIN, id="m9", notes={"subject": "b"})
    assert replica.notebook.notes == [
        ("pond:c1", {"subject": "a"}),
        ("pond:c1", {"subject": "b"}),
        ("pond:c2", {"subject": "b"}),
    ]


async def test_notes_that_could_not_be_written_are_written_the_next_time(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform tells the message again."""
    with monkeypatch.context() as patched:

        async def away(*_: object) -> None:
            raise RedisAway("away")

        patched.setattr(replica.notebook, "save_notes", away)
        with pytest.raises(RedisAway):
            await replica.say(notes={"subject": "a"})
    assert await replica.waiting() == []
    assert await replica.say(notes={"subject": "a"}) == "taken"
    assert len(replica.notebook.notes) == 1


# Refusals


async def test_what_is_too_long_is_answered_in_the_chat(replica: Replica) -> None:
    """With both numbers; once a minute."""
    before = counted("messages_refused", reason="too_big")
    for n in range(3):
        assert await replica.say(text="x" * 70_000, id=f"m{n}") == "refused"
    [notices] = await replica.notices()
    assert "70,000 bytes; at most 65,536 are allowed" in notices
    assert "was not read" in notices
    assert counted("messages_refused", reason="too_big") == before + 3
    assert await replica.noted() == ["too_big"]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (InboxLimits(cap=2), "inbox_full"),
        (InboxLimits(sender_per_minute=2), "sender_limit"),
        (InboxLimits(sender_per_minute=9, sender_by_channel={CHANNEL: 2}), "sender_limit"),
    ],
)
async def test_hundreds_of_messages_are_one_notice(
    client: RedisClient, tmp_path: Path, limits: InboxLimits, code: str
) -> None:
    """The platform need not tell them again."""
    replica = Replica(client, tmp_path, limits=limits)
    verdict = [await replica.say(id=f"m{n}") for n in range(300)]
    assert set(verdict[10:]) == {"refused"}
    [notices] = await replica.notices()
    assert "2 messages" in notices
    assert await replica.noted() == [code]


async def test_what_an_overloaded_fleet_refuses_is_sent_again_by_the_platform(
    client: RedisClient, tmp_path: Path
) -> None:
    """Not by the person: nothing is said in the chat."""
    replica = Replica(client, tmp_path, limits=InboxLimits(sessions_cap=1))
    assert await replica.say(ADMIN) == "taken"
    with pytest.raises(Refused) as refused:
        await replica.say()
    assert (refused.value.code, refused.value.retry_after_s) == ("overloaded", 60)
    assert await replica.notices() == []


async def test_a_store_that_is_unavailable_is_raised_to_the_platform(replica: Replica, tmp_path: Path) -> None:
    """For strangers, too: nobody is let in because nobody could look."""
    nowhere = RedisClient("redis://127.0.0.1:1/0", timeout_s=0.2)
    away = Replica(nowhere, tmp_path)
    for situation in (LISTED, STRANGER):
        with pytest.raises(RedisAway):
            await away.say(situation)
    with pytest.raises(RedisAway):
        await away.inlet.on_delete(platform_message(LISTED).message)
    await nowhere.close()


async def test_a_chat_without_a_name_that_can_be_kept_is_refused(replica: Replica) -> None:
    """Nothing to tell it in."""
    long = msgspec.structs.replace(platform_message(LISTED).message, chat_id="c" * 300)
    before = counted("messages_refused", reason="bad_chat")
    assert await replica.inlet.take(platform_message(LISTED, message=long)) == "refused"
    assert counted("messages_refused", reason="bad_chat") == before + 1


@pytest.mark.parametrize("limits", [InboxLimits(), InboxLimits(sender_per_minute=9), InboxLimits(bot_turns=9)])
async def test_a_command_opens_a_closed_chat_as_a_message_does(
    client: RedisClient, tmp_path: Path, limits: InboxLimits
) -> None:
    """Whatever is limited, or nothing: a person is there again, and their schedules go on."""
    replica, session = Replica(client, tmp_path, limits=limits), f"{CHANNEL}:c1"
    for text, verdict in (("/help", "command"), ("hello", "taken")):
        await client.command("HSET", keys.out(session), "closed", 1)
        await client.command("HSET", keys.schedules(session), ":paused", 1)
        assert await replica.say(text=text, id=text) == verdict
        assert await client.command("HEXISTS", keys.out(session), "closed") == 0
        assert await client.command("HEXISTS", keys.schedules(session), ":paused") == 0


async def test_a_message_that_is_not_read_while_busy_is_refused(client: RedisClient, tmp_path: Path) -> None:
    """The chat was told so by the store."""
    replica = Replica(client, tmp_path, limits=InboxLimits(busy="reject"))
    assert [await replica.say(id=f"m{n}") for n in range(2)] == ["taken", "refused"]
    assert "I am still busy" in (await replica.notices())[-1]


def test_a_channel_may_have_a_limit_of_its_own() -> None:
    """From the file or the environment; a wrong number stops every process."""
    limits = InboxLimits.of(load({"SHOAL_CHANNELS__POND__SENDER_PER_MINUTE": "7"}))
    assert (limits.of_sender("pond"), limits.of_sender("web")) == (7, 60)
    for wrong in ("-1", "many", "60001"):
        with pytest.raises(SettingsError, match=r"channels\.pond\.sender_per_minute must be a whole number from 0"):
            load({"SHOAL_CHANNELS__POND__SENDER_PER_MINUTE": wrong})


def test_what_is_open_is_a_warning_in_the_log(
    client: RedisClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loudly, at each start."""
    Replica(client, tmp_path, AccessSettings(allow_from=("*",)))
    assert "everybody may talk to this bot: channels.pond.allow_from" in capsys.readouterr().out
    Replica(client, tmp_path, AccessSettings(pairing=False))
    assert "nobody may talk to this bot alone" in capsys.readouterr().out


async def test_processes_remember_only_so_many_people(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd of strangers does not fill a gateway."""
    monkeypatch.setattr("gateway.platform.strangers.PEOPLE", 3)
    monkeypatch.setattr("gateway.platform.inlet.NOTED", 3)
    monkeypatch.setattr(pairing, "NOTICES_A_MINUTE", 100)
    for n in range(10):
        message = msgspec.structs.replace(platform_message(STRANGER).message, sender_id=f"s{n}", chat_id=f"c{n}")
        await replica.inlet.take(platform_message(STRANGER, message=message))
        known = msgspec.structs.replace(message, sender_id="1")
        await replica.inlet.take(platform_message(LISTED, message=known, notes={"n": "1"}))
    assert len(replica.inlet._strangers._known) <= 3
    assert len(replica.inlet._strangers._quiet) <= 3
    assert len(replica.inlet._noted) <= 3
    assert len(replica.inlet._chats) == 0
