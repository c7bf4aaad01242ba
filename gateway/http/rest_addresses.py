"""The addresses of HTTP+JSON below an agent, as a table. Law: the table routes requests, and the OpenAPI description is made of
it.

Source: A2A 1.0, section 11; A2A 0.3.0, section 3.5.6.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from gateway.a2a.wire import dialects
from gateway.a2a.wire.dialect import Dialect
from gateway.http.reply import REST, REST_0_3, RestErrors


class Address(msgspec.Struct, frozen=True):
    """Addresses of one form, and the operation of each HTTP method there. Between the slashes of `form` stand words and fields
    of the request by proto name, as in `tasks/{id}:cancel`; a word right behind a field belongs to its segment."""

    form: str
    operations: Mapping[str, str]
    optional_body: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields in the path."""
        return tuple(field for _, field in self.segments if field is not None)

    @property
    def segments(self) -> "_Segments":
        return tuple(map(_segment, self.form.split("/")))


_Segments: TypeAlias = tuple[tuple[str, str | None], ...]
"""Each segment: a word and no field, or the word behind the value of a field, and that field."""

_Form: TypeAlias = tuple[tuple[int, str, str | None], ...]
"""The segments behind the first, each with its position."""


class Version(msgspec.Struct, frozen=True):
    """A version of the binding: its dialects, where other ones are spoken, its errors and its addresses. `forms` has
    them by the number of their segments and the first, which is a word; where two forms fit, the first counts."""

    dialects: Mapping[str, Dialect]
    elsewhere: str
    errors: RestErrors
    addresses: tuple[Address, ...]
    forms: Mapping[tuple[int, str], Sequence[tuple[_Form, Address]]]


def _version(
    spoken: Mapping[str, Dialect], elsewhere: str, errors: RestErrors, *, card: str, task: str, config: str
) -> Version:
    """`card` is the address of the extended card; `task` and `config` are the fields of the two ids in the address of a push
    configuration."""
    configs = f"tasks/{{{task}}}/pushNotificationConfigs"
    addresses = (
        Address("message:send", {"POST": "SendMessage"}),
        Address("message:stream", {"POST": "SendStreamingMessage"}),
        Address(card, {"GET": "GetExtendedAgentCard"}),
        Address("tasks", {"GET": "ListTasks"}),
        Address("tasks/{id}:cancel", {"POST": "CancelTask"}, optional_body=True),
        Address("tasks/{id}:subscribe", {"GET": "SubscribeToTask", "POST": "SubscribeToTask"}, optional_body=True),
        Address("tasks/{id}", {"GET": "GetTask"}),
        Address(configs, {"GET": "ListTaskPushNotificationConfigs", "POST": "CreateTaskPushNotificationConfig"}),
        Address(
            f"{configs}/{{{config}}}",
            {"GET": "GetTaskPushNotificationConfig", "DELETE": "DeleteTaskPushNotificationConfig"},
        ),
    )
    forms: dict[tuple[int, str], list[tuple[_Form, Address]]] = {}
    for address in addresses:
        (first, _), *others = address.segments
        form = tuple((position, word, field) for position, (word, field) in enumerate(others, start=1))
        forms.setdefault((1 + len(others), first), []).append((form, address))
    return Version(spoken, elsewhere, errors, addresses, forms)


def _segment(form: str) -> tuple[str, str | None]:
    if not form.startswith("{"):
        return form, None
    field, _, word = form[1:].partition("}")
    return word, field


V1_0 = _version(
    dialects.HTTP_JSON,
    "HTTP+JSON of A2A 0.3 is below /v1 of the agent's address",
    REST,
    card="extendedAgentCard",
    task="task_id",
    config="id",
)
V0_3 = _version(
    dialects.HTTP_JSON_BELOW_V1,
    "HTTP+JSON of A2A 1.0 is at the agent's address without /v1",
    REST_0_3,
    card="card",
    task="id",
    config="push_notification_config_id",
)


class Resource(msgspec.Struct, frozen=True):
    """An address below an agent: the operation of each HTTP method, and the fields (by proto name) in the path."""

    operations: Mapping[str, str]
    fields: Mapping[str, str]
    optional_body: bool = False
    version: Version = V1_0


def resource(segments: list[str], version: Version = V1_0) -> Resource | None:
    """The resource at a decoded path below an agent, and below `/v1` of it for A2A 0.3; None where there is none. An id may
    hold a colon."""
    for form, address in version.forms.get((len(segments), segments[0]), ()) if segments else ():
        fields = {}
        for position, word, field in form:
            given = segments[position]
            if field is None:
                if given != word:
                    break
            elif given == word or not given.endswith(word):  # no field is empty
                break
            else:
                fields[field] = given.removesuffix(word)
        else:
            return Resource(address.operations, fields, address.optional_body, version)
    return None
