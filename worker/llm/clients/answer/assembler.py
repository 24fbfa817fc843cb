"""Assembly of a reply from an answer, or from the chunks of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from worker.agent.model.model import LLMResponse, TokenUsage, ToolCallRequest, ToolSpec
from worker.llm.clients.answer.calls import assemble_calls, separate_calls
from worker.llm.clients.answer.characters import join_halves
from worker.llm.clients.answer.decoder import AnswerDecoder
from worker.llm.clients.answer.endings import (
    FAULTS,
    STOP,
    TOOL_CALLS,
    ending_of,
    looks_ended,
    strongest,
)
from worker.llm.clients.arguments import is_whole
from worker.llm.clients.completion import (
    CallPiece,
    ChatCompletion,
    WireChoice,
    WireMessage,
    WireUsage,
)


class ReplyAssembler:
    """Assembles one reply. `tools` were on offer. Of several answers that a provider gives at once,
    the one counts that begins first. `ending` is how it ended, as far as its provider has said."""

    def __init__(self, decoder: AnswerDecoder, tools: Sequence[ToolSpec] = ()) -> None:
        self._decoder = decoder
        self._tools = tools
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[CallPiece] = []
        # Of `function_call`, which some send beside the new form
        self._old_calls: list[CallPiece] = []
        self._others_calls: list[CallPiece] = []  # of other answers
        self._usage: WireUsage | None = None
        self._index: int | None = None
        self.ending = ""
        self._model = ""
        self._in_pieces = False
        self.answered = False

    def add(self, chunk: ChatCompletion) -> tuple[bool, str]:
        """Add one chunk, or a whole answer. Return whether it carried anything, and its text."""
        self._usage = chunk.usage or self._usage
        if not self._model and isinstance(chunk.model, str):
            self._model = chunk.model
        choices = chunk.choices
        if not choices:
            return False, ""
        if len(choices) == 1:
            return self._add_choice(choices[0])
        added = [self._add_choice(choice) for choice in choices]
        return any(carries for carries, _ in added), "".join(text for _, text in added)

    def _add_choice(self, choice: WireChoice) -> tuple[bool, str]:
        message = choice.delta
        if message is None or choice.message is not None:
            lone = message is None and not self.answered and choice.message
            message = lone or self._rest_of(choice)
        text = message.content or message.refusal or ""
        thought = message.reasoning_content or message.reasoning or ""
        calls = message.tool_calls
        old_call = message.function_call
        carries = bool(text or thought or calls or old_call)
        index = choice.index or 0
        if index != self._index and not self._follows(index, carries):
            self._others_calls += calls or ()
            return False, ""
        self.answered = self.answered or bool(choice.delta or choice.message or choice.finish_reason)
        if choice.finish_reason:
            self.ending = strongest(self.ending, ending_of(choice.finish_reason))
        if text:
            self._content.append(text)
        if thought:
            self._reasoning.append(thought)
        if calls:
            self._calls += calls
        if old_call is not None:
            self._old_calls.append(CallPiece(function=old_call))
        self._in_pieces = self._in_pieces or choice.message is None
        return carries, text

    def _follows(self, index: int, carries: bool) -> bool:
        """Return whether a choice belongs to the answer that counts."""
        if self._index is None and carries:
            self._index = index
        elif self._index is not None:
            self._decoder.note("choices.index")
        return self._index in (None, index)

    def _rest_of(self, choice: WireChoice) -> WireMessage:
        """Return what a message adds to the deltas before it: some servers end a stream with the
        whole."""
        delta = choice.delta or WireMessage()
        whole = choice.message or WireMessage()
        text = delta.content or whole.content or ""
        if self._in_pieces and self._content:
            so_far = "".join(self._content) + (delta.content or "")
            goes_on = bool(whole.content) and (whole.content or "").startswith(so_far)
            text = (delta.content or "") + ((whole.content or "")[len(so_far) :] if goes_on else "")
        thoughts = whole.reasoning_content or whole.reasoning
        return WireMessage(
            content=text,
            tool_calls=delta.tool_calls or (None if self._in_pieces and self._calls else whole.tool_calls),
            reasoning_content=delta.reasoning_content or (None if self._reasoning and self._in_pieces else thoughts),
            function_call=delta.function_call or (None if self._old_calls else whole.function_call),
            refusal=delta.refusal or (None if self._content else whole.refusal),
        )

    def whole(self, *, ended: bool, framed: bool = True) -> LLMResponse:
        """Return the reply. `ended`: the provider has said that it ended, or sent it in one piece;
        `framed`: the length of the body was known, so that its end is no broken connection. Raises
        ModelError for an answer that was cut off, or that its provider calls a failure."""
        calls = self._tool_calls()
        content = join_halves("".join(self._content))
        thoughts = join_halves("".join(self._reasoning))
        ending = self.ending
        if ending in FAULTS:
            self._decoder.fail(ending, "its answer ended with a fault in place of a finish reason")
        if not ending:
            ending = (TOOL_CALLS if calls else STOP) if ended else self._guessed_ending(content, calls, framed)
        if not content and not calls and ending == STOP:
            # A server that takes the whole answer for thoughts: there is no other one.
            content = thoughts
            thoughts = ""
        return LLMResponse(
            content=content or None,
            tool_calls=calls,
            finish_reason=ending,
            usage=token_usage(self._usage),
            reasoning_content=thoughts or None,
            model=self._model,
        )

    def _guessed_ending(self, content: str, calls: Sequence[ToolCallRequest], framed: bool) -> str:
        """Return the ending of a body that ends without a word on it, by what is there; `""` for a
        text of which nobody can tell. A provider that never says it is not asked again and
        again."""
        if calls and all(is_whole(call.raw) or (framed and not call.raw.strip()) for call in calls):
            self._decoder.note("finish_reason")
            return TOOL_CALLS
        if calls or not content:
            kind, what = ("bad_reply", "no answer in it") if self._decoder.odd else ("connection", "it broke off")
            self._decoder.fail(kind, f"the model's stream ended before its reply did: {what}")
        self._decoder.note("finish_reason")
        certain = framed or self._usage is not None
        return STOP if looks_ended(content) or (certain and content.count("```") % 2 == 0) else ""

    def _tool_calls(self) -> tuple[ToolCallRequest, ...]:
        pieces = self._calls or self._old_calls
        if not pieces and self.ending == TOOL_CALLS:
            pieces = self._others_calls
        if not pieces:
            return ()
        if not self._in_pieces:
            return separate_calls(pieces)
        return assemble_calls(pieces, frozenset(tool.name for tool in self._tools))


def token_usage(usage: WireUsage | None) -> TokenUsage:
    """Return the token counts of an answer, none if it has none."""
    if usage is None:
        return TokenUsage()
    cached = usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
    return TokenUsage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached or 0)
