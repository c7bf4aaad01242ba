"""A Python function as a tool: its signature is the schema, and whatever it does, it breaks nothing but its call."""

import asyncio
import os
import threading
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from adapters.python.tool import PythonTool, PythonToolSettings
from gateway.a2a.model import Json
from gateway.core.tools.toolset import cleaned
from gateway.ports.tools import ConsentNeeded, ConsentPage, ResultTooDeep, SourceTool, ToolError, ToolOutput, ToolRun

HERE = __name__


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Pair:
    left: str
    right: date


def forecast(
    city: Annotated[str, Field(description="Where.")], days: int = 1, unit: Literal["C", "F"] = "C"
) -> dict[str, Any]:
    """The weather of the next days.

    In whole degrees.
    """
    return {"city": city, "days": days, "unit": unit, "thread": threading.current_thread().name}


async def later(seconds: float = 0) -> str:
    await asyncio.sleep(seconds)
    return f"after {seconds}"


def anything(schema, copy=None, *, model_dump=3):  # type: ignore[no-untyped-def]
    return [schema, copy, model_dump]


def where(point: Point, day: date) -> Pair:
    return Pair(f"{point.x}/{point.y}", day)


class Counter:
    def __call__(self, step: int) -> int:
        """Counts."""
        return step + 1


counter = Counter()


def silent() -> None:
    return None


def says_no(city: str) -> ToolOutput:
    return ToolOutput(f"there is no {city}", error=True)


def dies() -> None:
    os._exit(3)


def breaks() -> None:
    raise LookupError("sk-secret")


def leaves() -> None:
    raise SystemExit(3)


async def stops() -> None:
    raise StopIteration("odd")


def unwilling() -> str:
    raise ConsentNeeded("no token", (ConsentPage("https://login.example/"),))


def opaque() -> object:
    return threading.Lock()


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def positional(a: int, /) -> int:
    return a


def many(*values: int) -> int:
    return sum(values)


def undescribed(lock: threading.Thread) -> None:
    """A value outside of JSON."""


def tool(name: str, **settings: Any) -> PythonTool:
    return PythonTool(PythonToolSettings(ref=f"{HERE}:{name}", **settings))


async def run(name: str, **arguments: Json) -> ToolOutput:
    return await tool(name).run(ToolRun(name, arguments, "key", "ctx", "me"))


async def test_the_signature_is_the_schema_and_the_docstring_the_description() -> None:
    assert await tool("forecast").tools() == (
        SourceTool(
            "forecast",
            "The weather of the next days.\n\nIn whole degrees.",
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "city": {"type": "string", "description": "Where."},
                    "days": {"type": "integer", "default": 1},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                },
                "required": ["city"],
            },
        ),
    )


async def test_a_function_without_words_is_described_by_its_name() -> None:
    (silent_tool,) = await tool("silent", idempotent=True).tools()
    assert silent_tool == SourceTool(
        "silent", "silent", {"type": "object", "additionalProperties": False, "properties": {}}, idempotent=True
    )


async def test_the_list_is_the_same_one_every_time() -> None:
    source = tool("silent")
    assert await source.tools() is await source.tools()


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    output = (await run("forecast", city="Oslo", days=2)).output
    assert isinstance(output, dict)
    assert output.pop("thread") != threading.current_thread().name
    assert output == {"city": "Oslo", "days": 2, "unit": "C"}


@pytest.mark.parametrize(
    ("name", "arguments", "output"),
    [
        ("later", {}, "after 0"),
        ("anything", {"schema": {"a": [1]}}, [{"a": [1]}, None, 3]),
        ("anything", {"schema": 1, "copy": 2, "model_dump": 4}, [1, 2, 4]),
        ("where", {"point": {"x": 1}, "day": "2026-11-20"}, {"left": "1/0", "right": "2026-11-20"}),
        ("counter", {"step": 1}, 2),
        ("silent", {}, None),
    ],
)
async def test_functions_of_many_kinds_take_and_give_json(name: str, arguments: dict[str, Json], output: Json) -> None:
    assert await run(name, **arguments) == ToolOutput(output)


async def test_a_function_may_return_a_failure() -> None:
    assert await run("says_no", city="Atlantis") == ToolOutput("there is no Atlantis", error=True)


async def test_the_model_learns_which_arguments_the_types_refuse() -> None:
    output = await run("where", point={"x": "?"}, day="2026-13-01")
    assert output.error
    assert isinstance(output.output, str)
    assert output.output.startswith("point.x: Input should be a valid integer")


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("breaks", "breaks raised LookupError: sk-secret"),
        ("leaves", "leaves raised SystemExit: 3"),
        ("stops", "stops raised RuntimeError: coroutine raised StopIteration"),
        (
            "opaque",
            "opaque returned what cannot be told as JSON: Unable to serialize unknown type: <class '_thread.lock'>",
        ),
    ],
)
async def test_only_the_operator_learns_of_an_exception(name: str, detail: str) -> None:
    with pytest.raises(ToolError) as error:
        await run(name)
    assert error.value.detail == detail
    assert error.value.may_have_run == (name == "opaque")


async def test_a_tool_whose_process_ends_may_have_done_its_work() -> None:
    source = tool("dies", run_in="process")
    with pytest.raises(ToolError) as error:
        await source.run(ToolRun("dies", {}, "k", "c", "p"))
    await source.aclose()
    assert error.value.detail == "its process ended with exit code 3"
    assert error.value.may_have_run


async def test_a_tool_whose_process_never_began_has_not_done_its_work(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nos._exit(4)\n")
    settings = PythonToolSettings.model_validate(
        {"ref": "./mine.py:now", "run_in": "process"}, context={"base_dir": tmp_path}
    )
    source = PythonTool(settings)
    with pytest.raises(ToolError) as error:
        await source.run(ToolRun("now", {}, "k", "c", "p"))
    await source.aclose()
    assert not error.value.may_have_run


@pytest.mark.parametrize(
    ("run_in", "levels"),
    [*(("thread", levels) for levels in (101, 250, 260, 100_000)), ("process", 101), ("process", 950)],
)
async def test_a_result_that_is_nested_too_deep_is_told_from_other_faults(run_in: str, levels: int) -> None:
    source = tool("deep", run_in=run_in)
    try:
        with pytest.raises(ResultTooDeep):
            cleaned(await source.run(ToolRun("deep", {"levels": levels}, "k", "c", "p")))
    finally:
        await source.aclose()


async def test_a_function_may_ask_for_the_consent_of_its_user() -> None:
    with pytest.raises(ConsentNeeded) as caught:
        await tool("unwilling").run(ToolRun("unwilling", {}, "k", "c", "p"))
    assert caught.value.pages == (ConsentPage("https://login.example/"),)


async def test_cancelling_ends_an_async_function() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run("later", seconds=3600)


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        (f"{HERE}:positional", "the arguments of 'positional' cannot be described: 'a: int' has no name to pass it by"),
        (f"{HERE}:many", "the arguments of 'many' cannot be described: '\\*values: int' has no name to pass it by"),
        (
            f"{HERE}:undescribed",
            "the arguments of 'undescribed' cannot be described: Unable to generate pydantic-core schema",
        ),
        (f"{HERE}:HERE", "'HERE' is no function but of type str"),
        (f"{HERE}:nothing", "has no 'nothing'; check the name behind the colon"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("./none.py:f", "there is no file"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_at_start(ref: str, words: str, tmp_path: Path) -> None:
    settings = PythonToolSettings.model_validate({"ref": ref}, context={"base_dir": tmp_path})
    with pytest.raises(ValueError, match=words):
        PythonTool(settings)


def test_a_ref_needs_both_halves() -> None:
    with pytest.raises(ValueError, match=r"must be `module:name` or `\./file\.py:name`"):
        PythonToolSettings(ref="now")


async def test_a_function_of_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text("def now():\n    'The time.'\n    return '12:00'\n")
    settings = PythonToolSettings.model_validate({"ref": "./my_tools.py:now"}, context={"base_dir": tmp_path})
    source = PythonTool(settings)
    assert [each.description for each in await source.tools()] == ["The time."]
    assert await source.run(ToolRun("now", {}, "key", "ctx", "me")) == ToolOutput("12:00")
    await source.aclose()
