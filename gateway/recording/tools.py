"""Sources of tools whose runs are recorded, or answered from a recording. Law: a list of tools is recorded when it is
another than before; a replayed source reaches nothing.
"""

import asyncio
import dataclasses
from contextlib import aclosing

import msgspec

from gateway.a2a.model import Json
from gateway.ports import tools as port
from gateway.ports.tools import ConsentNeeded, ConsentPage, SourceTool, ToolError, ToolOutput, ToolRun, ToolSource
from gateway.ports.wire import EVENTS, Answer, End, Player, Recorder, ReplayMissing, Request, Tap
from gateway.recording.lines import Blocks, Event, made
from gateway.recording.pace import passed

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
            taking = self._tap.begin(_list(self._name))
            taking.answered(200, EVENTS)
            taking.received(made(_LISTING, msgspec.to_builtins(listed)))
            taking.ended(End.COMPLETE)
        self._listed = listed
        return listed

    async def run(self, run: ToolRun) -> ToolOutput:
        taking = self._tap.begin(_call(self._name, run))
        taking.answered(200, EVENTS)

        def progress(text: str) -> None:
            taking.received(made(_PROGRESS, text))
            run.progress(text)

        how = End.CANCELLED
        try:
            output = await self._source.run(dataclasses.replace(run, progress=progress))
            taking.received(made(_OUTPUT, {"response": output.output, "error": output.error}))
            how = End.COMPLETE
        except ToolError as error:
            taking.received(made(type(error).__name__, _told(error)))
            how = End.COMPLETE
            raise
        except Exception:
            how = End.BROKEN
            raise
        finally:
            taking.ended(how)
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
                case _, {"detail": str(detail), "pages": pages}:
                    raise _error(name, detail, pages)
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
        blocks = Blocks()
        async with aclosing(passed(answer)) as pieces:
            async for piece in pieces:
                for event in filter(None, map(Event.of, blocks.feed(piece))):
                    value: Json = msgspec.json.decode(event.data)
                    if event.name == _PROGRESS and run is not None:
                        run.progress(str(value))
                    else:
                        found.append((event.name, value))
        if answer.how is End.CANCELLED:
            await asyncio.Event().wait()
        return found


def _list(name: str) -> Request:
    return Request("LIST", f"tool:{name}", {}, apart=True)


def _call(name: str, run: ToolRun) -> Request:
    return Request(
        "CALL", f"tool:{name}/{run.name}", {}, msgspec.json.encode({"arguments": run.arguments}), tool=run.key
    )


def _told(error: ToolError) -> dict[str, Json]:
    pages = msgspec.to_builtins(error.pages) if isinstance(error, ConsentNeeded) else []
    return {"detail": error.detail, "pages": pages}


def _error(name: str, detail: str, pages: Json) -> ToolError:
    if name == ConsentNeeded.__name__:
        return ConsentNeeded(detail, msgspec.convert(pages, tuple[ConsentPage, ...]))
    return _ERRORS.get(name, ToolError)(detail)
