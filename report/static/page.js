"use strict";
// Everything here is an extra: without it the page is complete and readable.

// The numbers of a chart mark on hover and focus; arrow keys move between the marks of a chart.
const tip = document.getElementById("tip");

function show(mark) {
  tip.textContent = mark.getAttribute("aria-label");
  tip.hidden = false;
  const box = mark.getBoundingClientRect();
  const width = tip.offsetWidth;
  const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), innerWidth - width - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.setProperty("left", `${left + scrollX}px`);
  tip.style.setProperty("top", `${(above > 0 ? above : box.bottom + 6) + scrollY}px`);
}

function hide() {
  tip.hidden = true;
}

for (const chart of document.querySelectorAll("svg.chart")) {
  const marks = [...chart.querySelectorAll(".mark")];
  for (const mark of marks) {
    mark.addEventListener("pointerenter", () => show(mark));
    mark.addEventListener("pointerleave", hide);
    mark.addEventListener("focus", () => show(mark));
    mark.addEventListener("blur", hide);
  }
  chart.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const at = marks.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = marks[(at + step + marks.length) % marks.length];
    for (const mark of marks) mark.setAttribute("tabindex", mark === next ? "0" : "-1");
    next.focus();
  });
}

// The language switch keeps the place: the section being read and the folds that are open.
function place() {
  const sections = [...document.querySelectorAll("section[id]")].filter((s) => s.offsetParent);
  const seen = sections.filter((section) => section.getBoundingClientRect().top <= innerHeight / 3);
  return seen.length && scrollY > 80 ? seen[seen.length - 1].id : "";
}

for (const link of document.querySelectorAll(".languages a")) {
  link.addEventListener("click", () => {
    const id = place();
    link.hash = id || location.hash;
  });
}

// With several machines, show one at a time.
const switches = [...document.querySelectorAll("[data-machine]")];
const pages = [...document.querySelectorAll("[data-machine-page]")];

function choose(id) {
  for (const page of pages) page.hidden = page.id !== id;
  for (const link of switches) {
    if (link.dataset.machine === id) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function follow() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const page = target && target.closest("[data-machine-page]");
  if (page) {
    choose(page.id);
    target.scrollIntoView();
  }
}

if (switches.length) {
  choose(pages[0].id);
  for (const link of switches) link.addEventListener("click", () => choose(link.dataset.machine));
  addEventListener("hashchange", follow);
  follow();
}

// Print with the folds open, and leave them as they were.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const fold of opened) fold.open = true;
});
addEventListener("afterprint", () => {
  for (const fold of opened) fold.open = false;
});
