"""Errors as OpenAI and compatible services send them, and their classes."""

import json
from typing import Any

import pytest

from adapters.openai.failures import OpenAIFailures
from gateway.ports.adapter import ErrorClass


def enveloped(message: str, **names: Any) -> dict[str, Any]:
    return {"error": {"message": message, **names}}


TOO_LONG: dict[str, tuple[int, Any]] = {
    "OpenAI": (
        400,
        enveloped(
            "This model's maximum context length is 4097 tokens. However, your messages resulted in 4294 tokens. Please "
            "reduce the length of the messages.",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
    ),
    "OpenAI, Responses": (
        400,
        enveloped("Your input exceeds the context window of this model. Please adjust your input and try again."),
    ),
    "OpenAI, above the limit of a minute": (
        429,
        enveloped(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 342389. The "
            "input or output tokens must be reduced in order to run successfully.",
            type="tokens",
            param=None,
            code="rate_limit_exceeded",
        ),
    ),
    "Groq, above the limit of a minute": (
        413,
        enveloped(
            "Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier `on_demand` on tokens "
            "per minute (TPM): Limit 6000, Requested 12328, please reduce your message size and try again.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "Groq": (
        400,
        enveloped(
            "Please reduce the length of the messages or completion.", type="invalid_request_error", param="messages"
        ),
    ),
    "Gemini": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "Vertex AI": (
        400,
        enveloped(
            "Unable to submit request because the input token count is 131073 but model only supports up to 131072. Reduce "
            "the input token count and try again.",
            code=400,
        ),
    ),
    "vLLM": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 4231 tokens.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "vLLM, the engine": (
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 10127) is longer than the maximum model length of 8192. Make sure that "
            "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "vLLM behind Xinference": (
        500,
        {
            "detail": "[address=0.0.0.0:4] The decoder prompt (length 66501) is longer than the maximum model length of 65536."
        },
    ),
    "llama.cpp": (
        400,
        enveloped(
            "the request exceeds the available context size, try increasing it",
            code=400,
            type="exceed_context_size_error",
            n_prompt_tokens=14429,
            n_ctx=8192,
        ),
    ),
    "llama.cpp before it had a type for this": (
        500,
        enveloped(
            "the request exceeds the available context size. try increasing the context size or enable context shift",
            code=500,
            type="server_error",
        ),
    ),
    "LM Studio": (400, {"error": "Context size has been exceeded."}),
    "LM Studio, before the answer": (
        400,
        {
            "error": "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with "
            "context length of only 7866 tokens, which is not enough."
        },
    ),
    "Ollama": (
        400,
        enveloped("prompt too long; exceeded max context length by 117 tokens", type="invalid_request_error"),
    ),
    "Mistral": (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40030 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            "type": "invalid_request_error",
            "param": None,
            "code": "3051",
        },
    ),
    "Anthropic": (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 201130 tokens > 200000 maximum"},
        },
    ),
    "Anthropic, with the answer": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input "
                "length or `max_tokens` and try again",
            },
        },
    ),
    "Bedrock": (400, {"message": "Input is too long for requested model."}),
    "xAI": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        },
    ),
    "DeepSeek": (
        400,
        enveloped(
            "This model's maximum context length is 131072 tokens. However, you requested 132173 tokens (132173 in the "
            "messages, 0 in the completion). Please reduce the length of the messages or completion.",
            type="invalid_request_error",
            param=None,
            code="invalid_request_error",
        ),
    ),
    "OpenRouter": (
        400,
        enveloped(
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text "
            'input). Please reduce the length of either one, or use the "middle-out" transform.',
            code=400,
        ),
    ),
    "GitHub Copilot": (
        400,
        enveloped("prompt token count of 93854 exceeds the limit of 90000", param="", code="", type=""),
    ),
    "Moonshot": (
        400,
        enveloped(
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
            type="invalid_request_error",
        ),
    ),
    "Zhipu": (400, enveloped("Prompt exceeds max length", code="1261")),
    "Alibaba": (
        400,
        enveloped(
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]",
            code="invalid_parameter_error",
            param=None,
            type="invalid_request_error",
        ),
    ),
    "MiniMax": (400, enveloped("invalid params, context window exceeds limit (2013)", type="bad_request_error")),
    "Text Generation Inference": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens "
            "and 20 `max_new_tokens`",
            "error_type": "validation",
        },
    ),
    "Cohere": (
        400,
        {
            "message": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354."
        },
    ),
}

AGAINST_POLICY: dict[str, tuple[int, Any]] = {
    "Azure": (
        400,
        enveloped(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            type=None,
            param="prompt",
            code="content_filter",
            status=400,
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
    ),
    "Anthropic": (400, enveloped("Output blocked by content filtering policy", type="invalid_request_error")),
    "xAI": (
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. Team: x, API key ID: x, Model: grok-4-0709, Failed check: "
            "SAFETY_CHECK_TYPE_BIO",
        },
    ),
    "DeepSeek": (
        400,
        enveloped("Content Exists Risk", type="invalid_request_error", param=None, code="invalid_request_error"),
    ),
    "OpenRouter": (
        403,
        enveloped(
            "Your chosen model requires moderation and your input was flagged", code=403, metadata={"reasons": ["x"]}
        ),
    ),
    "Alibaba": (
        400,
        enveloped(
            "Input data may contain inappropriate content.",
            code="data_inspection_failed",
            param=None,
            type="data_inspection_failed",
        ),
    ),
    "Alibaba, in the text": (
        400,
        enveloped("<400> InternalError.Algo.DataInspectionFailed: Input text data may contain inappropriate content."),
    ),
    "Moonshot": (
        400,
        enveloped("The request was rejected because it was considered high risk", type="content_filter"),
    ),
    "Zhipu": (
        400,
        enveloped("系统检测到输入或生成内容可能包含不安全或敏感内容", code="1301"),
    ),
}


SOON: dict[str, tuple[int, Any]] = {
    "Groq": (
        429,
        enveloped(
            "Rate limit reached for model `llama-3.3-70b-versatile` in organization `org_x` on tokens per minute (TPM): Limit "
            "6000, Used 3513, Requested 3166. Please try again in 6.78s.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "Anthropic": (
        429,
        enveloped(
            "This request would exceed your organization's rate limit of 50,000 input tokens per minute.",
            type="rate_limit_error",
        ),
    ),
    "Bedrock": (429, {"message": "Too many tokens, please wait before trying again."}),
    "Gemini": (
        429,
        [
            enveloped(
                "You exceeded your current quota. Quota exceeded for metric: "
                "generativelanguage.googleapis.com/generate_content_free_tier_input_token_count, limit: 250000",
                code=429,
                status="RESOURCE_EXHAUSTED",
            )
        ],
    ),
}


def class_of(answer: tuple[int, Any]) -> ErrorClass:
    status, body = answer
    return OpenAIFailures(()).from_response(status, {}, json.dumps(body).encode()).kind


@pytest.mark.parametrize("service", TOO_LONG)
def test_a_conversation_that_is_too_long_is_known_in_the_words_of_each_service(service: str) -> None:
    assert class_of(TOO_LONG[service]) is ErrorClass.OVERFLOW


@pytest.mark.parametrize("service", AGAINST_POLICY)
def test_a_refusal_for_policy_is_known_in_the_words_of_each_service(service: str) -> None:
    assert class_of(AGAINST_POLICY[service]) is ErrorClass.POLICY


@pytest.mark.parametrize("service", SOON)
def test_a_limit_that_passes_is_no_conversation_that_is_too_long(service: str) -> None:
    assert class_of(SOON[service]) is ErrorClass.RATE_LIMITED


@pytest.mark.parametrize("answer", [TOO_LONG["DeepSeek"], AGAINST_POLICY["DeepSeek"]], ids=["long", "policy"])
def test_an_error_in_a_stream_means_the_same(answer: tuple[int, Any]) -> None:
    failures = OpenAIFailures(())
    assert failures.from_event(answer[1]["error"]).kind is class_of(answer)


def test_an_error_in_a_list_is_read_like_one_without() -> None:
    """As the OpenAI-compatible endpoint of Gemini sends its errors."""
    failure = OpenAIFailures(()).from_response(404, {}, json.dumps([enveloped("no such thing", code=404)]).encode())
    assert failure.detail == "HTTP 404: 404: no such thing"
