// Talks to an agent with the official client for JavaScript of A2A 0.3. Needs: npm install @a2a-js/sdk@0.3
//
//   node examples/clients/a2a_js_0_3.mjs http://127.0.0.1:8080/a2a/trips "What do I pack?" "Oslo"

import { randomUUID } from "node:crypto";
import { ClientFactory } from "@a2a-js/sdk/client";

const [agent, ...texts] = process.argv.slice(2);
const client = await new ClientFactory().createFromUrl(`${agent}/.well-known/agent-card.json`, "");

const show = (parts) => process.stdout.write(parts.map(({ text }) => text ?? "").join(""));

// One context is one conversation; the task is named only while it waits for an answer.
async function say(text, where) {
  const message = { kind: "message", messageId: randomUUID(), role: "user", parts: [{ kind: "text", text }], ...where };
  let contextId, taskId, waits;
  for await (const event of client.sendMessageStream({ message })) {
    if (event.kind === "task") ({ contextId, id: taskId } = event);
    if (event.kind === "artifact-update") show(event.artifact.parts);
    waits = ["input-required", "auth-required"].includes(event.status?.state);
    if (waits) show(event.status.message.parts);
  }
  process.stdout.write("\n");
  return waits ? { contextId, taskId } : { contextId };
}

let where = {};
for (const text of texts) where = await say(text, where);
