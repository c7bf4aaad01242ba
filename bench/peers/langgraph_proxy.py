"""A graph on a LangGraph Agent Server behind an A2A server: langgraph-sdk in the executor of a2a-sdk's server, a thread for each context."""
import os
import uuid

from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types import Part, Task, TaskState, TaskStatus
from langgraph_sdk import get_client
from proxy import application


class Proxy(AgentExecutor):
    def __init__(self):
        self.threads = {}  # of contexts

    async def open(self):
        self.client = get_client(url=os.environ.get("BENCH_BACKEND", "http://127.0.0.1:9100"), timeout=600)

    async def execute(self, context, event_queue):
        task, name = context.task_id, context.context_id
        status = TaskStatus(state=TaskState.TASK_STATE_WORKING)
        await event_queue.enqueue_event(Task(id=task, context_id=name, status=status, history=[context.message]))
        updater = TaskUpdater(event_queue, task, name)
        if name not in self.threads:
            self.threads[name] = (await self.client.threads.create())["thread_id"]
        given = {"messages": [{"role": "user", "content": context.get_user_input()}]}
        artifact, first = str(uuid.uuid4()), True
        async for part in self.client.runs.stream(self.threads[name], "agent", input=given, stream_mode="messages-tuple"):
            if part.event == "messages" and part.data[0]["type"] == "AIMessageChunk" and (text := part.data[0]["content"]):
                await updater.add_artifact([Part(text=text)], artifact_id=artifact, append=not first, last_chunk=False)
                first = False
            elif part.event == "error":
                raise RuntimeError(part.data)
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


app = application(Proxy())
