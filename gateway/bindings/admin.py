"""The admin API, beside A2A: what a person does to conversations. Law: a caller reaches only what is their own.

/admin/api/v1/contexts/{id}?agent=NAME     DELETE: the context and all that was said in it; 204, or 404
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.bindings.common import Front
from gateway.bindings.errors import rest_reply
from gateway.bindings.headers import query
from gateway.bindings.reply import Reply
from gateway.contexts import Contexts
from gateway.errors import A2AError, MethodNotAllowed, echo

CONTEXT = "/admin/api/v1/contexts/{context:path}"


class OneContext:
    """The address of one context."""

    def __init__(self, front: Front, contexts: Contexts) -> None:
        self._front = front
        self._contexts = contexts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._front.answer(self._delete(scope), _refuse)
        await response(scope, receive, send)

    async def _delete(self, scope: Scope) -> ASGIApp:
        if scope["method"] != "DELETE":
            raise MethodNotAllowed(f"{echo(scope['method'])} is not a method of this address")
        name = dict(query(scope)).get("agent") or None
        caller = self._front.admit(scope, name).caller
        agent = None if name is None else self._front.agents.resolve(name, None)
        await self._contexts.delete(caller, scope["path_params"]["context"], agent)
        return Reply(b"", 204)


def _refuse(error: A2AError) -> ASGIApp:
    return rest_reply(error, headers=((b"allow", b"DELETE"),) if isinstance(error, MethodNotAllowed) else ())
