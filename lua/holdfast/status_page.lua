-- The page of holdfast.status: one document without anything from elsewhere. It asks its own
-- address with ?json.

return [==[<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>holdfast</title>
<style>
:root { --fg: #1d2430; --soft: #5b6675; --bg: #f7f8fa; --card: #fff; --line: #dfe3e9; --mark: #2563c9; --bad: #b3261e;
  --wait: #b26a00; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #e4e8ee; --soft: #9aa5b4; --bg: #14181e; --card: #1c222b; --line: #313a46; --mark: #7fb0ff;
    --bad: #ff8a80; --wait: #ffb74d; }
}
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.45 system-ui, sans-serif; color: var(--fg); background: var(--bg); }
main { max-width: 1100px; margin: 0 auto; padding: 16px; }
header { display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: baseline; }
h1 { font-size: 20px; margin: 0; }
h2 { font-size: 14px; margin: 0 0 6px; color: var(--soft); font-weight: 600; }
#server, #when { color: var(--soft); }
#trouble { color: var(--bad); font-weight: 600; }
label { max-width: 100%; }
.tools { display: flex; flex-wrap: wrap; gap: 12px; margin: 14px 0; align-items: center; }
input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 6px 10px; min-width: 0; width: 280px; max-width: 100%; }
:focus-visible { outline: 2px solid var(--mark); outline-offset: 1px; }
.plots { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px; }
svg { width: 100%; height: 70px; display: block; }
svg rect { fill: var(--mark); }
#waits rect { fill: var(--wait); }
table { width: 100%; border-collapse: collapse; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; margin-top: 12px; }
th, td { text-align: left; padding: 7px 10px; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; font-size: 13px; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr[tabindex] { cursor: pointer; }
.soft { color: var(--soft); font-size: 13px; }
.queue { margin: 4px 0 0; padding-left: 20px; }
.waiting { color: var(--wait); font-weight: 600; }
footer { color: var(--soft); font-size: 13px; margin: 18px 0; }
.down { color: var(--bad); }
@media (max-width: 700px) {
  .plots { grid-template-columns: 1fr; }
  thead { position: absolute; left: -10000px; }
  tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--line); }
  td { display: flex; justify-content: space-between; gap: 12px; border: 0; padding: 3px 10px; white-space: normal; }
  td.number { white-space: normal; }
  td::before { content: attr(data-name); color: var(--soft); flex: none; }
  label, input { width: 100%; }
}
</style>
</head>
<body>
<main>
<header><h1>holdfast</h1><span id="server"></span><span id="when" aria-live="off"></span>
<span id="trouble" role="alert"></span></header>
<div class="tools">
<label>Prefix <input id="prefix" autocomplete="off" spellcheck="false" placeholder="all keys ( / )"></label>
<span id="count" aria-live="polite"></span><span id="losses" class="soft"></span>
</div>
<div class="plots">
<section class="card"><h2>Hand-offs seen, last ten minutes</h2><svg id="handoffs" role="img" aria-label="hand-offs"></svg>
<div class="soft" id="handoffs-most"></div></section>
<section class="card"><h2>Waiting, last ten minutes</h2><svg id="waits" role="img" aria-label="waiters"></svg>
<div class="soft" id="waits-most"></div></section>
</div>
<p class="soft" id="alone" hidden>There is no <code>lua_shared_dict holdfast</code>: the plots, the losses and the times
of waiters are what this worker of nginx has seen while the page was open.</p>
<section class="card" id="members" style="margin-top:12px" hidden><h2>Servers of the quorum</h2><div></div></section>
<table>
<thead><tr><th>Key</th><th>Holder</th><th class="number">Held</th><th class="number">TTL</th><th class="number">Token</th>
<th class="number">Waiters</th></tr></thead>
<tbody id="locks"></tbody>
</table>
<footer>This page only reads. It shows keys, hosts and names to whoever can open it: protect it, with
<code>allow</code> and <code>deny</code> or <code>auth_basic</code>. Keys: <kbd>/</kbd> filter, <kbd>Tab</kbd> and
<kbd>Enter</kbd> open a lock's queue, <kbd>p</kbd> pauses. <span id="paused"></span></footer>
</main>
<script>
"use strict";
const at = id => document.getElementById(id);
const open = new Set();
const NAMED = { mutex: " (mutex)", fair: " (fair)", latch: " (latch)" };
let paused = false, last = null;

function seconds(value) {
  if (value === null || value === undefined) return "none";
  if (value < 10) return value.toFixed(1) + " s";
  if (value < 120) return Math.round(value) + " s";
  if (value < 7200) return Math.round(value / 60) + " min";
  return Math.round(value / 3600) + " h";
}
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function who(of) {
  return of.host ? of.host + " pid " + of.pid + (of.name ? " " + of.name : "") : of.owner;
}
function cell(row, name, text, className) {
  const made = element("td", undefined, className);
  made.dataset.name = name;
  made.append(text instanceof Node ? text : element("span", text));
  row.append(made);
}
function toggle(key) {
  if (open.has(key)) open.delete(key); else open.add(key);
  show(last);
}
function modeOf(lock) {
  if (!lock.mode) return "";
  return lock.mode === "write" ? " (writes)" : lock.readers === 1 ? " (reads)" : " (" + lock.readers + " read)";
}
function holder(lock) {
  if (lock.count !== undefined)
    return element("div", lock.count + (lock.kind === "latch" ? " to come" : " permits free"));
  const box = element("div", lock.permits === undefined ? who(lock) + modeOf(lock)
    : lock.holds + " of " + lock.permits + " permits");
  if (lock.host) box.append(element("div", lock.owner, "soft"));
  if (!open.has(lock.key) || lock.waiters === 0) return box;
  const list = element("ol", undefined, "queue");
  for (const waiter of lock.queue) list.append(element("li", who(waiter) + ", for " + seconds(waiter.seconds)));
  if (lock.waiters > lock.queue.length) list.append(element("li", "…"));
  box.append(list);
  return box;
}
function rowOf(lock, now) {
  const row = element("tr");
  row.tabIndex = 0;
  row.dataset.key = lock.key;
  row.setAttribute("aria-expanded", open.has(lock.key));
  row.onclick = () => toggle(lock.key);
  row.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(lock.key); } };
  cell(row, "Key", lock.key + (NAMED[lock.kind] || ""));
  cell(row, "Holder", holder(lock));
  cell(row, "Held", seconds(Math.max(0, now - lock.since)), "number");
  cell(row, "TTL", seconds(lock.ttl), "number");
  cell(row, "Token", lock.token || "-", "number");
  cell(row, "Waiters", String(lock.waiters), "number" + (lock.waiters ? " waiting" : ""));
  return row;
}
function plot(id, points, field) {
  const svg = at(id), most = Math.max(...points.map(point => point[field]));
  svg.setAttribute("viewBox", "0 0 " + points.length + " 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(...points.map((point, i) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const height = 100 * point[field] / Math.max(1, most);
    for (const [name, value] of [["x", i], ["y", 100 - height], ["width", .9], ["height", height]])
      bar.setAttribute(name, value);
    return bar;
  }));
  at(id + "-most").textContent = "at most " + most + " in 5 s";
}
function show(state) {
  if (!state) return;
  last = state;
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  at("server").textContent = state.server;
  at("when").textContent = new Date(state.time * 1000).toLocaleTimeString();
  at("trouble").textContent = state.trouble || "";
  at("count").textContent = state.count + (state.count === 1 ? " lock, " : " locks, ") + state.waiters + " waiting" +
    (state.count > state.locks.length ? "; the first " + state.locks.length + " are shown" : "");
  at("losses").textContent = (state.shared ? "Lost by all workers: " : "Lost by this worker: ") +
    Object.entries(state.losses).map(([reason, count]) => reason + " " + count).join(", ");
  at("locks").replaceChildren(...state.locks.map(lock => rowOf(lock, state.time)));
  plot("handoffs", state.points, "hand_offs");
  plot("waits", state.points, "waiting");
  at("alone").hidden = state.shared;
  at("members").hidden = !state.members;
  if (state.members) at("members").lastElementChild.replaceChildren(...state.members.map(member =>
    element("div", member.server + ": " + (member.up ? "answers in " + (member.seconds * 1000).toFixed(1) + " ms"
      : member.message), member.up ? "" : "down")));
  if (focused) for (const row of at("locks").children) if (row.dataset.key === focused) row.focus();
}
async function look() {
  if (!paused) {
    try {
      const queues = [...open].slice(-20).map(key => "&open=" + encodeURIComponent(key)).join("");
      const reply = await fetch("?json&prefix=" + encodeURIComponent(at("prefix").value) + queues, { cache: "no-store" });
      if (!reply.ok) throw new Error("HTTP " + reply.status);
      show(await reply.json());
    } catch (error) { at("trouble").textContent = "no answer: " + error.message; }
  }
  setTimeout(look, 500);
}
document.addEventListener("keydown", event => {
  if (event.target === at("prefix")) { if (event.key === "Escape") at("prefix").blur(); return; }
  if (event.key === "/") { event.preventDefault(); at("prefix").focus(); }
  if (event.key === "p") { paused = !paused; at("paused").textContent = paused ? "Paused." : ""; }
});
at("prefix").value = new URLSearchParams(location.search).get("prefix") || "";
look();
</script>
</body>
</html>
]==]
