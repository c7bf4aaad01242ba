"""Resolves `module:name` to a function. Law: an error names the reference and the remedy."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Hashable
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, cast

import msgspec
from pydantic import Field, PrivateAttr, field_validator
from structlog.contextvars import bind_contextvars

from adapters.python import wire
from adapters.python.forks import outcome
from gateway.config.settings import Duration, Settings, duration
from gateway.foundation.causes import causes

AgentFunction = Callable[[Any], Any]

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("adapters", "gateway", "storage")
"""The packages of the gateway, in the folder `_ROOT`: Python finds them before modules of the same names beside an agent."""
_UNMEANT = ("adapters", "storage")
"""Those of them that a module of the operator never means."""


class FunctionSettings(Settings):
    """The reference to a function, and where it runs. A relative path starts at the folder of the configuration file, or at
    the working directory."""

    ref: str = Field(description="The function: `module:name`, or `./file.py:name` relative to this file.")
    run_in: Literal["thread", "process"] = Field(
        "thread",
        description="Where it runs: on an event loop in a thread of its own, or in a process of its own.",
    )
    blocked_after: Duration = Field(
        duration("1s"), gt=0, description="After which time the log says which line blocks its event loop."
    )
    kind: ClassVar[str]
    _base_dir: Path = PrivateAttr(default=Path())
    _name: str | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        given = context if isinstance(context, dict) else {}
        self._base_dir = Path(given.get("base_dir", "")).resolve()
        self._name = given.get("name") or None

    @field_validator("ref")
    @classmethod
    def _has_two_halves(cls, ref: str) -> str:
        source, _, name = ref.rpartition(":")
        if not source or not all(word.isidentifier() for word in name.split(".")):
            raise ValueError("must be `module:name` or `./file.py:name`")
        return ref

    def load(self) -> Callable[..., Any]:
        """Raises: ValueError when there is no such function."""
        ref, file, folder = self.ref, self._file, self._folder
        source, _, name = ref.rpartition(":")
        load = partial(_import, ref, source, folder) if file is None else partial(_load_file, ref, file)
        module = _without_loop(load, self.owner)
        _check_imports(ref, module, folder)
        try:
            function = attrgetter(name)(module)
        except AttributeError as error:
            remedy = _hidden(source, folder) or "check the name behind the colon"
            raise ValueError(f"{ref!r}: {source!r} has no {name!r}; {remedy}") from error
        if not callable(function):
            kind = type(function).__name__
            raise ValueError(f"{ref!r}: {name!r} is no function but of type {kind}; name one")
        found: Callable[..., Any] = function
        return found

    def remedy(self, error: BaseException) -> str | None:
        """What to do about an error of the function, where a package of the gateway has led to it."""
        return _remedy(error, self._folder)

    @property
    def _folder(self) -> Path:
        """Where the function finds its modules: the folder of its file, or else that of the configuration."""
        return self._base_dir if self._file is None else self._file.parent

    @property
    def _file(self) -> Path | None:
        source = self.ref.rpartition(":")[0]
        return (self._base_dir / source).resolve() if source.endswith(".py") else None

    @property
    def name(self) -> str:
        """The name of the entry in the configuration, or else the reference."""
        return self._name or self.ref

    @property
    def owner(self) -> dict[str, str]:
        """As the lines of the log name the function."""
        return {self.kind: self.name}

    def loop(self) -> tuple[Hashable, dict[str, str]]:
        """The event loop on which it runs in a thread: a key, and its owner in the log. The key is the same one for the same
        entry of the same configuration; an entry without a configuration has one of its own."""
        key = (self.kind, self._base_dir, self._name, self.ref) if self._name is not None else object()
        return key, self.owner

    @property
    def module(self) -> str:
        """The file, or the name, of the function's module."""
        return str(self._file or self.ref.rpartition(":")[0])

    def begin(self) -> wire.Begin:
        """The function, as its process is told."""
        settings = msgspec.Raw(self.model_dump_json().encode())
        return wire.Begin(self.kind, self.name, str(self._base_dir), settings)

    def check_place(self) -> None:
        """Without running the module. Raises: ValueError when there is no such file or module."""
        if self._file is not None:
            if not self._file.is_file():
                raise _no_file(self.ref, self._file)
            return
        _add_to_path(self._folder)
        top = self.module.partition(".")[0]
        if importlib.util.find_spec(top) is None:
            raise _no_module(self.ref, top, self._folder)


def _without_loop(load: Callable[[], ModuleType], owner: dict[str, str]) -> ModuleType:
    """Loads a module where no event loop runs: what it begins at its import would run on the gateway's."""
    loaded: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        bind_contextvars(**owner)
        loaded.append(outcome(load))

    thread = threading.Thread(target=run, name="python import", daemon=True)
    thread.start()
    thread.join()
    ((module, error),) = loaded
    if error is not None:
        raise error
    return cast("ModuleType", module)


def load_agent(settings: FunctionSettings) -> AgentFunction:
    """A function of one argument. Raises: ValueError."""
    function, ref = settings.load(), settings.ref
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        name, remedy = ref.rpartition(":")[2], "give it exactly one argument, the turn or its text"
        raise ValueError(f"{ref!r}: {name!r} does not take one argument ({error}); {remedy}") from error
    return function


def takes_text(function: AgentFunction) -> bool:
    """Whether the function's argument is the text of the message instead of the turn."""
    parameter = next(iter(inspect.signature(function).parameters.values()))
    return parameter.annotation in (str, "str") or parameter.name == "text"


def _import(ref: str, name: str, base_dir: Path) -> ModuleType:
    _add_to_path(base_dir)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _import_error(ref, error, base_dir) from error
        raise _no_module(ref, error.name, base_dir) from error
    except BaseException as error:  # Ctrl-C comes to the main thread, never to this one
        raise _import_error(ref, error, base_dir) from error


def _load_file(ref: str, path: Path) -> ModuleType:
    """The module in this file; the same module for every agent that names the file."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise _no_file(ref, path)
    _add_to_path(path.parent)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # Ctrl-C comes to the main thread, never to this one
        del sys.modules[name]
        raise _import_error(ref, error, path.parent) from error
    return module


def _no_module(ref: str, name: str, folder: Path) -> ValueError:
    remedy = _hidden(name, folder) or (
        "install it beside the gateway, put it beside the configuration file, or write `./file.py:name`"
    )
    return ValueError(f"{ref!r}: there is no module {name!r}; {remedy}")


def _no_file(ref: str, path: Path) -> ValueError:
    remedy = "a relative path starts at the folder of the configuration file"
    return ValueError(f"{ref!r}: there is no file {str(path)!r}; {remedy}")


def _import_error(ref: str, error: BaseException, folder: Path) -> ValueError:
    source = ref.rpartition(":")[0]
    remedy = _remedy(error, folder) or "mend it, or install what it needs beside the gateway"
    said = ": ".join(filter(None, (type(error).__name__, str(error))))
    return ValueError(f"{ref!r}: importing {source!r} failed with {said}; {remedy}")


def _remedy(error: BaseException, folder: Path) -> str | None:
    for cause in causes(error):
        match cause:
            case ImportError(name=str() as name) | AttributeError(obj=ModuleType(__name__=name)):
                if found := _hidden(name, folder):
                    return found
    return None


def _check_imports(ref: str, module: ModuleType, folder: Path) -> None:
    """Raises: ValueError for a module that imports, now or in a function, a package of the gateway instead of what is beside
    it."""
    try:
        source = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # a module without a source
        return
    for node in ast.walk(source):
        match node:
            case ast.Import(names=names):
                imported = [each.name for each in names]
            case ast.ImportFrom(module=str() as name, level=0):
                imported = [name]
            case _:
                continue
        for name in imported:
            # A module may mean the package `gateway`, which holds the API of agents, and what is installed.
            hidden = _hidden(name, folder) if name.partition(".")[0] in _UNMEANT else None
            if hidden is not None:
                raise ValueError(f"{ref!r}: it imports {name!r}; {hidden}")


def _hidden(name: str, folder: Path) -> str | None:
    """What to do about a module of this dotted name in the folder that another module hides: a package of the gateway, or what
    Python has found under that name. None if none does."""
    top = name.partition(".")[0]
    beside = [path for path in (folder / f"{top}.py", folder / top) if path.is_file() or any(path.glob("*.py"))]
    if not beside or folder == _ROOT:
        return None
    if top in _PACKAGES:
        by = f"the package {top!r} of the gateway"
    elif (found := sys.modules.get(top)) is None or _is_in(found, folder):
        return None
    else:
        file = getattr(found, "__file__", None)
        by = f"another module {top!r} ({'built into Python' if file is None else repr(file)})"
    return f"{by} hides {str(beside[0])!r} from Python: rename it"


def _is_in(module: ModuleType, folder: Path) -> bool:
    """Whether this module, or this package, stands in the folder itself. One without `__init__.py` has a path only."""
    places = (getattr(module, "__file__", None), *getattr(module, "__path__", ()))
    return any(Path(place).parent.resolve() in (folder, folder / module.__name__) for place in places if place)


def _add_to_path(folder: Path) -> None:
    """The path of an installed command lacks the agent's folder. At the end, the folder hides nothing installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
