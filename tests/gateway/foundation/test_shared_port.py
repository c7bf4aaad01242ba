"""Ports that several processes serve."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.foundation.shared_port import BALANCED, join, reserve

pytestmark = pytest.mark.skipif(not BALANCED, reason="this system spreads no connections")

HOST = "127.0.0.1"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def port_of(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port


def taken(bind: object, *arguments: object) -> bool:
    assert callable(bind)
    try:
        bind(*arguments).close()
    except OSError as refused:
        return refused.errno == errno.EADDRINUSE
    return False


@pytest.fixture(params=["chosen", "given"])
def reserved(request: pytest.FixtureRequest, stack: ExitStack) -> int:
    """A port that is reserved, chosen by the system or by its number."""
    return port_of(stack.enter_context(reserve(HOST, 0 if request.param == "chosen" else _free())))


def _free() -> int:
    with socket.create_server((HOST, 0)) as free:
        return port_of(free)


def test_a_port_that_another_program_serves_cannot_be_reserved(stack: ExitStack) -> None:
    server = stack.enter_context(socket.create_server((HOST, 0)))
    assert taken(reserve, HOST, port_of(server))


def test_a_reserved_port_is_nobody_elses_before_and_after_it_is_served(reserved: int, stack: ExitStack) -> None:
    assert taken(reserve, HOST, reserved)
    assert taken(socket.create_server, (HOST, reserved))
    stack.enter_context(join(HOST, reserved)).listen()
    assert taken(reserve, HOST, reserved)
    assert taken(socket.create_server, (HOST, reserved))


def test_nobody_is_connected_to_a_port_that_is_only_reserved(reserved: int, stack: ExitStack) -> None:
    stack.enter_context(join(HOST, reserved))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, reserved))


def test_those_who_join_share_the_connections(reserved: int, stack: ExitStack) -> None:
    joined = [stack.enter_context(join(HOST, reserved)) for _ in range(2)]
    for each in joined:
        each.listen(100)
        each.setblocking(False)
    for _ in range(64):
        stack.enter_context(socket.create_connection((HOST, reserved)))

    shares = [sum(1 for _ in _accepted(each, stack)) for each in joined]
    assert sum(shares) == 64
    # By a hash of the addresses: less than 8 of 64 are a case in 10^11.
    assert min(shares) >= 8


def _accepted(listening: socket.socket, stack: ExitStack) -> Iterator[socket.socket]:
    try:
        while True:
            yield stack.enter_context(listening.accept()[0])
    except BlockingIOError:
        return


def test_a_port_can_be_reserved_again_although_its_last_connections_linger(stack: ExitStack) -> None:
    with reserve(HOST, 0) as kept, join(HOST, port_of(kept)) as joined:
        joined.listen()
        port = port_of(kept)
        client = stack.enter_context(socket.create_connection((HOST, port)))
        joined.accept()[0].close()  # who closes first has to keep the address
        client.close()
    assert port_of(stack.enter_context(reserve(HOST, port))) == port


def test_a_host_that_cannot_be_is_refused() -> None:
    with pytest.raises(OSError, match="no host can have this name"):
        reserve("a\0b", 0)
