"""Several files of one message stay together, also of one that is passed on; what cannot be taken is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.store.client.redis_client import RedisClient
from tests.gateway.channels.discord.events import gateway_event
from tests.gateway.channels.feishu import test_parse as feishu
from tests.gateway.channels.feishu.events import message as feishu_message
from tests.gateway.channels.matrix import test_parse as matrix
from tests.gateway.channels.slack.payloads import message as slack_message
from tests.gateway.channels.slack.payloads import posted_message
from tests.gateway.channels.whatsapp import test_parse as whatsapp
from tests.gateway.platform.test_inlet import LISTED, Replica

REPORT: Final = json.loads(Path("tests/data/reports/ok-platforms.json").read_text())
NAMES: Final = ["a", "b", "c"]


def on_discord() -> PlatformMessage | None:
    files = [{"id": name, "url": f"http://x/{name}", "filename": name} for name in NAMES]
    return gateway_event(content="compare these", attachments=files)


def on_slack() -> PlatformMessage:
    url = "https://files.slack.com/files-pri/T1-F1/"
    files = [{"id": name, "name": name, "mode": "hosted", "url_private": url + name} for name in NAMES]
    return posted_message(slack_message("compare these", subtype="file_share", files=files))


def on_feishu() -> PlatformMessage:
    words = {"tag": "text", "text": "compare these"}
    pictures = [[{"tag": "img", "image_key": name}] for name in NAMES]
    return feishu.received(feishu_message({"title": "", "content": [[words], *pictures]}, "post"))


TOGETHER: Final[dict[str, Callable[[], PlatformMessage | None]]] = {
    "discord": on_discord,
    "slack": on_slack,
    "feishu": on_feishu,
}


@pytest.mark.parametrize("platform", TOGETHER)
def test_several_files_of_one_message_are_one_message(platform: str) -> None:
    """In the order in which the person sees them."""
    found = TOGETHER[platform]()
    assert found is not None
    assert found.message.content == "compare these"
    assert len(found.files) == len(NAMES)
    shown = zip(NAMES, found.files, strict=True)
    assert all(name in (file.name, file.handle.rpartition("/")[2]) for name, file in shown)


def test_platforms_that_name_no_album_send_messages() -> None:
    """Matrix and WhatsApp do not say which files were sent as one: each is a message of its own."""
    picture = {"msgtype": "m.image", "body": "a.png", "url": "mxc://a/b"}
    sent = {"type": "image", "image": {"id": "1", "mime_type": "image/jpeg"}}
    for one in (matrix.sure(matrix.parse(picture)), whatsapp.one(sent)):
        assert (len(one.files), one.album) == (1, "")


def test_a_message_that_was_passed_on_is_read_with_its_file() -> None:
    found = gateway_event(**REPORT["discord"])
    assert found is not None
    assert found.message.content == "the forwarded text"
    assert [(one.handle, one.name) for one in found.files] == [("http://127.0.0.1/x", "a.png")]
    assert found.forwarded


def heic(brand: bytes) -> bytes:
    """The beginning of a picture of a telephone."""
    return b"\0\0\0\x24ftyp" + brand + b"\0\0\0\0mif1heic" + bytes(range(256)) * 4


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif"])
@pytest.mark.parametrize("name", ["IMG_1.HEIC", "photo.jpg"])
async def test_a_picture_that_no_model_takes_is_refused_and_the_chat_goes_on(
    redis_url: str, tmp_path: Path, name: str, brand: bytes
) -> None:
    """By its bytes, whatever it is called. The person and the model read why; words are answered."""
    redis = RedisClient(redis_url)
    replica = Replica(redis, tmp_path)
    replica.files.files["f"] = [heic(brand)]
    file: dict[str, Any] = {"files": (RemoteFile(handle="f", name=name, media_type="image/jpeg"),)}
    assert await replica.say(LISTED, text="what is this?", **file) == "taken"
    [sent] = await replica.waiting()
    why = f"{name}: it is of a kind that is not taken here"
    assert sent.media == ()
    assert sent.content.startswith("what is this?\n\n[A file was not taken")
    assert why in sent.content
    assert await replica.notices() == [f"I could not take:\n- {why}"]
    assert await replica.say(LISTED, text="never mind", id="m2") == "taken"
    await redis.close()
