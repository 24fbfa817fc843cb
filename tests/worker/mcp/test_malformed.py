"""Servers that list malformed tools, and answer calls with malformed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError
from structlog.testing import capture_logs

from shared.settings import McpServerSettings
from tests.reports.provider import provider
from tests.worker.mcp.peers import raw_peer, working
from worker.mcp.raw_dispatcher import answer_unparsed

DATA = Path(__file__).parents[2] / "data" / "reports"
GOOD = {"name": "good", "inputSchema": {"type": "object"}}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}
UNREADABLE = "[part that cannot be read: {}; not shown here]"
RAN = "the MCP server 'peer' ran 'good', but its answer could not be read"


def report(name: str) -> Any:
    return msgspec.json.decode((DATA / f"{name}.json").read_bytes())


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        *((next(one for one in tools if one != GOOD), "bad") for tools in report("m-bad-tool")["lists"]),
        ({"name": "bad", "inputSchema": "{}"}, "bad"),
        ({**GOOD, "name": "bad", "annotations": "read-only"}, "bad"),
        ({**GOOD, "name": "bad", "description": ["a"]}, "bad"),
        ({**GOOD, "name": "bad", "title": 1}, "bad"),
        ({**GOOD, "name": "bad", "inputSchema": {"anyOf": [{"type": "string"}]}}, "bad"),
        ({**GOOD, "name": None}, "(entry 1)"),
        ({**GOOD, "name": ""}, "(entry 1)"),
        ({**GOOD, "name": 7}, "(entry 1)"),
        ({"inputSchema": {}}, "(entry 1)"),
        ("bad", "(entry 1)"),
        (None, "(entry 1)"),
        ([GOOD], "(entry 1)"),
        ({"name": "good"}, "good"),
    ],
)
async def test_a_malformed_tool_hides_only_itself(tmp_path: Path, bad: Any, name: str) -> None:
    """It is logged once, and operators read why it is left out."""
    with capture_logs() as logs:
        async with working(peer=raw_peer(tmp_path, bad, GOOD)) as worker:
            assert await worker.names() == ["mcp_peer_good"]
            worker.servers._discard_tools()
            assert await worker.names() == ["mcp_peer_good"]
            details = worker.servers.details()
    assert [one["tool"] for one in logs if one["event"] == "mcp tool refused"] == [name]
    assert details["mcp.peer"] == "1 tools"
    assert details["tools_left_out.why"].startswith(f"{name!r} of the MCP server 'peer': it")


@pytest.mark.parametrize(
    "extra",
    [
        {"description": None, "title": None, "annotations": None},
        {"annotations": {"readOnlyHint": None, "custom": 1}},
        {"outputSchema": None, "icons": "x", "_meta": 3, "execution": []},
    ],
)
async def test_what_shoal_does_not_use_may_be_malformed(tmp_path: Path, extra: dict[str, Any]) -> None:
    """The tool can be called all the same."""
    result = {"content": [{"type": "text", "text": "hello"}]}
    async with working(peer=raw_peer(tmp_path, {**GOOD, **extra}, result=result)) as worker:
        assert await worker.names() == ["mcp_peer_good"]
        assert "\nhello\n" in (await worker.call("mcp_peer_good")).content


async def test_tools_with_dangling_references_are_repaired(tmp_path: Path) -> None:
    """Where nothing says what an argument is, it may be anything. The log names them once."""
    with capture_logs() as logs:
        async with working(peer=raw_peer(tmp_path, *report("m-dangling-ref")["tools"])) as worker:
            box = await worker.boxes.current()
            offered = {spec.name: spec.parameters["properties"] for spec in box.specs()}
            worker.servers._discard_tools()
            await worker.names()
            assert "tools_left_out.why" not in worker.servers.details()
    repaired = [one["tools"] for one in logs if one["event"] == "mcp tool schemas repaired"]
    assert repaired == [["pick", "search"]]
    assert offered == {
        "mcp_peer_good": {"a": {"type": "string"}},
        "mcp_peer_pick": {"f": {}},
        "mcp_peer_search": {"filter": {}},
    }


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (report("m-no-content")["result"], ['{"x":1}']),
        ({"structuredContent": {"x": 2**70}, "content": None}, ['{"x":1180591620717411303424}']),
        ({"structuredContent": [1], "content": []}, ["[1]"]),
        ({"structuredContent": {"x": 1}, "content": [3]}, ['{"x":1}', UNREADABLE.format("nothing is known of it")]),
        ({"content": "hello"}, ["hello"]),
        ({"content": {"type": "text", "text": "hello"}}, ["hello"]),
        ({"content": ["hello", {"text": "you"}]}, ["hello", "you"]),
        ({"content": [{"type": "text", "text": {"x": 1}}]}, ['{"x":1}']),
        (
            {"content": [{"type": "video", "url": "x"}, {"type": "text", "text": "hello"}, {"type": "text"}]},
            [
                UNREADABLE.format("of the kind 'video'"),
                "hello",
                UNREADABLE.format("of the kind 'text'"),
            ],
        ),
        ({"content": [{"type": "image", "data": "aGVsbG8h"}]}, ["[image: 6 bytes; not shown here]"]),
        ({"content": [{"type": "text", "text": "hello"}], "isError": "false"}, ["hello"]),
        ({"content": [{"type": "text", "text": "hello"}], "isError": None, "_meta": 1}, ["hello"]),
        (
            {"content": [{"type": "text", "text": "hello"}], "isError": {}},
            ["hello", "[isError: neither true nor false: whether the call failed is unknown; not shown here]"],
        ),
        ({"content": []}, ["(nothing)"]),
    ],
)
async def test_what_can_be_read_of_a_result_is_read(tmp_path: Path, result: Any, lines: list[str]) -> None:
    """The rest is named."""
    async with working(peer=raw_peer(tmp_path, GOOD, result=result)) as worker:
        outcome = await worker.call("mcp_peer_good")
    assert outcome.ok
    assert outcome.content.split("\n")[2:-1] == lines


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": None},
        {"content": 7},
        {"content": [None, 7, {"type": "text"}, {"type": "hologram"}]},
        {"content": [{"type": "image"}], "isError": "maybe"},
        {"structuredContent": None},
        None,
        "done",
        [{"type": "text", "text": "hello"}],
        7,
    ],
)
async def test_a_result_that_cannot_be_read_is_no_refusal(tmp_path: Path, result: Any) -> None:
    """The call ran, once: corrected and called again, it would do its work twice."""
    async with working(peer=raw_peer(tmp_path, GOOD, result=result, timeout_s=30.0)) as worker:
        outcome = await worker.call("mcp_peer_good")
    assert outcome.outcome == "failed"
    assert RAN in outcome.content
    assert "before you call it again" in outcome.content
    assert "refused" not in outcome.content
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


async def test_a_failure_without_content_is_a_failure(tmp_path: Path) -> None:
    """What a server says of itself counts, also in a word."""
    for failed in (True, "true"):
        async with working(peer=raw_peer(tmp_path, GOOD, result={"isError": failed})) as worker:
            assert "it failed and does not say why" in (await worker.call("mcp_peer_good")).content


@pytest.mark.parametrize("result", [None, [], {"content": None}])
async def test_a_result_over_http_that_cannot_be_read_is_no_refusal(result: Any) -> None:
    """Also where the library answers with an error of its own in place of what it could not parse."""
    calls = []

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        results = {"initialize": HELLO, "tools/list": {"tools": [None, GOOD]}, "tools/call": result}
        if body["method"] == "tools/call":
            calls.append(body)
        reply = {"jsonrpc": "2.0", "id": body.get("id"), "result": results.get(body["method"])}
        return (200, reply) if "id" in body else (202, {})

    async with provider(answer) as served:
        settings = McpServerSettings(url=f"http://127.0.0.1:{served.port}/mcp")
        async with working(peer=settings) as worker:
            assert await worker.names() == ["mcp_peer_good"]
            outcome = await worker.call("mcp_peer_good")
    assert RAN in outcome.content
    assert len(calls) == 1


def test_an_error_that_is_no_object_is_an_error() -> None:
    """A call that failed does not wait until its time is over."""
    for error in ("boom", {"message": "boom"}, {"code": "x", "message": "boom"}):
        line = json.dumps({"jsonrpc": "2.0", "id": 7, "error": error})
        with pytest.raises(ValidationError) as caught:
            jsonrpc_message_adapter.validate_json(line, by_name=False)
        answered = answer_unparsed(caught.value)
        assert isinstance(answered, SessionMessage)
        assert isinstance(answered.message, JSONRPCError)
        assert (answered.message.id, answered.message.error.message) == (7, "boom")


@pytest.mark.parametrize(
    "line", ["no json", "[]", "{}", '{"id": 7, "method": 3, "result": null}', '{"id": null, "result": null}']
)
def test_what_is_no_answer_stays_a_fault(line: str) -> None:
    """Nothing is answered by guessing."""
    with pytest.raises(ValidationError) as caught:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    assert answer_unparsed(caught.value) is caught.value


BEFORE = {
    "test_a_malformed_tool_hides_only_itself": 0,
    "test_tools_with_dangling_references_are_repaired": 0,
    "test_what_can_be_read_of_a_result_is_read": 2,
    "test_a_result_that_cannot_be_read_is_no_refusal": 0,
    "test_a_result_over_http_that_cannot_be_read_is_no_refusal": 0,
}
"""Of each kind, how many inputs were right before; see `python -m tests.reports`."""
