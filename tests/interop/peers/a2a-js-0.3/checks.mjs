// @a2a-js/sdk's client of A2A 0.3 in front of one agent.

import { randomUUID } from "node:crypto";
import { asks, collect, report, require } from "../clients/reporting.mjs";

const { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } = require("@a2a-js/sdk/client");

const transports = { JSONRPC: JsonRpcTransportFactory, "HTTP+JSON": RestTransportFactory };
const factory = new ClientFactory({ transports: [new transports[asks.transport]()] });
const client = await factory.createFromUrl(`${asks.url}/.well-known/agent-card.json`, "");

const partOf = ({ raw, url, data, filename: name, mediaType: mimeType }) =>
  data ? { kind: "data", data } : { kind: "file", file: raw ? { bytes: raw, name, mimeType } : { uri: url, name, mimeType } };

const shown = ({ data, file }) =>
  data ? { data } : { ...(file.bytes ? { raw: file.bytes } : { url: file.uri }), filename: file.name, mediaType: file.mimeType };

const request = (said, parts = [], where = {}) => ({
  message: {
    kind: "message",
    messageId: randomUUID(),
    role: "user",
    parts: [{ kind: "text", text: said }, ...parts.map(partOf)],
    ...where,
  },
});

const send = (...what) => client.sendMessage(request(...what));
const texts = (holders) => holders.flatMap(({ parts }) => parts.map(({ text }) => text)).join("");

await report({
  async card() {
    const { name, description, skills, capabilities } = await client.getAgentCard();
    return { name, description, skills: skills.map(({ id }) => id), streaming: capabilities.streaming };
  },

  async send() {
    const task = await send("one");
    return { text: texts(task.artifacts), state: task.status.state };
  },

  async stream() {
    const events = await collect(client.sendMessageStream(request("one two three")));
    const updates = events.filter(({ kind }) => kind === "artifact-update");
    return { pieces: updates.map(({ artifact }) => texts([artifact])), state: events.at(-1).status.state };
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
      waiting: waiting.status.state,
      text: texts(answered.artifacts),
      state: answered.status.state,
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
    const stream = client.sendMessageStream(request("hold"));
    const { value: task } = await stream.next();
    const { value: update } = await stream.next();
    const cancelled = await client.cancelTask({ id: task.id });
    const rest = await collect(stream);
    return { seen: texts([update.artifact]), state: cancelled.status.state, streamed: rest.at(-1).status.state };
  },

  async failure() {
    const { status } = await send("fail");
    return { state: status.state, message: texts([status.message]) };
  },

  async error() {
    try {
      await client.getTask({ id: "unknown" });
    } catch (error) {
      return { error: error.name };
    }
    return { error: null };
  },

  async refusal() {
    try {
      await collect(client.sendMessageStream(request("one", [], { taskId: "unknown" })));
    } catch (error) {
      return { error: error.cause?.name ?? error.name };
    }
    return { error: null };
  },
});
