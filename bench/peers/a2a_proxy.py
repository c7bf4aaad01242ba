"""An A2A agent behind an A2A server: a2a-sdk's client in the executor of a2a-sdk's server. Contexts are remapped, artifacts passed on."""
import os

import httpx
from a2a.client import ClientConfig, create_client
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types import Message, Role, SendMessageRequest, Task, TaskState, TaskStatus
from proxy import application


class Proxy(AgentExecutor):
    def __init__(self):
        self.contexts = {}  # of a caller -> of the agent

    async def open(self):
        http = httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=1000), timeout=600)
        self.client = await create_client(os.environ.get("BENCH_BACKEND", "http://127.0.0.1:9100"), ClientConfig(httpx_client=http))

    async def execute(self, context, event_queue):
        task, name = context.task_id, context.context_id
        status = TaskStatus(state=TaskState.TASK_STATE_WORKING)
        await event_queue.enqueue_event(Task(id=task, context_id=name, status=status, history=[context.message]))
        updater = TaskUpdater(event_queue, task, name)
        message = Message(message_id=context.message.message_id, role=Role.ROLE_USER, parts=context.message.parts)
        message.context_id = self.contexts.get(name, "")
        async for event in self.client.send_message(SendMessageRequest(message=message)):
            if event.HasField("artifact_update"):
                update = event.artifact_update
                artifact = update.artifact
                await updater.add_artifact(list(artifact.parts), artifact.artifact_id, append=update.append, last_chunk=update.last_chunk)
            elif event.HasField("status_update"):
                await updater.update_status(event.status_update.status.state)
            elif event.HasField("task"):
                self.contexts[name] = event.task.context_id

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


app = application(Proxy())
