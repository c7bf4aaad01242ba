"""A source of tools of `type: python`: one function. Law: its signature is the schema, its docstring the description."""

import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, get_type_hints

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PydanticSchemaGenerationError, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python

from adapters.python.calls import CallFailed, Failure
from adapters.python.daemon_threads import in_thread
from adapters.python.function_call import is_async
from adapters.python.host import host_of
from adapters.python.reference import FunctionSettings
from adapters.python.worker import Run
from gateway.a2a.model import Json
from gateway.ports.tools import ConsentNeeded, ResultTooDeep, SourceTool, ToolError, ToolFactory, ToolOutput, ToolRun

_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
_BROKEN, _CONSENT, _TOO_DEEP, _UNTELLABLE = "broken", "consent", "too-deep", "untellable"
"""What the function itself ends with, as kinds of a Failure; any other is of its process."""
_DEEPER_THAN_READ = "Maximum serialization depth exceeded"
"""pydantic's words for a value of some 250 levels, of which it makes no JSON; for others it has no class of its own either."""


class PythonToolSettings(FunctionSettings):
    """A tool of type `python`: one function."""

    kind = "tool"
    idempotent: bool = Field(
        False, description="Running it twice does what once does, so it may run again after a restart."
    )

    def loop(self) -> tuple[Hashable, dict[str, str]]:
        """That of its module, which the tools of the module share."""
        return ("module", self.module), {"tools": self.module}


class PythonTool:
    """An async function runs on the event loop that it shares with the other tools of its module; any other function runs in
    a thread of its own, which cannot be ended from outside."""

    def __init__(self, settings: PythonToolSettings) -> None:
        """Raises: ValueError when there is no such function, or its arguments cannot be described. One that runs in a
        process is looked for there."""
        self._tools: tuple[SourceTool, ...] = ()
        self._host = host_of(settings, partial(ToolService, settings))

    async def tools(self) -> tuple[SourceTool, ...]:
        if not self._tools:
            with _tool_errors():
                tool = await self._host.tool()
            self._tools = () if tool is None else (tool,)
        return self._tools

    async def run(self, run: ToolRun) -> ToolOutput:
        with _tool_errors():
            calls = await self._host.calls()
        with _tool_errors(begun=True), calls.begun(msgspec.json.encode(run.arguments)) as call:
            try:
                while await call.more():
                    for output in call.take():
                        if isinstance(output, ToolOutput):
                            return output
            finally:
                await call.stop()
        raise ToolError(f"{run.name} was ended before it returned", may_have_run=True)

    async def aclose(self) -> None:
        await self._host.aclose()


@contextmanager
def _tool_errors(*, begun: bool = False) -> Iterator[None]:
    """`begun`: the function may have done its work when its process ends.

    Raises: ConsentNeeded, ResultTooDeep, ToolError for a CallFailed in the block.
    """
    try:
        yield
    except CallFailed as error:
        failure = error.failure
        if failure.kind == _CONSENT:
            raise ConsentNeeded(failure.detail, failure.pages) from None
        if failure.kind == _TOO_DEEP:
            raise ResultTooDeep(failure.detail) from None
        raise ToolError(failure.detail, may_have_run=begun and failure.kind != _BROKEN) from None


class ToolService:
    """Emits one ToolOutput for each call."""

    def __init__(self, settings: PythonToolSettings) -> None:
        """Raises: ValueError when there is no such function, or its arguments cannot be described."""
        self._settings = settings
        self._function = settings.load()
        name = settings.ref.rpartition(".")[2].rpartition(":")[2]
        try:
            self._arguments = _model(self._function)
            schema = self._arguments.model_json_schema(schema_generator=_NoTitles)
        except (TypeError, ValueError, NameError, PydanticUserError, PydanticSchemaGenerationError) as error:
            why = str(error).partition("\n")[0]
            raise ValueError(f"{settings.ref!r}: the arguments of {name!r} cannot be described: {why}") from error
        schema.pop("title", None)
        description = inspect.getdoc(self._function) or name
        self.tool = SourceTool(name, description, schema, settings.idempotent)

    async def run(self, given: bytes, run: Run) -> None:
        run.emit(await self._output(msgspec.json.decode(given)))

    def failure(self, error: BaseException) -> Failure:
        if isinstance(error, ConsentNeeded):
            return Failure(_CONSENT, error.detail, error.pages)
        remedy = self._settings.remedy(error)
        detail = f"{self.tool.name} raised {type(error).__name__}: {error}"
        return Failure(_BROKEN, f"{detail}; {remedy}" if remedy else detail)

    async def _output(self, arguments: dict[str, Json]) -> ToolOutput:
        try:
            checked = self._arguments.model_validate(arguments)
        except ValidationError as error:
            return ToolOutput(_problems(error), error=True)
        fields = self._arguments.model_fields
        named = {(fields[name].alias or name): getattr(checked, name) for name in checked.model_fields_set}
        result = await self._result(partial(self._function, **named))
        if isinstance(result, ToolOutput):
            return result
        try:
            return ToolOutput(to_jsonable_python(result))
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            detail = f"{self.tool.name} returned what cannot be told as JSON: {error}"
            kind = _TOO_DEEP if str(error) == _DEEPER_THAN_READ else _UNTELLABLE
            raise CallFailed(Failure(kind, detail)) from error

    async def _result(self, call: Callable[[], Any]) -> Any:
        if is_async(self._function):
            result = call()
        else:
            result = await in_thread(call)
        return await result if inspect.isawaitable(result) else result


class _NoTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _model(function: Callable[..., Any]) -> type[BaseModel]:
    """A pydantic model with a field for each argument. Raises: ValueError, and what pydantic raises."""
    signature = inspect.signature(function)
    hints = get_type_hints(function if inspect.isroutine(function) else type(function).__call__, include_extras=True)
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(signature.parameters.values()):
        if parameter.kind not in _NAMED:
            raise ValueError(f"{str(parameter)!r} has no name to pass it by; give every argument one")
        default = ... if parameter.default is parameter.empty else parameter.default
        # An argument may have any name, also that of an attribute of the model.
        fields[f"argument_{index}"] = (hints.get(parameter.name, Any), Field(default, alias=parameter.name))
    config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
    return model


def _problems(error: ValidationError) -> str:
    return "; ".join(
        ": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"])))
        for each in error.errors(include_url=False, include_input=False)[:5]
    )


factory = ToolFactory(settings=PythonToolSettings, build=PythonTool)
