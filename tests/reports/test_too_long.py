"""A prompt that does not fit, in the words of each provider."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from shared.messages.transcript import AssistantEntry, UserEntry
from tests.reports.provider import provider, refusal, report, text_stream, turn
from worker.llm.clients.faults import kind_of_error, kind_of_refusal

WORDINGS: Final = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "openai-responses": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "openai-string": "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, "
    "but got a string with length 1179648 instead.",
    "openai-array": "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array "
    "with length 2100 instead.",
    "azure": "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
    "github-models": "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "copilot": "prompt token count of 140000 exceeds the limit of 128000",
    "anthropic": "prompt is too long: 209166 tokens > 200000 maximum",
    "anthropic-both": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input "
    "length or `max_tokens` and try again",
    "bedrock": "Input is too long for requested model.",
    "bedrock-nova": "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to "
    "try again.",
    "bedrock-titan": "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "gemini-old": "The input token count exceeds the maximum number of tokens allowed 1048576.",
    "vertex": "Unable to submit request because the input token count is 40000 but model only supports up to 32768. "
    "Reduce the input token count and try again.",
    "mistral": "Prompt contains 33000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a "
    "shorter prompt.",
    "cohere-size": "too many tokens: size limit exceeded by 1234 tokens. Try using shorter or fewer inputs.",
    "groq": "Please reduce the length of the messages or completion.",
    "cerebras": "Please reduce the length of the messages or completion. Current length is 10000 while limit is 8192",
    "together": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 "
    "`inputs` tokens "
    "and 512 `max_new_tokens`",
    "tgi": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "qwen": "Range of input length should be [1, 129024]",
    "qwen-internal": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
    "glm": "Prompt exceeds max length",
    "glm-chinese": "Prompt 超长",
    "glm-chinese-long": "输入内容过长，请缩短后重试",
    "spark": "token数量超过上限。对话历史+问题的字数太多，需要精简输入",
    "hunyuan": "输入tokens超过模型上限",
    "minimax": "invalid params, context window exceeds limit (2013)",
    "kimi": "Invalid request: Your request exceeded model token limit: 262144",
    "kimi-requested": "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "kimi-input": "Input token length too long",
    "siliconflow": "length of prompt_tokens (40000) must be less than max_seq_len (32768).",
    "doubao": "Total tokens of image and text exceed max message tokens",
    "doubao-length": "Input length 100000 exceeds the maximum length 98304",
    "lm-studio": "The number of tokens to keep from the initial prompt is greater than the context length. Try to load "
    "the model with a larger context length, or provide a shorter input",
    "lm-studio-keep": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
    "with context length of only 4096 tokens, which is not enough.",
    "lm-studio-reached": "Reached context length of 4096 tokens with this model, but it does not support overflow",
    "ollama": "the input length exceeds the context length",
    "ollama-maximum": "input length exceeds maximum context length",
    "ollama-cloud": "prompt too long; exceeded max context length by 4 tokens",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size or enable context "
    "shift",
    "llama.cpp-numbers": "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "llama.cpp-input": "input is larger than the max context size. skipped",
    "llama.cpp-batch": "input is too large to process. increase the physical batch size",
    "vllm": "The prompt (total length 40000) is too long to fit into the model (context length 32768).",
    "vllm-decoder": "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that "
    "`max_model_len` is no smaller than the number of text tokens.",
    "vllm-zero": "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens "
    "and your "
    "prompt contains at least 262145 input tokens, for a total of at least 262145 tokens.",
    "vllm-passed": "You passed 40961 input tokens and requested 0 output tokens. However, the model's context "
    "length is "
    "only 40960 tokens, resulting in a maximum input length of 40960 tokens.",
    "vllm-max-tokens": "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum "
    "context length "
    "is 8192 tokens and your request has 7000 input tokens (4096 > 8192 - 7000).",
    "sglang": "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
    "sglang-length": "Input length (40000 tokens) exceeds the maximum allowed length (32767 tokens). Use a "
    "shorter input "
    "or enable --allow-auto-truncate.",
    "sglang-total": "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a "
    "total of 5000 tokens.",
    "openrouter": "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens "
    '(190000 of text input, 10000 in the output). Please reduce the length of either one, or use the "middle-out" '
    "transform to compress your prompt automatically.",
    "tensorrt": "Prompt length (5000) exceeds maximum input length (4096). Set log level to info and check",
    "fireworks": "The prompt is too long: 140000, model maximum context length: 131071",
    "watsonx": "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
    "cloudflare": "The estimated number of input and maximum output tokens (9000) exceeded this model context window "
    "limit (7968).",
    "ernie": "the max input characters is 24000",
    "localai": "context length exceeded",
    "gpt4all": "ERROR: The prompt size exceeds the context window size and cannot be processed.",
    "text-generation-webui": "Prompt length of 5000 exceeds maximum of 4096",
}

OTHERS: Final = {
    "max-tokens": "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you "
    "provided 100000.",
    "max-tokens-anthropic": "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens "
    "for claude",
    "max-tokens-groq": "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens`",
    "max-tokens-deepseek": "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "max-tokens-qwen": "Range of max_tokens should be [1, 8192]",
    "image": "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 5808776 bytes > 5242880 bytes",
    "image-pixels": "messages.0.content.0.image: image dimensions exceed max allowed size: 8000 pixels",
    "image-large": "Invalid request: image is too large",
    "tools": "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length "
    "150 instead.",
    "tool-name": "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, "
    "but got a "
    "string with length 70 instead.",
    "id": "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, "
    "but got a "
    "string with length 700 instead.",
    "cache": "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    "temperature": "temperature must be in the range (0, 2)",
    "model": "The model `gpt-9` does not exist or you do not have access to it.",
    "role": "roles must alternate user/assistant",
    "dates": "model claude-3-20251122 was retired; token 20241022 > 20240101",
    "json": "Failed to parse the request body as JSON: messages[0].content: EOF at line 1 column 100",
    "nothing": "",
}

TOMORROW: Final = {
    "tokens": "Your 140,000 tokens do not fit: this model takes 131,072.",
    "length": "Bad length 70000 (allowed: 65536)",
    "context": "Context of 9_000 is over 8_192",
    "chinese": "长度 9000 大于 8192",
}

SHAPES: Final[dict[str, Any]] = {
    "openai": lambda text: {"error": {"message": text, "type": "invalid_request_error", "code": None}},
    "vllm": lambda text: {"object": "error", "message": text, "type": "BadRequestError", "code": 400},
    "siliconflow": lambda text: {"code": 20015, "message": text, "data": None},
    "google": lambda text: [{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}],
    "gateway": lambda text: {
        "error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": _json({"error": text})}}
    },
    "fastapi": lambda text: {"detail": [{"loc": ["body"], "msg": text}]},
}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_published_wording_is_a_prompt_that_is_too_long(shape: str) -> None:
    """Whatever object it is wrapped in."""
    wrapped = {name: _json(SHAPES[shape](text)) for name, text in WORDINGS.items()}
    kinds = {name: kind_of_refusal(400, body) for name, body in wrapped.items()}
    assert {name: kind for name, kind in kinds.items() if kind != "context_length"} == {}


@pytest.mark.parametrize("name", WORDINGS)
def test_a_wording_is_known_as_plain_text_and_inside_a_stream(name: str) -> None:
    text = WORDINGS[name]
    assert kind_of_refusal(400, text) == kind_of_refusal(500, text) == "context_length"
    assert kind_of_error({"message": text}, "connection") == kind_of_error(text, "connection") == "context_length"


@pytest.mark.parametrize("name", TOMORROW)
def test_a_size_above_a_limit_is_known_in_new_words(name: str) -> None:
    """In a 400 alone: elsewhere such numbers may be anything."""
    body = _json({"error": {"message": TOMORROW[name]}})
    assert kind_of_refusal(400, body) == "context_length"
    assert kind_of_refusal(503, body) == "overloaded"


@pytest.mark.parametrize("name", OTHERS)
def test_a_refusal_of_something_else_is_no_long_prompt(name: str) -> None:
    """To shorten the conversation for it would lose what was said, and help nothing."""
    assert kind_of_refusal(400, _json({"error": {"message": OTHERS[name]}})) == "bad_request"


@pytest.mark.parametrize("body", ["", "<html>413 Request Entity Too Large</html>", '{"error": {"message": "no"}}'])
def test_status_413_is_a_prompt_that_is_too_long_whatever_it_says(body: str) -> None:
    assert kind_of_refusal(413, body) == "context_length"


def test_a_prompt_over_the_tokens_of_a_whole_minute_is_too_long() -> None:
    """No wait lets it through. Another 429 with the same words in it is one that waiting helps."""
    over = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000. The input or output "
    over += "tokens must be reduced in order to run successfully."
    assert kind_of_refusal(429, over) == kind_of_refusal(413, over) == "context_length"
    busy = "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 4000."
    assert kind_of_refusal(429, busy) == "rate_limit"


LONG_CHARS: Final = 60_000
HISTORY: Final = tuple(
    entry
    for n in range(70)
    for entry in (UserEntry(content="q" * 500, turn=n), AssistantEntry(content="a" * 500, turn=n))
)
MESSAGES: Final = [*report("p-too-long.json")["messages"], *report("ok-too-long.json")["messages"]]


@pytest.mark.parametrize(
    ("status", "message"), [*((400, message) for message in MESSAGES), (413, "any text"), (500, MESSAGES[4])]
)
async def test_a_turn_that_is_too_long_is_compacted_and_answered(status: int, message: str) -> None:
    def rule(body: dict[str, Any]) -> tuple[int, Any]:
        if "You keep the notes" in str(body["messages"][0]["content"]):
            return 200, text_stream("notes: ok")
        if len(_json(body)) > LONG_CHARS:
            return status, refusal(message)
        return 200, text_stream("fits now")

    async with provider(rule) as served:
        result = await turn(served.settings(), history=HISTORY, memory_window=200)
    assert result.content == "fits now"


BEFORE: Final = {
    "test_every_published_wording_is_a_prompt_that_is_too_long": 0,
    "test_a_wording_is_known_as_plain_text_and_inside_a_stream": 22,
    "test_a_size_above_a_limit_is_known_in_new_words": 0,
    "test_a_refusal_of_something_else_is_no_long_prompt": 18,
    "test_status_413_is_a_prompt_that_is_too_long_whatever_it_says": 0,
    "test_a_prompt_over_the_tokens_of_a_whole_minute_is_too_long": 0,
    "test_a_turn_that_is_too_long_is_compacted_and_answered": 2,
}
