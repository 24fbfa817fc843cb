"""Posts as the Cloud API wants them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.channels.whatsapp.outgoing import file_message, is_supported, text_message
from gateway.platform.protocol import Button, File, Piece, Post, PostTarget

PLACE = PostTarget(session="whatsapp:7", chat_id="15550000007")


def post(*labels: str, reply_to: str | None = None) -> Post:
    buttons = tuple(Button(label, label) for label in labels)
    return Post(target=PLACE, key="k", piece=Piece("*hi*", "hi"), buttons=buttons, reply_to=reply_to)


def file(media_type: str, name: str = "a.bin", data: bytes = b"abc", size: int | None = None) -> File:
    return File(reference="r", name=name, media_type=media_type, size_bytes=size or len(data), data=data)


def test_a_text_is_sent_without_a_preview() -> None:
    """WhatsApp would fetch the address."""
    assert text_message(post(reply_to="wamid.x"), "hi") == {
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": "15550000007", "type": "text",
        "text": {"body": "hi", "preview_url": False}, "context": {"message_id": "wamid.x"},
    }  # fmt: skip


def test_only_a_message_of_whatsapp_is_quoted() -> None:
    """An id of our own would be refused."""
    assert "context" not in text_message(post(reply_to="cron:1"), "hi")


@pytest.mark.parametrize(
    ("labels", "text", "kind"),
    [
        (("Tea", "Coffee"), "hi", "button"),
        (("Tea", "Coffee", "Milk"), "x" * 1024, "button"),
        (("Tea", "Coffee"), "x" * 1025, "list"),
        (("1", "2", "3", "4"), "hi", "list"),
        (("a" * 21,), "hi", "list"),
    ],
)
def test_choices_are_buttons_or_rows_of_a_list(labels: tuple[str, ...], text: str, kind: str) -> None:
    """Three short ones under a short text; else a list, which has room for ten and for any text."""
    made = text_message(post(*labels), text)["interactive"]
    assert (made["type"], made["body"]) == (kind, {"text": text})
    assert _ids(made) == list(labels)


def _ids(made: dict[str, Any]) -> list[str]:
    action = made["action"]
    if made["type"] == "button":
        return [one["reply"]["id"] for one in action["buttons"]]
    return [row["id"] for row in action["sections"][0]["rows"]]


def test_a_long_choice_is_whole_below_its_title() -> None:
    """A row has 24 characters, and 72 below."""
    label = "The blue one with the yellow spots and fins"
    [row] = text_message(post(label), "hi")["interactive"]["action"]["sections"][0]["rows"]
    assert row == {"id": label, "title": "The blue one with the y…", "description": label}


def test_what_a_press_could_not_carry_is_words() -> None:
    """More than 200 characters."""
    made = text_message(post("x" * 201), "hi")
    assert made["text"]["body"] == "hi\n\n- " + "x" * 201


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (file("image/png"), "image"),
        (file("image/jpeg", size=6_000_000), "document"),
        (file("image/webp"), "document"),
        (file("audio/mpeg"), "audio"),
        (file("audio/ogg", data=b"OggS" + bytes(24) + b"OpusHead"), "audio"),
        (file("audio/ogg", data=b"OggS" + bytes(24) + b"\x01vorbis"), "document"),
        (file("video/mp4"), "video"),
        (file("application/pdf"), "document"),
        (file("text/plain"), "document"),
    ],
)
def test_a_file_is_what_whatsapp_can_show_of_it(given: File, kind: str) -> None:
    """Documents have a name."""
    made = file_message(post(), given, "5")
    assert made["type"] == kind
    assert made[kind] == ({"id": "5", "filename": "a.bin"} if kind == "document" else {"id": "5"})


def test_a_file_with_buttons_is_above_them() -> None:
    """A voice message can have none: it is a document then; more choices than buttons are words."""
    made = file_message(post("Yes"), file("image/png"), "5")["interactive"]
    assert (made["header"], made["type"]) == ({"type": "image", "image": {"id": "5"}}, "button")
    assert file_message(post("Yes"), file("audio/mpeg"), "5")["interactive"]["header"]["type"] == "document"
    made = file_message(post("1", "2", "3", "4"), file("audio/mpeg"), "5")
    assert made["document"]["caption"] == "- 1\n- 2\n- 3\n- 4"


@pytest.mark.parametrize("media_type", ["image/gif", "audio/wav", "audio/flac"])
def test_some_kinds_of_files_cannot_go(media_type: str) -> None:
    """WhatsApp does not take them."""
    assert not is_supported(file(media_type))
