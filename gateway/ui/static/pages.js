// Keys, copying, and texts that are loaded when they are opened. Every page is complete without this script.

const rowsOf = (list) => [...list.querySelectorAll("li.row, .problems > li, tbody > tr")];

function typing(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]");
}

function select(row) {
  for (const other of row.parentElement.children) other.removeAttribute("aria-selected");
  row.setAttribute("aria-selected", "true");
  row.tabIndex = -1;
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

// j, k, p and Enter work in the list that has the focus, and nowhere else.
function inList(event, list) {
  const rows = rowsOf(list);
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const to = { j: at + 1, k: at - 1, p: rows.findIndex((row, index) => index > at && row.matches(".bad, :has(.state.bad)")) }[event.key];
  if (event.key === "Enter" && document.activeElement === rows[at]) {
    rows[at].querySelector("a[href], summary")?.click();
  } else if (to !== undefined && rows[to]) {
    select(rows[to]);
  } else {
    return;
  }
  event.preventDefault();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const list = event.target instanceof Element && event.target.closest("[data-keys]");
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("go")?.focus();
  } else if (event.key === "?") {
    const help = document.getElementById("help");
    if (help) help.open = !help.open;
    help?.querySelector("summary")?.focus();
  } else if (list) {
    inList(event, list);
  }
});

for (const button of document.querySelectorAll("button[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy);
    const before = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  });
}

for (const input of document.querySelectorAll("input[type=file][data-fills]")) {
  input.closest("label").hidden = false;
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (file) document.getElementById(input.dataset.fills).value = await file.text();
  });
}

// A text is fetched when its row is opened; one that failed is fetched again at the next opening.
document.addEventListener("toggle", async (event) => {
  const place = event.target.open && event.target.querySelector?.(":scope > [data-load]");
  if (!place || place.dataset.done) return;
  place.dataset.load ||= place.querySelector("a").href;
  place.textContent = "loading…";
  try {
    const answer = await fetch(place.dataset.load, { headers: { accept: "text/plain" } });
    if (!answer.ok) throw new Error(`${answer.status}`);
    place.textContent = await answer.text();
    place.dataset.done = "1";
  } catch (error) {
    place.textContent = `This could not be loaded (${error.message}). It is tried again when it is opened again.`;
  }
}, true);
