// Which charts the page has, and what it says where there is nothing to draw.

const DATA = JSON.parse(document.getElementById("payload").textContent);
const RUNS = DATA.runs || [];
const MANY = RUNS.length > 1;
const state = {log: false, survival: true};
const NEEDS = `Not judged yet: needs ${[...new Set(RUNS.map((r) => r.needs).filter(Boolean))].join(", or ")} in one window.`;

const letter = (i) => (i < 26 ? String.fromCharCode(65 + i) : `R${i + 1}·`);
const steps = [Math.min(...RUNS.map((r) => r.first_step ?? 0)), Math.max(...RUNS.map((r) => r.last_step ?? 0))];
const marks = RUNS.map((run, i) => (run.alarms || []).map((a, k) => ({...a, label: (MANY ? letter(i) : "") + (k + 1)})));
const acts = RUNS.map((run, i) => (run.actions || []).filter((a) => a.drawn).map((a) => ({...a, label: (MANY ? letter(i) : "") + a.label})));
const distinct = (list) => [...new Set(list)];
const nested = (slice) => (slice ?? "").includes("/");
const rank = (slice) => ({text: 0, post_tool: 1}[slice] ?? 2);
const bySlice = (a, b) => rank(a.slice) - rank(b.slice);

// One column a run, each with the same cells in the same order, so that rows line up across runs.
function columns(host, cls, fill, heads = MANY) {
  const grid = host.appendChild(el("div", "cols"));
  RUNS.forEach((run, i) => {
    const col = grid.appendChild(el("div", "col"));
    if (heads) {
      const head = col.appendChild(el("h3", "run"));
      head.append(el("span", "letter", letter(i)), " ", el("bdi", "", run.name));
    }
    fill(col.appendChild(el("div", "multiples " + cls)), run, i);
  });
}
function empty(host, title, height, text) {
  const box = host.appendChild(el("figure", "chart"));
  box.appendChild(el("div", "chart-head")).appendChild(el("span", "chart-title", title));
  const note = box.appendChild(el("div", "empty", text));
  note.style.minHeight = height + "px";
}
function whyEmpty(run, slices) {
  const pending = (run.judged || []).filter((j) => j.status === "not judged yet" && (!slices || slices.includes(j.slice)));
  if (!pending.length && run.verdict !== "not judged yet") return "Not observed in this run.";
  const sofar = pending.slice(0, 4).map((j) => `${j.slice} ${int(j.n_tokens)} tokens from ${int(j.n_trajectories)}`);
  return NEEDS + (sofar.length ? ` So far: ${sofar.join("; ")}.` : "");
}

// What a reader who cannot see the chart needs: where each line starts, ends and peaks, and what alarmed.
function summary(list) {
  const parts = list.map((raw) => {
    const s = tidy(raw), idx = s.value.flatMap((v, i) => (finite(v) ? [i] : []));
    const name = s.label ? s.label + " " : "", holes = s.value.length - idx.length;
    if (!idx.length) return `${name}has no finite value`;
    const a = idx[0], b = idx[idx.length - 1], top = idx.reduce((m, i) => (s.value[i] > s.value[m] ? i : m), a);
    const ratio = s.value[b] / s.value[a], times = s.value[a] > 0 && ratio >= 1.5 ? ` (${ratio >= 10 ? Math.round(ratio) : ratio.toFixed(1)}×)` : "";
    const peak = s.value[top] > 1.15 * s.value[b] ? `, highest ${fmt(s.value[top])} at step ${int(s.step[top])}` : "";
    const hole = holes ? `, ${holes} step${holes > 1 ? "s" : ""} not finite` : "";
    return `${name}${fmt(s.value[a])} → ${fmt(s.value[b])}${times}${peak}${hole}`;
  });
  return parts.join(" · ");
}
function alarmText(marks) {
  const alarms = marks.filter((a) => a.severity !== "info"), notes = marks.length - alarms.length;
  const also = notes ? ` ${notes} note${notes > 1 ? "s" : ""}.` : "";
  return also ? listed(alarms) + also : listed(alarms);
}
function actionText(list) {
  return list.length ? ` Guard: ${list.map((a) => `step ${int(a.step)} ${a.text}`).join(", ")}.` : "";
}
function listed(alarms) {
  return alarms.length ? `${alarms.length} alarm${alarms.length > 1 ? "s" : ""}, at step${alarms.length > 1 ? "s" : ""} ${alarms.map((a) => int(a.step)).join(", ")}.` : "No alarm.";
}

function stepChart(host, i, title, list, size, opts = {}) {
  const run = RUNS[i], drawn = list.filter((s) => (s.step || []).length);
  const ext = opts.extent;
  const allNull = drawn.length && drawn.every((s) => !tidy(s).value.some(finite));
  if (!drawn.length || !ext || allNull)
    return empty(host, title, size, allNull ? "No finite value: every step was NaN or infinite." : opts.missing || whyEmpty(run, opts.slices));
  const data = drawn.slice(0, 6).map(tidy), text = summary(drawn);
  const more = drawn.length > 6 ? ` ${drawn.length - 6} more slices are in the data of this page.` : "";
  new StepChart(host, {
    title, height: size, extent: ext, steps, data, alarms: marks[i], actions: acts[i], flags: !!opts.flags, log: opts.log && opts.log(),
    series: data.map((s) => ({label: s.label, hue: s.hue, last: fmt(s.value[s.value.length - 1])})),
    aria: `${title} by step, run ${run.name}. ${text}. ${alarmText(marks[i])}${actionText(acts[i])}`,
    caption: text + more, showCaption: !!opts.caption || !!more,
  });
}

// A section of step charts, one per quantity, the same quantity sharing its y axis over the runs.
function stepSection(name, field, size, cls, describe, opts = {}) {
  const host = document.querySelector(`[data-figures="${name}"]`);
  const all = RUNS.flatMap((r) => r[field] || []);
  if (!all.length) return none(host);
  const keys = distinct(all.map(describe));
  columns(host, cls, (col, run, i) => {
    for (const key of keys) {
      const same = all.filter((s) => describe(s) === key);
      stepChart(col, i, key, (run[field] || []).filter((s) => describe(s) === key).sort(bySlice), size, {extent: extent(same), missing: opts.missing, flags: opts.flags});
    }
  });
}
function none(host) {
  const pending = RUNS.length && RUNS.every((r) => r.verdict === "not judged yet");
  host.appendChild(el("p", "empty", pending ? NEEDS : "Not observed."));
}

function tailSection() {
  const host = document.querySelector('[data-figures="tail"]');
  host.replaceChildren();
  const all = RUNS.flatMap((r) => r.tail || []).filter((s) => (s.step || []).length);
  const quantities = distinct(all.map((s) => s.quantity)).sort((a, b) => b.includes("p99") - a.includes("p99"));
  if (!all.length) return RUNS.length ? columns(host, "tail", (col, run) => empty(col, "|drift|, nats", 160, whyEmpty(run))) : none(host);
  const log = () => state.log;
  columns(host, "tail", (col, run, i) => quantities.forEach((q, k) => {
    const pool = all.filter((s) => s.quantity === q && !nested(s.slice));
    const list = (run.tail || []).filter((s) => s.quantity === q && !nested(s.slice)).sort(bySlice);
    stepChart(col, i, q + ", nats", list, k && MANY ? 150 : 280, {extent: extent(pool), flags: true, caption: true, log});
  }));
  const parts = all.filter((s) => nested(s.slice) && s.quantity === quantities[0]);
  if (!parts.length) return;
  const slices = distinct(parts.map((s) => s.slice)).sort(), fold = host.appendChild(el("details"));
  fold.appendChild(el("summary", "", `${quantities[0]} by tool and turn (${slices.length})`));
  fold.open = slices.length <= 8;
  parts.forEach((s) => { s.label = ""; s.hue = "post"; });
  const ext = extent(all.filter((s) => s.quantity === quantities[0]));
  columns(fold, "small", (col, run, i) => slices.forEach((slice) => {
    const list = (run.tail || []).filter((s) => s.slice === slice && s.quantity === quantities[0]);
    stepChart(col, i, slice, list, 96, {extent: ext, log, slices: [slice]});
  }), false);
}

function tailTable() {
  const host = document.querySelector('[data-table="tail"]');
  host.hidden = !RUNS.some((r) => (r.tail || []).some((s) => (s.step || []).length));
  host.addEventListener("toggle", () => {
    if (!host.open || host.dataset.built) return;
    host.dataset.built = "yes";
    RUNS.forEach((run, i) => {
      const kept = (run.tail || []).filter((s) => (s.step || []).length), list = kept.map(tidy), names = kept.map((s) => `${s.slice} ${s.quantity}`);
      const table = el("table"), head = table.createTHead().insertRow();
      table.createCaption().textContent = MANY ? `${letter(i)} ${run.name}` : run.name;
      for (const text of ["Step", ...names]) { const th = head.appendChild(el("th", "num", text)); th.scope = "col"; }
      const body = table.createTBody();
      for (const step of distinct(list.flatMap((s) => s.step)).sort((a, b) => a - b)) {
        const row = body.insertRow();
        row.appendChild(el("th", "num", int(step))).scope = "row";
        for (const s of list) {
          const at = s.at.get(step), band = at !== undefined && s.low && finite(s.low[at]) ? ` [${fmt(s.low[at])}, ${fmt(s.high[at])}]` : "";
          row.appendChild(el("td", "num", at === undefined ? "" : s.value[at] === null ? "not finite" : fmt(s.value[at]) + band));
        }
      }
      host.appendChild(el("div", "scroll tall")).appendChild(table);
    });
  });
}

function shareSection() {
  const host = document.querySelector('[data-figures="cdf"]');
  host.replaceChildren();
  const all = RUNS.flatMap((r) => r.cdf || []).filter((c) => c.x && c.x.some((x) => x > 0));
  if (!all.length) return none(host);
  const decade = (v, up) => { const e = Math.floor(Math.log10(v)), m = v / 10 ** e; return (up ? (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) : m >= 5 ? 5 : m >= 2 ? 2 : 1) * 10 ** e; };
  const from = (share) => Math.min(...all.map((c) => c.x[Math.max(0, c.y.findIndex((y, k) => y >= share && c.x[k] > 0))]).filter((x) => x > 0));
  const top = decade(Math.max(...all.flatMap((c) => c.x.filter(finite))), true);
  const rest = all.flatMap((c) => c.y.filter((y) => finite(y) && 1 - y >= Math.max(1e-9, 0.5 / (c.n_tokens || 1e9))).map((y) => 1 - y));
  const tailX = [Math.min(decade(from(0.5)), top / 10), top], bodyX = [Math.min(decade(from(0.03)), top / 10), top], tailY = [10 ** Math.floor(Math.log10(Math.min(0.01, ...rest))), 1];
  const windows = ["early", "middle", "late"];
  const draw = (into, slices) => columns(into, RUNS.length > 1 ? "one" : "two", (col, run) => slices.forEach((slice) => {
    const curves = (run.cdf || []).filter((c) => c.slice === slice && c.x && c.x.some((x) => x > 0)).sort((a, b) => windows.indexOf(a.window) - windows.indexOf(b.window));
    if (!curves.length) return empty(col, slice, 220, whyEmpty(run, [slice]));
    const text = `Steps ${curves.map((c) => `${int(c.first)}–${int(c.last)} ${c.window}`).join(", ")}; ${fmt(Math.min(...curves.map((c) => c.n_tokens || 0)))} tokens or more each.`;
    const p99 = curves.map((c) => { const k = c.y.findIndex((y) => y >= 0.99); return `${c.window} 99 % of tokens below ${k < 0 ? "–" : fmt(c.x[k])} nats`; }).join(", ");
    new ShareChart(col, {
      title: slice + (state.survival ? ", share of tokens above" : ", share of tokens up to"), height: 230, curves, survival: state.survival, hueName: hue(slice), tailX, tailY, bodyX,
      series: curves.map((c) => ({label: c.window, hue: hue(slice), window: c.window, last: ""})), aria: `Distribution of |drift| in ${slice}, run ${run.name}: ${p99}.`, caption: text, showCaption: true,
    });
  }));
  const slices = distinct(all.map((c) => c.slice)).sort((a, b) => rank(a) - rank(b)), deep = slices.filter(nested);
  draw(host, slices.filter((s) => !nested(s)));
  if (!deep.length) return;
  const fold = host.appendChild(el("details"));
  fold.appendChild(el("summary", "", `By tool and turn (${deep.length})`));
  fold.addEventListener("toggle", () => { if (fold.open && fold.children.length === 1) draw(fold, deep); });
}

function aggregatesSection() {
  const host = document.querySelector('[data-figures="aggregates"]');
  const all = RUNS.flatMap((r) => r.aggregates || []);
  if (!all.length) return host.appendChild(el("p", "empty", "No average was reported yet."));
  const names = distinct(all.map((s) => s.name));
  const tails = RUNS.flatMap((r) => r.tail || []).filter((s) => !nested(s.slice) && (s.step || []).length);
  const quantity = (tails.find((s) => s.quantity.includes("p99")) || tails[0] || {}).quantity;
  columns(host, "small", (col, run, i) => {
    if (quantity) stepChart(col, i, quantity, (run.tail || []).filter((s) => s.quantity === quantity && !nested(s.slice)).sort(bySlice), 110, {extent: extent(tails.filter((s) => s.quantity === quantity))});
    for (const name of names) {
      const same = all.filter((s) => s.name === name);
      same.forEach((s) => { s.label = ""; s.hue = "ink-2"; });
      stepChart(col, i, name, (run.aggregates || []).filter((s) => s.name === name), 110, {extent: extent(same), missing: "Not reported by this run."});
    }
  });
}

function control(name, choices, get, set) {
  const host = document.querySelector(`[data-control="${name}"]`);
  const buttons = choices.map(([value, text]) => {
    const button = host.appendChild(el("button", "", text));
    button.type = "button";
    button.addEventListener("click", () => { set(value); show(); });
    return [button, value];
  });
  const show = () => buttons.forEach(([b, v]) => b.setAttribute("aria-pressed", String(get() === v)));
  show();
}
function forget(host) { for (const chart of live) if (host.contains(chart.figure)) { chart.u.destroy(); live.delete(chart); } }
function redraw() { for (const chart of live) chart.draw(); }

function main() {
  tailSection(); tailTable(); shareSection();
  if (document.querySelector('[data-figures="alarmed"]')) stepSection("alarmed", "alarmed", 150, "two", (s) => s.quantity, {missing: "This run has no reading of it.", flags: true});
  stepSection("weights", "weights", 150, "two", (s) => s.quantity);
  aggregatesSection();
  stepSection("support", "support", 150, "two", (s) => s.quantity);
  const again = (name, draw) => { forget(document.querySelector(`[data-figures="${name}"]`)); draw(); };
  control("scale", [[false, "Linear"], [true, "Log"]], () => state.log, (v) => { state.log = v; again("tail", tailSection); });
  control("cdf", [[true, "Tail (1 − CDF)"], [false, "CDF"]], () => state.survival, (v) => { state.survival = v; again("cdf", shareSection); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.documentElement.classList.add("print"); document.querySelector("#help details").open = true; redraw(); });
  addEventListener("afterprint", () => { document.documentElement.classList.remove("print"); redraw(); });
  document.documentElement.dataset.ready = String(live.size);
}
main();
