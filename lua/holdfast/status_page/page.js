"use strict";
// Requests its own address with ?json, and updates only the parts of the page that have changed. Text
// from the reply is always set as text, never as HTML.

const POLL_INTERVAL = 2000, SEARCH_DELAY = 250, REQUEST_TIMEOUT = 10000; // ms
const POINTS = 120, LEFT = 56, TOP = 6, BOTTOM = 18, HEIGHT = 104; // a plot: points; margins, height in px
const SIGNS = { none: "…", well: "✓", warn: "!", bad: "✕" };
const REASONS = {
  expired: "its lease ended before it could be renewed", taken: "another owner holds it",
  deleted: "it was broken or deleted", unreachable: "no server could be reached in time",
  max_hold: "it was held for as long as its max_hold allows",
};

const at = id => document.getElementById(id);
const open = new Set(); // links of the locks whose details are shown
const rows = new Map(); // link → { lock, row, details, … }
let last = null, lastAt = 0; // the last reply, and when its data was read from the servers
let sort = "wait", reverse = false, from = 0, previousPages = []; // previousPages: where each previous page begins
let paused = false, activeRequest = null, timer = null, linked = null, failure = null;

// ---- text ----

// Escapes characters that are invisible, look like a space or change the text's direction, and any
// backslash that would look like such an escape.
function visible(text) {
  return String(text).replace(/\\(?=u\{)|(?! )[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{DI}\u2800]/gu,
    char => "\\u{" + char.codePointAt(0).toString(16) + "}");
}
function plural(count, one, many) {
  return count.toLocaleString("en") + " " + (count === 1 ? one : many || one + "s");
}
// Formats a duration: 42 s, 3 min 5 s, 2 h 10 min, 4 d 3 h. In the table, without the second unit.
function shortDuration(value) {
  return typeof value !== "number" || value < 60 ? duration(value) : duration(value).split(" ", 2).join(" ");
}
function duration(value) {
  if (value === undefined) return "–";
  if (value === null) return "none";
  if (value < 10) return value.toFixed(1) + " s";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = Math.max(0, units.findIndex(unit => value >= unit[1]));
  const [name, size] = units[first], whole = Math.floor(value / size);
  const next = units[first + 1], rest = next ? Math.floor((value - whole * size) / next[1]) : 0;
  return whole + " " + name + (rest ? " " + rest + " " + next[0] : "");
}
function toSentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + ".";
}
// Quotes a key for a sentence; omits the middle of a long key.
function quoted(key) {
  const text = [...visible(key)];
  return "“" + (text.length > 60 ? text.slice(0, 30).join("") + "…" + text.slice(-29).join("") : text.join("")) + "”";
}
function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}
function who(source, before = "") {
  const host = source[before + "host"], name = source[before + "name"];
  return visible(host ? host + " pid " + source[before + "pid"] + (name ? " " + name : "") : source[before || "owner"] || source.holder);
}
// Returns the canonical URL encoding of a key. Returns the link unchanged if its bytes are not UTF-8.
function canonical(link) {
  try { return encodeURIComponent(decodeURIComponent(link)); } catch { return link; }
}
function linkOf(lock) {
  return lock.link ? canonical(lock.link) : encodeURIComponent(lock.key);
}
function holder(lock) {
  if (lock.count !== undefined)
    return lock.kind === "latch" ? lock.count + " left" : plural(lock.count, "permit") + " free";
  if (lock.permits !== undefined) return lock.holds + " of " + plural(lock.permits, "permit") + " taken";
  const mode = !lock.mode ? "" : lock.mode === "write" ? " (one writer)"
    : lock.readers === 1 ? " (one reader)" : " (" + lock.readers + " readers)";
  return who(lock) + mode;
}

// ---- elements ----

function element(name, text, className, role) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  if (role) node.setAttribute("role", role);
  return node;
}
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes))
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}
function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}
// Hides the node if there is no text.
function setTextOrHide(node, text) {
  setHidden(node, !text);
  setText(node, text || "");
}
// Gives the list one child per item, created by make(), and updates each child from its item.
function updateChildren(list, items, make, update) {
  while (list.children.length > items.length) list.lastElementChild.remove();
  items.forEach((item, i) => {
    if (!list.children[i]) list.append(make());
    update(list.children[i], item, i);
  });
}
function keyLink(key) {
  const node = element("a", visible(key), "code");
  node.href = "#" + encodeURIComponent(key);
  return node;
}

// ---- copying ----

async function copy(text) {
  try { return await navigator.clipboard.writeText(text); } catch { /* not over plain HTTP */ }
  const area = element("textarea", text);
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
function copyButton() {
  const node = element("button", "Copy");
  node.onclick = async event => {
    event.stopPropagation();
    await copy(node.dataset.text);
    node.focus();
    node.textContent = "Copied";
    setTimeout(() => { node.textContent = "Copy"; }, 1500);
  };
  return node;
}

// ---- one lock ----

function makeCells(entry) {
  entry.button = element("button", undefined, "key");
  entry.key = element("bdi");
  entry.kind = element("span", "", "kind");
  entry.button.append(entry.key, entry.kind);
  entry.cells = ["key-cell", "holder", "number", "number", "number", "number"].map(name =>
    element("td", undefined, name, "cell"));
  entry.cells[0].append(entry.button);
  entry.row.append(...entry.cells);
}
function makeRow(link) {
  const entry = { link, row: element("tr", undefined, "lock", "row"), details: null };
  entry.row.dataset.link = link;
  makeCells(entry);
  entry.row.onclick = () => { if (!String(getSelection())) toggle(link); };
  rows.set(link, entry);
  return entry;
}
function makeDetails(entry) {
  const cell = element("td", undefined, "", "cell");
  cell.colSpan = 6;
  entry.facts = element("dl");
  entry.waiting = element("p", "Waiting in line", "waiting");
  entry.queue = element("ol", undefined, "queue");
  entry.more = element("p", "", "soft");
  entry.command = element("code");
  entry.copy = copyButton();
  entry.here = element("a", "Link to this lock");
  entry.actions = element("div", undefined, "actions");
  entry.actions.append(entry.copy, entry.command, entry.here);
  cell.append(entry.facts, entry.waiting, entry.queue, entry.more, entry.actions);
  entry.details = element("tr", undefined, "details", "row");
  entry.details.append(cell);
}
function heldFor(lock, now) {
  return lock.since && Math.max(0, now - lock.since);
}
function detailRows(lock, now) {
  const list = [["Key", visible(lock.key) + (lock.key_size ? "… (" + lock.key_size + " bytes)" : "")]];
  if (lock.owner) list.push(["Owner", visible(lock.owner)]);
  if (lock.token) list.push(["Token", lock.token]);
  if (lock.holds > 1 && lock.permits === undefined) list.push(["Entered", lock.holds + " times"]);
  if (lock.since) list.push(["Held", duration(heldFor(lock, now)) + ", since " + clock(lock.since)]);
  list.push(["TTL", duration(lock.ttl)]);
  return list;
}
function showDetails(entry, now) {
  const lock = entry.lock;
  if (!entry.details) makeDetails(entry);
  const list = detailRows(lock, now).flatMap(([name, value]) => [["dt", name], ["dd", value]]);
  if (entry.facts.children.length !== list.length) entry.facts.replaceChildren(...list.map(item => element(item[0])));
  list.forEach((item, i) => setText(entry.facts.children[i], item[1]));
  updateChildren(entry.queue, lock.queue, () => element("li"), (item, waiter) =>
    setText(item, who(waiter) + ", for " + (waiter.at_least ? "at least " : "") + duration(waiter.seconds)));
  setHidden(entry.waiting, lock.queue.length === 0);
  setHidden(entry.queue, lock.queue.length === 0);
  const more = lock.waiters - lock.queue.length;
  setTextOrHide(entry.more, more > 0 && "… and " + plural(more, "more", "more"));
  setTextOrHide(entry.command, lock.break);
  setHidden(entry.copy, !lock.break);
  entry.copy.dataset.text = lock.break || "";
  set(entry.copy, { "aria-label": "Copy " + (lock.break || "") });
  set(entry.here, { href: "#" + entry.link });
}
function showLock(entry, lock, now) {
  entry.lock = lock;
  const isOpen = open.has(entry.link), cells = entry.cells;
  setText(entry.key, visible(lock.key));
  setText(entry.kind, lock.kind === "lock" ? "" : lock.kind.replace("_", "/"));
  setText(cells[1], holder(lock));
  setText(cells[2], lock.waiters ? lock.waiters.toLocaleString("en") : "–");
  setText(cells[3], (lock.wait_at_least ? "≥ " : "") + shortDuration(lock.wait));
  setText(cells[4], shortDuration(heldFor(lock, now)));
  cells[4].classList.toggle("unknown", lock.since === undefined);
  setText(cells[5], shortDuration(lock.ttl));
  for (const i of [2, 3]) cells[i].classList.toggle("waits", lock.waiters > 0);
  entry.row.classList.toggle("open", isOpen);
  set(entry.button, { "aria-expanded": isOpen });
  if (isOpen) showDetails(entry, now);
}

// ---- all locks ----

// Returns when the data on the page was read from the servers.
function readTime(state) {
  return state.time - (state.state === "away" && state.age || 0);
}
function insertRow(body, place, row) {
  if (body.children[place] !== row) body.insertBefore(row, body.children[place] || null);
}
function removeRows(keep) {
  const list = [...rows.values()];
  list.forEach((entry, i) => {
    if (keep.has(entry.link)) return;
    const hadFocus = entry.row.contains(document.activeElement);
    entry.row.remove();
    if (entry.details) entry.details.remove();
    rows.delete(entry.link);
    const next = hadFocus && (list.slice(i + 1).find(other => keep.has(other.link)) || rows.values().next().value);
    if (hadFocus) (next ? next.button : at("search")).focus();
  });
}
function showLocks(state) {
  const body = at("locks"), focused = document.activeElement;
  removeRows(new Set(state.locks.map(linkOf)));
  let place = 0;
  for (const lock of state.locks) {
    const link = linkOf(lock), entry = rows.get(link) || makeRow(link);
    showLock(entry, lock, readTime(state));
    insertRow(body, place++, entry.row);
    if (open.has(link)) insertRow(body, place++, entry.details);
    else if (entry.details) entry.details.remove();
  }
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus();
}
function progressText(state) {
  return state.looked.toLocaleString("en") + (state.keys === undefined ? " keys" : " of about " + plural(state.keys, "key"));
}
function showCount(state) {
  const total = state.count.toLocaleString("en"), shown = state.locks.length;
  setText(at("count"), (state.complete ? plural(state.count, "lock") : total + " so far") +
    (state.state === "looking" ? "" : ", " + plural(state.waiters, "waiting", "waiting")) +
    (state.complete ? "" : "; looked at " + progressText(state)));
  setHidden(at("pages"), state.from === 0 && !state.next);
  setText(at("pages").children[1], shown ? (state.from + 1) + "–" + (state.from + shown) + " of " + total : "none of " + total);
  at("back").disabled = state.from === 0;
  at("next").disabled = !state.next;
}
// Returns the title and the text that stand in place of an empty list.
function emptyText(state) {
  if (!state.complete) return ["Looking through the keys", "Locks appear here as they are found."];
  const search = at("search").value;
  if (search) return ["No lock has “" + visible(search) + "” in its key", "The search looks at keys only, in upper and lower case alike."];
  return ["No locks are held", "When a process acquires one, it appears here within about two seconds, with its holder and waiters."];
}
function showEmpty(state) {
  setHidden(at("empty"), state.locks.length > 0);
  setHidden(at("table"), state.locks.length === 0);
  emptyText(state).forEach((text, i) => setText(at("empty").children[i], text));
}
function showSort() {
  for (const head of document.querySelectorAll("th")) {
    const usual = ["key", "holder", "ttl"].includes(head.dataset.sort) ? "ascending" : "descending";
    if (head.dataset.sort !== sort) head.removeAttribute("aria-sort");
    else set(head, { "aria-sort": !reverse ? usual : usual === "ascending" ? "descending" : "ascending" });
  }
  at("sort").value = sort;
}

// ---- the state ----

const WORDS = {
  away: () => ["bad", "Redis is not answering"],
  deadlock: state => ["bad", plural(state.deadlocks.length, "deadlock") + ": " +
    state.deadlocks[0].map(wait => quoted(wait.key)).join(", ")],
  losses: state => ["warn", plural(state.lost.length, "lock") + " lost in the last ten minutes: " +
    (state.lost.length > 1 ? "last " : "") + quoted(state.lost[0].key)],
  server_down: state => ["warn", state.members.filter(member => !member.up).length + " of " +
    plural(state.members.length, "server") + " not answering"],
  long_wait: state => ["warn", "Long wait: " + duration(state.longest_wait) + " for " + quoted(state.longest_key)],
  looking: () => ["none", "Looking for waiters"],
  well: () => ["well", "All is well"],
};
function showState(level, words, summary) {
  set(at("state"), { "data-level": level });
  setText(at("sign"), SIGNS[level]);
  setText(at("words"), words);
  setText(at("summary"), summary);
  setText(document.querySelector("title"), words + " · holdfast");
}
function showTrouble(text, isStale) {
  setTextOrHide(at("trouble"), text);
  at("table").classList.toggle("dead", isStale);
}
function ageText(age) {
  return age === undefined ? "Nothing has been read yet." : "This data is " + duration(age) + " old.";
}
function summaryOf(state) {
  if (state.state === "long_wait" || state.state === "looking") return "";
  return state.longest_wait === undefined ? "nobody is waiting" : "longest wait " + duration(state.longest_wait);
}

// ---- deadlocks, losses, servers ----

function makeCycle() {
  const box = element("div"), undo = element("p", "Or break one of the locks:", "undo");
  undo.append(copyButton(), element("code"));
  box.append(element("ol", undefined, "cycle"), element("p"), undo, element("p"));
  return box;
}
function showCycle(box, cycle) {
  const text = JSON.stringify(cycle), [list, end, undo, effect] = box.children, [button, command] = undo.children;
  if (box.dataset.shown === text) return;
  box.dataset.shown = text;
  setText(end, "To resolve the deadlock, end one of these processes: " + [...new Set(cycle.map(wait => who(wait)))].join(", ") + ".");
  setText(command, cycle[0].break);
  button.dataset.text = cycle[0].break;
  setText(effect, "The next in line then gets " + quoted(cycle[0].key) + ". " + (cycle[0].holder
    ? who(cycle[0], "holder_") + " is not stopped: it runs on as if it held the lock until its next renewal."
    : "Its holders are not stopped: they run on as if they held the lock until their next renewals."));
  list.replaceChildren(...cycle.map(wait => {
    const item = element("li", who(wait) + " waits for ");
    item.append(keyLink(wait.key), element("span", ", held by " + (wait.holder ? who(wait, "holder_") : "others")));
    return item;
  }));
}
function showAlerts(state) {
  setHidden(at("deadlocks"), state.deadlocks.length === 0);
  updateChildren(at("deadlocks").lastElementChild, state.deadlocks, makeCycle, showCycle);
  setHidden(at("lost"), state.lost.length === 0);
  setText(at("lost").querySelector("span"), plural(state.lost.length, "lock"));
  updateChildren(at("lost").lastElementChild, state.lost, () => element("li"), (item, loss) => {
    setText(item, clock(loss.time) + " “" + visible(loss.key) + "”: " + (REASONS[loss.reason] || loss.reason) + "; lost by nginx worker " +
      loss.pid + (loss.class ? ", class " + visible(loss.class) : "") + ", owner " + visible(loss.owner));
  });
  setHidden(at("members"), !state.members);
  updateChildren(at("members").lastElementChild, state.members || [], () => element("li"), (item, member) => {
    setText(item, "Server " + member.server + ": " + (member.up ? "answered in " + (member.seconds * 1000).toFixed(1) + " ms"
      : visible(member.message)));
    item.classList.toggle("down", !member.up);
  });
}
function showLosses(state) {
  const lost = Object.entries(state.losses).filter(([, count]) => count > 0);
  setText(at("losses"), (state.shared ? "Lost by all workers since nginx was started: " : "Lost by this worker: ") +
    (lost.length ? lost.map(([reason, count]) => reason + " " + count).join(", ") + "." : "nothing."));
}

// ---- the plot ----

const svg = at("waits"), bars = Array.from({ length: POINTS }, () => makeShape("rect", "gap"));
const axis = makeShape("path", "axis"), cursorLine = makeShape("path", "cursor");
const labels = ["", "0", "10 min ago", "5 min ago", "now", "no data"].map(text => makeShape("text", "", text));
let points = [], cursor = null; // cursor: the index of the bar whose value is shown, or null for the peak

function makeShape(name, className, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  if (className) node.setAttribute("class", className);
  if (text) node.textContent = text;
  return node;
}
function roundUp(maximum) {
  const size = 10 ** Math.floor(Math.log10(Math.max(maximum, 1)));
  return [1, 2, 5, 10].map(step => step * size).find(value => value >= maximum) || 1;
}
function drawLabels(width, top, gapMiddle) {
  const floor = HEIGHT - BOTTOM;
  const places = [
    [LEFT - 7, TOP + 5, "end"], [LEFT - 7, floor + 4, "end"], [LEFT, HEIGHT - 4, "start"],
    [LEFT + (width - LEFT) / 2, HEIGHT - 4, "middle"], [width, HEIGHT - 4, "end"],
    [gapMiddle, floor / 2 + TOP, "middle"],
  ];
  places.forEach(([x, y, anchor], i) => set(labels[i], { x, y, "text-anchor": anchor }));
  setText(labels[0], top.toLocaleString("en"));
}
function draw() {
  const width = svg.clientWidth, floor = HEIGHT - BOTTOM;
  if (!width || !points.length) return;
  const top = roundUp(Math.max(0, ...points.map(item => item.waiting ?? 0))), step = (width - LEFT) / POINTS;
  set(svg, { viewBox: "0 0 " + width + " " + HEIGHT });
  bars.forEach((bar, i) => {
    const value = points[i]?.waiting, isGap = value === undefined && i < POINTS - 1;
    const height = isGap ? floor - TOP : (value ?? 0) / top * (floor - TOP);
    set(bar, {
      class: isGap ? "gap" : "bar", x: (LEFT + i * step).toFixed(2), y: (floor - height).toFixed(2),
      width: (isGap ? step + .5 : step * .82).toFixed(2), height: height.toFixed(2),
    });
  });
  set(axis, { d: `M${LEFT} ${TOP}V${floor}H${width}M${LEFT - 4} ${TOP}h4M${LEFT - 4} ${floor}h4` });
  const gap = longestGap();
  drawLabels(width, top, gap.size * step > 60 ? LEFT + (gap.from + gap.size / 2) * step : -100);
  showValue();
}
function longestGap() {
  let longest = { from: 0, size: 0 }, from = 0;
  points.slice(0, POINTS - 1).forEach((item, i) => {
    if (item.waiting !== undefined) from = i + 1;
    else if (i + 1 - from > longest.size) longest = { from, size: i + 1 - from };
  });
  return longest;
}
function setCursor(index) {
  cursor = index === null ? null : Math.max(0, Math.min(POINTS - 1, index));
  showValue();
}
// Shows the value under the cursor, or the peak.
function showValue() {
  const index = cursor ?? POINTS - 1, item = points[index];
  if (!item) return;
  const known = points.map(each => each.waiting).filter(value => value !== undefined);
  const nothing = index === POINTS - 1 ? "not yet known" : "no data"; // its interval has just begun
  const text = clock(item.time) + ": " + (item.waiting === undefined ? nothing : plural(item.waiting, "waiter"));
  const peak = known.length ? "peak: " + plural(Math.max(...known), "waiter") : "no data yet";
  setText(at("waits-value"), cursor === null ? peak : text);
  set(svg, { "aria-valuemin": 0, "aria-valuemax": POINTS - 1, "aria-valuenow": index, "aria-valuetext": text });
  const x = LEFT + (index + .4) * (svg.clientWidth - LEFT) / POINTS;
  set(cursorLine, { d: cursor === null ? "" : `M${x.toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}` });
}
function onPlotKey(event) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12, Home: -POINTS, End: POINTS };
  if (!steps[event.key]) return;
  event.preventDefault();
  setCursor((cursor ?? POINTS - 1) + steps[event.key]);
}

// ---- requests ----

function show(state) {
  const [level, words] = WORDS[state.state](state), isAway = state.state === "away";
  last = state;
  lastAt = Date.now() - (state.age ?? 0) * 1000;
  setText(at("server"), state.server);
  setText(at("when"), clock(state.time));
  showState(level, words, isAway ? "" : summaryOf(state));
  showTrouble(state.trouble ? toSentence(visible(state.trouble)) + " " + (isAway ? ageText(state.age) : "") : "", isAway);
  showLocks(state);
  showCount(state);
  setTextOrHide(at("left-out"), state.left_out && toSentence(state.left_out));
  showEmpty(state);
  showAlerts(state);
  showLosses(state);
  points = state.points;
  draw();
  at("one-worker-note").hidden = state.shared;
  set(at("table"), { "aria-busy": !state.complete });
}
function showFailure(error) {
  showState("bad", "nginx is not answering", "");
  showTrouble("No answer from nginx: " + error.message + ". " +
    ageText(last ? (Date.now() - lastAt) / 1000 : undefined), true);
}
function query() {
  const search = at("search").value, opened = [...open].slice(-20).map(link => "&open=" + link).join("");
  const text = linked && linked.text === search ? linked.raw : encodeURIComponent(search);
  return "?json&search=" + text + "&sort=" + sort + (reverse ? "&reverse" : "") + "&from=" + from + opened;
}
async function ask() {
  const request = activeRequest = new AbortController(), timeout = setTimeout(() => request.abort(), REQUEST_TIMEOUT);
  try {
    const reply = await fetch(query(), { cache: "no-store", signal: request.signal });
    if (!reply.ok && reply.status !== 503) throw new Error("HTTP " + reply.status);
    const state = await reply.json();
    if (request === activeRequest) { failure = null; show(state); }
  } catch (error) {
    if (request === activeRequest) { failure = error; showFailure(error); }
  }
  clearTimeout(timeout);
  if (request === activeRequest) askIn(POLL_INTERVAL);
}
function askIn(ms) {
  clearTimeout(timer);
  if (!paused && !document.hidden) timer = setTimeout(ask, ms);
}
// Repeats the request because the query has changed. A reply to the earlier query is ignored.
function askAgain(wait = 0) {
  if (activeRequest) activeRequest.abort();
  activeRequest = null;
  set(at("table"), { "aria-busy": true });
  askIn(wait);
}
function restartList() {
  from = 0;
  previousPages = [];
  removeRows(new Set());
  setText(at("count"), "…");
  askAgain(SEARCH_DELAY);
}

// ---- user actions ----

function toggle(link) {
  if (open.has(link)) open.delete(link); else open.add(link);
  if (last) showLocks(last);
  if (open.has(link)) askAgain();
}
function sortBy(name, canReverse) {
  reverse = canReverse && name === sort && !reverse;
  sort = name;
  showSort();
  restartList();
}
function followHash() {
  const raw = canonical(location.hash.slice(1));
  if (!raw) return;
  at("search").value = raw;
  try { at("search").value = decodeURIComponent(raw); } catch { /* its bytes are not UTF-8 */ }
  linked = { raw, text: at("search").value }; // read back: the field drops line breaks
  open.add(raw);
  restartList();
}
function pause() {
  paused = !paused;
  set(at("pause"), { "aria-pressed": paused });
  setText(at("pause"), paused ? "Resume" : "Pause");
  askIn(0);
}
function moveFocus(step) {
  const list = [...rows.values()].map(entry => entry.button).sort((a, b) =>
    a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1);
  const here = list.indexOf(document.activeElement), next = list[here < 0 ? 0 : here + step];
  if (next) next.focus();
}
function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select, svg")) return;
  if (event.target === at("search")) {
    if (event.key === "Escape") at("search").blur();
    if (event.key === "ArrowDown") { event.preventDefault(); moveFocus(1); }
    return;
  }
  const keys = { "/": () => at("search").focus(), p: pause, ArrowDown: () => moveFocus(1), ArrowUp: () => moveFocus(-1) };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
}

for (const head of document.querySelectorAll("th")) head.firstElementChild.onclick = () => sortBy(head.dataset.sort, true);
at("sort").onchange = () => sortBy(at("sort").value, false);
at("search").oninput = restartList;
at("pause").onclick = pause;
at("next").onclick = () => { previousPages.push(from); from = last.next; askAgain(); };
at("back").onclick = () => { from = previousPages.pop() || 0; askAgain(); };
at("lost").open = innerWidth > 700;
svg.append(axis, ...bars, cursorLine, ...labels);
svg.onpointermove = event => {
  const box = svg.getBoundingClientRect();
  setCursor(Math.floor((event.clientX - box.left - LEFT) / (box.width - LEFT) * POINTS));
};
svg.onpointerleave = svg.onblur = () => setCursor(null);
svg.onfocus = () => { if (cursor === null) setCursor(POINTS - 1); };
svg.onkeydown = onPlotKey;
new ResizeObserver(draw).observe(svg);
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => askIn(0));
addEventListener("hashchange", followHash);
at("search").value = new URLSearchParams(location.search).get("search") || "";
showSort();
followHash();
if (!location.hash) ask();
