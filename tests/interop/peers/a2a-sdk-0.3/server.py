"""An agent of a2a-sdk 0.3.26 that remembers what it was told: what it does is said by the first word of a message.

python server.py PORT
"""

import asyncio
import sys
from collections import defaultdict
from contextlib import suppress

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, FilePart, FileWithBytes, Part, TextPart
from a2a.utils import new_agent_text_message, new_task

PORT = int(sys.argv[1])


class Agent(AgentExecutor):
    def __init__(self) -> None:
        self.told: dict[str, list[str]] = defaultdict(list)
        self.running: dict[str, asyncio.Event] = {}

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        if context.task_id in self.running:
            self.running[context.task_id].set()
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        text, task, conversation = context.get_user_input(), context.current_task, context.context_id
        told = self.told[conversation]
        told.append(text)
        word = text.split()[0] if text else ""
        if word == "msg":
            await queue.enqueue_event(new_agent_text_message(f"no task for {text}", conversation, None))
            return
        if not task:
            task = new_task(context.message)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, conversation)
        await updater.start_work()
        match word:
            case "ask":
                question = new_agent_text_message("Which city?", conversation, task.id)
                await updater.requires_input(question, final=True)
            case "boom":
                await updater.failed(new_agent_text_message("out of ink", conversation, task.id))
            case "slow":
                await self._slowly(updater, task.id, int(text.split()[1]))
            case "file":
                file = context.message.parts[-1].root.file
                await updater.add_artifact(
                    [Part(root=TextPart(text=f"{file.name} {file.mime_type} {file.bytes}"))], "a"
                )
                made = FileWithBytes(bytes="AAE=", name="made.bin", mime_type="application/octet-stream")
                await updater.add_artifact([Part(root=FilePart(file=made))], "f", name="made")
                await updater.complete()
            case _:
                answer = f"{len(told)}: {' | '.join(told)}"
                await updater.add_artifact([Part(root=TextPart(text=answer))], artifact_id="a")
                await updater.complete()

    async def _slowly(self, updater: TaskUpdater, task: str, pieces: int) -> None:
        cancelled = self.running[task] = asyncio.Event()
        for index in range(pieces):
            piece = Part(root=TextPart(text=f"t{index} "))
            await updater.add_artifact([piece], artifact_id="a", append=index > 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await cancelled.wait()
            if cancelled.is_set():
                return
        await updater.complete()


card = AgentCard(
    name="sdk 0.3",
    description="Remembers.",
    version="1",
    url=f"http://127.0.0.1:{PORT}/",
    capabilities=AgentCapabilities(streaming="whole" not in sys.argv),
    default_input_modes=["text/plain", "*/*"],
    default_output_modes=["text/plain", "*/*"],
    skills=[AgentSkill(id="remember", name="Remember", description="Says what it was told.", tags=["memory"])],
)
handler = DefaultRequestHandler(agent_executor=Agent(), task_store=InMemoryTaskStore())
app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
