"""What the text of a refusal says: the prompt is too long, the account is empty, the key is wrong.
Providers give these one status or another, and words of their own; a new wording is a line here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

_TOO_LONG: Final = (
    # Words and codes that say nothing else.
    r"context_length_exceeded|context_window_exceeded|exceed_context_size|string_above_max_length",
    r"model_max_prompt_tokens_exceeded|tokens_limit_reached|request_too_large",
    r"maximum (context|prompt) (length|limit|size|window)|model's context length",
    r"context (length|window|size|limit) (has been |was |is )?(exceed|overflow|too small|of only|reached)",
    r"(exceed|overflow|longer than|larger than|greater than|reached)[^.]{0,60}\bcontext",
    r"context the overflows|context overflow",
    r"(prompt|inputs?|messages|conversation|context|request text)( tokens?| length)* (is |are )?too (long|large)",
    r"too (long|large) (to fit|for (the )?(requested )?model|for this model)",
    r"request (is )?too large for|request body too large|input or output tokens must be reduced",
    r"too many (input |prompt |total )?tokens\b(?! per)",
    r"range of input length|(prompt|input|sequence) exceeds max",
    r"\b(prompt|inputs?|request)( tokens?| length| count)*( of)?( ?\(?[\d,]+\)?( tokens?)?\)?)? ?(exceed|longer than)",
    r"exceed\w* (the )?(model('s)?|maximum|max)? ?(number of )?(prompt|message|input)? ?tokens?\b",
    r"input tokens exceed|number of tokens (to keep )?(in|from) the (initial )?prompt",
    r"`inputs` (tokens \+|must have less)|must be less than max_seq_len|maximum model length",
    r"reduce (the length of|your) (the |your |either )?(input )?(messages?|prompt|input|one\b)",
    r"cannot exceed the total tokens limit|(shorter|fewer) (or fewer )?(prompt|inputs?)\b|context window limit",
    r"input token count is \d+ but|the max input characters|'messages': array too long|content'?: string too long",
    r"(输入|提示|上下文|对话|prompt|请求|消息|文本|token)[^，。,]{0,12}(超长|过长|太长|超过|超出)",
)
_NOT_THE_PROMPT: Final = (
    r"\b(image|picture|photo|audio|video|file|schema|cache_control)s?\b[^.]{0,40}(exceed|too (long|large|big)|maximum)",
    r"max_(completion_|new_|output_)?tokens\W{0,3}( value)?( is)?( too large|: \d+ >| (must|should) be|( \d+)? exceed)",
    r"range of max_tokens|output tokens[^.]{0,30}(allowed|supported)|whereas you provided",
    r"(completion|output) tokens",
)
_OWN_LIMIT: Final = r"request (is )?too large for|input or output tokens must be reduced"
"""A prompt over the tokens of a whole minute: waiting does not help, although the status is 429."""

_NO_MONEY: Final = (
    r"insufficient[_ -]*(user[_ ]?)?(account[_ ]?)?(quota|balance|credits?|funds|usd)|insufficient .{0,24}balance",
    r"(balance|credits?|quota|funds) (is |are )?(insufficient|too low|not enough|exhausted|depleted|used up|expired)",
    r"not[_ ]enough[_ ](balance|credits?|quota|points|money|funds)|(no|out of|run out of|more) (available )?credits?\b",
    r"exceeded_current_quota|quota_exceeded_error|billing_(hard_limit|not_active|error)|billing hard limit",
    r"enable billing|billing (account|is) .{0,20}(disabled|not active|not enabled|inactive)|account is not active",
    r"payment[_ ](required|instrument|method)|past invoices|overdue|arrear|accountoverdue|in good standing",
    r"free[_ ]?tier[_ ]?only|free tier of the model has been exhausted|free quota .{0,30}(exhausted|used up)",
    r"(spend|spending|credit|key|budget) limit (has been |was |is )?(exceeded|reached)|monthly spending limit",
    r"used (all|up) .{0,24}(credits?|allocation|quota)|monthly included credits|any credits|afford|top[ -]?up|recharge",
    r"premium request allowance|api calls / month|(reached|exceeded) (its|your|the) (monthly )?spend(ing)? limit",
    r"pre_consume_token_quota_failed|chargeresourceexhausted",
    r"余额|欠费|额度不足|额度已用|额度失败|充值|资源包|套餐已到期",
)
_MAYBE_NO_MONEY: Final = r"exceeded your current quota|check your plan and billing|quota exceeded|usage limit"
_COMES_BACK: Final = (
    r"retry in \d|try again in|retry_?delay|retry after|resource_exhausted|"
    r"per[_ -]?(minute|second|hour|day)|/ ?(min|minute|day)\b|rate.?limit|\breset"
)
"""A limit by the minute or day, which some name in the words of an empty account."""

_NO_MONEY_CODES: Final = frozenset({"1113", "1309", "30001", "1008", "4006"})
"""GLM (empty account, plan over), SiliconFlow, MiniMax, Cloudflare."""

_WRONG_KEY: Final = (
    r"api[_ ]?key[_ ](not[_ ]valid|invalid|is (invalid|incorrect|wrong|expired|missing))",
    r"(invalid|incorrect|wrong|unknown|expired|missing)[_ ]?(x-)?(or missing )?api[_ -]?key",
    r"authentication[_ ](error|failed|fails)",
    r"(无效|过期)的?(令牌|api ?key)|token expired or incorrect|no auth credentials|invalid_authentication",
)
_WRONG_KEY_CODES: Final = frozenset({"2049", "1004"})  # MiniMax

_NAMES_SIZE: Final = re.compile(r"token|context|length|上下文|长度")
_NUMBER: Final = re.compile(r"(?<![\w.\-])\d{1,3}(?:[,_]\d{3})+(?![\w\-])|(?<![\w.\-])\d+(?![\w\-])")
_LEAST_SIZE: Final = 512  # smaller numbers are positions, codes, counts
_MOST_SIZE: Final = 20_000_000  # larger ones are times and ids
_ECHOES: Final = frozenset({"input", "ctx", "request"})  # fields in which servers repeat what they got
_DEPTH: Final = 8


def _one_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_TOO_LONG_WORDS: Final = _one_of(*_TOO_LONG)
_OTHER_WORDS: Final = _one_of(*_NOT_THE_PROMPT)
_SURE_WORDS: Final = re.compile(
    r"context_length_exceeded|`inputs` tokens|context (limit|window|length)|exceed max message tokens"
)
_OWN_LIMIT_WORDS: Final = re.compile(_OWN_LIMIT)
_NO_MONEY_WORDS: Final = _one_of(*_NO_MONEY)
_MAYBE_NO_MONEY_WORDS: Final = re.compile(_MAYBE_NO_MONEY)
_COMES_BACK_WORDS: Final = re.compile(_COMES_BACK)
_WRONG_KEY_WORDS: Final = _one_of(*_WRONG_KEY)


class RefusalText:
    """The words and codes of one refusal, in lower case, from JSON of any shape or from plain text."""

    def __init__(self, body: Any) -> None:
        found = list(_leaves(_decoded(body) if isinstance(body, str) else body, _DEPTH))
        self.texts = [text.lower() for _, text in found]
        self._codes = {text for name, text in found if name in ("code", "status_code", "type")}
        self._all = "\n".join(self.texts)

    def says_too_long(self) -> bool:
        """Return whether it says that the prompt does not fit the model's context."""
        return any(map(_is_too_long, self.texts))

    def compares_sizes(self) -> bool:
        """Return whether it sets a size in tokens against a smaller limit, in words we do not know."""
        return any(map(_compares_sizes, self.texts))

    def is_over_a_minute(self) -> bool:
        """Return whether the prompt is over the tokens of a whole minute, so that no wait helps."""
        return bool(_OWN_LIMIT_WORDS.search(self._all))

    def says_no_money(self) -> bool:
        """Return whether it says that the account has no money, or no quota that comes back soon."""
        if self._codes & _NO_MONEY_CODES or _NO_MONEY_WORDS.search(self._all):
            return True
        return bool(_MAYBE_NO_MONEY_WORDS.search(self._all)) and not _COMES_BACK_WORDS.search(self._all)

    def says_wrong_key(self) -> bool:
        """Return whether it says that the key is not accepted."""
        return bool(self._codes & _WRONG_KEY_CODES or _WRONG_KEY_WORDS.search(self._all))

    def says(self, pattern: re.Pattern[str]) -> bool:
        return bool(pattern.search(self._all))


def _is_too_long(text: str) -> bool:
    if not _TOO_LONG_WORDS.search(text):
        return False
    return bool(_SURE_WORDS.search(text)) or not _OTHER_WORDS.search(text)


def _compares_sizes(text: str) -> bool:
    if not _NAMES_SIZE.search(text) or _OTHER_WORDS.search(text) or "max_tokens" in text:
        return False
    numbers = (int(re.sub(r"\D", "", number)) for number in _NUMBER.findall(text))
    sizes = [number for number in numbers if _LEAST_SIZE <= number <= _MOST_SIZE]
    return len(sizes) > 1 and sizes[0] > sizes[1]


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"": text}


def _leaves(value: Any, depth: int, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text of an error and the name of its field. Gateways put the error of a provider
    into theirs, as an object or as JSON in a text."""
    if depth <= 0:
        return
    match value:
        case dict():
            for key, item in value.items():
                if key not in _ECHOES:
                    yield from _leaves(item, depth - 1, str(key))
        case list():
            for item in value:
                yield from _leaves(item, depth - 1, name)
        case str():
            inner = _decoded(value) if value.lstrip().startswith(("{", "[")) else None
            if isinstance(inner, dict | list) and inner != {"": value}:
                yield from _leaves(inner, depth - 1, name)
            else:
                yield name, value
        case int() if not isinstance(value, bool):
            yield name, str(value)
