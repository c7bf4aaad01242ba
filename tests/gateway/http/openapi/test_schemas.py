"""The schemas of types of the wire in an OpenAPI description."""

from gateway.a2a import model
from gateway.http.openapi.schemas import Schemas


class _Inner(model.Wire, frozen=True, kw_only=True):
    title: str


class _Outer(model.Wire, frozen=True, kw_only=True):
    task_id: str
    inner: _Inner | None = None
    length: int | None = None


def test_names_of_types_are_public_and_have_their_space_in_front() -> None:
    schemas = Schemas()
    assert schemas.of(_Outer, "v.") == {"$ref": "#/components/schemas/v.Outer"}
    found = schemas.components()
    assert list(found) == ["v.Inner", "v.Outer"]
    assert found["v.Outer"]["properties"]["inner"]["anyOf"] == [
        {"$ref": "#/components/schemas/v.Inner"},
        {"type": "null"},
    ]
    assert (found["v.Inner"]["title"], found["v.Inner"]["required"]) == ("Inner", ["title"])
    assert found["v.Inner"]["properties"]["title"] == {"type": "string"}


def test_types_of_one_name_are_told_apart() -> None:
    schemas = Schemas()
    schemas.of(_Inner)
    schemas.of(_Inner, "v.")
    assert list(schemas.components()) == ["Inner", "v.Inner"]


def test_what_stands_elsewhere_in_a_request_is_left_out() -> None:
    schemas = Schemas()
    found = schemas.without(_Outer, frozenset({"taskId"}))
    assert (list(found["properties"]), "required" in found) == (["inner", "length"], False)


def test_what_a_url_holds_has_no_null() -> None:
    found = Schemas().texts(_Outer, frozenset({"inner"}))
    assert found == {"taskId": ({"type": "string"}, True), "length": ({"type": "integer"}, False)}
