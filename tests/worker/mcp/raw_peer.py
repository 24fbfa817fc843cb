"""An MCP server that answers with whatever a test says, also with what is malformed: `raw_peer.py NOTES`.

NOTES is a folder: `answers.json` maps methods to the rest of the answer, such as `{"tools/list": {"result": null}}`;
`calls` gets a line for each call.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NOTES = Path(sys.argv[1])
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["method"] == "initialize":
        return {"result": HELLO}
    if request["method"] == "tools/call":
        with (NOTES / "calls").open("a") as calls:
            calls.write(json.dumps(request["params"]) + "\n")
    answers: dict[str, dict[str, Any]] = json.loads((NOTES / "answers.json").read_text())
    return answers.get(request["method"], {"error": {"code": -32601, "message": "no such method"}})


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer(request)}), flush=True)
