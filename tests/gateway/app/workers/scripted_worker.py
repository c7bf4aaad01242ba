"""A worker that imports nothing of the gateway: `python scripted_worker.py FOLDER DESCRIPTOR`. What it does is in the file of its
number in the folder: a line for each start, of which the last one repeats. It notes what it hears in `FOLDER/heard`."""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> None:
    folder, channel = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    length = int.from_bytes(channel.recv(4, socket.MSG_WAITALL))
    begin = json.loads(channel.recv(length, socket.MSG_WAITALL))
    number = begin["number"]
    starts = folder / f"starts-{number}"
    with starts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    acts = (folder / f"acts-{number}").read_text().splitlines()
    act = acts[min(len(starts.read_text().splitlines()), len(acts)) - 1]

    def say(**what: object) -> None:
        channel.sendall(json.dumps(what).encode() + b"\n")

    def hear(what: str) -> None:
        with (folder / "heard").open("a") as file:
            file.write(f"{number} {what}\n")

    match act.split():
        case ["dies", code]:
            sys.exit(int(code))
        case ["fails", code, text]:
            say(type="failed", code=int(code), text=text)
            sys.exit(int(code))
        case ["waits"]:  # for something that does not come, before it serves
            hear("waits")
            signal.pause()
        case ["waits", "deaf"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            hear("waits")
            while True:
                signal.pause()
    say(type="serves", url=f"http://127.0.0.1:{begin['port']}")
    if act == "dies-serving":
        os.kill(os.getpid(), signal.SIGKILL)
    while order := channel.recv(1):
        hear(order.decode())
        if act == "dies-draining":
            os.kill(os.getpid(), signal.SIGKILL)
        if order == b"e" or (order == b"d" and act == "serves"):
            if act == "deaf":
                continue
            return


main()
