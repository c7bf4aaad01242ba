"""Problems of a configuration and their places. Law: one line per problem, in plain words, without secrets."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]

_SHOWN = 60
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]+@")
_PASSWORD = re.compile(r"(?<=[?&])(\w*password)=[^&\s]+", re.IGNORECASE)
_HIDDEN = r"\1=***"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STEP = re.compile(r"\[([0-9]+)\]|([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class Problem:
    """`line` and `column` count from 1, None where there is no file; `path` is like `agents.support.card.skills[0]`."""

    file: str | None
    line: int | None
    column: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(part for part in (where, self.path, " ".join(self.message.split())) if part)


class ConfigInvalid(Exception):
    """A configuration that cannot be used; the text has every problem, one per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def not_listening(path: str, host: str, port: int, error: OSError, choice: str) -> ConfigInvalid:
    """The error of a port that cannot be bound. `path` is where the configuration has it, `choice` what else can be chosen."""
    message = f"cannot listen on {host}:{port}: {error}; stop the program that does, or choose another {choice}"
    return ConfigInvalid([Problem(file=None, line=None, column=None, path=path, message=message)])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was given. `key` and `value` are (line, column) of a file.

    `name` is the variable or the flag, where the value is not from a file. `text` is a scalar before YAML gave it a type;
    `quoted`: it stood in quotes; `reference` is the `${...}` that it came from.
    """

    file: str
    key: tuple[int, int] | None = None
    value: tuple[int, int] | None = None
    name: str | None = None
    text: str | None = None
    quoted: bool = False
    reference: str | None = None


def path_text(path: KeyPath) -> str:
    text = ""
    for key in path:
        match key:
            case int():
                text += f"[{key}]"
            case str() if _PLAIN_KEY.fullmatch(key):
                text += f".{key}" if text else key
            case _:
                text += f"[{display(key)}]"
    return text


def display(value: object, text: str | None = None) -> str:
    """A value for a message: at most 60 characters, without passwords of URLs and without control characters."""
    match value:
        case None:
            return "null"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool():
            return "true" if value else "false"
        case str():
            quoted = repr(shown_url(value))
        case _:
            quoted = text or str(value)
    return quoted if len(quoted) <= _SHOWN else quoted[: _SHOWN - 2] + "…" + quoted[-1]


def shown_url(url: str) -> str:
    """A URL for people. It may be mistyped, so nothing between its scheme and its last `@` is shown, but for the folders of a
    path that begins with three slashes and has no colon."""
    scheme, colon, rest = url.partition(":")
    named = rest.lstrip("/")
    slashes = rest[: len(rest) - len(named)]
    before, at, behind = named.rpartition("@")
    if not at or (len(slashes) > 2 and ":" not in before):
        return _PASSWORD.sub(_HIDDEN, url)
    return _PASSWORD.sub(_HIDDEN, f"{scheme}{colon}{slashes}***@{behind}")


def without_credentials(text: str) -> str:
    """The text without the credentials of the URLs in it."""
    return _PASSWORD.sub(_HIDDEN, _CREDENTIALS.sub("***@", text))


def read_path(text: str) -> KeyPath:
    """The path of a text as `path_text` writes it, where no key needs quotes."""
    return tuple(int(index) if index else key for index, key in _STEP.findall(text))
