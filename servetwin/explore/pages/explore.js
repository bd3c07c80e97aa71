// Sends the controls' values at every change, shows the answer, and keeps the values in the page's address.
"use strict";
const PAUSE_MS = 300;  // after the last key, before a run starts
const MOST_STATES = 24;
const form = document.getElementById("controls"), result = document.getElementById("result");
const status_ = document.getElementById("status"), command = document.getElementById("command");
const warning = document.getElementById("warning");
const report = document.getElementById("report"), states = document.getElementById("states");
const first = values();
let asked = 0, timer = 0, before = null;

function values() {
  return Object.fromEntries(new FormData(form));
}

function changed(now, than) {
  return Object.keys(now).filter(name => now[name] !== than[name]);
}

function label(name) {
  return form.querySelector(`label[for="${name}"]`).textContent;
}

async function run() {
  const mine = ++asked, now = values();
  result.setAttribute("aria-busy", "true");
  say("Simulating …", "");
  let answer;
  try {
    const reply = await fetch("run", { method: "POST", body: new URLSearchParams(now) });
    answer = await reply.json();
  } catch {
    answer = { how: "failed", text: "There is no answer: does the command servetwin explore still run?" };
  }
  if (mine !== asked || answer.how === "replaced") return;
  result.setAttribute("aria-busy", "false");
  if (answer.command) command.textContent = answer.command;
  report.hidden = answer.how !== "done";
  warning.textContent = answer.warning || "";
  warning.hidden = !answer.warning;
  if (answer.how !== "done") {
    say(answer.text, "refused");
    result.replaceChildren();
    return;
  }
  say(answer.sentence, "");
  result.innerHTML = answer.html;
  report.href = "report/" + answer.number;
  remember(now, answer);
}

function say(text, kind) {
  status_.textContent = text;
  status_.className = kind;
}

function remember(now, answer) {
  const names = changed(now, before || first);
  const what = before ? names.map(name => `${label(name)}: ${now[name] || "its own"}`).join(", ") || "the same" : "first";
  before = now;
  const head = states.tHead.rows[0], row = states.tBodies[0].insertRow(0);
  if (head.cells.length === 1) {
    for (const name of Object.keys(answer.numbers)) head.append(cell("th", name));
    head.append(cell("th", "Report"));
  }
  const link = document.createElement("a"), open = document.createElement("a");
  link.href = "#" + new URLSearchParams(now);
  link.textContent = what;
  row.append(cell("td", link), ...Object.values(answer.numbers).map(text => cell("td", text)));
  open.href = "report/" + answer.number;
  open.target = "_blank";
  open.textContent = "open";
  row.append(cell("td", open));
  if (states.tBodies[0].rows.length > MOST_STATES) states.tBodies[0].deleteRow(-1);
}

function cell(kind, content) {
  const made = document.createElement(kind);
  made.append(content);
  return made;
}

function fromAddress() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  for (const [name, value] of Object.entries({ ...first, ...given })) {
    const field = form.elements.namedItem(name);
    if (field) field.value = value;
  }
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    history.pushState(null, "", "#" + new URLSearchParams(values()));
    run();
  }, PAUSE_MS);
});
form.addEventListener("submit", event => event.preventDefault());
for (const moved of ["popstate", "hashchange"]) {
  addEventListener(moved, () => {
    const shown = JSON.stringify(values());
    fromAddress();
    if (JSON.stringify(values()) !== shown) run();
  });
}
document.getElementById("copy").addEventListener("click", async event => {
  const button = event.target;
  try {
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(command);
    button.textContent = "Selected: press Ctrl-C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
fromAddress();
run();
