"""A worker that imports nothing of the gateway: `python scripted_worker.py FOLDER DESCRIPTOR`. What it does is in the file of
its number in the folder: a line for each start, of which the last one repeats. It notes what it hears in `FOLDER/heard`."""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

_folder, _channel = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
_begin = json.loads(_channel.recv(int.from_bytes(_channel.recv(4, socket.MSG_WAITALL)), socket.MSG_WAITALL))
_number = _begin["number"]


def _act() -> str:
    starts = _folder / f"starts-{_number}"
    with starts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    acts = (_folder / f"acts-{_number}").read_text().splitlines()
    return acts[min(len(starts.read_text().splitlines()), len(acts)) - 1]


def _say(**what: object) -> None:
    _channel.sendall(json.dumps(what).encode() + b"\n")


def _hear(what: str) -> None:
    with (_folder / "heard").open("a") as file:
        file.write(f"{_number} {what}\n")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _wait() -> NoReturn:
    """For something that does not come."""
    _hear("waits")
    while True:
        signal.pause()


def _main(act: str) -> None:
    match act.split():
        case ["dies", code]:
            sys.exit(int(code))
        case ["fails", code, text]:
            _say(type="failed", code=int(code), text=text)
            sys.exit(int(code))
        case ["waits", *deaf]:
            if deaf:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _wait()
    _say(type="serves", url=f"http://127.0.0.1:{_begin['port']}")
    if act == "dies-serving":
        _die()
    while order := _channel.recv(1):
        _hear(order.decode())
        if act == "dies-draining":
            _die()
        if (order, act) in ((b"d", "serves"), (b"e", "serves"), (b"e", "slow")):
            return


_main(_act())
