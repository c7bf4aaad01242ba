"""Where a gateway listens, as the section `server` of its file and the variables say.

Law: imports no models; what is not plainly right is left to `loader.load_server`, so that it has the words of the loader.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.config.overrides import ENVIRONMENT, misspelled_variables, override_from_environment
from gateway.config.problems import KeyPath, Problem, read_path
from gateway.config.yaml import Document, References, read

_SECTION = "server"
_VARIABLES = "A2A_GATEWAY__SERVER"
_HOST, _PORT = "127.0.0.1", 8080
_LAST_PORT = 65535


class _ServerKeys:
    def keys(self, path: KeyPath) -> tuple[str, ...]:
        below: dict[KeyPath, tuple[str, ...]] = {(): (_SECTION,), (_SECTION,): ("host", "port")}
        return below.get(path, ())

    def holds_entries(self, path: KeyPath) -> bool:
        return False


def read_server(text: str, source: str, env: Mapping[str, str], base_dir: Path) -> Document:
    """The section alone, with its problems alone. Raises: ConfigInvalid when the text is not YAML at all."""
    document = read(text, source, References(env, base_dir))
    if document.data is None and not document.unknown:
        document.data = {}
    if isinstance(document.data, dict):
        document.data = {key: value for key, value in document.data.items() if key == _SECTION}
        variables = {name: value for name, value in env.items() if name.upper().startswith(_VARIABLES)}
        override_from_environment(document, document.data, variables, lambda _: _ServerKeys())
    document.problems = [
        problem
        for problem in document.problems
        if problem.file == ENVIRONMENT or read_path(problem.path)[:1] in ((), (_SECTION,))
    ]
    document.unknown = {path: found for path, found in document.unknown.items() if path[:1] in ((), (_SECTION,))}
    return document


def plain_address(document: Document) -> tuple[str, int] | None:
    """Host and port; None where the section needs a closer look."""
    server = document.data.get(_SECTION, {}) if isinstance(document.data, dict) else None
    if document.all_problems() or not isinstance(server, dict):
        return None
    host, port = server.get("host", _HOST), server.get("port", _PORT)
    is_port = isinstance(port, int) and not isinstance(port, bool) and 0 <= port <= _LAST_PORT
    return (host, port) if isinstance(host, str) and host and is_port else None


def misspelled_server_variables(env: Mapping[str, str]) -> Iterator[Problem]:
    return misspelled_variables(env, {}, _ServerKeys())
