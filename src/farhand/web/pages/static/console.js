// The console's own behaviour, all of it bound by data-* attributes.
"use strict";

const pad = (n, width = 2) => String(n).padStart(width, "0");

function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${pad(Math.floor((s % 3600) / 60))} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function away(seconds) {
  if (seconds < 60) return `in ${Math.ceil(seconds)} s`;
  if (seconds < 3600) return `in ${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `in ${Math.round(seconds / 3600)} h`;
  return `in ${Math.round(seconds / 86400)} d`;
}

function ago(seconds) {
  if (seconds < -5) return away(-seconds);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

// Moments are shown in the reader's time zone; what goes on counts up.
function tell(within) {
  const now = Date.now() / 1000;
  for (const e of within.querySelectorAll("[data-when]")) {
    const at = new Date(e.dataset.when * 1000);
    e.textContent = ago(now - e.dataset.when);
    e.title = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  }
  for (const e of within.querySelectorAll("[data-since]")) e.textContent = duration(now - e.dataset.since);
}

function clocks(within) {
  for (const e of within.querySelectorAll("[data-clock]")) {
    const at = new Date(e.dataset.clock * 1000);
    e.textContent = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
    e.title = at.toLocaleString();
    e.removeAttribute("data-clock");
  }
}

// The log: marks where an attempt begins, keeps its end in sight, and lets go of what is far above.
function settle(log) {
  clocks(log);
  for (const e of log.querySelectorAll(".line:not([data-settled])")) {
    const before = e.previousElementSibling;
    if (before && before.dataset.attempt !== e.dataset.attempt) e.classList.add("begins");
    e.dataset.settled = "";
  }
  for (let extra = log.childElementCount - log.dataset.lines; extra > 0; extra--) log.firstElementChild.remove();
  if (document.querySelector("[data-follow]").checked) log.scrollTop = log.scrollHeight;
  const more = log.querySelector("[data-more]");
  if (more) {
    more.remove();
    htmx.trigger(log, "refresh");
  }
}

function linked(open) {
  const link = document.querySelector("[data-link]");
  link.classList.toggle("on", open);
  link.querySelector("[data-link-text]").textContent = open ? "live" : "reconnecting";
}

const on = (name, act) => document.body.addEventListener(name, act);

// Whatever happened while no stream was open is fetched when one opens.
on("htmx:sseOpen", () => {
  linked(true);
  for (const e of document.querySelectorAll("[data-live]")) htmx.trigger(e, "refresh");
});
on("htmx:sseError", () => linked(false));

// A throttle drops what comes within its time; the last of a burst is made up for once that is over.
const MADE_UP_MS = 2100;

document.body.addEventListener("sse:run", (event) => {
  const live = event.target;
  if (!live.matches("[data-live]")) return;
  live.missed = true; // until a request begins, also one of this very event: it is heard here first
  live.madeUp ??= setTimeout(() => {
    live.madeUp = null;
    if (live.missed && live.isConnected) htmx.trigger(live, "refresh");
  }, MADE_UP_MS);
}, true);

on("htmx:beforeRequest", (event) => { event.detail.elt.missed = false; });

// The cursor of the log is the number of the last line that is there.
on("htmx:configRequest", (event) => {
  const log = event.detail.elt;
  if (!log.matches("[data-lines]")) return;
  const lines = log.querySelectorAll("[data-number]");
  event.detail.parameters.after = lines.length ? lines[lines.length - 1].dataset.number : log.dataset.after;
});

on("htmx:afterSwap", (event) => {
  const target = event.detail.target;
  if (target.matches("[data-lines]")) settle(target);
  else tell(target);
});

// What a button changed is looked at again at once.
on("htmx:afterRequest", (event) => {
  const button = event.detail.elt;
  if (event.detail.successful && button.matches("[data-refreshes]")) htmx.trigger(button.closest("[data-live]"), "refresh");
});

// A button that needs so many ticked boxes, such as Compare.
function count() {
  for (const button of document.querySelectorAll("[data-needs]")) {
    const picked = document.querySelectorAll("[data-pick]:checked").length;
    button.disabled = picked < button.dataset.needs;
    button.textContent = picked ? `Compare (${picked})` : "Compare";
  }
}

on("change", (event) => {
  count();
  if (event.target.matches("[data-differing]")) {
    document.querySelector("table.compare").classList.toggle("only", event.target.checked);
  }
  if (event.target.closest("[data-submits]")) event.target.form.requestSubmit();
});

on("click", (event) => {
  const button = event.target.closest("[data-more-tasks], [data-tasks-state]");
  if (!button) return;
  const { moreTasks, tasksState } = button.dataset;
  if (moreTasks !== undefined) document.querySelector("[data-shown] [name=tasks]").value = moreTasks;
  if (tasksState !== undefined) document.querySelector("[data-shown] [name=state]").value = tasksState;
  htmx.trigger(button.closest("[data-live]"), "refresh");
});

// Somebody who scrolls up is reading; the log stays where it is until its end is in sight again.
for (const log of document.querySelectorAll("[data-lines]")) {
  log.addEventListener("scroll", () => {
    const follow = document.querySelector("[data-follow]");
    follow.checked = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  });
  document.querySelector("[data-follow]").addEventListener("change", (event) => {
    if (event.target.checked) log.scrollTop = log.scrollHeight;
  });
  settle(log);
}

tell(document);
count();
setInterval(() => tell(document), 1000);
