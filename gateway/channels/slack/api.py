"""One bot of Slack: who it is, what it posts, what it finds again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Final

from gateway.channels.slack import files, sockets
from gateway.channels.slack.calls import Calls
from gateway.channels.slack.contents import Me
from gateway.channels.slack.posted import attachments, is_marked, metadata, text
from gateway.channels.slack.refusals import ScopeMissing, refusal
from gateway.platform.protocol import ChannelBroken, NotAccepted, Post, RemoteFile, Throttled

PAGE: Final = 200
PAGES: Final = 10
LOOK_BACK_S: Final = 90_000
"""No post is tried for longer than a day."""


class Api:
    """`timeout_s` is for a whole call."""

    def __init__(self, token: str, base: str, *, app_token: str = "", timeout_s: float) -> None:
        self._token, self._base, self._timeout_s = token, base, timeout_s
        self._app_token = app_token
        self._opened: Calls | None = None
        self._me = Me("", "", "")
        self._edits_at = 0.0

    @property
    def _calls(self) -> Calls:
        if self._opened is None:
            raise NotAccepted("the channel is not open")
        return self._opened

    async def open(self) -> Me:
        """Find out who we are. Raises ChannelBroken, NotAccepted."""
        if self._opened is None:
            self._opened = Calls(self._token, self._base, timeout_s=self._timeout_s)
        told = await self._calls.sure(self._calls.sdk.auth_test())
        granted = told.headers.get("x-oauth-scopes")
        if granted is not None and "chat:write" not in granted.replace(" ", "").split(","):
            raise refusal("missing_scope", status=200, needed="chat:write")
        self._me = Me(*(str(told.get(name) or "") for name in ("team_id", "user_id", "bot_id", "user")))
        if not (self._me.team_id and self._me.user_id and self._me.bot_id):
            raise ChannelBroken("channels.slack.token is not that of a bot; copy the one that begins with xoxb-")
        return self._me

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def connect(self) -> sockets.Connection:
        """One connection of Socket Mode. Raises ChannelBroken, NotAccepted."""
        return await sockets.connect(self._calls, self._app_token)

    async def send(self, post: Post) -> str:
        """The ts of what was posted; of a file its id. Raises NotDelivered, ChannelBroken."""
        if post.file is not None:
            return await files.upload(self._calls, post)
        told = await self._calls.shown(
            self._calls.sdk.chat_postMessage(
                channel=post.target.chat_id,
                thread_ts=post.target.thread,
                text=text(post),
                mrkdwn=not post.as_plain,
                attachments=attachments(post),
                unfurl_links=False,
                unfurl_media=False,
                metadata=metadata(post.key),
            )
        )
        return str(told.get("ts", ""))

    async def edit(self, ts: str, post: Post) -> None:
        """Raises NotDelivered, ChannelBroken."""
        wait_s = self._edits_at - time.monotonic()
        if wait_s > 0:  # the edits of a workspace have one budget: asking again would only make it longer
            raise Throttled(wait_s)
        try:
            await self._calls.shown(
                self._calls.sdk.chat_update(
                    channel=post.target.chat_id,
                    ts=ts,
                    text=text(post),
                    parse="none",  # what holds for a new message without saying it
                    attachments=attachments(post),
                    metadata=metadata(post.key),
                )
            )
        except Throttled as throttled:
            self._edits_at = time.monotonic() + throttled.retry_after_s
            raise

    async def find(self, post: Post) -> str | None:
        """The ts of a post that is there already; None = it is not. Raises NotDelivered,
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
                told = await self._calls.unseen(asking)
            except ScopeMissing as exc:  # sent again without a look it might be there twice
                raise NotAccepted(str(exc)) from exc
            for message in told.get("messages") or ():
                ours = self._me.bot_id == message.get("bot_id") or self._me.user_id == message.get("user")
                if ours and is_marked(message, post.key):
                    return str(message.get("ts", ""))
            where["cursor"] = (told.get("response_metadata") or {}).get("next_cursor")
            if not where["cursor"]:
                break
        return None

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """The bytes of a file of a person, in parts. Raises NotDelivered."""
        return files.fetch(self._calls, file)
