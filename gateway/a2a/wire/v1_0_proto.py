"""The messages and methods of A2A 1.0 in protobuf. Law: each number stands here once, as in the protocol's own file.

Source: `specification/a2a.proto` of A2A 1.0, package lf.a2a.v1.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from gateway.a2a import model
from gateway.a2a.model import Json, Wire
from gateway.a2a.wire import strict_json, v1_0
from gateway.a2a.wire.card import card_json
from gateway.a2a.wire.dialect import Method
from gateway.a2a.wire.proto_text import TextEvents
from gateway.a2a.wire.protobuf import (
    BASE64,
    BOOLEAN,
    EMPTY,
    INT32,
    STRUCT,
    TEXT,
    TIMESTAMP,
    VALUE,
    Enumeration,
    Field,
    Kind,
    Message,
    Procedure,
    varint,
)

PACKAGE = "lf.a2a.v1"
SERVICE = f"{PACKAGE}.A2AService"


def _message(name: str, *fields: Field) -> Message:
    return Message(f"{PACKAGE}.{name}", *fields)


def _one(number: int, name: str, kind: Kind = TEXT) -> Field:
    return Field(number, name, kind)


def _optional(number: int, name: str, kind: Kind) -> Field:
    return Field(number, name, kind, explicit=True)


def _choice(choice: str, number: int, name: str, kind: Kind) -> Field:
    return Field(number, name, kind, choice=choice)


def _many(number: int, name: str, kind: Kind = TEXT) -> Field:
    return Field(number, name, kind, form="many")


def _map(number: int, name: str, kind: Kind = TEXT) -> Field:
    return Field(number, name, kind, form="map")


# --- tasks and messages

_STATE = Enumeration(f"{PACKAGE}.TaskState", "TASK_STATE_UNSPECIFIED", *model.TaskState)
_ROLE = Enumeration(f"{PACKAGE}.Role", "ROLE_UNSPECIFIED", *model.Role)

_PART = _message(
    "Part",
    _choice("content", 1, "text", TEXT),
    _choice("content", 2, "raw", BASE64),
    _choice("content", 3, "url", TEXT),
    _choice("content", 4, "data", VALUE),
    _one(5, "metadata", STRUCT),
    _one(6, "filename"),
    _one(7, "media_type"),
)
_MESSAGE = _message(
    "Message",
    _one(1, "message_id"),
    _one(2, "context_id"),
    _one(3, "task_id"),
    _one(4, "role", _ROLE),
    _many(5, "parts", _PART),
    _one(6, "metadata", STRUCT),
    _many(7, "extensions"),
    _many(8, "reference_task_ids"),
)
_ARTIFACT = _message(
    "Artifact",
    _one(1, "artifact_id"),
    _one(2, "name"),
    _one(3, "description"),
    _many(4, "parts", _PART),
    _one(5, "metadata", STRUCT),
    _many(6, "extensions"),
)
_STATUS = _message(
    "TaskStatus", _one(1, "state", _STATE), _one(2, "message", _MESSAGE), _one(3, "timestamp", TIMESTAMP)
)
TASK = _message(
    "Task",
    _one(1, "id"),
    _one(2, "context_id"),
    _one(3, "status", _STATUS),
    _many(4, "artifacts", _ARTIFACT),
    _many(5, "history", _MESSAGE),
    _one(6, "metadata", STRUCT),
)
_STATUS_UPDATE = _message(
    "TaskStatusUpdateEvent",
    _one(1, "task_id"),
    _one(2, "context_id"),
    _one(3, "status", _STATUS),
    _one(4, "metadata", STRUCT),
)
_ARTIFACT_UPDATE = _message(
    "TaskArtifactUpdateEvent",
    _one(1, "task_id"),
    _one(2, "context_id"),
    _one(3, "artifact", _ARTIFACT),
    _one(4, "append", BOOLEAN),
    _one(5, "last_chunk", BOOLEAN),
    _one(6, "metadata", STRUCT),
)
SEND_MESSAGE_RESPONSE = _message(
    "SendMessageResponse", _choice("payload", 1, "task", TASK), _choice("payload", 2, "message", _MESSAGE)
)
STREAM_RESPONSE = _message(
    "StreamResponse",
    _choice("payload", 1, "task", TASK),
    _choice("payload", 2, "message", _MESSAGE),
    _choice("payload", 3, "status_update", _STATUS_UPDATE),
    _choice("payload", 4, "artifact_update", _ARTIFACT_UPDATE),
)
LIST_TASKS_RESPONSE = _message(
    "ListTasksResponse",
    _many(1, "tasks", TASK),
    _one(2, "next_page_token"),
    _one(3, "page_size", INT32),
    _one(4, "total_size", INT32),
)

# --- push notifications

_AUTHENTICATION = _message("AuthenticationInfo", _one(1, "scheme"), _one(2, "credentials"))
PUSH_CONFIG = _message(
    "TaskPushNotificationConfig",
    _one(1, "tenant"),
    _one(2, "id"),
    _one(3, "task_id"),
    _one(4, "url"),
    _one(5, "token"),
    _one(6, "authentication", _AUTHENTICATION),
)
LIST_PUSH_CONFIGS_RESPONSE = _message(
    "ListTaskPushNotificationConfigsResponse", _many(1, "configs", PUSH_CONFIG), _one(2, "next_page_token")
)

# --- requests

_CONFIGURATION = _message(
    "SendMessageConfiguration",
    _many(1, "accepted_output_modes"),
    _one(2, "task_push_notification_config", PUSH_CONFIG),
    _optional(3, "history_length", INT32),
    _one(4, "return_immediately", BOOLEAN),
)
_SEND_MESSAGE = _message(
    "SendMessageRequest",
    _one(1, "tenant"),
    _one(2, "message", _MESSAGE),
    _one(3, "configuration", _CONFIGURATION),
    _one(4, "metadata", STRUCT),
)
_GET_TASK = _message("GetTaskRequest", _one(1, "tenant"), _one(2, "id"), _optional(3, "history_length", INT32))
_LIST_TASKS = _message(
    "ListTasksRequest",
    _one(1, "tenant"),
    _one(2, "context_id"),
    _one(3, "status", _STATE),
    _optional(4, "page_size", INT32),
    _one(5, "page_token"),
    _optional(6, "history_length", INT32),
    _one(7, "status_timestamp_after", TIMESTAMP),
    _optional(8, "include_artifacts", BOOLEAN),
)
_CANCEL_TASK = _message("CancelTaskRequest", _one(1, "tenant"), _one(2, "id"), _one(3, "metadata", STRUCT))
_SUBSCRIBE = _message("SubscribeToTaskRequest", _one(1, "tenant"), _one(2, "id"))
_OF_CONFIG = (_one(1, "tenant"), _one(2, "task_id"), _one(3, "id"))
_GET_CONFIG = _message("GetTaskPushNotificationConfigRequest", *_OF_CONFIG)
_DELETE_CONFIG = _message("DeleteTaskPushNotificationConfigRequest", *_OF_CONFIG)
_LIST_CONFIGS = _message(
    "ListTaskPushNotificationConfigsRequest",
    _one(1, "task_id"),
    _one(2, "page_size", INT32),
    _one(3, "page_token"),
    _one(4, "tenant"),
)
_EXTENDED_CARD = _message("GetExtendedAgentCardRequest", _one(1, "tenant"))

# --- cards

_INTERFACE = _message(
    "AgentInterface", _one(1, "url"), _one(2, "protocol_binding"), _one(3, "tenant"), _one(4, "protocol_version")
)
_PROVIDER = _message("AgentProvider", _one(1, "url"), _one(2, "organization"))
_EXTENSION = _message(
    "AgentExtension", _one(1, "uri"), _one(2, "description"), _one(3, "required", BOOLEAN), _one(4, "params", STRUCT)
)
_CAPABILITIES = _message(
    "AgentCapabilities",
    _optional(1, "streaming", BOOLEAN),
    _optional(2, "push_notifications", BOOLEAN),
    _many(3, "extensions", _EXTENSION),
    _optional(4, "extended_agent_card", BOOLEAN),
)
_REQUIREMENT = _message("SecurityRequirement", _map(1, "schemes", _message("StringList", _many(1, "list"))))
_SKILL = _message(
    "AgentSkill",
    _one(1, "id"),
    _one(2, "name"),
    _one(3, "description"),
    _many(4, "tags"),
    _many(5, "examples"),
    _many(6, "input_modes"),
    _many(7, "output_modes"),
    _many(8, "security_requirements", _REQUIREMENT),
)
_API_KEY = _message("APIKeySecurityScheme", _one(1, "description"), _one(2, "location"), _one(3, "name"))
_HTTP = _message("HTTPAuthSecurityScheme", _one(1, "description"), _one(2, "scheme"), _one(3, "bearer_format"))
_FLOWS = _message(
    "OAuthFlows",
    _choice(
        "flow",
        1,
        "authorization_code",
        _message(
            "AuthorizationCodeOAuthFlow",
            _one(1, "authorization_url"),
            _one(2, "token_url"),
            _one(3, "refresh_url"),
            _map(4, "scopes"),
            _one(5, "pkce_required", BOOLEAN),
        ),
    ),
    _choice(
        "flow",
        2,
        "client_credentials",
        _message("ClientCredentialsOAuthFlow", _one(1, "token_url"), _one(2, "refresh_url"), _map(3, "scopes")),
    ),
    _choice(
        "flow",
        3,
        "implicit",
        _message("ImplicitOAuthFlow", _one(1, "authorization_url"), _one(2, "refresh_url"), _map(3, "scopes")),
    ),
    _choice(
        "flow",
        4,
        "password",
        _message("PasswordOAuthFlow", _one(1, "token_url"), _one(2, "refresh_url"), _map(3, "scopes")),
    ),
    _choice(
        "flow",
        5,
        "device_code",
        _message(
            "DeviceCodeOAuthFlow",
            _one(1, "device_authorization_url"),
            _one(2, "token_url"),
            _one(3, "refresh_url"),
            _map(4, "scopes"),
        ),
    ),
)
_OAUTH2 = _message(
    "OAuth2SecurityScheme", _one(1, "description"), _one(2, "flows", _FLOWS), _one(3, "oauth2_metadata_url")
)
_OPEN_ID = _message("OpenIdConnectSecurityScheme", _one(1, "description"), _one(2, "open_id_connect_url"))
_MTLS = _message("MutualTlsSecurityScheme", _one(1, "description"))
_SCHEME = _message(
    "SecurityScheme",
    _choice("scheme", 1, "api_key_security_scheme", _API_KEY),
    _choice("scheme", 2, "http_auth_security_scheme", _HTTP),
    _choice("scheme", 3, "oauth2_security_scheme", _OAUTH2),
    _choice("scheme", 4, "open_id_connect_security_scheme", _OPEN_ID),
    _choice("scheme", 5, "mtls_security_scheme", _MTLS),
)
_SIGNATURE = _message("AgentCardSignature", _one(1, "protected"), _one(2, "signature"), _one(3, "header", STRUCT))
CARD = _message(
    "AgentCard",
    _one(1, "name"),
    _one(2, "description"),
    _many(3, "supported_interfaces", _INTERFACE),
    _one(4, "provider", _PROVIDER),
    _one(5, "version"),
    _optional(6, "documentation_url", TEXT),
    _one(7, "capabilities", _CAPABILITIES),
    _map(8, "security_schemes", _SCHEME),
    _many(9, "security_requirements", _REQUIREMENT),
    _many(10, "default_input_modes"),
    _many(11, "default_output_modes"),
    _many(12, "skills", _SKILL),
    _many(13, "signatures", _SIGNATURE),
    _optional(14, "icon_url", TEXT),
)

# --- methods


PROCEDURES: Mapping[str, Procedure] = {
    "SendMessage": Procedure(_SEND_MESSAGE, SEND_MESSAGE_RESPONSE),
    "SendStreamingMessage": Procedure(_SEND_MESSAGE, STREAM_RESPONSE, streaming=True),
    "GetTask": Procedure(_GET_TASK, TASK),
    "ListTasks": Procedure(_LIST_TASKS, LIST_TASKS_RESPONSE),
    "CancelTask": Procedure(_CANCEL_TASK, TASK),
    "SubscribeToTask": Procedure(_SUBSCRIBE, STREAM_RESPONSE, streaming=True),
    "CreateTaskPushNotificationConfig": Procedure(PUSH_CONFIG, PUSH_CONFIG),
    "GetTaskPushNotificationConfig": Procedure(_GET_CONFIG, PUSH_CONFIG),
    "ListTaskPushNotificationConfigs": Procedure(_LIST_CONFIGS, LIST_PUSH_CONFIGS_RESPONSE),
    "GetExtendedAgentCard": Procedure(_EXTENDED_CARD, CARD),
    "DeleteTaskPushNotificationConfig": Procedure(_DELETE_CONFIG, EMPTY),
}


# --- the dialect

_RESULTS: Mapping[type[Wire], Message] = {
    model.SendMessageResponse: SEND_MESSAGE_RESPONSE,
    model.Task: TASK,
    model.ListTasksResponse: LIST_TASKS_RESPONSE,
    model.TaskPushNotificationConfig: PUSH_CONFIG,
    model.ListTaskPushNotificationConfigsResponse: LIST_PUSH_CONFIGS_RESPONSE,
    model.AgentCard: CARD,
}
_REMEMBERED = 8192
"""Bytes of the largest event that is remembered. Larger ones are mostly tasks, which are written for one watcher each."""


def params(method: Method, payload: bytes, depth: int) -> Json:
    """The request in the payload as ProtoJSON, nested at most `depth` deep.

    Raises: ParseError; InvalidParams naming a field whose text has NUL.
    """
    value, has_nul = PROCEDURES[method.name].request.decode(payload, depth)
    if has_nul:
        strict_json.check_strings(value)
    return value


def encode(result: Wire) -> bytes:
    value = card_json(result) if isinstance(result, model.AgentCard) else msgspec.to_builtins(result)
    return _RESULTS[type(result)].write(value)


def in_list(task: model.Task) -> int:
    """Bytes of a task as an item of a list."""
    size = len(encode(task))
    return 1 + len(varint(size)) + size


def event(_number: int | None, payload: bytes) -> bytes:
    """A logged event as a StreamResponse. One that has many watchers is translated once."""
    return _event(payload) if len(payload) <= _REMEMBERED else _translated(payload)


def _translated(payload: bytes) -> bytes:
    written = _text_events.write(payload)
    if written is not None:
        return written
    value: dict[str, Json] = msgspec.json.decode(payload)
    return STREAM_RESPONSE.write(value)


_text_events = TextEvents(STREAM_RESPONSE, _ARTIFACT_UPDATE, _ARTIFACT, _PART)
_event = lru_cache(maxsize=1024)(_translated)

DIALECT = replace(v1_0.DIALECT, encode=encode, event=event, in_list=in_list)
"""Requests are decoded from their `params`."""
