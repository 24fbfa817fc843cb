"""Upload and download files. The token is sent only to Slack's own hosts, and redirects are not
followed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import ClientError, ClientResponse, ClientTimeout

from gateway.channels.slack.calls import SlackWebApi
from gateway.channels.slack.posted import file_blocks
from gateway.channels.slack.refusals import ScopeMissing, map_error
from gateway.platform.protocol import ChannelBroken, NotAccepted, Post, PostRefused, RemoteFile

PART_BYTES: Final = 64 * 1024


async def upload_file(calls: SlackWebApi, post: Post) -> str:
    """Upload a file and return its id. Only the last of the three calls shows anything. Raises
    NotDelivered, ChannelBroken."""
    file = post.file
    assert file is not None
    try:
        reply = await calls.call_invisible(
            calls.sdk.files_getUploadURLExternal(filename=file.name, length=len(file.data))
        )
        await _upload_bytes(calls, str(reply.get("upload_url", "")), file.data)
        done = await calls.call_visible(
            calls.sdk.files_completeUploadExternal(
                files=[{"id": str(reply.get("file_id", "")), "title": file.name}],
                channel_id=post.target.chat_id,
                thread_ts=post.target.thread,
                blocks=json.dumps(file_blocks(post)),
            )
        )
    # Everything except files works without this scope, so only this post is refused.
    except ScopeMissing as exc:  # all but files works without it
        raise PostRefused(str(exc)) from exc
    return str(next((one.get("id", "") for one in done.get("files") or ()), ""))


async def download_file(calls: SlackWebApi, file: RemoteFile) -> AsyncIterator[bytes]:
    """Yield the bytes of a file that a person sent. Raises NotDelivered."""
    url = file.handle if "://" in file.handle else await _file_url(calls, file.handle)
    if not calls.may_have_token(url):
        raise PostRefused("this file is not kept at files.slack.com")
    within = ClientTimeout(sock_connect=calls.connect_s, sock_read=calls.timeout_s)
    headers = {"Authorization": f"Bearer {calls.token}"}
    try:
        async with calls.http.get(
            url, headers=headers, timeout=within, allow_redirects=False, proxy=calls.proxy
        ) as answer:
            _check_download(answer, file)
            async for part in answer.content.iter_chunked(PART_BYTES):
                yield part
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(type(exc).__name__) from exc


async def _upload_bytes(calls: SlackWebApi, url: str, data: bytes) -> None:
    """Send the bytes to the upload URL, which itself says whose they are."""
    if not calls.may_have_token(url):
        raise PostRefused("Slack wants the bytes of a file elsewhere than at files.slack.com")
    try:
        async with calls.http.post(url, data=data, proxy=calls.proxy, allow_redirects=False) as answer:
            status, again = answer.status, answer.headers.get("Retry-After")
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(f"no file taken: {type(exc).__name__}") from exc
    if status == 429:
        raise map_error("", status=status, retry_after=again)
    if status != 200:
        raise NotAccepted(f"status {status} for the bytes of a file")


async def _file_url(calls: SlackWebApi, id: str) -> str:
    try:
        reply = await calls.call_invisible(calls.sdk.files_info(file=id))
    except ChannelBroken as exc:
        raise PostRefused(str(exc)) from exc
    file = reply.get("file") or {}
    return str(file.get("url_private_download") or file.get("url_private") or "")


def _check_download(answer: ClientResponse, file: RemoteFile) -> None:
    """Raise if the response is not the file. Slack redirects an unauthorised caller to a login
    page."""
    if answer.status == 429 or answer.status >= 500:
        raise NotAccepted(f"status {answer.status} for a file")
    page = answer.content_type == "text/html" and file.media_type not in ("", "text/html")
    if answer.status in (301, 302, 303, 307, 308) or page:
        raise PostRefused("Slack does not show the bot this file; has it the scope files:read?")
    if answer.status != 200:
        raise PostRefused(f"status {answer.status} for a file")
