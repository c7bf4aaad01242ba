"""What the errors of OpenAI and of compatible services mean. Law: the words of all services are in the tables here; a code
decides before a text, except for a request that no wait makes fit.

Source: OpenAI API description 2.3.0 and errors of the services named below; their texts are in
tests/adapters/openai/test_failures.py.
"""

import re

from adapters.http.failures import BackendError, Failures
from gateway.ports.adapter import ErrorClass

_CODES = {
    "previous_response_not_found": ErrorClass.HANDLE_NOT_FOUND,
    "conversation_locked": ErrorClass.LOCKED,
    "rate_limit_exceeded": ErrorClass.RATE_LIMITED,
    "rate_limit_error": ErrorClass.RATE_LIMITED,
    "too_many_requests": ErrorClass.RATE_LIMITED,
    "slow_down": ErrorClass.RATE_LIMITED,
    "overloaded_error": ErrorClass.RATE_LIMITED,
    # Servers send this code with status 429 too, but waiting does not help.
    "insufficient_quota": ErrorClass.NOT_SERVED,
    "billing_not_active": ErrorClass.NOT_SERVED,
    "billing_hard_limit_reached": ErrorClass.NOT_SERVED,
    "invalid_api_key": ErrorClass.UNAUTHORISED,
    "account_deactivated": ErrorClass.UNAUTHORISED,
    "context_length_exceeded": ErrorClass.OVERFLOW,
    "exceed_context_size_error": ErrorClass.OVERFLOW,
    "model_max_prompt_tokens_exceeded": ErrorClass.OVERFLOW,
    "string_above_max_length": ErrorClass.OVERFLOW,
    "request_too_large": ErrorClass.OVERFLOW,
    "tokens_limit_reached": ErrorClass.OVERFLOW,
    # These end a response that has begun, so that no HTTP status tells whose fault it is.
    "invalid_prompt": ErrorClass.REJECTED,
    "failed_to_download_image": ErrorClass.REJECTED,
    "unsupported_image_media_type": ErrorClass.REJECTED,
    "empty_image_file": ErrorClass.REJECTED,
}


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_POLICY = _words(
    "content_?filter",
    "content_?policy",
    "policy_violation",
    "responsible_?ai",  # Azure
    "moderation",
    "safety",
    "data_?inspection",  # Alibaba
    "sensitive_words",  # New API
)
"""Codes and types of a refusal for policy."""

_IMAGE = _words("^(invalid_)?(base64_)?image_?")
"""How the other codes of a picture that cannot be used begin. Source: OpenAI API description 2.3.0, `ResponseErrorCode`."""

_ABOVE_RATE = _words("request too large for")
"""The request alone is above what a minute allows, which Groq and OpenAI call a rate limit: it would be refused again."""

_TEXTS = (
    (_words("zero data retention"), ErrorClass.STORAGE_DISABLED),
    (
        _words(
            "context (length|window|size|limit)",  # OpenAI, vLLM, llama.cpp, LM Studio, Mistral, Anthropic, OpenRouter
            "maximum (prompt|model) length",  # xAI, vLLM
            "(prompt|input) (is )?too long",  # Anthropic, Bedrock, Ollama
            "(input|prompt) token count",  # Gemini, GitHub Copilot
            "input tokens exceed",
            "reduce the length of the messages",  # Groq, Cerebras
            "exceeded model token limit",  # Moonshot
            "exceeds max length",  # Zhipu
            "range of input length",  # Alibaba
            "`inputs` (tokens|must have)",  # Text Generation Inference, Together
            "too many tokens: ",  # Cohere; Bedrock's "too many tokens, please wait" is a rate limit
        ),
        ErrorClass.OVERFLOW,
    ),
    (
        _words(
            "content (management |filtering )?policy",  # Azure, Anthropic
            "usage (polic|guidelines)",  # OpenAI, xAI
            "safety system",
            "flagged as|was flagged",  # OpenRouter
            "content exists risk",  # DeepSeek
            "(inappropriate|sensitive) content|不安全或敏感内容",  # Alibaba, Zhipu
        ),
        ErrorClass.POLICY,
    ),
)
"""Many compatible services send no code for these, only a text."""

_MODEL = _words(
    "(invalid|unknown|unsupported)_(model|deployment)$",
    "(model|deployment)_?(not_?(found|available|supported|exist)|disabled|deprecated|decommissioned|unavailable)",
)
_NO_MODEL = re.compile(
    r"\bmodel\b.{0,100}\b(not found|not exist|disabled|not available|unavailable|decommissioned|not enabled)",
    re.IGNORECASE | re.DOTALL,
)
_SETTINGS = frozenset(
    {
        *("model", "instructions", "temperature", "top_p", "seed", "stop"),
        *("tools", "tool_choice", "parallel_tool_calls"),
        *("max_output_tokens", "max_tokens", "max_completion_tokens", "reasoning", "reasoning_effort", "truncation"),
        *("metadata", "include", "background", "store", "stream", "stream_options", "service_tier"),
        *("text", "response_format"),
    }
)
"""Fields of a request that the settings of the agent decide, and never the conversation."""

_STORED_OBJECT = _words("response|conversation")


class OpenAIFailures(Failures):
    def class_of(self, error: BackendError) -> ErrorClass | None:
        names = _names(error)
        if any(map(_POLICY.search, names)):
            return ErrorClass.POLICY
        if _ABOVE_RATE.search(error.message):
            return ErrorClass.OVERFLOW
        for name in names:
            if name in _CODES:
                return _CODES[name]
        if (error.code, error.param) == ("unsupported_parameter", "previous_response_id"):
            return ErrorClass.STORAGE_DISABLED
        for words, kind in _TEXTS:
            if words.search(error.message):
                return kind
        return ErrorClass.REJECTED if any(map(_IMAGE.search, names)) else None

    def is_about_settings(self, error: BackendError) -> bool:
        field = re.split(r"[.\[]", error.param or "")[0]
        return (
            field in _SETTINGS or any(map(_MODEL.match, _names(error))) or _NO_MODEL.search(error.message) is not None
        )

    def is_about(self, handle: str, error: BackendError) -> bool:
        return super().is_about(handle, error) or _STORED_OBJECT.search(error.message) is not None


def _names(error: BackendError) -> list[str]:
    return [name for name in (error.code, error.kind) if name]
