"""Records exchanges in a folder: `AGENT/c01/0001.yaml`, a folder for each conversation. Law: who is recorded waits for
nothing; a thread masks and writes, and an exchange that it cannot follow says so at its end.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import structlog
from msgspec.structs import replace

from gateway.a2a.redaction import JsonPath
from gateway.foundation.clock import Clock, timestamp
from gateway.ports.wire import End, Occasion, Recorder, Request, Taking, occasion_of
from gateway.recording.file import ExchangeFile
from gateway.recording.folders import Folders, key_made
from gateway.recording.masks import Masks, Secrets

log = structlog.get_logger("gateway.recording.recorder")

MOST_BYTES = 1024 * 1024 * 1024
_MOST_WAITING = 50_000
_END_SECONDS = 10.0

Job = Callable[[], None]


class Recording:
    """A folder that is being recorded in. Use inside `with`; at its end what was taken is written."""

    def __init__(self, folder: Path, clock: Clock, most: int = MOST_BYTES) -> None:
        """Raises: OSError where the folder cannot be written."""
        self.folder = folder
        self.clock = clock
        self._folders = Folders(folder)
        self.secrets = Secrets(key=key_made(folder))
        self._left = most - self._folders.size
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._failing = False
        # As a daemon: a disk that takes nothing must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.put(None)
        self._thread.join(_END_SECONDS)

    def tap(self, agent: str, redact: Iterable[JsonPath] = ()) -> Recorder:
        """Records the exchanges of this agent, or those that no turn makes under this name."""
        return _AgentRecorder(self, agent, Masks(self.secrets, redact))

    @property
    def follows(self) -> bool:
        return self._jobs.qsize() < _MOST_WAITING

    def do(self, job: Job) -> None:
        """In the thread, behind all earlier jobs."""
        self._jobs.put(job)

    def open(self, ids: Occasion, masks: Masks) -> ExchangeFile:
        """In the thread. Raises: OSError."""
        while True:
            path = self._folders.next(ids)
            try:
                file = ExchangeFile(path, masks, self._spend)
            except FileExistsError:
                continue
            self._failing = False
            return file

    def _spend(self, size: int) -> bool:
        before, self._left = self._left, self._left - size
        if before >= 0 > self._left:
            log.warning("record.full", folder=str(self.folder), bytes=MOST_BYTES)
        return self._left >= 0

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001  # one exchange must not end the others
                if not self._failing:
                    log.error("record.failed", folder=str(self.folder), error=f"{type(error).__name__}: {error}")
                self._failing = True


@dataclass(frozen=True, slots=True)
class _AgentRecorder(Recorder):
    _recording: Recording
    _agent: str
    _masks: Masks

    def begin(self, request: Request) -> Taking:
        ids = occasion_of(request, self._agent)
        if request.tool:
            ids = replace(ids, tool=request.tool)
        return _Taking(self._recording, ids, self._masks, request)


class _Taking(Taking):
    """`_file` is used in the thread only."""

    __slots__ = ("_began", "_file", "_is_over", "_recording")

    def __init__(self, recording: Recording, ids: Occasion, masks: Masks, request: Request) -> None:
        self._recording = recording
        self._began = recording.clock.monotonic()
        self._is_over = False
        self._file: ExchangeFile | None = None
        recording.do(partial(self._open, ids, masks, timestamp(recording.clock.now()), request))

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self._do(partial(self._answer, self._elapsed(), status, dict(headers)))

    def received(self, piece: bytes) -> None:
        if not self._is_over:
            if self._recording.follows:
                self._do(partial(self._receive, self._elapsed(), piece))
            else:
                self.ended(End.LOST)

    def ended(self, how: End, why: str = "") -> None:
        if not self._is_over:
            self._is_over = True
            self._do(partial(self._end, self._elapsed(), how, why))

    def _elapsed(self) -> float:
        return round(self._recording.clock.monotonic() - self._began, 3)

    def _do(self, job: Job) -> None:
        self._recording.do(job)

    # --- in the thread

    def _open(self, ids: Occasion, masks: Masks, begun: str, request: Request) -> None:
        self._file = self._recording.open(ids, masks)
        self._file.begin(ids, begun, request)

    def _answer(self, at: float, status: int, headers: dict[str, str]) -> None:
        if self._file is not None:
            self._file.answer(at, status, headers)

    def _receive(self, at: float, piece: bytes) -> None:
        if self._file is not None:
            self._file.receive(at, piece)

    def _end(self, at: float, how: End, why: str) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.end(at, how, why)
