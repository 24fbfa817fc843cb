"""Files in and out of the web gateway: over real HTTP, for the right person alone, and never as a page."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from structlog.testing import capture_logs

from gateway.channels.web.http.auth import Principals
from gateway.channels.web.http.media import AT_ONCE_EACH, LINGER_BYTES, PIECE_BYTES, MediaRouter
from shared.ids import folder_name
from shared.media.disk import PEOPLE, DiskFloor
from shared.media.files import UNNAMED_S
from shared.media.store import MediaStore
from shared.messages.codec import encode
from shared.messages.inbound import decode_inbound
from shared.messages.outbound import OutboundMessage
from shared.settings import MediaSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import erase
from tests.gateway.harness import TOKENS, Gateway, client, gateway, session_of
from tests.helpers.media_files import PDF, archive, png
from tests.helpers.wait import eventually

DAY_S = 86_400


class Answered:
    """An answer over HTTP."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


async def http(
    address: str, path: str, data: bytes | None = None, *, token: str | None = "owner", **headers: str
) -> Answered:
    """One request; the name of a principal stands for its token, an underscore in a header's name for a dash."""

    def ask() -> Answered:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {TOKENS.get(token, token)}"
        request = urllib.request.Request(f"http://{address}{path}", data, sent)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Answered(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as exc:
            with exc:
                return Answered(exc.code, exc.headers, exc.read())

    return await asyncio.to_thread(ask)


def files_in(media: MediaSettings) -> list[Path]:
    return [path for path in media.dir.rglob("*") if path.is_file() and PEOPLE not in path.parts]


@pytest.fixture
def media(tmp_path: Path) -> MediaSettings:
    return MediaSettings(dir=tmp_path / "media", file_mb=1, per_message=2)


@pytest.fixture
async def gw(redis_url: str, media: MediaSettings) -> AsyncIterator[Gateway]:
    async with gateway(redis_url, media=media) as running:
        yield running


async def put(
    gw: Gateway, data: bytes, name: str = "a.png", *, chat: str = "a", token: str = "owner"
) -> dict[str, Any]:
    answer = await http(gw.address, f"/media/{chat}", data, token=token, Shoal_File_Name=name)
    assert answer.status == 201, answer.body
    return answer.json


async def test_a_picture_goes_in_and_comes_out_as_a_file(gw: Gateway) -> None:
    """With headers that keep a browser from ever running it (security rows 12 and 27)."""
    file = await put(gw, png(), "h%C3%B6liday.png")
    assert (file["name"], file["type"], file["size"], file["image"]) == ("höliday.png", "image/png", len(png()), True)
    answer = await http(gw.address, file["path"])
    assert (answer.status, answer.body) == (200, png())
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''h%C3%B6liday.png"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers.get_all("Content-Security-Policy") == ["default-src 'none'; sandbox"]
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize("data", [b"<html><script>alert(1)</script>", b"<svg onload=alert(1)>", PDF])
async def test_what_a_browser_could_run_has_no_type_that_it_would(gw: Gateway, data: bytes) -> None:
    """Pages, drawings and documents are bytes to be kept, whatever they are called."""
    file = await put(gw, data, "a.html")
    answer = await http(gw.address, file["path"])
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")


async def test_nobody_else_finds_it(gw: Gateway) -> None:
    """Another principal, another chat, no token, a wrong one, another origin."""
    file = await put(gw, png())
    assert (await http(gw.address, file["path"], token="ann")).status == 404
    assert (await http(gw.address, file["path"].replace("/media/a/", "/media/b/"))).status == 404
    assert (await http(gw.address, file["path"], token=None)).status == 401
    assert (await http(gw.address, file["path"], token="wrong")).status == 401
    assert (await http(gw.address, file["path"], Origin="https://evil.example")).status == 403
    assert (await http(gw.address, f"{file['path']}&token={TOKENS['owner']}", token=None)).status == 401


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"token": None}, 401),
        ({"token": "wrong"}, 401),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
async def test_a_stranger_stores_nothing(
    gw: Gateway, media: MediaSettings, options: dict[str, str], status: int
) -> None:
    """Problem JSON, and no folder is made."""
    answer = await http(gw.address, "/media/a", png(), **options)
    assert (answer.status, answer.json["status"]) == (status, status)
    assert not media.dir.exists()


@pytest.mark.parametrize(
    ("data", "status", "detail"),
    [
        (png(40_000, 40_000), 415, "file refused: it is a picture of 40,000 x 40,000 pixels"),
        (archive("word/document.xml", body=b"0" * 3_000_000), 415, "file refused: a part of it grows"),
        (archive("a.txt"), 415, "file refused: it is a zip archive; send the files themselves"),
        (b"", 415, "file refused: it is empty"),
        (b"x" * (1024 * 1024 + 1), 413, "file refused: it is larger than 1 MB"),
    ],
)  # fmt: skip
async def test_a_file_is_refused_with_its_reason(
    gw: Gateway, media: MediaSettings, data: bytes, status: int, detail: str
) -> None:
    """Bombs, strange kinds, and too much of it: nothing is left behind."""
    answer = await http(gw.address, "/media/a", data)
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["detail"].startswith(detail)
    assert files_in(media) == []


async def test_a_body_that_does_not_say_its_size_is_cut_at_the_limit(gw: Gateway, media: MediaSettings) -> None:
    """Chunk by chunk, 10 MB against a limit of 1: refused, and nothing is kept."""
    host, _, port = gw.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /media/a HTTP/1.1\r\nHost: {gw.address}\r\nAuthorization: Bearer {TOKENS['owner']}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n".encode()
    )
    answered = asyncio.create_task(reader.readline())
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    try:
        for _ in range(160):
            if answered.done():
                break
            writer.write(chunk)
            await writer.drain()
        writer.write(b"0\r\n\r\n")  # else the server waits for more, lest the client miss its answer
    except ConnectionError:
        pass
    async with asyncio.timeout(20):
        assert b"413" in await answered
    writer.close()
    assert files_in(media) == []


async def test_a_body_that_does_not_end_is_refused_before_its_end(media: MediaSettings) -> None:
    """After the limit it is read on for a while and thrown away; then comes the answer."""
    pieces = 0

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        return {"type": "http.request", "body": b"x" * 0x10000, "more_body": True}

    headers = [(b"authorization", f"Bearer {TOKENS['owner']}".encode())]
    scope = {"type": "http", "method": "POST", "headers": headers, "path_params": {"chat": "a"}}
    answer = await MediaRouter(MediaStore(media), Principals(TOKENS)).upload(Request(scope, receive))
    assert answer.status_code == 413
    assert pieces * 0x10000 < media.file_mb * 2**20 + LINGER_BYTES + PIECE_BYTES + 0x20000
    assert files_in(media) == []


async def test_one_token_does_not_fill_the_disk(redis_url: str, tmp_path: Path) -> None:
    """Forty files into forty chats, with no message that names them: chats are free, and nothing else bounds them."""
    media = MediaSettings(dir=tmp_path / "media", file_mb=1, person_mb=1)
    async with gateway(redis_url, media=media) as gw:
        data = b"x" * 100_000
        answers = [await http(gw.address, f"/media/c{n}", data) for n in range(40)]
        status = [answer.status for answer in answers]
        assert (status.count(201), status.count(413)) == (10, 30)
        why = "file refused: all chats of this person would have more than 1 MB"
        assert answers[-1].json["detail"].startswith(why)
        assert (await http(gw.address, "/media/a", data, token="ann")).status == 201
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.txt")) == 11 * len(data)


async def test_a_file_stays_once_a_message_has_named_it(gw: Gateway, media: MediaSettings) -> None:
    """Another one that was uploaded with it is gone after an hour, before any sweep."""
    named, orphan = await put(gw, png()), await put(gw, b"forgotten in a draft")
    async with client(gw.address) as phone:
        await phone.send("message", id="m1", chat="a", text="look", media=[named["ref"]])
        await phone.next("accepted", id="m1")
        for path in files_in(media):
            os.utime(path, (path.stat().st_mtime - UNNAMED_S - 60,) * 2)
        assert (await http(gw.address, named["path"])).status == 200
        assert (await http(gw.address, orphan["path"])).status == 404
        await phone.send("message", id="m2", chat="a", text="look", media=[orphan["ref"]])
        assert (await phone.next("error", id="m2"))["code"] == "bad_media"


async def test_a_file_beyond_the_limit_of_its_chat_is_answered(redis_url: str, tmp_path: Path) -> None:
    """Its body was read to the end before that was known."""
    async with gateway(redis_url, media=MediaSettings(dir=tmp_path / "media", file_mb=1, session_mb=1)) as gw:
        answers = [await http(gw.address, "/media/a", data * 600_000) for data in (b"a", b"b")]
        assert [answer.status for answer in answers] == [201, 413]
        assert answers[1].json["detail"].startswith("file refused: this chat would have more than 1 MB")


async def test_a_full_disk_refuses_files_with_a_text_that_names_it(media: MediaSettings) -> None:
    """Before Redis, which may be on the same one, cannot write any more."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    headers = [(b"authorization", f"Bearer {TOKENS['owner']}".encode())]
    scope = {"type": "http", "method": "POST", "headers": headers, "path_params": {"chat": "a"}}
    store = MediaStore(media, floor=DiskFloor(2**62, 1.0))
    answer = await MediaRouter(store, Principals(TOKENS)).upload(Request(scope, receive))
    assert (answer.status_code, b"disk of this server is almost full" in bytes(answer.body)) == (507, True)
    assert not media.dir.exists()


@pytest.mark.parametrize(
    "path", ["/media/a/..%2f..%2fetc%2fpasswd", "/media/a/x.png", "/media/a%2fb/x", "/media/..", "/media/"]
)
async def test_strange_paths_lead_nowhere(gw: Gateway, path: str) -> None:
    """Nothing in a path is looked for but the name of a stored file."""
    assert (await http(gw.address, path)).status in (404, 405)


async def test_a_message_names_its_files_and_the_worker_gets_them(gw: Gateway) -> None:
    """Other devices see them, too; text is not needed then. A reference is looked at: sizes and names are ours."""
    file = await put(gw, png(), "p.png")
    lied = file["ref"].replace(f";{len(png())};", ";99999;")
    async with client(gw.address) as phone, client(gw.address) as desk:
        await desk.send("resume", chat="a", after=0)
        await desk.next("resumed")
        await phone.send("message", id="m1", chat="a", text="", media=[lied])
        await phone.next("accepted", id="m1")
        line = await desk.next("message", id="m1")
        assert line["media"] == [file]
        await phone.send("history", chat="a")
        assert (await phone.next("history"))["lines"][0]["media"] == [file]
    [(_, fields)] = await gw.client.command("XRANGE", keys.inbox(session_of("a")), "-", "+")
    assert decode_inbound(fields[fields.index(b"m") + 1]).media == (file["ref"],)


@pytest.mark.parametrize(
    "what", ["another chat's", "another person's", "nonsense", "too many", "a path", "a picture in words"]
)
async def test_a_message_with_a_file_that_is_not_its_own_is_refused(gw: Gateway, what: str) -> None:
    """`bad_media`, and no turn."""
    own = (await put(gw, png()))["ref"]
    media = {
        "another chat's": [(await put(gw, b"text", chat="b"))["ref"]],
        "another person's": [(await put(gw, b"text", token="ann"))["ref"]],
        "nonsense": ["media:x"],
        "too many": [own, own, own],
        "a path": ["/etc/passwd"],
        "a picture in words": ["data:image/png;base64,AAAA"],
    }[what]
    async with client(gw.address) as phone:
        await phone.send("message", id="m1", chat="a", text="look", media=media)
        assert (await phone.next("error", id="m1"))["code"] == "bad_media"
    assert await gw.client.command("EXISTS", keys.inbox(session_of("a"))) == 0


async def test_an_expired_file_is_not_found(gw: Gateway, media: MediaSettings) -> None:
    """By download nor by a message."""
    file = await put(gw, png())
    for path in media.dir.rglob("*.png"):
        os.utime(path, (path.stat().st_mtime - 31 * DAY_S,) * 2)
    answer = await http(gw.address, file["path"])
    assert (answer.status, answer.json["detail"]) == (404, "this file is not there any more")
    async with client(gw.address) as phone:
        await phone.send("message", id="m1", chat="a", text="look", media=[file["ref"]])
        assert (await phone.next("error", id="m1"))["code"] == "bad_media"


async def test_forgetting_and_erasing_ask_for_the_end_of_the_files(gw: Gateway, client_of_store: RedisClient) -> None:
    """A job for a worker each; it names a folder, and nothing of a session that may be gone."""
    await put(gw, png())
    async with client(gw.address) as phone:
        await phone.say("a", "hello")
        await phone.say("a", "/forget")
    assert len(await media_jobs(client_of_store)) == 1
    await erase(client_of_store, session_of("a"))
    jobs = await media_jobs(client_of_store)
    assert len(jobs) == 2
    assert all(job.startswith(f"media:{folder_name(session_of('a'))}:") for job in jobs)


async def media_jobs(client: RedisClient) -> list[str]:
    return [
        job.decode() for job in await client.command("ZRANGE", keys.queue("jobs"), 0, -1) if job.startswith(b"media:")
    ]


@pytest.fixture
async def client_of_store(redis_url: str) -> AsyncIterator[RedisClient]:
    made = RedisClient(redis_url)
    yield made
    await made.close()


async def test_a_line_of_the_agent_has_its_files_and_buttons(gw: Gateway, media: MediaSettings) -> None:
    """And whoever may see the chat can fetch them."""
    ref = MediaStore(media).put(session_of("a"), PDF, "plan.pdf")
    line = OutboundMessage(
        content="Which?", turn=1, kind="notice", sent_by_tool=True, buttons=("Yes", "No"), media=(str(ref), "data:x")
    )
    async with client(gw.address) as phone:
        await phone.say("a", "hello")
        await gw.client.command("HINCRBY", keys.session(session_of("a")), "log", 1)
        await gw.client.command("XADD", keys.outbox(session_of("a")), "2-0", "m", encode(line))
        await phone.send("resume", chat="a", after=1)
        reply = await phone.next("reply")
        assert (reply["said"], reply["buttons"], reply["kind"]) == (True, ["Yes", "No"], "notice")
        [file] = reply["media"]
        assert (file["name"], file["about"]) == ("plan.pdf", "PDF document")
        assert (await http(gw.address, file["path"])).body == PDF


async def test_too_many_uploads_at_once_are_slowed_down(gw: Gateway) -> None:
    """429 with a time; what was taken stays."""
    answers = [await http(gw.address, "/media/a", b"text %d" % n) for n in range(60)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert int(refused[0].headers["Retry-After"]) >= 1


async def test_slow_uploads_of_one_person_keep_nobody_else_waiting(gw: Gateway, media: MediaSettings) -> None:
    """Twenty that never end, and another person's file is taken all the same."""
    host, _, port = gw.address.rpartition(":")
    writers = []
    for _ in range(20):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST /media/a HTTP/1.1\r\nHost: {gw.address}\r\nAuthorization: Bearer {TOKENS['ann']}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n".encode()
        )
        await writer.drain()
        writers.append(writer)
    name = folder_name(session_of("a", "ann"))
    folder = media.dir / name[:2] / name
    await eventually(lambda: len(list(folder.glob(".part-*"))) == AT_ONCE_EACH)
    await put(gw, b"hello")
    for writer in writers:
        writer.close()
    await eventually(lambda: list(folder.glob(".part-*")) == [], what="the end of what was begun")


async def test_a_file_goes_out_in_pieces(media: MediaSettings) -> None:
    """Whoever reads slowly costs the gateway a piece of it, not the whole: many such would be all its memory."""
    store = MediaStore(media)
    data = b"x" * (3 * PIECE_BYTES + 5)
    ref = store.put(session_of("a"), data, "long.txt")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is to be read")

    headers = [(b"host", b"h"), (b"authorization", f"Bearer {TOKENS['owner']}".encode())]
    scope = {"type": "http", "method": "GET", "headers": headers, "query_string": b"name=long.txt"}
    request = Request({**scope, "path_params": {"chat": "a", "file": ref.file}})
    answer = await MediaRouter(store, Principals(TOKENS)).download(request)
    await answer(request.scope, receive, send)
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(data)).encode()
    pieces = [message["body"] for message in sent[1:]]
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE_BYTES


async def test_each_refusal_leaves_a_line(gw: Gateway) -> None:
    """Who, and what it was answered; nothing of the file, and not its name. One line a minute for wrong tokens."""
    with capture_logs() as logs:
        await http(gw.address, "/media/a", b"\x7fELF\0canary", Shoal_File_Name="canary.exe")
        for _ in range(3):
            await http(gw.address, "/media/a", b"x", token="wrong")
    assert {"event": "file refused", "principal": "owner", "status": 415, "log_level": "info"} in logs
    assert [one["event"] for one in logs].count("logins refused") == 1
    assert "canary" not in str(logs)
