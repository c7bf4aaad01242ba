"""The calls of a client of A2A 0.3 by JSON-RPC: operations of the model as its methods and their parameters.

Law: the inverse of `requests`. Source: A2A 0.3.0, section 7.
"""

from collections.abc import Mapping

import msgspec

from gateway.a2a import model
from gateway.a2a.model import Json, Wire
from gateway.a2a.wire.v0_3 import requests
from gateway.a2a.wire.v0_3.results import of_message

METHODS: Mapping[str, str] = {method.operation: name for name, method in requests.METHODS.items()}
"""The name of each operation."""


def params(request: Wire) -> dict[str, Json]:
    """The parameters of an operation, as values that msgspec encodes. The version has no tenants: they are left out."""
    match request:
        case model.SendMessageRequest():
            return _present(
                message=of_message(request.message),
                configuration=_configuration(request.configuration),
                metadata=request.metadata,
            )
        case model.GetTaskRequest():
            return _present(id=request.id, historyLength=request.history_length)
        case _:
            found: dict[str, Json] = msgspec.to_builtins(request)
            found.pop("tenant", None)
            return found


def _configuration(given: model.SendMessageConfiguration | None) -> dict[str, Json]:
    if given is None:
        return {"blocking": True}
    return _present(
        acceptedOutputModes=given.accepted_output_modes,
        blocking=not given.return_immediately,
        historyLength=given.history_length,
    )


def _present(**members: Json) -> dict[str, Json]:
    return {name: member for name, member in members.items() if member is not None}
