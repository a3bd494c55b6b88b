// The episode viewer: a list one can search and filter, and one episode in full. Text is set with textContent only.

const DATA = JSON.parse(document.getElementById("payload").textContent);
const EPISODES = DATA.episodes;
const host = document.getElementById("viewer");
const state = {query: "", filter: "all", current: null};
const PAGE = 300;

function el(tag, cls, text) {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}
const words = (e) => [e.id, e.task, e.stop, ...e.turns.flatMap((t) => [t.text, t.reasoning, ...t.calls.flatMap((c) => [c.name, c.args, c.result, c.error])])];
const haystack = EPISODES.map((e) => words(e).filter((text) => text !== null && text !== undefined).join("\n").toLowerCase());
const FILTERS = {
  all: () => true,
  failed: (e) => e.solved === 0,
  solved: (e) => e.solved === 1,
  "with errors": (e) => e.failed > 0,
  named: (e) => e.named,
};

function marked(cls, text) {
  const node = el("pre", cls);
  const query = state.query, low = text.toLowerCase();
  if (!query || low.length !== text.length) { node.textContent = text; return node; }
  let at = 0, next, found = 0;
  while ((next = low.indexOf(query, at)) >= 0 && found < 500) {
    node.append(text.slice(at, next), el("mark", "", text.slice(next, next + query.length)));
    at = next + query.length; found += 1;
  }
  node.append(text.slice(at));
  return node;
}
function text(parent, cls, value, more) {
  if (value === null || value === undefined || value === "") return;
  parent.appendChild(marked(cls, value));
  if (more) parent.appendChild(el("p", "more", `… and ${more.toLocaleString("en")} characters more, in the log`));
}
const STEPS = [0.1, 0.5, 1, 2];  // nats
const shade = (r) => r === null ? "" : (r < 0 ? "less" : "more") + STEPS.filter((step) => Math.abs(r) >= step).length;
function legend(parent, e) {
  if (!e.turns.some((t) => t.tokens)) return;
  const head = parent.appendChild(el("p", "legend", `Tokens by log-ratio in nats, ${e.ratio_of}: `));
  for (const r of [-2, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2]) head.append(el("span", "tok " + shade(r), r === 0 ? "0" : `${r > 0 ? "≥ " : "≤ −"}${Math.abs(r)}`), " ");
}
function tokens(parent, t) {
  if (!t) return;
  parent.appendChild(el("div", "label", t.named ? "tokens" : "tokens, by their ids"));
  const box = parent.appendChild(el("div", "tokens"));
  t.text.forEach((text, i) => {
    const r = t.ratio[i], one = box.appendChild(el("span", "tok " + shade(r), text));
    one.title = r === null ? "no log-ratio" : `log-ratio ${r < 0 ? "−" : ""}${Math.abs(r)} nats`;
    if (!t.named) box.append(" ");
  });
  if (t.more) parent.appendChild(el("p", "more", `… and ${t.more.toLocaleString("en")} tokens more, in the log`));
}
function call(parent, c) {
  const box = parent.appendChild(el("div", "call" + (c.error ? " failed" : "")));
  const head = box.appendChild(el("div", ""));
  head.append(el("bdi", "name", c.name || "(no name)"), el("span", "label", c.latency === null ? "" : `  ${c.latency} s`));
  text(box, "mono", c.args, c.args_more);
  if (c.error) box.appendChild(el("div", "error", "error")).append(" ", el("span", "label", c.error_from === "text" ? "read off the result's text" : c.error_from === "parse" ? "the call could not be parsed" : "as the log says"));
  if (c.error && c.error !== c.result) text(box, "mono", c.error, 0);
  if (c.result === null) box.appendChild(el("div", "label", "no result in the log"));
  else { box.appendChild(el("div", "label", "result")); text(box, "mono", c.result, c.result_more); }
}
function show(index) {
  state.current = index;
  const e = EPISODES[index];
  detail.replaceChildren();
  const title = detail.appendChild(el("h3", ""));
  title.append("Episode ", el("bdi", "", e.id));
  const facts = {Task: e.task, Reward: e.reward, Outcome: e.solved === 1 ? "solved" : e.solved === 0 ? "not solved" : null, Stop: e.stop, Calls: e.calls, Failed: e.failed, Tokens: e.tokens, "Largest |log-ratio|": e.worst === null ? null : `${e.worst} nats`, "From": e.source};
  const stats = detail.appendChild(el("dl", "stats"));
  for (const [key, value] of Object.entries(facts)) {
    if (value === null || value === undefined || value === "") continue;
    const cell = stats.appendChild(el("div", ""));
    cell.append(el("dt", "", key), el("dd", "", String(value)));
  }
  legend(detail, e);
  for (const t of e.turns) {
    const box = detail.appendChild(el("div", "turn " + (["assistant", "user", "system"].includes(t.role) ? t.role : "other")));
    box.appendChild(el("div", "who", t.role + (t.step >= 0 ? ` · step ${t.step}` : "")));
    text(box, "reasoning", t.reasoning, t.reasoning_more);
    text(box, "", t.text, t.text_more);
    t.calls.forEach((c) => call(box, c));
    tokens(box, t.tokens);
    if (!t.text && !t.reasoning && !t.calls.length && !t.tokens) box.appendChild(el("div", "label", "empty"));
  }
  for (const row of list.children) row.setAttribute("aria-current", String(Number(row.dataset.index) === index));
}
function refresh() {
  const keep = EPISODES.map((_, i) => i).filter((i) => FILTERS[state.filter](EPISODES[i]) && (!state.query || haystack[i].includes(state.query)));
  list.replaceChildren();
  for (const i of keep.slice(0, PAGE)) {
    const e = EPISODES[i];
    const row = list.appendChild(el("button", "row"));
    row.type = "button";
    row.dataset.index = i;
    row.appendChild(el("bdi", "", e.id));
    const small = row.appendChild(el("small", "", `${e.reward === null ? "no reward" : "reward " + e.reward} · ${e.calls} ${e.calls === 1 ? "call" : "calls"}`));
    if (e.failed) small.append(" · ", el("span", "bad", `${e.failed} failed`));
    row.addEventListener("click", () => show(i));
  }
  count.textContent = `${keep.length} of ${EPISODES.length} episodes` + (keep.length > PAGE ? `, the first ${PAGE} listed` : "");
  if (keep.length) show(keep.includes(state.current) ? state.current : keep[0]);
  else detail.replaceChildren(el("p", "empty", "No episode holds that."));
}

const side = host.appendChild(el("div", "side"));
const search = side.appendChild(el("input", ""));
search.type = "search";
search.placeholder = "Search messages, calls, results, ids";
search.setAttribute("aria-label", "Search the episodes");
const controls = side.appendChild(el("div", "controls"));
const count = side.appendChild(el("p", "count"));
count.setAttribute("role", "status");
const list = side.appendChild(el("div", "list"));
const detail = host.appendChild(el("div", "detail"));
for (const name of Object.keys(FILTERS)) {
  if (!EPISODES.some(FILTERS[name])) continue;
  const button = controls.appendChild(el("button", "", name));
  button.type = "button";
  button.setAttribute("aria-pressed", String(name === "all"));
  button.addEventListener("click", () => {
    state.filter = name;
    for (const other of controls.children) other.setAttribute("aria-pressed", String(other === button));
    refresh();
  });
}
let wait = 0;
search.addEventListener("input", () => {
  clearTimeout(wait);
  wait = setTimeout(() => { state.query = search.value.toLowerCase(); refresh(); }, 120);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-episode]");
  const index = link ? EPISODES.findIndex((e) => e.key === Number(link.dataset.episode)) : -1;
  if (index < 0) return;
  state.query = search.value = "";
  state.filter = "all";
  for (const other of controls.children) other.setAttribute("aria-pressed", String(other.textContent === "all"));
  state.current = index;
  refresh();
});
if (EPISODES.length) refresh();
else host.appendChild(el("p", "empty", "No episode was kept for this page."));
document.body.dataset.ready = String(EPISODES.length);
