"""Client for one Slack bot: identity, posting, and finding a post again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Final

from gateway.channels.slack import files
from gateway.channels.slack.calls import SlackWebApi
from gateway.channels.slack.contents import SlackIdentity
from gateway.channels.slack.listener import SocketModeConnection, open_connection
from gateway.channels.slack.posted import has_mark, post_attachments, post_metadata, post_text
from gateway.channels.slack.refusals import ScopeMissing, map_error
from gateway.platform.protocol import ChannelBroken, NotAccepted, Post, RemoteFile, Throttled

PAGE: Final = 200
PAGES: Final = 10
LOOK_BACK_S: Final = 90_000
"""A post is retried for at most a day, so older history need not be searched."""


class SlackApi:
    """A client for one bot. `timeout_s` limits a whole call."""

    def __init__(self, token: str, base: str, *, app_token: str = "", timeout_s: float) -> None:
        self._token, self._base, self._timeout_s = token, base, timeout_s
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
            self._opened = SlackWebApi(self._token, self._base, timeout_s=self._timeout_s)
        reply = await self._calls.call_setup(self._calls.sdk.auth_test())
        granted = reply.headers.get("x-oauth-scopes")
        if granted is not None and "chat:write" not in granted.replace(" ", "").split(","):
            raise map_error("missing_scope", status=200, needed="chat:write")
        self._me = SlackIdentity(*(str(reply.get(name) or "") for name in ("team_id", "user_id", "bot_id", "user")))
        if not (self._me.team_id and self._me.user_id and self._me.bot_id):
            raise ChannelBroken("channels.slack.token is not that of a bot; copy the one that begins with xoxb-")
        return self._me

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def connect(self) -> SocketModeConnection:
        """Open one Socket Mode connection. Raises ChannelBroken, NotAccepted."""
        return await open_connection(self._calls, self._app_token)

    async def send(self, post: Post) -> str:
        """Send a post and return its ts, or for a file its id. Raises NotDelivered,
        ChannelBroken."""
        if post.file is not None:
            return await files.upload_file(self._calls, post)
        reply = await self._calls.call_visible(
            self._calls.sdk.chat_postMessage(
                channel=post.target.chat_id,
                thread_ts=post.target.thread,
                text=post_text(post),
                mrkdwn=not post.as_plain,
                attachments=post_attachments(post),
                unfurl_links=False,
                unfurl_media=False,
                metadata=post_metadata(post.key),
            )
        )
        return str(reply.get("ts", ""))

    async def edit(self, ts: str, post: Post) -> None:
        """Replace a message with a post. Raises NotDelivered, ChannelBroken."""
        wait_s = self._edits_at - time.monotonic()
        if wait_s > 0:  # the edits of a workspace have one budget: asking again would only make it longer
            raise Throttled(wait_s)
        try:
            await self._calls.call_visible(
                self._calls.sdk.chat_update(
                    channel=post.target.chat_id,
                    ts=ts,
                    text=post_text(post),
                    parse="none",  # what holds for a new message without saying it
                    attachments=post_attachments(post),
                    metadata=post_metadata(post.key),
                )
            )
        except Throttled as throttled:
            self._edits_at = time.monotonic() + throttled.retry_after_s
            raise

    async def find(self, post: Post) -> str | None:
        """Return the ts of a post that was already shown, or None. Raises NotDelivered,
        ChannelBroken."""
        sdk, thread = self._calls.sdk, post.target.thread
        where: dict[str, Any] = {
            "channel": post.target.chat_id,
            "oldest": str(int(time.time()) - LOOK_BACK_S),
            "limit": PAGE,
            "include_all_metadata": True,
        }
        for _ in range(PAGES):
            asking = (
                sdk.conversations_history(**where) if thread is None else sdk.conversations_replies(ts=thread, **where)
            )
            try:
                # A failed look-up must not look like "not found": that would send the post twice.
                reply = await self._calls.call_invisible(asking)
            except ScopeMissing as exc:  # sent again without a look it might be there twice
                raise NotAccepted(str(exc)) from exc
            for message in reply.get("messages") or ():
                ours = self._me.bot_id == message.get("bot_id") or self._me.user_id == message.get("user")
                if ours and has_mark(message, post.key):
                    return str(message.get("ts", ""))
            where["cursor"] = (reply.get("response_metadata") or {}).get("next_cursor")
            if not where["cursor"]:
                break
        return None

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent. Raises NotDelivered."""
        return files.download_file(self._calls, file)
