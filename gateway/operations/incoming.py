"""A message as an operation got it, read once: what it says, under which key, and how its sender wants the answer.

Law: everything that the message alone decides is checked here, before the ledger is read.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, lru_cache

import msgspec
from msgspec.structs import replace

from gateway.a2a.draft_1_1 import ConditionalConfiguration, generation
from gateway.a2a.errors import A2AError, ContentTypeNotSupported, FieldViolation, TaskGenerationMismatch, echo
from gateway.a2a.model import Message, Part, SendMessageRequest
from gateway.core.agents import Agent
from gateway.core.tools.answers import AG2_RESULTS, Answers, answers
from gateway.core.tools.client_tools import AG2_SCHEMAS, with_declarations
from gateway.ledger.turns import IdempotencyKey, Preferences
from gateway.operations.call import OperationCall
from gateway.operations.push_configs import PushDraft
from gateway.ports.tools import ToolError

_FOR_THE_GATEWAY = frozenset({AG2_SCHEMAS, AG2_RESULTS})

_MODE_NAMES = {"text": "text/*", "*": "*/*", "file": "*/*", "data": "application/json"}

_canonical = msgspec.json.Encoder(order="sorted")


class Incoming(msgspec.Struct, frozen=True, dict=True):
    """A message to an agent, read once.

    The metadata of `message` holds the checked declarations of the client's tools; `digest` is the digest of the message as the
    client sent it. `push` is the push configuration that came with the message. `generation` is the one in which its task has
    to be; None for any, and for a new task.
    """

    call: OperationCall
    message: Message
    key: IdempotencyKey | None
    digest: str
    output_modes: tuple[str, ...] = ()
    push: PushDraft | None = None
    generation: int | None = None

    @cached_property
    def answers(self) -> Answers:
        """What the message answers to a turn that waits. Raises: InvalidParams."""
        return answers(self.message)

    @property
    def preferences(self) -> Preferences:
        return Preferences(self.output_modes, self.call.named)

    def check_generation(self, number: int) -> None:
        """`number` is that of the latest event of the task. Raises: TaskGenerationMismatch."""
        current = generation(number)
        if self.generation not in (None, current):
            raise TaskGenerationMismatch(
                f"Task generation mismatch: expected {self.generation} but current generation is {current}",
                metadata={
                    "taskId": self.message.task_id or "",
                    "expectedGeneration": str(self.generation),
                    "currentGeneration": str(current),
                },
            )


async def read_message(call: OperationCall, request: SendMessageRequest, push: PushDraft | None = None) -> Incoming:
    """Raises: ContentTypeNotSupported, InvalidParams."""
    check_content(call.agent, request)
    message = request.message
    key, digest_ = idempotency_key(call, message), digest(message)
    modes, wanted = _output_modes(request), _generation(request)
    return Incoming(call, await _with_tools(call.agent, message), key, digest_, modes, push, wanted)


def idempotency_key(call: OperationCall, message: Message) -> IdempotencyKey | None:
    """Asked for by header, or by the agent's policy for every messageId. Source: docs/state-model.md, scenario 107."""
    policy = call.agent.policies.idempotency
    if policy == "off":
        return None
    if call.idempotency_key is not None:
        return IdempotencyKey("header", call.idempotency_key)
    return IdempotencyKey("message_id", message.message_id) if policy == "message_id" else None


def repeated_by(call: OperationCall) -> str | None:
    """What makes the message of this call the same where it is sent again; None where it would be another one."""
    match call.agent.policies.idempotency:
        case "off":
            return None
        case _ if call.idempotency_key is not None:
            return "Idempotency-Key"
        case "message_id":
            return "messageId"
    return None


def digest(message: Message) -> str:
    """The digest of the message without its id."""
    return hashlib.sha256(_canonical.encode(replace(message, message_id=""))).hexdigest()


async def _with_tools(agent: Agent, message: Message) -> Message:
    """The message with its declarations of tools checked. Raises: InvalidParams."""
    checked = with_declarations(message)
    if checked is not message and agent.toolset is not None:
        # A source that cannot list its tools fails the turn later, with that reason.
        with suppress(ToolError):
            with_declarations(message, await agent.toolset.offered())
    return checked


def _output_modes(request: SendMessageRequest) -> tuple[str, ...]:
    return (request.configuration.accepted_output_modes if request.configuration else None) or ()


def _generation(request: SendMessageRequest) -> int | None:
    configuration = request.configuration
    if not request.message.task_id or not isinstance(configuration, ConditionalConfiguration):
        return None
    return configuration.if_generation_match


def check_content(agent: Agent, request: SendMessageRequest) -> None:
    """Raises: ContentTypeNotSupported for a part that the card does not take, or when no answer would be accepted."""
    for index, part in enumerate(request.message.parts):
        kind = media_type(part)
        if _is_for_the_gateway(request.message, part):
            continue
        if not _offered(kind, agent.takes):
            raise _unsupported(f"message.parts[{index}]", f"{echo(kind)} is not taken", agent.takes)
    accepted = _output_modes(request)
    if accepted and not any(_offered(mode, agent.makes) for mode in accepted):
        raise _unsupported("configuration.acceptedOutputModes", f"{echo(list(accepted))} is not made", agent.makes)


def _is_for_the_gateway(message: Message, part: Part) -> bool:
    """The agent's card does not limit declarations of the client's tools, nor answers to questions of the gateway."""
    answers = bool(message.task_id) and isinstance(part.data, dict) and part.media_type is None
    return answers or part.media_type in _FOR_THE_GATEWAY


def media_type(part: Part) -> str:
    """The part's media type without parameters; what its content implies where it names none."""
    if part.media_type:
        return part.media_type.partition(";")[0].strip().lower()
    if part.text is not None:
        return "text/plain"
    return "application/octet-stream" if part.raw is not None or part.url is not None else "application/json"


@lru_cache(maxsize=256)
def _offered(kind: str, modes: tuple[str, ...]) -> bool:
    kind = _MODE_NAMES.get(kind, kind)
    return any(_matches(kind, _MODE_NAMES.get(mode.lower(), mode.lower())) for mode in modes)


def _matches(kind: str, pattern: str) -> bool:
    """Either side may be a range, as `image/*`."""
    one, _, rest = kind.partition("/")
    other, _, other_rest = pattern.partition("/")
    return (one == other or "*" in (one, other)) and (rest == other_rest or "*" in (rest, other_rest))


def _unsupported(field: str, what: str, modes: Sequence[str]) -> A2AError:
    text = f"{what}; this agent knows {', '.join(modes)}"
    return ContentTypeNotSupported(f"{field}: {text}", violations=(FieldViolation(field, text),))
