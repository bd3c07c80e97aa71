// Sections of all pages (sections.js: [page, anchor, title of the page, heading, text]) that have every word asked for.
"use strict";
const MOST_FOUND = 12, AROUND = 70;
const root = document.documentElement.dataset.root;
const asked = document.getElementById("asked"), found = document.getElementById("found");

function score(section, words) {
  const [, , title, heading, text] = section.map(one => one.toLowerCase());
  let sum = 0;
  for (const word of words) {
    const times = text.split(word).length - 1;
    const named = (heading.includes(word) ? 20 : 0) + (title.includes(word) ? 10 : 0);
    if (!times && !named) return 0;
    sum += named + Math.min(times, 5);
  }
  return sum;
}

function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - AROUND);
  return (at ? "… " : "") + text.slice(at, at + 3 * AROUND) + (at + 3 * AROUND < text.length ? " …" : "");
}

function item([page, anchor, title, heading, text], word) {
  const link = document.createElement("a"), line = document.createElement("p"), row = document.createElement("li");
  link.href = root + page + (anchor ? "#" + anchor : "");
  link.textContent = heading === title ? title : `${title}: ${heading}`;
  line.textContent = excerpt(text, word);
  row.append(link, line);
  return row;
}

function search() {
  const words = asked.value.toLowerCase().split(/\s+/).filter(word => word.length > 1);
  const best = words.length ? SECTIONS.map(one => [score(one, words), one]).filter(([sum]) => sum) : [];
  best.sort((a, b) => b[0] - a[0]);
  found.replaceChildren(...best.slice(0, MOST_FOUND).map(([, one]) => item(one, words[0])));
  if (words.length && !best.length) {
    const row = document.createElement("li");
    row.textContent = `No page has “${asked.value.trim()}”: write fewer or other words.`;
    found.append(row);
  }
}

asked.addEventListener("input", search);
asked.addEventListener("keydown", event => {
  const first = found.querySelector("a");
  if (event.key === "Enter" && first) location.href = first.href;
  if (event.key === "Escape") { asked.value = ""; search(); }
});
found.addEventListener("click", event => {
  if (event.target.closest("a")) { asked.value = ""; search(); }
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && document.activeElement !== asked) { event.preventDefault(); asked.focus(); }
});
