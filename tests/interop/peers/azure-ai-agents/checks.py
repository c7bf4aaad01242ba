"""The client of classic Foundry agents in front of a service of threads and runs: `url` is the address of its project."""
# mypy: ignore-errors

import asyncio
import time

from azure.ai.agents import AgentsClient
from azure.ai.agents.models import AgentEventHandler, FilePurpose, FunctionTool, MessageRole
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from reporting import asked, report

# The client sends tokens over https only, unless each call allows more.
HTTP = {"enforce_https": False}


class Credential:
    def get_token(self, *scopes, **kwargs):
        return AccessToken(asked.transport, int(time.time()) + 3600)


class Outcomes(AgentEventHandler):
    """Gives every call the outcome 3 C."""

    def on_thread_run(self, run):
        if run.status != "requires_action":
            return
        calls = run.required_action.submit_tool_outputs.tool_calls
        outputs = [{"tool_call_id": call.id, "output": "3 C"} for call in calls]
        client.runs.submit_tool_outputs_stream(
            thread_id=run.thread_id, run_id=run.id, tool_outputs=outputs, event_handler=self, **HTTP
        )


class Checks:
    async def agent(self):
        agent = client.get_agent("asst_1", **HTTP)
        return {"name": agent.name, "model": agent.model}

    async def stream(self):
        thread = self._thread("Hi")
        with client.runs.stream(thread_id=thread, agent_id="asst_1", **HTTP) as stream:
            seen = [(name, data) for name, data, _ in stream]
        pieces = [data.text for name, data in seen if name == "thread.message.delta"]
        return {"pieces": pieces, "first": seen[0][0], "last": [name for name, _ in seen[-2:]]}

    async def tools(self):
        thread = self._thread("weather")
        handler = Outcomes()
        with client.runs.stream(thread_id=thread, agent_id="asst_1", event_handler=handler, **HTTP) as stream:
            stream.until_done()
        [run] = client.runs.list(thread_id=thread, **HTTP)
        steps = client.run_steps.list(thread_id=thread, run_id=run.id, order="asc", **HTTP)
        return {"status": run.status, "steps": [step.type for step in steps], "said": self._said(thread)}

    async def poll(self):
        thread = self._thread("Hi")
        run = client.runs.create(thread_id=thread, agent_id="asst_1", **HTTP)
        run = await self._at(run, "completed")
        return {"status": run.status, "tokens": run.usage.total_tokens > 0, "said": self._said(thread)}

    async def cancel(self):
        thread = self._thread("weather")
        run = client.runs.create(thread_id=thread, agent_id="asst_1", tools=FunctionTool(set()).definitions, **HTTP)
        await self._at(run, "requires_action")
        cancelled = client.runs.cancel(thread_id=thread, run_id=run.id, **HTTP)
        return {"status": [cancelled.status, client.runs.get(thread_id=thread, run_id=run.id, **HTTP).status]}

    async def files(self):
        file = client.files.upload(file=("a.txt", b"text"), purpose=FilePurpose.AGENTS, **HTTP)
        content = b"".join(client.files.get_content(file.id, **HTTP))
        client.files.delete(file.id, **HTTP)
        return {"name": file.filename, "content": content.decode()}

    async def error(self):
        try:
            client.messages.create(thread_id="thread_9", role=MessageRole.USER, content="x", **HTTP)
        except HttpResponseError as error:
            return {"error": type(error).__name__, "status": error.status_code}

    async def _at(self, run, status):
        """The run, once it has this status."""
        while run.status != status:
            await asyncio.sleep(0)
            run = client.runs.get(thread_id=run.thread_id, run_id=run.id, **HTTP)
        return run

    def _thread(self, text):
        thread = client.threads.create(**HTTP)
        client.messages.create(thread_id=thread.id, role=MessageRole.USER, content=text, **HTTP)
        return thread.id

    def _said(self, thread):
        listed = client.messages.list(thread_id=thread, order="asc", **HTTP)
        return [(str(message.role.value), "".join(part.text.value for part in message.text_messages)) for message in listed]


client = AgentsClient(asked.url, Credential())
asyncio.run(report(Checks()))
