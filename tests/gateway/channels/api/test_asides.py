"""Texts of a turn outside its reply."""

from __future__ import annotations

from gateway.channels.web.api.answer import text_sent
from shared.messages.outbound import OutboundMessage


def test_files_and_buttons_of_an_aside_are_named() -> None:
    """They cannot be had over the API."""
    ref = f"media:{'a' * 64}.pdf;10;report.pdf"
    line = OutboundMessage(content="done", turn=1, kind="notice", media=(ref, "odd"), buttons=("more",))
    assert text_sent(line) == "done\n[file: report.pdf] [file: file] [more]"
