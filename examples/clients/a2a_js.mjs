// Talks to an agent with the official client for JavaScript. Needs: npm install @a2a-js/sdk @bufbuild/protobuf
//
//   node examples/clients/a2a_js.mjs http://127.0.0.1:8080/a2a/trips "What do I pack?" "Oslo"

import { randomUUID } from "node:crypto";
import { Role, TaskState } from "@a2a-js/sdk";
import { ClientFactory } from "@a2a-js/sdk/client";

const WAITS = [TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED];
const [agent, ...texts] = process.argv.slice(2);
const client = await new ClientFactory().createFromUrl(`${agent}/.well-known/agent-card.json`, "");

const show = (parts) =>
  process.stdout.write(parts.map(({ content: { $case, value } }) => ($case === "text" ? value : "")).join(""));

// One context is one conversation; the task is named only while it waits for an answer.
async function say(text, { contextId, taskId }) {
  const message = {
    messageId: randomUUID(),
    contextId,
    taskId,
    role: Role.ROLE_USER,
    parts: [{ content: { $case: "text", value: text }, filename: "", mediaType: "", metadata: undefined }],
    extensions: [],
    referenceTaskIds: [],
    metadata: undefined,
  };
  let waits = false;
  for await (const { payload } of client.sendMessageStream({ tenant: "", message })) {
    const { id, artifact, status } = payload.value;
    if (id) [contextId, taskId] = [payload.value.contextId, id];
    if (artifact) show(artifact.parts);
    waits = status !== undefined && WAITS.includes(status.state);
    if (waits) show(status.message.parts);
  }
  process.stdout.write("\n");
  return { contextId, taskId: waits ? taskId : "" };
}

let where = { contextId: "", taskId: "" };
for (const text of texts) where = await say(text, where);
