"""The library of Standard Webhooks and OpenAI's client, which verify our calls; the former also signs calls to us. Run
by a test in an environment of its own."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import openai
import standardwebhooks  # type: ignore[import-not-found]


def main() -> None:
    """Read the secret, our calls, and bodies to sign; write what became of each."""
    asked: dict[str, Any] = json.load(sys.stdin)
    hook = standardwebhooks.Webhook(asked["secret"])
    client = openai.OpenAI(api_key="none", webhook_secret=asked["secret"])
    verified, unwrapped, signed = [], [], []
    for headers, body in asked["calls"]:
        verified.append(hook.verify(body, headers)["type"])
        event = client.webhooks.unwrap(body, headers)
        unwrapped.append([type(event).__name__, event.id, event.type])
    for id, body in asked["bodies"]:
        # Another zone would be signed as if it were UTC.
        at = datetime.now(UTC)
        signature = hook.sign(id, at, body)
        headers = {"webhook-id": id, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
        signed.append(headers)
    print(json.dumps({"verified": verified, "unwrapped": unwrapped, "signed": signed}))


main()
