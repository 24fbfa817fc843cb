"""Text files of any encoding: read by a guess that is named, and changed without losing it."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.encodings.decode import UTF_8, DecodedText
from shared.errors import ToolFailed
from worker.documents.kinds import decode_other_text, decode_text, describe_file

TEXT_LIMIT_BYTES: Final = 2 * 1024 * 1024  # of one text file that is read


async def decode_content(path: str, content: str | bytes) -> DecodedText:
    """Return the text of what `Files.content` returned; errors call it `path`. Raises ToolFailed for
    a file that is not text, and one that is too big."""
    if isinstance(content, str):
        return DecodedText(content, UTF_8, "utf-8")
    found = await asyncio.to_thread(decode_other_text, content)
    size = f"{len(content):,} bytes"
    if found is None:
        raise ToolFailed(f"{path!r} is not text: it is {describe_file(content)}, {size}, and cannot be read as such")
    if len(content) > TEXT_LIMIT_BYTES:
        raise ToolFailed(f"{path!r} has {size}; only text of up to {TEXT_LIMIT_BYTES:,} bytes can be read")
    return found


def encode_change(path: str, data: bytes, was: str, text: str) -> bytes | None:
    """Return the bytes of `text` in the encoding of the file `path`, which holds `data`; None if that
    is not the text `was`. Raises ToolFailed where the encoding cannot hold the new text. Blocking."""
    found = _decode(data)
    if found is None or found.text != was:
        return data if found is not None and found.text == text else None
    refused = f"{path!r} is not changed: it is saved as {found.described}"
    advice = "write the whole file with write_file, which saves it as UTF-8"
    try:
        after = found.encode(text)
    except UnicodeEncodeError as exc:
        raise ToolFailed(f"{refused}, which has no {text[exc.start]!r}. Use other characters, or {advice}") from None
    if found.broken or found.encode(was) != data:
        raise ToolFailed(f"{refused}, and saving it again would lose a part. To change it nevertheless, {advice}")
    # The encoding is a guess. With the new text another one may be more likely: it would then be
    # read wrongly from now on.
    again = _decode(after)
    if again is None or again.text != text:
        raise ToolFailed(f"{refused}, which could not be recognised any more after this change. Instead, {advice}")
    return after


def _decode(data: bytes) -> DecodedText | None:
    text = decode_text(data)
    return decode_other_text(data) if text is None else DecodedText(text, UTF_8, "utf-8")
