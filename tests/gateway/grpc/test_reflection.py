"""The reflection service: what it tells of the services is what protobuf's library knows of them."""

from collections.abc import Sequence
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import struct_pb2, timestamp_pb2  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]

from gateway.a2a.wire.v1_0_proto import SERVICE
from gateway.grpc.reflection import _PROCEDURES, VERSIONS, service_of
from tests.gateway.grpc.calling import Served, serving


async def asked(served: Served, version: str, *questions: dict[str, Any]) -> list[dict[str, Any]]:
    procedure = _PROCEDURES[version]

    async def requests() -> Any:
        for question in questions:
            yield procedure.request.write(question)

    call = served.channel.stream_stream(f"/{service_of(version)}/ServerReflectionInfo")(requests())
    return [procedure.response.decode(message, 20)[0] async for message in call]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_services_are_listed(version: str) -> None:
    async with serving() as served:
        [answer] = await asked(served, version, {"host": "h", "listServices": "*"})

    assert answer["validHost"] == "h"
    assert answer["originalRequest"] == {"host": "h", "listServices": "*"}
    assert [each["name"] for each in answer["listServicesResponse"]["service"]] == [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]


async def files(served: Served, symbol: str) -> list[Any]:
    [answer] = await asked(served, "v1", {"fileContainingSymbol": symbol})
    found = answer["fileDescriptorResponse"]["fileDescriptorProto"]
    return [FileDescriptorProto.FromString(each) for each in found]


def pool_of(files: Sequence[Any]) -> Any:
    pool = DescriptorPool()
    for each in files:
        pool.Add(each)
    return pool


async def test_a_method_leads_to_a_file_that_describes_the_protocol() -> None:
    async with serving() as served:
        pool = pool_of(await files(served, f"{SERVICE}.SendMessage"))

    official = a2a_pb2.DESCRIPTOR
    service = pool.FindServiceByName(SERVICE)
    assert _methods(service) == _methods(official.services_by_name["A2AService"])
    for name, message in official.message_types_by_name.items():
        assert _fields(pool.FindMessageTypeByName(message.full_name)) == _fields(message), name
    for enum in official.enum_types_by_name.values():
        assert _values(pool.FindEnumTypeByName(enum.full_name)) == _values(enum)


async def test_the_types_of_google_are_its_own() -> None:
    async with serving() as served:
        pool = pool_of(await files(served, "lf.a2a.v1.Task"))

    for official in (struct_pb2.Struct, struct_pb2.Value, struct_pb2.ListValue, timestamp_pb2.Timestamp):
        described = pool.FindMessageTypeByName(official.DESCRIPTOR.full_name)
        assert _fields(described) == _fields(official.DESCRIPTOR)


@pytest.mark.parametrize("service", ["grpc.health.v1.Health", *map(service_of, VERSIONS)])
async def test_the_other_services_are_described_too(service: str) -> None:
    async with serving() as served:
        pool = pool_of(await files(served, service))

    assert pool.FindServiceByName(service).methods


async def test_a_file_is_found_by_its_name() -> None:
    async with serving() as served:
        by_name, unknown, extension = await asked(
            served,
            "v1",
            {"fileByFilename": "google/protobuf/struct.proto"},
            {"fileByFilename": "other.proto"},
            {"fileContainingExtension": {"containingType": "lf.a2a.v1.Task", "extensionNumber": 7}},
        )

    [file] = by_name["fileDescriptorResponse"]["fileDescriptorProto"]
    assert FileDescriptorProto.FromString(file).name == "google/protobuf/struct.proto"
    error = {"errorCode": 5, "errorMessage": "nothing of this name is served here"}
    assert unknown["errorResponse"] == extension["errorResponse"] == error


def _methods(service: Any) -> list[tuple[object, ...]]:
    return sorted(
        (each.name, each.input_type.full_name, each.output_type.full_name, each.client_streaming, each.server_streaming)
        for each in service.methods
    )


def _fields(message: Any) -> list[tuple[object, ...]]:
    return [
        (
            field.number,
            field.name,
            field.json_name,
            field.type,
            field.is_repeated,
            field.has_presence,
            field.message_type and field.message_type.full_name,
            field.enum_type and field.enum_type.full_name,
            field.containing_oneof and field.containing_oneof.name,
        )
        for field in sorted(message.fields, key=lambda field: field.number)
    ]


def _values(enum: Any) -> list[tuple[str, int]]:
    return [(value.name, value.number) for value in enum.values]
