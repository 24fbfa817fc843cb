"""Texts for a model: valid, short, and marked where they are cut; long results go to the files of
the turn."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import msgspec

from shared.errors import LeaseLost, ToolFailed, TurnEnded
from shared.redaction import redacted
from worker.agent.tools.tool import Report, ToolContext

EXCEPTION_CHARS: Final = 500
SMALLER: Final = "ask for a smaller part"
_FENCE_END: Final = re.compile(r"\n\[end [0-9a-f]{12}\]\Z")


def valid_text(text: str) -> str:
    """Return the text with lone surrogates, which no codec can write, replaced by `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def is_json_object(text: str) -> bool:
    """Return whether a text is one complete JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def shorten(text: str, chars: int) -> str:
    """Return at most `chars` characters; a shortened text ends in an ellipsis."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def describe_exception(exc: BaseException) -> str:
    """Return the class of an exception and its text, with secrets masked, as one line of at most
    500 characters."""
    try:
        text = str(exc).strip()[: 20 * EXCEPTION_CHARS]  # masking takes time on the event loop
    except Exception:
        text = ""
    # Masked before it is cut or folded: half a secret, or one with other spaces, is not recognised.
    text = " ".join(redacted(text)[:EXCEPTION_CHARS].split()).rstrip(".")
    return shorten(f"{type(exc).__name__}: {text}" if text else type(exc).__name__, EXCEPTION_CHARS)


def cut(text: str, limit_bytes: int, *, rest: str = SMALLER) -> str:
    """Return at most `limit_bytes` of UTF-8, and a note that says how much was left out, and
    `rest`. A fence around untrusted text stays closed: it must not run into text after it."""
    data = text.encode("utf-8")
    if len(data) <= limit_bytes:
        return text
    closed = _FENCE_END.search(text)
    end = closed.group() if closed and len(closed.group()) < limit_bytes else ""
    kept = data[: limit_bytes - len(end)].decode("utf-8", "ignore")
    return f"{kept}{end}\n\n[cut: {len(data) - limit_bytes:,} of {len(data):,} bytes are left out; {rest}]"


KEEP_LIMIT_S: Final = 10.0  # for storing a long result whole; then only its beginning is kept


async def fit_result(text: str, context: ToolContext, limit_bytes: int, report: Report) -> str:
    """Return the text, or the beginning of one over the limit with the path of the whole. Raises
    LeaseLost and TurnEnded; other faults of the files are reported."""
    if len(text.encode()) <= limit_bytes:
        return text
    call_id = re.sub(r"[^A-Za-z0-9_-]", "_", context.call_id)[:64]
    path = f"results/{context.turn}-{call_id}.txt"
    rest = SMALLER
    try:
        async with asyncio.timeout(KEEP_LIMIT_S):
            await context.files.replace(path, text, was=None)
        rest = f"the whole is in the file {path!r}"
    except (LeaseLost, TurnEnded):
        raise
    except Exception as exc:
        if not isinstance(exc, ToolFailed):
            report(f"keeping {path}", exc)
    return cut(text, limit_bytes, rest=rest)
