"""The schemas of the types of the wire, which OpenAPI 3.1 has as JSON Schema 2020-12 has them. Law: a schema is made of its
type."""

from collections.abc import Mapping

import msgspec

from gateway.a2a.model import Json

_PLACE = "#/components/schemas/"
_NULL = {"type": "null"}


def reference(name: str) -> dict[str, Json]:
    return {"$ref": f"{_PLACE}{name}"}


class Schemas:
    """The schemas that a description refers to. Types of one name, as versions have them, are told apart by a `space`, which
    stands in front of the name."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[type, None]] = {}

    def of(self, kind: type, space: str = "") -> dict[str, Json]:
        """The reference to a type."""
        self._kinds.setdefault(space, {})[kind] = None
        return reference(_public(kind.__name__, space))

    def without(self, kind: type, names: frozenset[str], space: str = "") -> dict[str, Json]:
        """The schema of an object without the members of these names."""
        whole = self._component(kind, space)
        left = {name: schema for name, schema in whole["properties"].items() if name not in names}
        required = [name for name in whole.get("required", ()) if name not in names]
        return {"type": "object", "properties": left, **({"required": required} if required else {})}

    def texts(self, kind: type, names: frozenset[str], space: str = "") -> dict[str, tuple[dict[str, Json], bool]]:
        """The members of an object as a URL has them, without those of these names: their schemas, and whether they are
        required."""
        left = self.without(kind, names, space)
        required = left.get("required", ())
        return {name: (_present(schema), name in required) for name, schema in left["properties"].items()}

    def components(self) -> dict[str, Json]:
        """All that was referred to, by name, with all that it refers to itself."""
        found: dict[str, Json] = {}
        for space, kinds in self._kinds.items():
            found |= _components(tuple(kinds), space)
        return dict(sorted(found.items()))

    def _component(self, kind: type, space: str) -> dict[str, Json]:
        self.of(kind, space)
        found: dict[str, Json] = _components((kind,), space)[_public(kind.__name__, space)]
        return found


def _components(kinds: tuple[type, ...], space: str) -> dict[str, Json]:
    _, found = msgspec.json.schema_components(kinds, ref_template=f"{_PLACE}{{name}}")
    return {_public(name, space): _named(schema, space) for name, schema in found.items()}


def _public(name: str, space: str) -> str:
    return f"{space}{name.lstrip('_')}"


def _named(schema: Json, space: str) -> Json:
    """The schema with the public names of the types in it."""
    match schema:
        case dict():
            named = {key: _named(value, space) for key, value in schema.items()}
            return {**named, "title": schema["title"].lstrip("_")} if isinstance(schema.get("title"), str) else named
        case list():
            return [_named(each, space) for each in schema]
        case str() if schema.startswith(_PLACE):
            return f"{_PLACE}{_public(schema.removeprefix(_PLACE), space)}"
        case _:
            return schema


def _present(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema of a member that is left out where it has no value."""
    options = [each for each in schema.get("anyOf", ()) if each != _NULL]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    if not options:
        return rest
    return {**options[0], **rest} if len(options) == 1 else {"anyOf": options, **rest}
