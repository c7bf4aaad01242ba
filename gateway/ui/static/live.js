// The page of a task while it runs. The server sends a row, or a part around the rows, when it has changed; a page that is not
// looked at closes its stream.

const policy = trustedTypes.createPolicy("live", { createHTML: (html) => html });
const list = document.getElementById("rows");
const sign = document.getElementById("live");
const stale = document.getElementById("stale");
const skew = Date.now() - Number(list.dataset.now);
let source;

// The one place where text becomes HTML. All of it comes from the templates of the server, which escape everything.
function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content.firstElementChild;
}

function keepOpen(before, after) {
  const opened = [...before.querySelectorAll("details")];
  [...after.querySelectorAll("details")].forEach((details, index) => {
    if (!opened[index]?.open) return;
    const place = opened[index].querySelector(":scope > [data-load][data-done]");
    const same = details.querySelector(":scope > [data-load]");
    if (place && same?.querySelector("a")?.href === place.dataset.load) {
      same.dataset.load = place.dataset.load;
      same.textContent = place.textContent;
      same.dataset.done = "1";
    }
    details.open = true;
  });
}

function put(html) {
  const row = parsed(html);
  const known = document.getElementById(row.id);
  if (!known) {
    list.append(row);
    tick();
    return;
  }
  const focused = known.contains(document.activeElement);
  const summaries = [...known.querySelectorAll("summary, a, pre")];
  const at = summaries.indexOf(document.activeElement);
  if (known.hasAttribute("aria-selected")) row.setAttribute("aria-selected", "true");
  keepOpen(known, row);
  known.replaceWith(row);
  tick();
  if (!focused) return;
  const target = at < 0 ? row : [...row.querySelectorAll("summary, a, pre")][at];
  if (target === row) row.tabIndex = -1;
  target?.focus({ preventScroll: true });
}

// Brings a part up to date and leaves what stays as it is: a link that is clicked, has the focus or is selected goes on being so.
function update(before, after) {
  for (const { name } of [...before.attributes]) if (!after.hasAttribute(name)) before.removeAttribute(name);
  for (const { name, value } of after.attributes) if (before.getAttribute(name) !== value) before.setAttribute(name, value);
  const children = [...after.childNodes];
  while (before.childNodes.length > children.length) before.lastChild.remove();
  children.forEach((child, index) => {
    const there = before.childNodes[index];
    if (there?.nodeName !== child.nodeName) {
      if (there) there.replaceWith(child);
      else before.append(child);
    } else if (child instanceof Element) {
      update(there, child);
    } else if (there.data !== child.data) {
      there.data = child.data;
    }
  });
}

// Rows of which the page has heard nothing stand at its end until their place is known.
function arrange(ids) {
  const known = new Set(ids);
  for (const row of [...list.children]) if (!known.has(row.id)) row.remove();
  let at = list.firstElementChild;
  for (const id of ids) {
    const row = document.getElementById(id);
    if (row === at) at = at.nextElementSibling;
    else if (row) list.insertBefore(row, at);
  }
}

function open() {
  if (source || document.hidden) return;
  source = new EventSource(list.dataset.live);
  source.onopen = () => { sign.hidden = false; stale.hidden = true; };
  source.onerror = () => {
    sign.hidden = true;
    stale.hidden = source?.readyState !== EventSource.CLOSED;
  };
  source.addEventListener("row", (event) => put(event.data));
  source.addEventListener("state", (event) => document.getElementById("state").replaceChildren(parsed(event.data)));
  source.addEventListener("part", (event) => {
    const part = parsed(event.data);
    update(document.getElementById(part.id), part);
  });
  source.addEventListener("order", (event) => arrange(JSON.parse(event.data)));
  source.addEventListener("sentence", (event) => {
    const sentence = document.getElementById("sentence");
    if (sentence.textContent !== event.data) sentence.textContent = event.data;
  });
  source.addEventListener("end", () => { close(); ended = true; });
}

let ended = false;

function close() {
  source?.close();
  source = undefined;
  sign.hidden = true;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else if (!ended) open();
});

// Clocks tick here, from the server's time.
function tick() {
  for (const clock of list.querySelectorAll("[data-since]")) {
    const seconds = Math.max(0, (Date.now() - skew - Number(clock.dataset.since)) / 1000);
    clock.textContent = seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  }
}

tick();
setInterval(tick, 500);

open();
