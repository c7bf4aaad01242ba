"""What a command says of the system's refusals."""

import errno
import os

import pytest

from gateway.cli.console.output import reason_of


@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "permission denied")])
def test_the_reason_of_the_system_is_told_in_plain_words(number: int, told: str) -> None:
    assert reason_of(OSError(number, os.strerror(number), "from.db", None, "to.part")) == told
