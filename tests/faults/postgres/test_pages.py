"""The pages while the server is away: each says so, also the first one that anybody opens."""

from pathlib import Path

import httpx2

from tests.faults.postgres.replicas import replicas
from tests.gateway.ui.visitor import Visitor
from tests.support.polling import until
from tests.support.postgres import postgres_server

_FROM_THE_STORAGE = (
    "/ui/",
    "/ui/agents/echo",
    "/ui/contexts",
    "/ui/contexts/x",
    "/ui/contexts/x/next",
    "/ui/contexts/x/export",
    "/ui/contexts/x/delete",
    "/ui/tasks/x",
    "/ui/tasks/x/live",
    "/ui/tasks/x/cancel",
    "/ui/tasks/x/events",
    "/ui/tasks/x/events/1",
    "/ui/tasks/x/body/input",
    "/ui/tasks/x/calls/1",
    "/ui/deliveries",
    "/ui/replay?task=x",
    "/ui/keys",
    "/ui/keys/revoke?key=x",
    "/ui/go?id=x",
)
_FORMS = (
    "/ui/contexts/x/export",
    "/ui/contexts/x/delete",
    "/ui/tasks/x/cancel",
    "/ui/replay?task=x",
    "/ui/keys/new",
    "/ui/keys/revoke?key=x",
)


def says_so(answer: httpx2.Response) -> bool:
    page = answer.text
    return (
        answer.status_code == 503
        and answer.headers["retry-after"] == "5"
        and "The gateway&#39;s storage is not available; try again." in page
        and "unavailable" in page
        and 'rel="stylesheet"' in page
    )


async def test_every_page_says_that_the_storage_is_away_and_comes_back_with_it(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with replicas(tmp_path, f"url: '{server.url()}'") as start:
            replica = await start()
            visitor = Visitor(replica.http, str(replica.http.base_url).rstrip("/"))
            await replica.agent().send("hello")
            server.stop("immediate")
            for path in _FROM_THE_STORAGE:
                assert says_so(await replica.http.get(path)), path
            await visitor.open("/ui/import")
            for path in _FORMS:
                answer = await visitor.send(path, id="x", name="x", principal="x", typed="x")
                assert says_so(answer), (path, answer.status_code, answer.text)
            refused = await replica.http.get("/admin/api/v1/push")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert "Traceback" not in replica.process.log.read_text()
            server.start()
            await until(replica.is_ready)
            await visitor.open("/ui/")
