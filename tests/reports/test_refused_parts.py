"""Parts of a request that a model refuses, in the words of each provider: asked once more without it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec
import pytest

from shared.settings.sections.language_models import RequestPart
from tests.reports.provider import Body, Rule, provider, refusal, report, text_stream, turn
from worker.agent.model.context_window import REFUSED
from worker.agent.model.model import Image
from worker.llm.clients.omissions import NAMES, NOT_SHOWN, Omissions

PICTURE: Final = Image("image/png", b"png")
SHOWN: Final = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"png").decode()}}
BODY: Final[Body] = {
    "model": "x",
    "messages": [
        {"role": "user", "content": [SHOWN, {"type": "text", "text": "what is it?"}]},
        *(
            {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}], **thoughts}
            for thoughts in ({"reasoning_content": "hm"}, {})
        ),
    ],
    "max_tokens": 9,
    "temperature": 0.7,
    "top_p": 0.9,
    "seed": 7,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "stream_options": {"include_usage": True},
}
WORDINGS: Final[dict[str, tuple[str, ...]]] = {
    "images": (
        (
            "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, "
            "expected `text` at line 1 column 100"
        ),
        "No endpoints found that support image input",
        "Invalid content type. image_url is only supported by certain models.",
        "This model does not support image input.",
        "this model does not support images",
        "/models/llama is not a multimodal model",
        "messages[1].content must be a string",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "The model does not support vision.",
        "Image inputs are not supported by this model",
        "content type image_url is not supported",
        "Model does not support multimodal input",
    ),
    "stream_options": (
        "Unrecognized request argument supplied: stream_options",
        "stream_options: Extra inputs are not permitted",
        "The parameter stream_options is not supported",
        "Unknown parameter: 'stream_options.include_usage'.",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]",
    ),
    "max_tokens": (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "this model is not supported MaxTokens, please use MaxCompletionTokens: use max_completion_tokens",
    ),
    "reasoning_content": (
        "messages.1.assistant.reasoning_content: Extra inputs are not permitted",
        "Unrecognized request argument supplied: reasoning_content",
        "Additional properties are not allowed ('reasoning_content' was unexpected)",
        "Please remove the reasoning_content from your message to reduce network traffic.",
    ),
    "calls_without_thoughts": (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        "Missing `reasoning_content` field in the assistant message at message index 3",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "messages[2].reasoning_content is required when thinking is enabled",
    ),
    "temperature": (
        "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) is supported.",
        "Unsupported parameter: 'temperature' is not supported with this model.",
        "invalid temperature: only 1 is allowed for this model",
        "`temperature` may only be set to 1 when thinking is enabled.",
        "`temperature` is deprecated for this model.",
        "`temperature` and `top_p` cannot both be specified for this model.",
        "temperature: Extra inputs are not permitted",
    ),
    "top_p": (
        "Unsupported parameter: 'top_p' is not supported with this model.",
        "top_p: Extra inputs are not permitted",
    ),
    "seed": (
        "Unknown parameter: 'seed'.",
        "property 'seed' is unsupported",
        'Invalid JSON payload received. Unknown name "seed": Cannot find field.',
    ),
    "parallel_tool_calls": (
        "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
        "Unknown parameter: 'parallel_tool_calls'.",
        "parallel tool calls are not supported by this model",
    ),
    "tool_choice": (
        "deepseek-reasoner does not support this tool_choice",
        "'tool_choice' is not supported with this model",
    ),
    "tools": (
        "registry.ollama.ai/library/gemma:2b does not support tools",
        "No endpoints found that support tool use. To learn more about provider routing, visit: https://openrouter.ai",
        "`tool calling` is not supported with this model",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "This model does not support tool use in streaming mode.",
        "Function calling is not enabled for models/gemma-3-27b-it",
        "Unrecognized request arguments supplied: tool_choice, tools",
        "tools is not supported in this model",
        "tools: Extra inputs are not permitted",
        "This model doesn't support function calling",
        "Unsupported parameter: 'tools' is not supported with this model.",
    ),
}
OTHERS: Final = (
    "The model `x` does not exist or you do not have access to it.",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "Invalid schema for function 'a': object schema missing properties",
    "roles must alternate user/assistant",
    "image exceeds 5 MB maximum: 5808776 bytes > 5242880 bytes",
    "Invalid 'tools': array too long. Expected an array with maximum length 128.",
    "Invalid tool call arguments",
    "Invalid image_url: it could not be decoded",
    "no",
    "",
)


def worded() -> Iterator[Any]:
    for part, texts in WORDINGS.items():
        for at, text in enumerate(texts):
            yield pytest.param(part, text, id=f"{part}-{at}")


def changed(omissions: Omissions) -> set[str]:
    sent = omissions.applied(BODY)
    return {key for key in BODY.keys() | sent.keys() if BODY.get(key) != sent.get(key)}


CHANGES: Final = {
    "images": {"messages"},
    "reasoning_content": {"messages"},
    "calls_without_thoughts": {"messages"},
    "max_tokens": {"max_tokens", "max_completion_tokens"},
    "tools": {"tools", "tool_choice"},
}


@pytest.mark.parametrize(("part", "text"), [*worded()])
def test_a_refusal_names_the_part_that_the_model_refuses(part: str, text: str) -> None:
    """That part alone is left out from now on."""
    omissions = Omissions("x")
    assert omissions.learn(400, msgspec.json.encode(refusal(text)).decode(), BODY)
    assert changed(omissions) == CHANGES.get(part, {part})


@pytest.mark.parametrize("text", OTHERS)
def test_a_refusal_of_something_else_changes_nothing(text: str) -> None:
    omissions = Omissions("x")
    assert not omissions.learn(400, text, BODY)
    assert changed(omissions) == set()


def test_a_part_that_was_not_sent_is_not_the_cause() -> None:
    """So that no request is repeated as it was."""
    assert not Omissions("x").learn(400, WORDINGS["temperature"][0], {"messages": []})


def test_the_new_name_of_max_tokens_may_be_the_wrong_one() -> None:
    omissions = Omissions("x")
    assert omissions.learn(
        400, "Unknown parameter: 'max_completion_tokens'.", {"messages": [], "max_completion_tokens": 9}
    )
    assert omissions.applied({"messages": [], "max_completion_tokens": 9}) == {"messages": [], "max_tokens": 9}


def test_the_setting_has_the_same_names() -> None:
    assert set(get_args(RequestPart)) == set(NAMES)


def refusing(part: str, text: str, status: int = 400) -> Rule:
    """Refuse requests with the part."""
    return lambda body: (
        (status, refusal(text)) if Omissions("x", [part]).applied(body) != body else (200, text_stream("hello"))
    )


@pytest.mark.parametrize("part", ["images", "stream_options", "max_tokens", "temperature", "tools"])
async def test_a_turn_is_answered_without_the_part_and_asks_once_more(part: str) -> None:
    async with provider(refusing(part, WORDINGS[part][0])) as served:
        result = await turn(served.settings(), images=(PICTURE,))
    assert (result.content, len(served.requests)) == ("hello", 2)
    assert (NOT_SHOWN in str(served.requests[-1])) is (part == "images")


async def test_what_the_settings_leave_out_is_never_sent() -> None:
    async with provider(refusing("temperature", "no")) as served:
        result = await turn(served.settings(omit={"openai/x": ("temperature",)}))
    assert (result.content, len(served.requests)) == ("hello", 1)


@pytest.mark.parametrize(
    "refused", report("p-photo-refused.json")["refusals"], ids=["deepseek", "openrouter", "too-big"]
)
async def test_a_refused_picture_is_left_out_and_the_model_knows_it(refused: dict[str, Any]) -> None:
    """Also the person's own, and one that is only too big."""
    async with provider(refusing("images", refused["message"], refused["status"])) as served:
        result = await turn(served.settings(), images=(PICTURE,))
    remark = str(served.requests[-1]["messages"][-1]["content"])
    assert (result.content, len(served.requests)) == ("hello", 2)
    assert NOT_SHOWN in remark or REFUSED in remark
    assert "question" in remark


BEFORE: Final = {
    "test_a_refusal_names_the_part_that_the_model_refuses": 0,
    "test_a_refusal_of_something_else_changes_nothing": 10,
    "test_a_part_that_was_not_sent_is_not_the_cause": 1,
    "test_the_new_name_of_max_tokens_may_be_the_wrong_one": 0,
    "test_the_setting_has_the_same_names": 0,
    "test_a_turn_is_answered_without_the_part_and_asks_once_more": 0,
    "test_what_the_settings_leave_out_is_never_sent": 0,
    "test_a_refused_picture_is_left_out_and_the_model_knows_it": 0,
}
