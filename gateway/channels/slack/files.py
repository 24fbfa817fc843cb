"""Files on their way to Slack and from there. The token goes to Slack's own hosts alone, and
follows no redirect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import ClientError, ClientResponse, ClientTimeout

from gateway.channels.slack.calls import Calls
from gateway.channels.slack.posted import file_blocks
from gateway.channels.slack.refusals import ScopeMissing, refusal
from gateway.platform.protocol import ChannelBroken, NotAccepted, Post, PostRefused, RemoteFile

PART_BYTES: Final = 64 * 1024


async def upload(calls: Calls, post: Post) -> str:
    """Show a file; its id. Of the three calls only the last one shows anything. Raises
    NotDelivered, ChannelBroken."""
    file = post.file
    assert file is not None
    try:
        told = await calls.unseen(calls.sdk.files_getUploadURLExternal(filename=file.name, length=len(file.data)))
        await _put(calls, str(told.get("upload_url", "")), file.data)
        done = await calls.shown(
            calls.sdk.files_completeUploadExternal(
                files=[{"id": str(told.get("file_id", "")), "title": file.name}],
                channel_id=post.target.chat_id,
                thread_ts=post.target.thread,
                blocks=json.dumps(file_blocks(post)),
            )
        )
    except ScopeMissing as exc:  # all but files works without it
        raise PostRefused(str(exc)) from exc
    return str(next((one.get("id", "") for one in done.get("files") or ()), ""))


async def fetch(calls: Calls, file: RemoteFile) -> AsyncIterator[bytes]:
    """The bytes of a file of a person, in parts. Raises NotDelivered."""
    url = file.handle if "://" in file.handle else await _address(calls, file.handle)
    if not calls.may_have_token(url):
        raise PostRefused("this file is not kept at files.slack.com")
    within = ClientTimeout(sock_connect=calls.connect_s, sock_read=calls.timeout_s)
    headers = {"Authorization": f"Bearer {calls.token}"}
    try:
        async with calls.http.get(
            url, headers=headers, timeout=within, allow_redirects=False, proxy=calls.proxy
        ) as answer:
            _check(answer, file)
            async for part in answer.content.iter_chunked(PART_BYTES):
                yield part
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(type(exc).__name__) from exc


async def _put(calls: Calls, url: str, data: bytes) -> None:
    """The bytes, to where Slack wants them; the address says whose they are."""
    if not calls.may_have_token(url):
        raise PostRefused("Slack wants the bytes of a file elsewhere than at files.slack.com")
    try:
        async with calls.http.post(url, data=data, proxy=calls.proxy, allow_redirects=False) as answer:
            status, again = answer.status, answer.headers.get("Retry-After")
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(f"no file taken: {type(exc).__name__}") from exc
    if status == 429:
        raise refusal("", status=status, retry_after=again)
    if status != 200:
        raise NotAccepted(f"status {status} for the bytes of a file")


async def _address(calls: Calls, id: str) -> str:
    try:
        told = await calls.unseen(calls.sdk.files_info(file=id))
    except ChannelBroken as exc:
        raise PostRefused(str(exc)) from exc
    file = told.get("file") or {}
    return str(file.get("url_private_download") or file.get("url_private") or "")


def _check(answer: ClientResponse, file: RemoteFile) -> None:
    """Who may not read a file is sent to a page to log in."""
    if answer.status == 429 or answer.status >= 500:
        raise NotAccepted(f"status {answer.status} for a file")
    page = answer.content_type == "text/html" and file.media_type not in ("", "text/html")
    if answer.status in (301, 302, 303, 307, 308) or page:
        raise PostRefused("Slack does not show the bot this file; has it the scope files:read?")
    if answer.status != 200:
        raise PostRefused(f"status {answer.status} for a file")
