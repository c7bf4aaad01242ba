"""What a ledger still owes to others, and how large it is: what an operator watches."""

from collections.abc import Mapping

import msgspec


class Backlog(msgspec.Struct, frozen=True):
    """`deletions` of conversations that backends have still to make, `given_up` those that are not tried any more. `owed` push
    configurations have something to deliver, now or later; the hosts of `failing` receivers have not taken the latest post.
    Turns that are `aside` have ended several processes, and no process tries them any more: their contexts are blocked."""

    deletions: int
    given_up: int
    owed: int
    failing: int
    aside: int


Sizes = Mapping[str, int]
"""Bytes of each part of a ledger, such as its database and its log."""
