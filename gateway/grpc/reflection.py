"""The reflection service, by which tools such as grpcurl learn the services. Law: it tells what the protocol publishes
anyway, so it asks for no credential.

Source: grpc/reflection/v1/reflection.proto; v1alpha is the same under another name.
"""

from collections.abc import Mapping, Sequence

import grpc

from gateway.a2a.model import Json
from gateway.a2a.wire import v1_0_proto
from gateway.a2a.wire.protobuf import INT32, OCTETS, TEXT, Field, Message, Procedure
from gateway.foundation.shutdown import Drain
from gateway.grpc import health
from gateway.grpc.context import Context
from gateway.grpc.descriptors import File, google_files, service_file

VERSIONS = ("v1", "v1alpha")
METHOD = "ServerReflectionInfo"
_NOT_FOUND = grpc.StatusCode.NOT_FOUND.value[0]


def _many(number: int, name: str, kind: Message) -> Field:
    return Field(number, name, kind, form="many")


def _procedure(package: str) -> Procedure:
    def message(name: str, *fields: Field) -> Message:
        return Message(f"{package}.{name}", *fields)

    def asked(number: int, name: str, kind: Message | None = None) -> Field:
        return Field(number, name, kind or TEXT, choice="message_request")

    def told(number: int, name: str, kind: Message) -> Field:
        return Field(number, name, kind, choice="message_response")

    request = message(
        "ServerReflectionRequest",
        Field(1, "host", TEXT),
        asked(3, "file_by_filename"),
        asked(4, "file_containing_symbol"),
        asked(
            5,
            "file_containing_extension",
            message("ExtensionRequest", Field(1, "containing_type", TEXT), Field(2, "extension_number", INT32)),
        ),
        asked(6, "all_extension_numbers_of_type"),
        asked(7, "list_services"),
    )
    response = message(
        "ServerReflectionResponse",
        Field(1, "valid_host", TEXT),
        Field(2, "original_request", request),
        told(
            4,
            "file_descriptor_response",
            message("FileDescriptorResponse", Field(1, "file_descriptor_proto", OCTETS, form="many")),
        ),
        told(
            5,
            "all_extension_numbers_response",
            message(
                "ExtensionNumberResponse",
                Field(1, "base_type_name", TEXT),
                Field(2, "extension_number", INT32, form="many"),
            ),
        ),
        told(
            6,
            "list_services_response",
            message("ListServiceResponse", _many(1, "service", message("ServiceResponse", Field(1, "name", TEXT)))),
        ),
        told(
            7,
            "error_response",
            message("ErrorResponse", Field(1, "error_code", INT32), Field(2, "error_message", TEXT)),
        ),
    )
    return Procedure(request, response, talking=True)


def package_of(version: str) -> str:
    return f"grpc.reflection.{version}"


def service_of(version: str) -> str:
    return f"{package_of(version)}.ServerReflection"


_PROCEDURES = {version: _procedure(package_of(version)) for version in VERSIONS}


def _files() -> Sequence[File]:
    google = tuple(google_files())
    return (
        *google,
        service_file("a2a.proto", v1_0_proto.SERVICE, v1_0_proto.PROCEDURES, google),
        service_file("grpc/health/v1/health.proto", health.SERVICE, health.PROCEDURES),
        *(
            service_file(f"grpc/reflection/{version}/reflection.proto", service_of(version), {METHOD: procedure})
            for version, procedure in _PROCEDURES.items()
        ),
    )


class ReflectionService:
    def __init__(self, drain: Drain, send_timeout: float) -> None:
        """`drain`, once set, ends every call behind its next question. `send_timeout` is the number of seconds that a
        caller is waited for which takes nothing."""
        files = _files()
        self._drain = drain
        self._send_timeout = send_timeout
        self._files = {each.name: each for each in files}
        self._symbols = {symbol: each for each in files for symbol in each.symbols}
        self._services = [v1_0_proto.SERVICE, health.SERVICE, *map(service_of, VERSIONS)]

    async def talk(self, version: str, context: Context) -> None:
        """Answers each question. Raises: ParseError, and as `Context.read` and `Context.write`."""
        procedure = _PROCEDURES[version]
        while not self._drain.is_set() and (message := await context.read()) is not None:
            request, _ = procedure.request.decode(message, depth=2)
            response = {"validHost": request.get("host", ""), "originalRequest": request, **self._answer(request)}
            await context.write((procedure.response.write(response),), self._send_timeout)

    def _answer(self, request: Mapping[str, Json]) -> dict[str, Json]:
        match request:
            case {"listServices": _}:
                return {"listServicesResponse": {"service": [{"name": name} for name in self._services]}}
            case {"fileByFilename": str(name)} if name in self._files:
                return self._told(self._files[name])
            case {"fileContainingSymbol": str(symbol)} if symbol in self._symbols:
                return self._told(self._symbols[symbol])
            case _:
                return {
                    "errorResponse": {"errorCode": _NOT_FOUND, "errorMessage": "nothing of this name is served here"}
                }

    def _told(self, file: File) -> dict[str, Json]:
        """The file behind all that it depends on."""
        files = [*(self._files[name] for name in file.dependencies), file]
        return {"fileDescriptorResponse": {"fileDescriptorProto": [each.content for each in files]}}
