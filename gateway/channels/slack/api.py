"""Client for one Slack bot: identity, posting, finding a post again, and files. The token is sent
only to Slack's own hosts, and redirects are not followed."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import ClientError, ClientResponse, ClientTimeout, ClientWebSocketResponse, ClientWSTimeout, WSMsgType

from gateway.channels.slack.calls import ScopeMissing, SlackWebApi, map_error
from gateway.channels.slack.render import file_blocks, has_mark, post_form
from gateway.channels.slack.wire import Message, SlackIdentity, read_message
from gateway.platform.protocol import ChannelBroken, File, NotAccepted, Post, PostRefused, RemoteFile, Throttled
from shared.network.outgoing import Outgoing

PING_S: Final = 10.0
CLOSE_S: Final = 1.0
FRAME_BYTES: Final = 4 * 1024 * 1024
PAGE: Final = 200
PAGES: Final = 10
LOOK_BACK_S: Final = 90_000  # a post is retried for at most a day, so older history is not searched


class SocketModeConnection:
    """One WebSocket."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def receive(self) -> str | None:
        """Return the next frame, None once the connection is closed."""
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                return str(message.data)
            if message.type is not WSMsgType.BINARY:
                return None

    async def acknowledge(self, envelope_id: str) -> None:
        """Tell Slack not to repeat this envelope; if that fails, it does on another connection."""
        try:
            await self._socket.send_str(json.dumps({"envelope_id": envelope_id}))
        except (ClientError, ConnectionError, RuntimeError):
            return

    async def close(self) -> None:
        await self._socket.close()


class SlackApi:
    """A client for one bot; `timeout_s` limits a call. It raises NotDelivered, ChannelBroken."""

    def __init__(
        self,
        token: str,
        base: str,
        *,
        app_token: str = "",
        timeout_s: float,
        outgoing: Outgoing | None = None,
    ) -> None:
        self._token = token
        self._base = base
        self._timeout_s = timeout_s
        self._outgoing = outgoing
        self._app_token = app_token
        self._opened: SlackWebApi | None = None
        self._me = SlackIdentity("", "", "")
        self._edits_at = 0.0

    @property
    def _calls(self) -> SlackWebApi:
        if self._opened is None:
            raise NotAccepted("the channel is not open")
        return self._opened

    async def open(self) -> SlackIdentity:
        """Return who the bot is. Raises ChannelBroken, NotAccepted."""
        if self._opened is None:
            self._opened = SlackWebApi(
                self._token,
                self._base,
                timeout_s=self._timeout_s,
                outgoing=self._outgoing,
            )
        reply = await self._calls.call_setup(self._calls.sdk.auth_test())
        granted = reply.headers.get("x-oauth-scopes")
        if granted is not None and "chat:write" not in granted.replace(" ", "").split(","):
            raise map_error("missing_scope", status=200, needed="chat:write")
        names = ("team_id", "user_id", "bot_id", "user")
        self._me = SlackIdentity(*(str(reply.get(name) or "") for name in names))
        if not (self._me.team_id and self._me.user_id and self._me.bot_id):
            raise ChannelBroken("channels.slack.token is not that of a bot; copy the one that begins with xoxb-")
        return self._me

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.http.close()

    async def connect(self) -> SocketModeConnection:
        """Open one more Socket Mode connection. Raises ChannelBroken, NotAccepted, Throttled."""
        calls = self._calls
        try:
            reply = await calls.call_setup(calls.sdk.apps_connections_open(app_token=self._app_token))
        except ChannelBroken as exc:
            raise ChannelBroken(
                "Slack opens no socket with channels.slack.app_token: it must be an app-level token (xapp-) "
                "of this app with connections:write, and Socket Mode must be on"
            ) from exc
        url = str(reply.get("url", ""))
        if not url.startswith(("wss://", calls.origin.replace("http", "ws", 1))):
            raise NotAccepted("Slack told no address for a socket")
        timeout = ClientWSTimeout(ws_close=CLOSE_S)
        try:
            socket = await calls.http.ws_connect(
                url,
                heartbeat=PING_S,
                timeout=timeout,
                max_msg_size=FRAME_BYTES,
            )
        except (ClientError, TimeoutError) as exc:
            raise NotAccepted(f"no socket: {type(exc).__name__}") from exc
        return SocketModeConnection(socket)

    async def send(self, post: Post) -> str:
        """Send a post and return its ts, or for a file its id."""
        calls = self._calls
        thread = post.target.thread
        if post.file is not None:
            return await _upload_file(calls, post, post.file)
        more: dict[str, Any] = {
            "thread_ts": thread,
            "mrkdwn": not post.as_plain,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        reply = await calls.call_visible(calls.sdk.chat_postMessage(**post_form(post), **more))
        return str(reply.get("ts", ""))

    async def edit(self, ts: str, post: Post) -> None:
        """Replace a message with a post."""
        calls = self._calls
        wait_s = self._edits_at - time.monotonic()
        if wait_s > 0:  # a workspace's edits have one budget: asking again would make it longer
            raise Throttled(wait_s)
        try:
            # `parse`: what holds for a new message without saying it
            await calls.call_visible(calls.sdk.chat_update(ts=ts, parse="none", **post_form(post)))
        except Throttled as throttled:
            self._edits_at = time.monotonic() + throttled.retry_after_s
            raise

    async def find_post(self, post: Post) -> str | None:
        """Return the ts of a post that was already shown, or None."""
        sdk = self._calls.sdk
        thread = post.target.thread
        ask = sdk.conversations_history if thread is None else sdk.conversations_replies
        where: dict[str, Any] = {
            "channel": post.target.chat_id,
            "oldest": str(int(time.time()) - LOOK_BACK_S),
            "limit": PAGE,
            "include_all_metadata": True,
        }
        where |= {} if thread is None else {"ts": thread}
        for _ in range(PAGES):
            try:
                # A failed look-up must not look like "not found": that would send the post twice.
                reply = await self._calls.call_invisible(ask(**where))
            except ScopeMissing as exc:  # sent again without a look it might be there twice
                raise NotAccepted(str(exc)) from exc
            for message in reply.get("messages") or ():
                bot = message.get("bot_id")
                user = message.get("user")
                ours = self._me.bot_id == bot or self._me.user_id == user
                if ours and has_mark(message, post.key):
                    return str(message.get("ts", ""))
            where["cursor"] = (reply.get("response_metadata") or {}).get("next_cursor")
            if not where["cursor"]:
                break
        return None

    async def get_root(self, channel: str, thread: str) -> Message | None:
        """Return the first message of a thread; None if it is gone. Raises NotDelivered,
        ChannelBroken."""
        ask = self._calls.sdk.conversations_replies(channel=channel, ts=thread, limit=1)
        try:
            reply = await self._calls.call_invisible(ask)
        except ScopeMissing as exc:
            raise NotAccepted(str(exc)) from exc
        found = next(iter(reply.get("messages") or ()), None)
        return read_message(found) if isinstance(found, dict) and found.get("ts") == thread else None

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent."""
        calls = self._calls
        url = file.handle if "://" in file.handle else await _file_url(calls, file.handle)
        if not calls.may_have_token(url):
            raise PostRefused("this file is not kept at files.slack.com")
        within = ClientTimeout(sock_connect=calls.connect_s, sock_read=calls.timeout_s)
        headers = {"Authorization": f"Bearer {calls.token}"}
        try:
            asking = calls.http.get(url, headers=headers, timeout=within, allow_redirects=False)
            async with asking as answer:
                _check_download(answer, file)
                async for part in answer.content.iter_chunked(64 * 1024):
                    yield part
        except (ClientError, TimeoutError) as exc:
            raise NotAccepted(type(exc).__name__) from exc


async def _upload_file(calls: SlackWebApi, post: Post, file: File) -> str:
    """Upload a file and return its id. Only the last of the three calls shows anything."""
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
                blocks=json.dumps(file_blocks(post, file)),
            )
        )
    except ScopeMissing as exc:  # all but files works without it, so only this post is refused
        raise PostRefused(str(exc)) from exc
    return str(next((one.get("id", "") for one in done.get("files") or ()), ""))


async def _upload_bytes(calls: SlackWebApi, url: str, data: bytes) -> None:
    """Send the bytes to the upload URL, which itself says whose they are."""
    if not calls.may_have_token(url):
        raise PostRefused("Slack wants the bytes of a file elsewhere than at files.slack.com")
    try:
        posting = calls.http.post(url, data=data, allow_redirects=False)
        async with posting as answer:
            status = answer.status
            again = answer.headers.get("Retry-After")
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
    """Raise if the response is not the file. An unauthorised caller is sent to a login page."""
    if answer.status == 429 or answer.status >= 500:
        raise NotAccepted(f"status {answer.status} for a file")
    page = answer.content_type == "text/html" and file.media_type not in ("", "text/html")
    if answer.status in (301, 302, 303, 307, 308) or page:
        raise PostRefused("Slack does not show the bot this file; has it the scope files:read?")
    if answer.status != 200:
        raise PostRefused(f"status {answer.status} for a file")
