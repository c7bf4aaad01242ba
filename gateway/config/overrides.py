"""Values that override the file: environment variables, then flags of the command line. Law: the last one wins, and a wrong
one is a problem with the name of its variable or flag; imports no models, as `files`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from gateway.config.problems import ConfigInvalid, KeyPath, Place, Problem, path_text
from gateway.config.yaml import Document, is_well_formed, read, scalar

ENVIRONMENT = "environment"

_PREFIX = "A2A_GATEWAY__"
_SHORT_PREFIX = _PREFIX.removesuffix("_")


class Keys(Protocol):
    """The keys of a configuration."""

    def keys(self, path: KeyPath) -> tuple[str, ...]:
        """Keys that a mapping at this path may have; none where it may have any."""
        ...

    def holds_entries(self, path: KeyPath) -> bool:
        """Whether the operator chooses the keys of the mapping at this path."""
        ...


def override_from_environment(
    document: Document, data: dict[str, object], env: Mapping[str, str], keys_of: Callable[[object], Keys]
) -> None:
    """`keys_of` gives the keys that the data may have."""
    taken: dict[KeyPath, str] = {}
    for variable in sorted(env):
        if not variable.upper().startswith(_PREFIX):
            continue
        segments = variable[len(_PREFIX) :].split("__")
        if not all(segments):
            _add_problem(document, ENVIRONMENT, variable, f"names no setting; write it like {_PREFIX}SERVER__PORT")
            continue
        shape = keys_of(data)
        path = _named_path(segments, data, shape)
        unusable = _why_unusable(segments, path, env[variable], data, shape)
        if unusable is not None:
            _add_problem(document, ENVIRONMENT, variable, unusable)
            continue
        if path in taken:
            _add_problem(document, ENVIRONMENT, variable, f"sets the same as {taken[path]}; remove one of them")
            continue
        taken[path] = variable
        place = Place(ENVIRONMENT, name=variable, text=env[variable])
        _put(document, data, path, _environment_value(env[variable]), place)


def _why_unusable(segments: list[str], path: KeyPath, value: str, data: object, shape: Keys) -> str | None:
    """The problem of a variable that is written for no setting, or has no value."""
    meant = None if _is_setting(path, shape) else _meant_path("_".join(segments), data, shape)
    if meant is not None:
        return f"names no setting; did you mean {_variable(meant)}?"
    return None if value.strip() else "is empty; give it a value (null for none), or remove it"


def misspelled_variables(env: Mapping[str, str], data: object, shape: Keys) -> Iterator[Problem]:
    """Variables that set nothing, because one `_` stands where two belong. `data` is the file.

    They are no error: a cluster gives variables such as A2A_GATEWAY_SERVER_PORT to every process beside a service.
    """
    for variable in sorted(env):
        name = variable.upper()
        if name.startswith(_SHORT_PREFIX) and not name.startswith(_PREFIX):
            path = _meant_path(variable[len(_SHORT_PREFIX) :], data, shape)
            # The one setting of the file's first level is its version, and A2A_GATEWAY_VERSION may be the program's.
            if path is not None and len(path) > 1:
                message = f"sets nothing; did you mean {_variable(path)}?"
                yield Problem(ENVIRONMENT, None, None, variable, message)


def _add_problem(document: Document, file: str, name: str, message: str) -> None:
    document.problems.append(Problem(file, None, None, name, message))


def _environment_value(text: str) -> object:
    """The value as YAML reads it; lists and mappings only in their bracketed form."""
    if text.lstrip()[:1] not in {"[", "{"}:
        return scalar(text)
    try:
        document = read(text, ENVIRONMENT)
    except ConfigInvalid:
        return text
    return text if document.all_problems() else document.data


def _named_path(segments: list[str], data: object, shape: Keys) -> KeyPath:
    """The setting that a variable names, in any case and with `_` for `-`; keys of the file come before those of the models."""
    path: tuple[str, ...] = ()
    for segment in segments:
        form = _form(segment)
        present = list(data) if isinstance(data, dict) else []
        key = next((known for known in (*present, *shape.keys(path)) if _form(known) == form), None)
        if key is None:
            key = form.replace("_", "-") if shape.holds_entries(path) else segment.lower()
        data = data.get(key) if isinstance(data, dict) else None
        path = (*path, key)
    return path


def _is_setting(path: KeyPath, shape: Keys) -> bool:
    """Whether each key may stand where it does. Where the models name no keys, any may."""
    return all(not (keys := shape.keys(path[:depth])) or key in keys for depth, key in enumerate(path))


def _meant_path(name: str, data: object, shape: Keys, above: KeyPath = ()) -> KeyPath | None:
    """The setting whose keys make this name when they are joined by `_`, None where there is none."""
    form = _form(name).lstrip("_")
    present = list(data) if isinstance(data, dict) else []
    for key in dict.fromkeys((*present, *shape.keys(above))):
        path = (*above, key)
        if form == _form(key):
            return path
        if form.startswith(f"{_form(key)}_"):
            below = data.get(key) if isinstance(data, dict) else None
            found = _meant_path(form[len(key) :], below, shape, path)
            if found is not None:
                return found
    return None


def _variable(path: KeyPath) -> str:
    return _PREFIX + "__".join(_form(str(key)).upper() for key in path)


def _form(name: str) -> str:
    return name.lower().replace("-", "_")


def override_from_flags(document: Document, data: dict[str, object], overrides: Mapping[str, object]) -> None:
    for name, value in overrides.items():
        _put(document, data, tuple(name.split(".")), value, Place("command line", name=name))


def _put(document: Document, data: dict[str, object], path: KeyPath, value: object, place: Place) -> None:
    """Sets one value; the value of the file, right or wrong, no longer counts."""
    if isinstance(value, str) and not is_well_formed(value):
        return _add_problem(document, place.file, place.name or "", "is not UTF-8 text")
    node = data
    for depth, key in enumerate(path[:-1], start=1):
        below = node.get(str(key))
        if below is None:
            below = node[str(key)] = {}
            document.places[path[:depth]] = Place(place.file)
        if not isinstance(below, dict):
            message = f"cannot be set, because {path_text(path[:depth])} is not a mapping"
            return _add_problem(document, place.file, place.name or "", message)
        node = below
    node[str(path[-1])] = value
    for old in [old for old in document.places if old[: len(path)] == path]:
        del document.places[old]
    document.places[path] = place
    document.unknown = {old: found for old, found in document.unknown.items() if old[: len(path)] != path}
    return None
