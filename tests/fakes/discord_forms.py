"""What Discord's HTTP API answers: JSON, its errors, and what it finds wrong with the form of a message."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

LIMIT, NONCE, CUSTOM_ID, LABEL, ROWS, IN_ROW = 2000, 25, 100, 80, 5, 5


def ok(body: Any) -> web.Response:
    """The SDK reads JSON only where the type is exactly this."""
    return web.Response(body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})


def error(status: int, code: int, message: str, **more: Any) -> web.Response:
    """An error in Discord's form."""
    body = json.dumps({"message": message, "code": code, **more})
    return web.Response(status=status, body=body.encode(), headers={"Content-Type": "application/json"})


def invalid(field: str, code: str, message: str) -> web.Response:
    """A form with something wrong in it."""
    errors = {field: {"_errors": [{"code": code, "message": message}]}}
    return error(400, 50035, "Invalid Form Body", errors=errors)


def throttled(retry_after_s: float, *, whole_bot: bool) -> web.Response:
    """Too many calls: into one channel, or at all."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after_s, "global": whole_bot}
    headers = {"Content-Type": "application/json", "Retry-After": str(int(retry_after_s) + 1), "Via": "1.1 google"}
    headers |= {"X-RateLimit-Scope": "global" if whole_bot else "user"}
    if whole_bot:
        headers["X-RateLimit-Global"] = "true"
    return web.Response(status=429, body=json.dumps(body).encode(), headers=headers)


def wrong(body: dict[str, Any], file: bytes | None) -> web.Response | None:
    """What is wrong with the form of a message; None = nothing."""
    content = str(body.get("content", ""))
    if len(content.encode("utf-16-le")) // 2 > LIMIT:
        return invalid("content", "BASE_TYPE_MAX_LENGTH", f"Must be {LIMIT} or fewer in length.")
    if not content.strip() and file is None:
        return error(400, 50006, "Cannot send an empty message")
    if len(str(body.get("nonce", ""))) > NONCE:
        return invalid("nonce", "NONCE_TYPE_TOO_LONG", f"Nonce must be {NONCE} or fewer in length.")
    rows = body.get("components", [])
    buttons = [button for row in rows for button in row["components"]]
    ids = [button["custom_id"] for button in buttons]
    if len(rows) > ROWS or any(not 0 < len(row["components"]) <= IN_ROW for row in rows):
        return invalid("components", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {IN_ROW} in length.")
    if any(not 0 < len(id) <= CUSTOM_ID for id in ids):
        return invalid("components", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {CUSTOM_ID} in length.")
    if len(set(ids)) < len(ids):
        return invalid("components", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
    if any(not 0 < len(button["label"]) <= LABEL for button in buttons):
        return invalid("components", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {LABEL} in length.")
    return None


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message as it is told: without what only the fake knows of it."""
    return {name: value for name, value in message.items() if name not in ("file", "allowed_mentions")}


def by_id(message: dict[str, Any]) -> int:
    """The order of messages."""
    return int(message["id"])
