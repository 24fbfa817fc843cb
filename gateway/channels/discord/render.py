"""Render replies as Discord Markdown, and posts as the JSON bodies of Discord's HTTP API. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from gateway.platform.protocol import Piece, Post, PostTarget
from gateway.text.characters import utf16
from gateway.text.layout import Dress, quoted_lines
from gateway.text.leaves import Link
from gateway.text.marks import JOINT, Pen, fenced
from gateway.text.pages import PageFormat, both, render

CUSTOM_ID_CHARS: Final = 100
LABEL_CHARS: Final = 80
TEXT_LIMIT: Final = 1900  # UTF-16 code units; Discord accepts 2000 characters
_SPECIAL: Final = re.compile(r"[\\*_~`|<\[]")
_FIRST_IN_LINE: Final = re.compile(r"^([ \t]*)([-+#>]|\d+(?=[.)]))", re.MULTILINE)
_NAME: Final = re.compile(r"@(?=everyone|here)|(?<=<)[@#](?=[!&]?\d)", re.IGNORECASE)
_LOOKS_LIKE_LINK: Final = re.compile(r"://|\w\.\w|@")
_NO_EMBEDS: Final = 1 << 2
_BUTTON = 2
_ROW = 1
_GREY = 2
_IN_ROW: Final = 5


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as Discord Markdown. It mentions nobody and its links have no previews; still
    post it with empty `allowed_mentions` and suppressed embeds."""
    return render(markdown, _PAGE)


def defuse_mentions(text: str) -> str:
    """Break every `@everyone` and `<@id>`: Discord looks for mentions before escapes."""
    return _NAME.sub(lambda found: found[0] + JOINT, text)


def _escape_text(text: str) -> str:
    return _FIRST_IN_LINE.sub(_escaped_first, _SPECIAL.sub(r"\\\g<0>", defuse_mentions(text)))


def _escaped_first(found: re.Match[str]) -> str:
    blank, mark = found.groups()
    return f"{blank}{mark}\\" if mark[0].isdigit() else f"{blank}\\{mark}"


def _inline_code(text: str) -> str:
    """Write code between more backticks than it contains in a row."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    ticks = "`" * (longest + 1)
    return f"{ticks}{pad}{defuse_mentions(text)}{pad}{ticks}"


def _write_link(link: Link, label: str) -> tuple[str, str]:
    """Return the link and the text after it. `<address>` has no preview. Discord accepts no label
    that looks like an address, and only web addresses after a label."""
    if link.is_mail:
        return _escape_text(label), _escape_text(link.address_behind)
    address = link.address.replace("@", "%40") if _NAME.search(link.address) else link.address
    if link.bare:
        return f"<{address}>", ""
    if _LOOKS_LIKE_LINK.search(label):
        return _escape_text(label), f" (<{address}>)"
    return f"[{_escape_text(label)}](<{address}>)", _escape_text(link.host_behind)


_PEN: Final = Pen(
    marks={"bold": "**", "italic": "_", "strike": "~~"},
    text=_escape_text,
    code=_inline_code,
    block=lambda leaf: fenced(defuse_mentions(leaf.text), leaf.language),
    link=_write_link,
    headings=3,
)
_DRESS: Final = Dress(body=_PEN.write_leaf, quote=quoted_lines(">"), bullet="- ")
_PAGE: Final = PageFormat(
    write=_DRESS.lay_out, guard=defuse_mentions, size=both(utf16), limits=(TEXT_LIMIT, TEXT_LIMIT)
)


def target_channel(place: PostTarget) -> str:
    """Return the channel to post to: a thread is a channel of its own."""
    return place.thread or place.chat_id


def new_message_form(post: Post) -> dict[str, Any]:
    """Return the body of a new message. By its nonce a repeated one is shown once, for minutes."""
    form = {**_message_form(post), "nonce": nonce(post.key), "enforce_nonce": True}
    # A message's id, without an edit's time; a press is not one.
    answered = (post.reply_to or "").partition("/")[0]
    if answered.isdecimal():
        form["message_reference"] = {"message_id": answered, "fail_if_not_exists": False}
    if post.file is not None:
        form["attachments"] = [{"id": 0, "filename": post.file.name}]
    return form


def edit_form(post: Post) -> dict[str, Any]:
    """Return the body of an edit; without buttons it removes existing ones."""
    return {"components": [], **_message_form(post)}


def nonce(key: str) -> str:
    """Return the post's key in the at most 25 characters of a nonce."""
    return hashlib.blake2s(key.encode(), digest_size=12).hexdigest()


def _message_form(post: Post) -> dict[str, Any]:
    made = []
    for number, button in enumerate(post.buttons):
        # Too long: the press is resolved by the button's label instead (`parse.py`).
        too_long = len(f"{number}:{button.says}") > CUSTOM_ID_CHARS
        custom_id = f"{number}:{'' if too_long else button.says}"
        label = button.label
        label = label if len(label) <= LABEL_CHARS else label[: LABEL_CHARS - 1] + "…"
        made.append({"type": _BUTTON, "style": _GREY, "label": label, "custom_id": custom_id})
    rows = [made[at : at + _IN_ROW] for at in range(0, len(made), _IN_ROW)]
    buttons = {"components": [{"type": _ROW, "components": row} for row in rows]} if rows else {}
    return {"content": post.text, "allowed_mentions": {"parse": []}, "flags": _NO_EMBEDS, **buttons}
