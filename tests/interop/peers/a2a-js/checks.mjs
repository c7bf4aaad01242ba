// @a2a-js/sdk's client of A2A 1.0 in front of one agent.

import { randomUUID } from "node:crypto";
import { asks, collect, report, require } from "../clients/reporting.mjs";

const { Role, TaskState, taskStateToJSON } = require("@a2a-js/sdk");
const { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } = require("@a2a-js/sdk/client");
const { GrpcTransportFactory } = require("@a2a-js/sdk/client/grpc");

const transports = { JSONRPC: JsonRpcTransportFactory, "HTTP+JSON": RestTransportFactory, GRPC: GrpcTransportFactory };
const factory = new ClientFactory({ transports: [new transports[asks.transport]()] });
const client = await factory.createFromUrl(`${asks.url}/.well-known/agent-card.json`, "");

const content = ({ text, raw, url, data }) => {
  if (text) return { $case: "text", value: text };
  if (raw) return { $case: "raw", value: Buffer.from(raw, "base64") };
  return url ? { $case: "url", value: url } : { $case: "data", value: data };
};

const partOf = (part) => ({ content: content(part), filename: part.filename ?? "", mediaType: part.mediaType ?? "", metadata: undefined });

const shown = ({ content: { $case, value }, filename, mediaType }) => {
  if ($case === "data") return { data: value };
  return { [$case]: $case === "raw" ? Buffer.from(value).toString("base64") : value, filename, mediaType };
};

const request = (said, parts = [], where = {}) => ({
  tenant: "",
  message: {
    messageId: randomUUID(),
    contextId: "",
    taskId: "",
    role: Role.ROLE_USER,
    parts: [{ text: said }, ...parts].map(partOf),
    extensions: [],
    referenceTaskIds: [],
    metadata: undefined,
    ...where,
  },
  configuration: undefined,
  metadata: undefined,
});

async function* stream(said, where) {
  for await (const { payload } of client.sendMessageStream(request(said, [], where))) yield payload.value;
}

const send = (...what) => client.sendMessage(request(...what));
const texts = (holders) => holders.flatMap(({ parts }) => parts.map(({ content: { value } }) => value)).join("");
const state = ({ status }) => TaskState[status.state].replace("TASK_STATE_", "").toLowerCase().replace("_", "-");

await report({
  async card() {
    const { name, description, skills, capabilities } = await client.getAgentCard();
    return { name, description, skills: skills.map(({ id }) => id), streaming: capabilities.streaming };
  },

  async send() {
    const task = await send("one");
    return { text: texts(task.artifacts), state: state(task) };
  },

  async stream() {
    const events = await collect(stream("one two three"));
    const updates = events.filter(({ artifact }) => artifact);
    return { pieces: updates.map(({ artifact }) => texts([artifact])), state: state(events.at(-1)) };
  },

  async turns() {
    const first = await send("one");
    const second = await send("two", [], { contextId: first.contextId });
    return {
      texts: [first, second].map(({ artifacts }) => texts(artifacts)),
      same_context: first.contextId === second.contextId,
      same_task: first.id === second.id,
    };
  },

  async question() {
    const waiting = await send("ask");
    const answered = await send("Oslo", [], { taskId: waiting.id, contextId: waiting.contextId });
    return {
      question: texts([waiting.status.message]),
      waiting: state(waiting),
      text: texts(answered.artifacts),
      state: state(answered),
      same_task: waiting.id === answered.id,
    };
  },

  async sent() {
    return { echo: texts((await send("sent", asks.parts)).artifacts) };
  },

  async given() {
    const { artifacts } = await send("given");
    return { parts: artifacts.flatMap(({ parts }) => parts.map(shown)) };
  },

  async cancel() {
    const events = stream("hold");
    const { value: task } = await events.next();
    const { value: update } = await events.next();
    const cancelled = await client.cancelTask({ tenant: "", id: task.id, metadata: undefined });
    const rest = await collect(events);
    return { seen: texts([update.artifact]), state: state(cancelled), streamed: state(rest.at(-1)) };
  },

  async failure() {
    const task = await send("fail");
    return { state: state(task), message: texts([task.status.message]) };
  },

  async error() {
    try {
      await client.getTask({ tenant: "", id: "unknown", historyLength: undefined });
    } catch (error) {
      return { error: error.name };
    }
    return { error: null };
  },

  async refusal() {
    try {
      await collect(stream("one", { taskId: "unknown" }));
    } catch (error) {
      return { error: error.cause?.name ?? error.name };
    }
    return { error: null };
  },
});
