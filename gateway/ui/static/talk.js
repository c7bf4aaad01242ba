// The conversation of the playground: what was said, in bubbles. What others have written is put into the page as text, never as
// HTML.

const talk = document.getElementById("talk");
const play = document.getElementById("play").dataset;

const UNSEEN = new RegExp(play.unseen, "gu"); // the table of the pages
const LONGEST = 100_000;
const MOST_FILES = 20;

const entries = new Map();
const bubbles = new Map(); // the bubbles of a message or an artifact, in their order

export function visible(text) {
  const cut = text.length > LONGEST ? `${text.slice(0, LONGEST)} … ${text.length - LONGEST} more characters` : text;
  return cut.replace(UNSEEN, (found) => `⟨${names([...found])}⟩`);
}

function names(characters) {
  const shown = characters.slice(0, play.named).map((each) => `U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  const more = characters.length - shown.length;
  return shown.join(" ") + (more ? ` and ${more} more` : "");
}

export function element(tag, text = "", more = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  return Object.assign(made, more);
}

export function entry(key, who, kind = "") {
  let found = entries.get(key);
  if (!found) {
    const item = element("li", "", { className: kind });
    const body = element("span");
    const files = element("span");
    item.append(element("span", who, { className: "who" }), body, files);
    talk.append(item);
    found = { item, body, files, text: "" };
    entries.set(key, found);
  }
  return found;
}

export function write(found, text) {
  found.text = text;
  found.body.textContent = visible(text);
}

function file(found, part) {
  const name = part.filename || part.mediaType || "file";
  if (part.raw === undefined) {
    found.files.append(element("span", ` [${visible(name)} at ${visible(part.url)}]`));
    return;
  }
  const bytes = Uint8Array.from(atob(part.raw), (character) => character.charCodeAt(0));
  const link = element("a", `${visible(name)} (${bytes.length} bytes)`, {
    href: URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" })),
    download: name,
  });
  found.files.append(" ", link);
}

function clearFiles(found) {
  for (const link of found.files.querySelectorAll("a")) URL.revokeObjectURL(link.href);
  found.files.replaceChildren();
}

export function remove(key) {
  for (const each of bubbles.get(key) ?? []) {
    clearFiles(each);
    each.item.remove();
    entries.delete(each.key);
  }
  bubbles.delete(key);
}

// Whether a tool, another message or a fault stands below: what is said then comes after it.
function isOvertaken(found) {
  for (let next = found.item.nextElementSibling; next; next = next.nextElementSibling) if (next.className) return true;
  return false;
}

function bubble(key, who, kind) {
  const made = bubbles.get(key) ?? [];
  const last = made.at(-1);
  if (last && !isOvertaken(last)) return last;
  const next = entry(`${key}:${made.length}`, who, kind);
  next.key = `${key}:${made.length}`;
  bubbles.set(key, [...made, next]);
  return next;
}

// What of the whole text is not shown yet. Another text than that which is shown takes its place.
function rest(key, text) {
  const made = bubbles.get(key) ?? [];
  const shown = made.map((each) => each.text).join("");
  if (text.startsWith(shown)) return text.slice(shown.length);
  const [first, ...others] = made;
  for (const each of others) {
    each.item.remove();
    entries.delete(each.key);
  }
  bubbles.set(key, [first]);
  write(first, text);
  return "";
}

// What does not append is the whole, such as of a message that was sent and comes back with its task.
export function said(key, text, files, who, kind, append) {
  if (!append) for (const each of bubbles.get(key) ?? []) clearFiles(each);
  const more = append ? text : rest(key, text);
  if (more) {
    const found = bubble(key, who, kind);
    write(found, found.text + more);
  }
  for (const part of files) {
    const found = more || append ? bubble(key, who, kind) : bubbles.get(key)?.at(-1) ?? bubble(key, who, kind);
    if (found.files.childElementCount < MOST_FILES) file(found, part);
  }
}
