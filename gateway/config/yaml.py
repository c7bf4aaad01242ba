"""YAML 1.2 text as plain data with the place of each value, and `${...}` replaced. Law: no objects, no unbounded growth."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from gateway.a2a.nesting import DEEPEST
from gateway.config.files import read_text
from gateway.config.problems import ConfigInvalid, KeyPath, Place, Problem, path_text

_TOO_DEEP = f"values are nested deeper than {DEEPEST} levels"
_VALUES = 100_000
_DIGITS = 100

_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = {"", "~", "null", "Null", "NULL"}

# `$${` is a literal `${`; the last alternative is a reference that is never closed.
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?", re.DOTALL)

_PLAIN, _QUOTED = "?", "!"
_ALLOWED_TAGS = {_PLAIN, _QUOTED, "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}

_SYNTAX = (
    (
        "cannot start any token",
        "a value cannot begin with this character; indent with spaces and put the value in quotes",
    ),
    ("mapping values are not allowed", "there is a second `: ` on this line; put the value in quotes"),
    ("could not find expected ':'", "a key without `:` behind it"),
    (
        "expected <block end>",
        "this line is indented differently from its neighbours, or a quote or bracket is not closed",
    ),
    ("expected ',' or", "a comma or the closing bracket is missing"),
    ("expected the node content", "a value is missing here, or a bracket before it is not closed"),
    ("found unexpected end of stream", "a quote is not closed before the end of the file"),
    ("but found another document", "a second document begins here; the file must hold only one"),
)
_BARE_REFERENCE = 'inside { } and [ ] YAML reads the brace of ${...} as a mapping; put the value in quotes: "${...}"'


def scalar(text: str) -> object:
    """The value of an unquoted scalar in YAML 1.2's core schema: `on`, `yes` and `1:30` are text, 010 is ten."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if len(text) <= _DIGITS:
        if _INT.fullmatch(text):
            return int(text)
        if _BASED.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(re.sub(r"\.(?=[a-zA-Z])", "", text))
    return text


def is_well_formed(text: str) -> bool:
    """False for half of a surrogate pair: an escape in YAML can write one, a variable that is not UTF-8 holds some."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(slots=True)
class Document:
    """The values, their places, the problems, and the paths whose values are unknown because of a problem."""

    source: str
    data: object = None
    places: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unknown: dict[KeyPath, tuple[Problem, ...]] = field(default_factory=dict)

    def add_problem(self, mark: tuple[int, int], path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.source, *mark, path_text(path), message))

    def set_unknown(self, mark: tuple[int, int], path: KeyPath, messages: tuple[str, ...]) -> None:
        """The value cannot be known; these problems go away when another source gives a value for the path."""
        self.unknown[path] = tuple(Problem(self.source, *mark, path_text(path), message) for message in messages)

    def all_problems(self) -> tuple[Problem, ...]:
        return (*self.problems, *(problem for problems in self.unknown.values() for problem in problems))


class References(msgspec.Struct, frozen=True):
    """Replaces `${VAR}`, `${VAR:-default}` and `${file:path}`."""

    env: Mapping[str, str]
    base_dir: Path

    def substitute(self, text: str) -> tuple[str, str | None, tuple[str, ...]]:
        """The text with its references replaced; the reference, where it was the whole text; what could not be replaced."""
        failures: list[str] = []

        def value(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            try:
                return self._value(match[1])
            except ValueError as error:
                failures.append(str(error))
                return ""

        whole = _REFERENCE.fullmatch(text)
        reference = f"${{{whole[1].partition(':-')[0]}}}" if whole and whole[1] else None
        return _REFERENCE.sub(value, text), reference, tuple(failures)

    def values(self, text: str) -> frozenset[str]:
        """What stands outside of a text that refers to it, its comments included: neither defaults nor what is not there."""
        found = set()
        for match in _REFERENCE.finditer(text):
            body = match[1] or ""
            with suppress(ValueError):
                found.add(self._value(body) if body.startswith("file:") else self.env.get(body.partition(":-")[0], ""))
        return frozenset(found)

    def missing(self, text: str) -> tuple[str, ...]:
        """The variables of the references in a text that have no value and no default."""
        named = (_VARIABLE.fullmatch(match[1] or "") for match in _REFERENCE.finditer(text))
        needed = [match[1] for match in named if match is not None and match[2] is None]
        return tuple(name for name in dict.fromkeys(needed) if not self.env.get(name, "").strip())

    def _value(self, body: str | None) -> str:
        if body is None:
            raise ValueError("`${` is never closed with `}`; write $${ for the two characters themselves")
        if "${" in body:
            raise ValueError("`${` inside `${...}` is not possible; a default is plain text")
        if body.startswith("file:"):
            path = self.base_dir / body.removeprefix("file:")
            content = read_text(path).rstrip("\r\n")
            if not content.strip():
                raise ValueError(f"the file {path} is empty; write the value into it")
            return content
        match = _VARIABLE.fullmatch(body)
        if match is None:
            raise ValueError("`${...}` must be ${NAME}, ${NAME:-default} or ${file:path}; write $${ for a literal ${")
        name, has_default, default = match.groups()
        value = self.env.get(name)
        if has_default:
            return value or default
        if value is None:
            raise ValueError(f"the environment variable {name} is not set; set it, or give a default: ${{{name}:-...}}")
        if not value.strip():
            remedy = f"set it, or write ${{{name}:-}} if there need be none"
            raise ValueError(f"the environment variable {name} is empty; {remedy}")
        return value


def read(text: str, source: str, references: References | None = None) -> Document:
    """With None, `${...}` stays as it is. Raises: ConfigInvalid when the text is not YAML at all."""
    document = Document(source)
    node = _compose(text, source)
    if node is not None:
        document.data = _NodeReader(document, references).value(node, ())
    return document


class _Composer(yaml.SafeLoader):
    """Nodes only. A scalar in quotes gets the tag `!`, everything else without a tag `?`: the types are given by `scalar`."""

    depth = 0

    def resolve(self, kind: type[yaml.Node], value: object, implicit: object) -> str:  # PyYAML's signature
        return _QUOTED if kind is yaml.ScalarNode and implicit == (False, True) else _PLAIN

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        composer = _Composer(text)
        return composer.get_single_node()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = (before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1)
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in a YAML file"
        raise _broken(source, mark, message) from error
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        said = f"{error.problem or ''} {error.context or ''}"
        words = next((words for fragment, words in _SYNTAX if fragment in said), error.problem or error.context)
        if at is not None and text[max(at.index - 1, 0) : at.index + 1] == "${":
            words = _BARE_REFERENCE
        raise _broken(source, (at.line + 1, at.column + 1) if at else None, f"not valid YAML: {words}") from error


def _broken(source: str, mark: tuple[int, int] | None, message: str) -> ConfigInvalid:
    line, column = mark or (None, None)
    return ConfigInvalid([Problem(source, line, column, "", message)])


class _NodeReader:
    """One walk over the nodes. An alias is walked again at each use, so the number of values is limited."""

    def __init__(self, document: Document, references: References | None) -> None:
        self._document = document
        self._references = references
        self._count = 0
        self._open: set[int] = set()

    def value(self, node: yaml.Node, path: KeyPath, key: tuple[int, int] | None = None) -> object:
        mark = (node.start_mark.line + 1, node.start_mark.column + 1)
        self._count += 1
        if self._count > _VALUES:
            message = f"the file grows to more than {_VALUES} values through its aliases (*name)"
            raise _broken(self._document.source, mark, message)
        if len(path) > DEEPEST:
            raise _broken(self._document.source, mark, _TOO_DEEP)
        self._document.places[path] = Place(self._document.source, key, mark)
        if id(node) in self._open:
            self._document.set_unknown(mark, path, ("the alias stands inside of what it names",))
            return None
        if node.tag not in _ALLOWED_TAGS:
            name = str(node.tag).replace("tag:yaml.org,2002:", "!!")
            self._document.set_unknown(mark, path, (f"the tag {name} is not supported; write the value without a tag",))
            return None
        self._open.add(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, path)
                case yaml.SequenceNode():
                    return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
                case _:
                    return self._scalar(node, path, mark, key)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        first: dict[str, tuple[int, int]] = {}
        for key_node, value_node in node.value:
            mark = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node, yaml.ScalarNode) or not is_well_formed(str(key_node.value)):
                self._document.add_problem(mark, path, "a key must be plain text")
                continue
            key = str(key_node.value)
            if key in first:
                line, column = first[key]
                message = f"the key is given twice, first at {line}:{column}; remove one of them"
                self._document.add_problem(mark, (*path, key), message)
                continue
            first[key] = mark
            if key == "<<":
                message = "merge keys (<<) are not part of YAML 1.2; write the keys out"
                self._document.add_problem(mark, (*path, key), message)
                continue
            values[key] = self.value(value_node, (*path, key), mark)
        return values

    def _scalar(self, node: yaml.Node, path: KeyPath, mark: tuple[int, int], key: tuple[int, int] | None) -> object:
        text = str(node.value)
        text, reference, failures = self._references.substitute(text) if self._references else (text, None, ())
        if failures:
            self._document.set_unknown(mark, path, failures)
            return None
        if not is_well_formed(text):
            self._document.set_unknown(mark, path, ("the text holds half of a surrogate pair, which is no character",))
            return None
        plain = node.tag == _PLAIN
        self._document.places[path] = Place(
            self._document.source, key, mark, text=text, quoted=not plain, reference=reference
        )
        if not plain or (text != node.value and reference is None):
            return text
        return scalar(text)
