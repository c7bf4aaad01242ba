"""Sources of tools whose runs are recorded, or answered from a recording. Law: a list of tools is recorded when it is
another than before; a replayed source reaches nothing.
"""

import dataclasses
from contextlib import aclosing

import msgspec

from gateway.a2a.model import Json
from gateway.ports import tools as port
from gateway.ports.tools import ConsentNeeded, ConsentPage, SourceTool, ToolError, ToolOutput, ToolRun, ToolSource
from gateway.ports.wire import Answer, Player, Recorder, ReplayMissing, Request, Tap
from gateway.recording.calls import RecordedCall, replayed

_LISTING, _PROGRESS, _OUTPUT = "SourceTools", "progress", "ToolOutput"
_ERRORS: dict[str, type[ToolError]] = {
    kind.__name__: kind for kind in (port.ToolError, port.ResultTooDeep, port.ProgramNotStarted, port.TlsFailed)
}


def tapped_source(source: ToolSource, name: str, tap: Tap) -> ToolSource:
    """The same source, whose runs are recorded or answered from a recording."""
    return _Recorded(source, name, tap) if isinstance(tap, Recorder) else _Replayed(source, name, tap)


class _Recorded:
    def __init__(self, source: ToolSource, name: str, tap: Recorder) -> None:
        self._source, self._name, self._tap = source, name, tap
        self._listed: tuple[SourceTool, ...] | None = None

    async def tools(self) -> tuple[SourceTool, ...]:
        listed = await self._source.tools()
        if listed is not self._listed and listed != self._listed:
            with RecordedCall(self._tap, _list(self._name), ToolError, _told) as recorded:
                recorded.event(_LISTING, msgspec.to_builtins(listed))
        self._listed = listed
        return listed

    async def run(self, run: ToolRun) -> ToolOutput:
        with RecordedCall(self._tap, _call(self._name, run), ToolError, _told) as recorded:

            def progress(text: str) -> None:
                recorded.event(_PROGRESS, text)
                run.progress(text)

            output = await self._source.run(dataclasses.replace(run, progress=progress))
            recorded.event(_OUTPUT, {"response": output.output, "error": output.error})
        return output

    async def aclose(self) -> None:
        await self._source.aclose()


class _Replayed:
    def __init__(self, source: ToolSource, name: str, tap: Player) -> None:
        self._source, self._name, self._tap = source, name, tap
        self._listed: tuple[SourceTool, ...] = ()

    async def tools(self) -> tuple[SourceTool, ...]:
        for name, value in await self._events(self._answer(_list(self._name))):
            if name == _LISTING:
                listed = msgspec.convert(value, tuple[SourceTool, ...])
                # The same list again needs no new checks.
                self._listed = self._listed if listed == self._listed else listed
        return self._listed

    async def run(self, run: ToolRun) -> ToolOutput:
        for name, value in await self._events(self._answer(_call(self._name, run)), run):
            match name, value:
                case "ToolOutput", {"response": output, "error": bool(error)}:
                    return ToolOutput(output, error=error)
                case _, {"detail": str(detail), "pages": pages, **more}:
                    raise _error(name, detail, pages, may_have_run=more.get("may_have_run") is True)
        raise ToolError("the recording ends before the tool did")

    async def aclose(self) -> None:
        await self._source.aclose()

    def _answer(self, request: Request) -> Answer:
        """Raises: ToolError."""
        try:
            return self._tap.answer(request)
        except ReplayMissing as error:
            raise ToolError(error.detail) from error

    async def _events(self, answer: Answer, run: ToolRun | None = None) -> list[tuple[str, Json]]:
        """All events but progress, which is told at its time."""
        found: list[tuple[str, Json]] = []
        async with aclosing(replayed(answer)) as events:
            async for event in events:
                if event is None:
                    continue
                value: Json = msgspec.json.decode(event.data)
                if event.name == _PROGRESS and run is not None:
                    run.progress(str(value))
                else:
                    found.append((event.name, value))
        return found


def _list(name: str) -> Request:
    return Request("LIST", f"tool:{name}", {}, apart=True)


def _call(name: str, run: ToolRun) -> Request:
    return Request(
        "CALL", f"tool:{name}/{run.name}", {}, msgspec.json.encode({"arguments": run.arguments}), tool=run.key
    )


def _told(error: ToolError) -> tuple[str, Json]:
    pages = msgspec.to_builtins(error.pages) if isinstance(error, ConsentNeeded) else []
    return type(error).__name__, {"detail": error.detail, "pages": pages, "may_have_run": error.may_have_run}


def _error(name: str, detail: str, pages: Json, *, may_have_run: bool) -> ToolError:
    if name == ConsentNeeded.__name__:
        return ConsentNeeded(detail, msgspec.convert(pages, tuple[ConsentPage, ...]))
    return _ERRORS.get(name, ToolError)(detail, may_have_run=may_have_run)
