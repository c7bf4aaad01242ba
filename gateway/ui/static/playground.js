// A client of the public wire: messages, streams, files, approvals, tools of the client, cancellation, and streams that are resumed.
// What others have written is put into the page as text, never as HTML.

import { element, entry, remove, said, visible, write } from "./talk.js";
import { events, WireError } from "./wire.js";

const $ = (id) => document.getElementById(id);
const play = $("play").dataset;
const params = new URLSearchParams(location.search);

const TERMINAL = new Set(["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"]);
const WAITING = new Set(["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"]);
const CONFIRMATION = "adk_request_confirmation"; // the question of another kind of client
const UNBEGUN = "requested or running"; // a task that is read tells no more of a call without an outcome
const KEPT_EVENTS = 500;
const PAUSES = [500, 1000, 2000, 4000, 8000, 15_000, 30_000]; // before a stream is resumed again, in milliseconds

const current = { task: play.task, state: "", last: "" };
const tools = new Map(); // the tool calls that are shown, by their ids
let asked = ""; // the question that is shown
let followed = new AbortController(); // of the stream that is listened to

function say(text) {
  if ($("status").textContent !== text) $("status").textContent = text;
}

// --- the conversation

function parts(key, list, who, kind, append = false) {
  let text = "";
  const files = [];
  for (const part of list ?? []) {
    const facts = part.metadata?.[play.extension];
    if (facts && part.data && (part.data.args || part.data.response)) toolCall(part.data, facts);
    else if (part.text !== undefined) text += part.text;
    else if (part.raw !== undefined || part.url !== undefined) files.push(part);
    else if (part.data !== undefined && part.data?.name !== CONFIRMATION) text += JSON.stringify(part.data);
  }
  said(key, text, files, who, kind, append);
}

function toolCall(data, facts) {
  const found = entry(`tool:${data.id}`, `tool · ${facts.origin}${facts.server ? ` · ${visible(facts.server)}` : ""}`, "tool");
  tools.set(data.id, found);
  found.call ??= `${data.name} ${JSON.stringify(data.args ?? {})}`;
  if (data.args) found.call = `${data.name} ${JSON.stringify(data.args)}`;
  if (data.response) found.outcome = JSON.stringify(data.response);
  // What is told again of a call does not take back what is known of it.
  const isNews = data.response || [undefined, "args-delta", play.asking, UNBEGUN].includes(found.phase);
  phase(found, isNews ? facts.phase : found.phase);
}

function phase(found, name) {
  found.phase = name;
  write(found, `${found.call}\n${name}${found.outcome ? `: ${found.outcome}` : ""}`);
}

function message(given) {
  const mine = given.role === "ROLE_USER";
  parts(`message:${given.messageId}`, given.parts, mine ? "you" : "agent", mine ? "you" : "");
}

function showTask(task) {
  current.task = task.id;
  $("context").value = task.contextId;
  for (const each of task.history ?? []) message(each);
  for (const each of task.artifacts ?? []) parts(`artifact:${task.id}:${each.artifactId}`, each.parts, "agent", "");
  showStatus(task.status);
  if (current.state !== "TASK_STATE_WORKING") return;
  for (const found of tools.values()) if (found.phase === "requested") phase(found, UNBEGUN);
}

function showStatus(status, metadata) {
  current.state = status.state;
  const facts = metadata?.[play.extension];
  if (facts?.phase && tools.has(facts.callId)) phase(tools.get(facts.callId), facts.phase);
  if (status.message) message(status.message);
  const words = {
    TASK_STATE_SUBMITTED: "The task waits for its turn.",
    TASK_STATE_WORKING: "The agent works.",
    TASK_STATE_INPUT_REQUIRED: "The task waits for you.",
    TASK_STATE_AUTH_REQUIRED: "The task waits for your consent elsewhere.",
  };
  say(words[status.state] ?? `The task is ${status.state.replace("TASK_STATE_", "").toLowerCase()}.`);
  $("cancel").hidden = !status.state || TERMINAL.has(status.state);
  if (WAITING.has(status.state) || TERMINAL.has(status.state)) $("submit").disabled = false;
  if (WAITING.has(status.state)) ask(status);
  else clearQuestions();
  remember();
}

function remember() {
  const query = new URLSearchParams({ agent: play.agent });
  if ($("context").value) query.set("context", $("context").value);
  if (current.task) query.set("task", current.task);
  history.replaceState(null, "", `?${query}`);
  $("links").hidden = !current.task;
  $("tasklink").href = `/ui/tasks/${encodeURIComponent(current.task)}`;
}

// --- questions of a task that waits

function clearQuestions() {
  const held = $("questions").contains(document.activeElement);
  $("questions").replaceChildren();
  asked = "";
  if (held) $("message").focus();
}

function ask(status) {
  const facts = status.message?.metadata?.[play.extension] ?? {};
  // A task that is read anew tells nothing else of what its calls wait for.
  for (const id of [...(facts.approval?.tools ?? []).map((tool) => tool.id), ...(facts.consent?.links ?? []).map((link) => link.callId)]) {
    if (tools.has(id)) phase(tools.get(id), play.asking);
  }
  const question = JSON.stringify(status.message ?? {});
  if (question === asked) return; // a decision may be half made
  const calls = [
    ...(facts.approval?.tools ?? []).map((tool) => approval(tool)),
    ...(status.message?.parts ?? [])
      .filter((part) => part.metadata?.[play.extension]?.origin === "client" && part.data?.args)
      .map((part) => ownTool(part.data)),
  ];
  const box = element("div", "", { className: "notice", tabIndex: -1 });
  box.setAttribute("aria-label", "Questions");
  box.setAttribute("role", "group");
  for (const link of facts.consent?.links ?? []) box.append(consent(link));
  const answers = new Map();
  for (const { id, made, decided } of calls) {
    box.append(made);
    decided((part) => {
      answers.set(id, part);
      if (answers.size === calls.length) send(joined([...answers.values()]));
    });
  }
  const until = facts.expiresAt ?? facts.approval?.expiresAt ?? facts.consent?.expiresAt;
  if (until && box.childNodes.length) box.append(element("p", `It can be answered until ${moment(until)}.`, { className: "soft" }));
  clearQuestions();
  asked = question;
  if (!box.childNodes.length) return;
  $("questions").append(box);
  // Whoever writes, or looks at something else, is left alone.
  const at = document.activeElement;
  if (at === document.body || at === $("submit") || (at === $("message") && !at.value)) box.focus();
}

const moment = (text) => visible(text).replace("T", " ").replace(/(\.\d+)?Z$/, " UTC");

// Decisions travel in one list, results of tools each in a part of its own.
function joined(answers) {
  const approvals = answers.filter((each) => each.approved !== undefined);
  const results = answers.filter((each) => each.approved === undefined);
  return [...(approvals.length ? [{ data: { approvals } }] : []), ...results];
}

function approval(tool) {
  const made = element("fieldset");
  const reason = element("input", "", { placeholder: "why not", maxLength: 500 });
  reason.setAttribute("aria-label", `Reason to refuse ${visible(tool.name)}`);
  const yes = element("button", "Allow", { type: "button", className: "main" });
  const no = element("button", "Refuse", { type: "button" });
  // A tool of the backend's own has no name of the gateway's, and is asked about every time.
  const title = "Later calls of this tool in this context run unasked, whatever their arguments.";
  const always = play.standing === "1" && tool.tool ? element("button", "Always allow", { type: "button", title }) : null;
  made.append(
    element("legend", `May ${visible(tool.tool ?? tool.name)} run?`),
    element("pre", visible(JSON.stringify(tool.args, null, 2))), yes, " ", ...(always ? [always, " "] : []), no, " ", reason,
  );
  const decided = (then) => {
    const decide = (decision) => { made.disabled = true; then({ id: tool.id, ...decision }); };
    yes.onclick = () => decide({ approved: true });
    if (always) always.onclick = () => decide({ approved: true, always: true });
    no.onclick = () => decide({ approved: false, ...(reason.value ? { reason: reason.value } : {}) });
  };
  return { id: tool.id, made, decided };
}

function ownTool(call) {
  const made = element("fieldset");
  const result = element("textarea", "", { className: "mono", value: '{"result": ""}' });
  result.setAttribute("aria-label", `Result of ${visible(call.name)}`);
  const fault = element("p", "", { className: "soft" });
  const button = element("button", "Send the result", { type: "button", className: "main" });
  made.append(
    element("legend", `Your tool ${visible(call.name)} is called`),
    element("pre", visible(JSON.stringify(call.args, null, 2))), result, button, fault,
  );
  const decided = (then) => {
    button.onclick = () => {
      try {
        const given = JSON.parse(result.value);
        const response = given && typeof given === "object" && !Array.isArray(given) ? given : { result: given };
        made.disabled = true;
        then({ data: { id: call.id, name: call.name, response }, metadata: { type: "function_response" } });
      } catch {
        fault.textContent = "This is no JSON.";
      }
    };
  };
  return { id: call.id, made, decided };
}

function consent(link) {
  const made = element("p", "");
  const address = URL.parse ? URL.parse(link.url) : new URL(link.url);
  if (address?.protocol === "https:" || address?.protocol === "http:") {
    made.append("Consent at ", element("a", visible(address.host), { href: address.href, target: "_blank", rel: "noopener noreferrer" }));
  }
  made.append(element("span", ` ${visible(link.text ?? "")} Then send any message.`));
  return made;
}

// --- the wire

function record(method, path, body) {
  const item = element("li");
  const details = element("details");
  const line = element("summary", `${method} ${path.split("?")[0].slice(0, 60)}`);
  const raw = element("pre", "");
  raw.tabIndex = 0;
  details.append(line, element("pre", curl(method, path, body)), raw);
  item.append(details);
  $("wire").append(item);
  let number = 0;
  return {
    status: (code) => { line.textContent += ` → ${code}`; },
    event: (id, data) => {
      number += 1;
      if (number <= KEPT_EVENTS) raw.append(visible(`${id ? `id: ${id}\n` : ""}${data}\n\n`));
      else if (number === KEPT_EVENTS + 1) raw.append("… more events are not kept here\n");
    },
  };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(method, path, body) {
  const words = ["curl", "-N", "-X", method, quoted(`${play.public}/${path}`), "-H", quoted(`A2A-Version: ${play.version}`)];
  words.push("-H", quoted(`A2A-Extensions: ${play.extension}`));
  if (play.keysAsked === "1") words.push("-H", '"Authorization: Bearer $A2A_GATEWAY_KEY"');
  if (body) words.push("-H", quoted("Content-Type: application/json"), "-d", quoted(body.length > 4000 ? `${body.slice(0, 4000)}…` : body));
  return visible(words.join(" "));
}

async function call(method, path, body, more = {}, signal = undefined) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const noted = record(method, path, text);
  const headers = { "a2a-version": play.version, "a2a-extensions": play.extension, "x-ui-token": play.token, ...more };
  if (text !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(`${play.wire}/${path}`, { method, headers, body: text, signal });
  noted.status(answer.status);
  if (!answer.ok) {
    const said = await answer.text();
    noted.event("", said);
    throw new WireError(answer.status, said);
  }
  return { answer, noted };
}

const taskPath = () => `tasks/${encodeURIComponent(current.task)}`;
const resumption = () => (current.last ? { "last-event-id": current.last } : {});

async function listen({ answer, noted }) {
  for await (const { id, name, data } of events(answer.body)) {
    noted.event(id, data);
    if (id) current.last = id;
    const value = JSON.parse(data);
    if (name === "error") throw new WireError(0, data);
    if (value.task) showTask(value.task);
    if (value.message) { message(value.message); say("The agent has answered with a message alone."); }
    if (value.statusUpdate) {
      current.task = value.statusUpdate.taskId;
      showStatus(value.statusUpdate.status, value.statusUpdate.metadata);
    }
    if (value.artifactUpdate) {
      const { taskId, artifact, append } = value.artifactUpdate;
      parts(`artifact:${taskId}:${artifact.artifactId}`, artifact.parts, "agent", "", append);
    }
  }
}

// One stream is listened to at a time: another one takes its place.
function begin() {
  followed.abort();
  followed = new AbortController();
  $("again").hidden = true;
  return followed.signal;
}

// A stream that breaks off goes on behind its last event until the task has ended. That of a message ends where the task waits; the
// next one tells what becomes of the question, wherever it is answered.
async function follow(signal, first) {
  let open = first;
  for (let tries = 0; tries <= PAUSES.length;) {
    const before = current.last;
    try {
      await listen(open ?? await call("POST", `${taskPath()}:subscribe`, undefined, resumption(), signal));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof WireError && error.status >= 400 && error.status < 500) {
        if (open) throw error;
        await read(signal); // it may have ended meanwhile
        if (!TERMINAL.has(current.state)) throw error;
      }
    }
    if (signal.aborted || !current.task || TERMINAL.has(current.state)) return;
    if (current.last !== before) tries = 0;
    if (!(open && WAITING.has(current.state))) {
      if (tries === PAUSES.length) break;
      say("The stream broke off; it is resumed.");
      await new Promise((resolve) => { setTimeout(resolve, PAUSES[tries]); });
      if (signal.aborted) return;
      tries += 1;
    }
    open = undefined;
  }
  say("The stream could not be resumed.");
  $("again").hidden = false;
}

async function read(signal) {
  const { answer, noted } = await call("GET", taskPath(), undefined, {}, signal);
  const text = await answer.text();
  noted.event("", text);
  current.last = "";
  showTask(JSON.parse(text));
}

// The task as it is, then its stream from here on.
async function resume() {
  const signal = begin();
  try {
    await read(signal);
    if (!TERMINAL.has(current.state)) await follow(signal);
  } catch (error) {
    if (signal.aborted) return;
    fault(error);
    $("again").hidden = error instanceof WireError && error.status < 500;
  }
}

// Messages that are refused leave the task as it is, and what was written where it was.
async function send(list, metadata, taken = () => {}) {
  const before = { ...current };
  const goesOn = current.task && WAITING.has(current.state);
  const given = { messageId: crypto.randomUUID?.() ?? `m-${Date.now()}-${Math.random()}`, role: "ROLE_USER", parts: list };
  if ($("context").value) given.contextId = $("context").value;
  if (goesOn) given.taskId = current.task;
  if (metadata) given.metadata = metadata;
  const signal = begin();
  message(given);
  say("Sent.");
  $("message").focus();
  $("submit").disabled = true;
  clearQuestions();
  Object.assign(current, goesOn ? { state: "" } : { task: "", state: "", last: "" });
  let isTaken = false;
  try {
    const first = await call("POST", "message:stream", { message: given }, { "idempotency-key": given.messageId }, signal);
    isTaken = true;
    taken();
    await follow(signal, first);
  } catch (error) {
    if (signal.aborted) return;
    fault(error);
    if (!isTaken) {
      remove(`message:${given.messageId}`);
      Object.assign(current, before);
      if (current.task && !TERMINAL.has(current.state)) resume();
    }
  }
  if (!signal.aborted || !isTaken) $("submit").disabled = false;
}

let faults = 0;

function fault(error) {
  const text = error instanceof WireError ? error.words : "The gateway did not answer.";
  write(entry(`fault:${faults++}`, "gateway", "fault"), text);
  say("That did not work.");
  if (error.status !== 404) return;
  clearQuestions();
  Object.assign(current, { task: "", state: "", last: "" });
  $("cancel").hidden = true;
}

async function base64(given) {
  const bytes = new Uint8Array(await given.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

$("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  const list = $("message").value ? [{ text: $("message").value }] : [];
  for (const given of $("files").files) {
    list.push({ raw: await base64(given), filename: given.name, mediaType: given.type || "application/octet-stream" });
  }
  if (!list.length) { say("There is nothing to send."); return; }
  let metadata;
  if ($("tools").value.trim()) {
    try {
      metadata = { [play.extension]: { tools: JSON.parse($("tools").value) } };
    } catch {
      say("The tools are no JSON.");
      return;
    }
  }
  const written = $("message").value;
  await send(list, metadata, () => {
    if ($("message").value === written) $("message").value = "";
    $("files").value = "";
  });
});

$("cancel").addEventListener("click", async () => {
  try {
    const { answer, noted } = await call("POST", `${taskPath()}:cancel`, {});
    const text = await answer.text();
    noted.event("", text);
    showTask(JSON.parse(text));
  } catch (error) {
    fault(error);
  }
});

$("again").addEventListener("click", resume);

// A browser has few connections to a host: a page that nobody sees leaves its own to others while it waits.
document.addEventListener("visibilitychange", () => {
  if (!current.task || !WAITING.has(current.state)) return;
  if (document.hidden) begin();
  else resume();
});

if (current.task) resume();
else if (params.get("context")) say("The next message goes on in this context.");
