"""Who a request comes from."""

from gateway.auth import NoAuthentication
from gateway.commits import Caller


def test_without_authentication_everybody_is_the_same_caller() -> None:
    auth = NoAuthentication()

    assert auth.authenticate({}) == auth.authenticate({"authorization": "Bearer x"}) == Caller("anonymous")
