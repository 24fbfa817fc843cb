"""An account without money and a key that is wrong, in the words of each provider."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from shared.errors import ModelError
from tests.reports.provider import Rule, provider, report, text_stream, turn
from worker.attempt.attempt import APOLOGIES
from worker.llm.clients.faults import RETRYABLE, kind_of_error, kind_of_refusal

Body = dict[str, Any] | list[Any] | str


def error(message: str, **fields: Any) -> Body:
    return {"error": {"message": message, **fields}}


NO_MONEY: Final[dict[str, tuple[int, Body]]] = {
    "openai": (429, error("You exceeded your current quota, please check your plan and billing details.",
                          type="insufficient_quota", code="insufficient_quota")),
    "openai-hard-limit": (400, error("Billing hard limit has been reached", code="billing_hard_limit_reached")),
    "openai-not-active": (429, error("Your account is not active, please check your billing details on our website.",
                                     code="billing_not_active")),
    "anthropic": (400, error("Your credit balance is too low to access the Anthropic API. Please go to Plans & "
                             "Billing to upgrade or purchase credits.", type="invalid_request_error")),
    "anthropic-usage": (400, error("You are out of extra usage. Add more credits to continue")),
    "anthropic-402": (402, error("There's an issue with your billing or payment information", type="billing_error")),
    "glm": (429, error("Insufficient balance or no resource package. Please recharge.", code="1113")),
    "glm-chinese": (429, error("余额不足或无可用资源包,请充值。", code="1113")),
    "glm-code": (429, error("x", code=1113)),
    "glm-plan": (429, error("您的GLM Coding Plan套餐已到期，暂无法使用", code="1309")),
    "deepseek": (402, error("Insufficient Balance", code="invalid_request_error")),
    "moonshot": (429, error("Your account org-x is suspended due to insufficient balance, please recharge your account",
                            type="exceeded_current_quota_error")),
    "moonshot-quota": (403, error("Your account org-x reached max budget", type="exceeded_current_quota_error")),
    "qwen": (400, error("Access denied, please make sure your account is in good standing.", code="Arrearage")),
    "qwen-free": (403, error("The free tier of the model has been exhausted. If you wish to continue access the model "
                             "on a paid basis, please disable the use free tier only mode",
                             code="AllocationQuota.FreeTierOnly")),
    "minimax": (429, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
    "siliconflow": (403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}),
    "volcengine": (403, error("The request failed because your account has an overdue balance.",
                              code="AccountOverdueError")),
    "openrouter": (402, error("Insufficient credits. Add more using https://openrouter.ai/settings/credits", code=402)),
    "openrouter-fewer": (402, error("This request requires more credits, or fewer max_tokens. You requested up "
    "to 65536 "
                                    "tokens, but can only afford 2857", code=402)),
    "openrouter-key": (403, error("Key limit exceeded (total limit). Manage it using the settings", code=403)),
    "gemini-prepaid": (429, error("Your prepayment credits are depleted. Please go to AI Studio to manage your project",
                                  code=429, status="RESOURCE_EXHAUSTED")),
    "gemini-country": (400, error("Gemini API free tier is not available in your country. Please enable billing "
    "on your "
                                  "project in Google AI Studio.", status="FAILED_PRECONDITION")),
    "vertex": (403, error("This API method requires billing to be enabled. Please enable billing on project #1")),
    "xai": (403, {"code": "The caller does not have permission to execute the specified operation",
                  "error": "Your newly created team doesn't have any credits or licenses yet."}),
    "xai-spent": (429, {"code": "Some resource has been exhausted",
                        "error": "Your team has either used all available credits or reached its monthly "
                        "spending limit."}),
    "together": (402, error("Credit limit exceeded, please navigate to https://api.together.xyz/settings/billing")),
    "fireworks": (412, error("Account x is suspended, possibly due to reaching the monthly spending limit or "
    "failure to "
                             "pay past invoices.")),
    "mistral": (429, {"message": "Inactive subscription or usage limit reached"}),
    "groq": (400, error("Your organization has reached its spend limit", code="blocked_api_access")),
    "huggingface": (402, "You have exceeded your monthly included credits for Inference Providers."),
    "cohere-trial": (429, {"message": "You are using a Trial key, which is limited to 1000 API calls / month."}),
    "one-api": (403, error("用户额度不足, 剩余额度: ＄0.000000", code="insufficient_user_quota")),
    "one-api-token": (403, error("该令牌额度已用尽", type="one_api_error")),
    "new-api-token": (403, error("token quota is not enough", code="pre_consume_token_quota_failed")),
    "deepinfra": (402, {"detail": {"error": "inference prohibited, please enter a payment method or top up"}}),
    "novita": (403, {"code": 403, "reason": "NOT_ENOUGH_BALANCE", "message": "not enough balance"}),
    "bedrock": (403, {"message": "Model access is denied due to INVALID_PAYMENT_INSTRUMENT: A valid payment instrument "
                                 "must be provided."}),
    "hunyuan": (400, error("账号已欠费，请充值后再试", code="ResourceUnavailable.InArrears")),
    "cloudflare": (429, {"errors": [{"message": "you have used up your daily free allocation of 10,000 neurons",
                                     "code": 4006}]}),
    "copilot": (402, error("You have exceeded your premium request allowance.", code="quota_exceeded")),
    "venice": (402, error("Insufficient USD or Diem balance to complete request")),
    "poe": (402, error("You do not have enough points", type="insufficient_credits")),
    "nvidia": (402, {"detail": "Cloud credits expired - Please contact NVIDIA representatives"}),
    "gateway": (429, error("Provider returned error", code=429, metadata={
        "raw": '{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}'})),
    "plain": (402, ""),
}  # fmt: skip

BUSY: Final[dict[str, Body]] = {
    "openai": error("Rate limit reached for gpt-4o on requests per min (RPM): Limit 3, Used 3. Please try again "
    "in 20s. "
                    "Visit https://platform.openai.com/account/rate-limits to learn more.", code="rate_limit_exceeded"),
    "gemini": error("You exceeded your current quota, please check your plan and billing details. * Quota exceeded for "
                    "metric: generate_content_free_tier_requests, limit: 15. Please retry in 33.4s.", code=429,
                    status="RESOURCE_EXHAUSTED"),
    "vertex": error("Quota exceeded for aiplatform.googleapis.com/online_prediction_requests_per_base_model",
                    status="RESOURCE_EXHAUSTED"),
    "azure": error("Requests to the ChatCompletions_Create Operation have exceeded token rate limit of your current "
                   "pricing tier. Please retry after 4 seconds.", code="429"),
    "anthropic": error("This request would exceed your organization's rate limit of 40,000 input tokens per minute.",
                       type="rate_limit_error"),
    "glm": error("您的账户已达到速率限制，请您控制请求频率", code="1302"),
    "moonshot": error("Your account reached max organization concurrency: 1, please try again after 1 seconds",
                      type="rate_limit_reached_error"),
    "qwen": error("Requests rate limit exceeded, please try again later.", code="limit_requests"),
    "bedrock": {"message": "Too many tokens, please wait before trying again."},
    "glm-hours": error("Usage limit reached for 5 hour. Your limit will reset at 2025-11-27 10:00:00", code="1308"),
    "plain": "Too Many Requests",
}  # fmt: skip

WRONG_KEY: Final[dict[str, tuple[int, Body]]] = {
    "openai": (401, error("Incorrect API key provided: sk-x.", code="invalid_api_key")),
    "gemini": (400, error("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT")),
    "gemini-expired": (
        400,
        error("API key expired. Please renew the API key.", details=[{"reason": "API_KEY_INVALID"}]),
    ),
    "xai": (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***"}),
    "qwen": (400, error("Invalid API-key provided.", code="InvalidApiKey")),
    "minimax": (400, {"base_resp": {"status_code": 2049, "status_msg": "invalid api key"}}),
    "deepseek": (401, error("Authentication Fails (no such user)", type="authentication_error")),
    "one-api": (400, error("无效的令牌", type="one_api_error")),
    "forbidden": (403, ""),
}

OTHERS: Final[dict[str, Body]] = {
    "model": error("The model `x` does not exist or you do not have access to it.", code="model_not_found"),
    "max_tokens": error("max_tokens must be at most 8192"),
    "echo": {"detail": [{"msg": "value is not a valid list", "input": "my balance is insufficient, invalid api key"}]},
    "plain": "no",
}


def wire(body: Body) -> str:
    return body if isinstance(body, str) else msgspec.json.encode(body).decode()


@pytest.mark.parametrize("name", NO_MONEY)
def test_an_account_without_money_is_known_by_status_code_or_words(name: str) -> None:
    status, body = NO_MONEY[name]
    assert kind_of_refusal(status, wire(body)) == "billing"


@pytest.mark.parametrize("name", BUSY)
def test_a_limit_that_passes_is_no_empty_account(name: str) -> None:
    """Some name plan and billing all the same."""
    assert kind_of_refusal(429, wire(BUSY[name])) == "rate_limit"


@pytest.mark.parametrize("name", WRONG_KEY)
def test_a_wrong_key_is_known_whatever_its_status(name: str) -> None:
    status, body = WRONG_KEY[name]
    assert kind_of_refusal(status, wire(body)) == "auth"


@pytest.mark.parametrize("name", OTHERS)
def test_another_refusal_is_neither(name: str) -> None:
    """Nor is one that repeats what the person wrote."""
    assert kind_of_refusal(400, wire(OTHERS[name])) == "bad_request"


def test_an_empty_account_or_a_wrong_key_is_also_known_inside_an_answer() -> None:
    assert kind_of_error({"message": "Insufficient Balance", "code": 402}, "connection") == "billing"
    assert kind_of_error({"message": "x", "type": "insufficient_quota"}, "connection") == "billing"
    assert kind_of_error({"message": "余额不足", "code": "1113"}, "connection") == "billing"
    assert kind_of_error({"message": "Invalid API key", "code": "invalid_api_key"}, "connection") == "auth"


def test_neither_is_asked_again() -> None:
    assert not {"billing", "auth"} & RETRYABLE


REFUSALS: Final = report("p-no-money.json")["refusals"]


def empty(refusal: dict[str, Any]) -> Rule:
    return lambda body: (refusal["status"], refusal["body"]) if body["model"] == "x" else (200, text_stream("here"))


@pytest.mark.parametrize("refusal", REFUSALS, ids=["openai", "glm", "deepseek"])
async def test_with_an_empty_account_the_fallback_answers_at_once(refusal: dict[str, Any]) -> None:
    async with provider(empty(refusal)) as served:
        result = await turn(served.settings(fallbacks=("openai/other",)))
    assert (result.content, [one["model"] for one in served.requests]) == ("here", ["x", "other"])


@pytest.mark.parametrize("refusal", REFUSALS, ids=["openai", "glm", "deepseek"])
async def test_without_a_fallback_the_turn_ends_at_once_and_says_why(refusal: dict[str, Any]) -> None:
    async with provider(empty(refusal)) as served:
        with pytest.raises(ModelError) as raised:
            await turn(served.settings())
    assert (raised.value.kind, raised.value.retryable, len(served.requests)) == ("billing", False, 1)
    assert "money" in str(raised.value)
    assert "empty" in APOLOGIES["billing"]


BEFORE: Final = {
    "test_an_account_without_money_is_known_by_status_code_or_words": 0,
    "test_a_limit_that_passes_is_no_empty_account": 11,
    "test_a_wrong_key_is_known_whatever_its_status": 3,
    "test_another_refusal_is_neither": 4,
    "test_an_empty_account_or_a_wrong_key_is_also_known_inside_an_answer": 0,
    "test_neither_is_asked_again": 1,
    "test_with_an_empty_account_the_fallback_answers_at_once": 1,
    "test_without_a_fallback_the_turn_ends_at_once_and_says_why": 0,
}
