"""An emulator of Chat Completions, OpenAI's own and the compatible servers', with scripted answers.

It keeps nothing: what a script knows of the conversation is what the request's messages say.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.testing.chat_reply import CHAT_DIALECTS, ChatDialect, ChatReply
from gateway.testing.emulator import Emulator, Validator, refused
from gateway.testing.scripts import Conversation, Script, demo_script


class ChatServer(Emulator):
    """`POST /v1/chat/completions` in one of the dialects."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        dialect: ChatDialect = CHAT_DIALECTS["openai"],
        api_key: str | None = None,
        models: tuple[str, ...] = (),
        validator: Validator | None = None,
    ) -> None:
        """Without a script it plays `demo_script()`."""
        super().__init__(script or demo_script(server_tools=False), api_key=api_key, models=models, validator=validator)
        self._dialect = dialect

    def routes(self) -> Iterable[Route]:
        return (self.route("POST", "/v1/chat/completions", self._create),)

    async def _create(self, request: Request) -> Response:
        body = await self.read(request, "CreateChatCompletionRequest")
        _check_shape(body)
        if not self.knows_model(body["model"]):
            message = f"The model `{body['model']}` does not exist or you do not have access to it."
            raise refused(404, message, code="model_not_found")
        _check_calls(body["messages"])
        steps = await self.open(Conversation(tuple(body["messages"]), body))
        if isinstance(steps, Response):
            return steps
        return await self.answer(ChatReply(body, self._dialect), steps, stream=bool(body.get("stream")))


def _check_shape(body: Mapping[str, Any]) -> None:
    if body.get("model") is None:
        raise refused(400, "you must provide a model parameter")
    messages = body.get("messages")
    if messages is None:
        raise refused(
            400, "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
        )
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        message = f"Invalid type for 'messages': expected an array of objects, but got {messages!r} instead."
        raise refused(400, message, param="messages", code="invalid_type")
    if not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array."
        raise refused(400, message, param="messages", code="empty_array")
    if body.get("tools") == []:
        message = (
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
        raise refused(400, message, param="tools", code="empty_array")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not body.get("tools"):
            message = f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
            raise refused(400, message, param=name)
    if body.get("stream_options") and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise refused(400, message, param="stream_options")


def _check_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    """Tool messages follow their calls at once, and none is missing."""
    made: list[str] = []
    pending: list[str] = []
    answering = False
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            if not answering:
                text = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                raise refused(400, f"{text}'tool_calls'.", param=f"messages.[{index}].role")
            answered = message.get("tool_call_id")
            if answered not in made:
                text = (
                    f"Invalid parameter: 'tool_call_id' of '{answered}' not found in 'tool_calls' of previous message."
                )
                raise refused(400, text, param=f"messages.[{index}].tool_call_id")
            pending = [call_id for call_id in pending if call_id != answered]
            continue
        _refuse_unanswered(pending, index)
        made = pending = [str(call.get("id")) for call in message.get("tool_calls") or ()]
        answering = bool(pending)
    _refuse_unanswered(pending, len(messages))


def _refuse_unanswered(pending: Sequence[str], index: int) -> None:
    if pending:
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(pending)}"
        )
        raise refused(400, text, param=f"messages.[{index}].role")
