"use strict";
// Charts of the report: one step chart, one distribution chart, and what both share.
// A chart knows its data and its extent; which charts there are is page.js's business.
// Text reaches the page through textContent only. In data, null is a value that was not finite, undefined is alignment.

const FONT = "'Inter','SF Pro Text','Segoe UI','Helvetica Neue',Arial,sans-serif";
const DASHES = {early: [2, 3], middle: [6, 4], late: []};
const live = new Set(); // every chart on the page, so that a change of theme or scale can draw them again

function el(tag, cls, text) {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const finite = (v) => typeof v === "number" && Number.isFinite(v);

function fmt(v) {
  if (!finite(v)) return "–";
  const a = Math.abs(v), sign = v < 0 ? "−" : "";
  if (a === 0) return "0";
  if (a >= 1e6) return sign + (a / 1e6).toPrecision(3) + "M";
  if (a >= 1e4) return sign + Math.round(a / 100) / 10 + "k";
  if (a < 1e-3) { const [m, e] = a.toExponential(1).split("e"); return sign + m + "e−" + e.slice(1); }
  return sign + (a >= 1000 ? Math.round(a).toString() : a.toPrecision(3));
}
function fmtTick(v) {
  if (v === null) return "";
  const a = Math.abs(v), sign = v < 0 ? "−" : "";
  if (a === 0) return "0";
  if (a >= 1e6) return sign + +(a / 1e6).toPrecision(4) + "M";
  if (a >= 1e4) return sign + +(a / 1e3).toPrecision(4) + "k";
  if (a < 1e-4) return sign + "1e−" + -Math.round(Math.log10(a));
  return sign + +a.toPrecision(4);
}
const fmtShare = (v) => (v === null ? "" : +(v * 100).toPrecision(3) + "%");
const int = (v) => (finite(v) ? v.toLocaleString("en-US") : "–");

// The same slice has the same hue on every chart of the page; names are keys of a Map, never of an object.
const hues = new Map([["text", "text"], ["post_tool", "post"], ["all", "ink-2"], ["", "ink-2"]]);
function hue(slice) {
  if (!hues.has(slice)) hues.set(slice, "s" + ((hues.size - 4) % 4));
  return hues.get(slice);
}

const tidied = new WeakMap();
function tidy(s) { // sorted by step, the last value of a repeated step wins (a rollback repeats steps)
  if (tidied.has(s)) return tidied.get(s);
  const at = new Map();
  (s.step || []).forEach((step, i) => finite(step) && at.set(step, i));
  const order = [...at.keys()].sort((a, b) => a - b);
  const pick = (list) => (list && list.length ? order.map((step) => list[at.get(step)] ?? null) : null);
  const out = {slice: s.slice ?? "", label: s.label ?? s.slice ?? "", hue: s.hue || hue(s.slice ?? ""), step: order, at: new Map(order.map((v, i) => [v, i])),
    value: pick(s.value) || order.map(() => null), low: pick(s.low), high: pick(s.high), tokens: pick(s.n_tokens), trajectories: pick(s.n_trajectories)};
  if (!out.low || !out.high) out.low = out.high = null;
  else for (const side of [out.low, out.high]) out.value.forEach((v, i) => { if (v === null) side[i] = null; }); // no band through a hole
  tidied.set(s, out);
  return out;
}

// Extent shared by the runs of one quantity. Bands may be cut off, the values never are.
function extent(list) {
  let min = Infinity, max = -Infinity, pos = Infinity, high = -Infinity;
  for (const raw of list) {
    const s = tidy(raw);
    for (const v of s.value) if (finite(v)) { min = Math.min(min, v); max = Math.max(max, v); if (v > 0) pos = Math.min(pos, v); }
    if (s.high) for (const v of s.high) if (finite(v)) high = Math.max(high, v);
  }
  if (min > max) return null;
  if (high > max) max = max > 0 ? Math.min(high, 1.5 * max) : high;
  return {min, max, pos: Number.isFinite(pos) ? pos : null};
}
function linearRange({min, max}) {
  if (min >= 0 && min < 0.6 * max) return [0, max * 1.06];
  const room = Math.max(max - min, 0.2 * Math.max(Math.abs(min), Math.abs(max)), 1e-9), mid = (min + max) / 2;
  return [mid - 0.58 * room, mid + 0.58 * room];
}
function logRange({pos, max}) {
  const lo = pos ?? 1e-3, hi = Math.max(max, lo * 10);
  return [0.8 * lo, 1.25 * hi];
}
function logSplits(lo, hi, dense) { // 1-2-5 where there is room, else decades
  const out = [];
  for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); e++)
    for (const m of dense ? [1, 2, 5] : [1]) { const v = +(m * 10 ** e).toPrecision(1); if (v >= lo * 0.999 && v <= hi * 1.001) out.push(v); }
  return out;
}

function axis(over) {
  return {stroke: css("ink-2"), font: "11px " + FONT, grid: {show: true, stroke: css("grid"), width: 1}, ticks: {show: false}, gap: 6, border: {show: false}, ...over};
}
function logAxis(over, max) {
  return axis({splits: (u, i, lo, hi) => logSplits(lo, hi, Math.log10(hi / lo) <= max), filter: (u, s) => s, ...over});
}
const line = (color, over) => ({stroke: color, width: 1.75, points: {show: false}, ...over});

const dot = () => el("div", "dot"); // the mark of a series under the cursor

// Points that no line would touch are drawn as dots.
function isolated(u, si, show) {
  if (show) return null;
  const ys = u.data[si], kept = [];
  for (let i = 0; i < ys.length; i++) if (ys[i] !== undefined) kept.push(i);
  const lone = kept.filter((i, k) => ys[i] !== null && (k === 0 || ys[kept[k - 1]] === null) && (k === kept.length - 1 || ys[kept[k + 1]] === null));
  return lone.length ? lone : null;
}
// Under the cursor: the series' own nearest point when the step belongs to another series.
function ownIdx(u, si, idx) {
  const ys = u.data[si];
  for (let d = 0; d < ys.length; d++) {
    if (idx - d >= 0 && ys[idx - d] !== undefined) return idx - d;
    if (idx + d < ys.length && ys[idx + d] !== undefined) return idx + d;
  }
  return idx;
}

class Chart {
  // spec: {title, series: [{label, hue, dash}], height, aria, caption, showCaption, badge, last: [text per series]}
  constructor(host, spec) {
    this.spec = spec;
    this.figure = el("figure", "chart");
    const head = this.figure.appendChild(el("div", "chart-head"));
    head.appendChild(el("span", "chart-title", spec.title));
    const legend = head.appendChild(el("span", "legend"));
    this.values = spec.series.map((s) => {
      const item = legend.appendChild(el("span", "key"));
      const swatch = el("i", "swatch" + (s.window ? " " + s.window : ""));
      swatch.style.setProperty("--c", `var(--${s.hue})`);
      if (s.label) item.appendChild(swatch);
      if (s.label) item.appendChild(el("span", "key-name", s.label));
      return item.appendChild(el("b", "value", s.last));
    });
    this.plot = this.figure.appendChild(el("div", "plot"));
    this.plot.setAttribute("role", "img");
    this.plot.setAttribute("aria-label", spec.aria);
    this.plot.tabIndex = 0;
    this.plot.style.height = spec.height + "px";
    this.figure.appendChild(el("figcaption", spec.showCaption ? "" : "sr", spec.caption));
    host.appendChild(this.figure);
    this.tip = el("div", "tip");
    this.plot.addEventListener("keydown", (e) => this.key(e));
    this.plot.addEventListener("blur", () => this.u && this.u.setCursor({left: -10, top: -10}));
    this.draw();
    live.add(this);
    new ResizeObserver(() => this.fit()).observe(this.plot);
  }
  draw() {
    if (this.u) this.u.destroy();
    const {opts, data} = this.build();
    opts.width = Math.max(120, this.plot.clientWidth || 600);
    opts.height = this.spec.height;
    opts.legend = {show: false};
    opts.hooks = {...opts.hooks, setCursor: [() => this.cursor()]};
    this.u = new uPlot(opts, data, this.plot);
    this.u.over.appendChild(this.tip);
    this.u.over.addEventListener("mouseenter", () => { this.hover = true; });
    this.u.over.addEventListener("mouseleave", () => { this.hover = false; this.tip.classList.remove("on"); });
  }
  fit() {
    const width = this.plot.clientWidth;
    if (width && this.u && Math.abs(width - this.u.width) >= 1) this.u.setSize({width, height: this.spec.height});
  }
  key(e) {
    const move = {ArrowLeft: -1, ArrowRight: 1}[e.key];
    if (!move || !this.u) return;
    e.preventDefault();
    const xs = this.u.data[0], now = this.u.cursor.idx;
    const i = Math.min(xs.length - 1, Math.max(0, now == null ? (move > 0 ? 0 : xs.length - 1) : now + move));
    const left = this.u.valToPos(xs[i], "x");
    for (const chart of live) if (chart === this || (this.synced && chart.synced)) chart.u.setCursor({left: chart.u.valToPos(xs[i], "x"), top: 8});
    this.hover = true; this.showTip(i, left); this.hover = false;
  }
  cursor() {
    const u = this.u;
    if (!u) return;
    const on = u.cursor.left >= 0 && u.cursor.idx != null;
    this.spec.series.forEach((s, k) => { this.values[k].textContent = on ? this.valueAt(k, u.cursor.idxs[s.at]) : s.last; });
    if (on && this.hover) this.showTip(u.cursor.idx, u.cursor.left);
    else this.tip.classList.remove("on");
  }
  showTip(idx, left) {
    const rows = this.tipRows(idx);
    this.tip.replaceChildren(...rows);
    this.tip.classList.add("on");
    const room = this.u.over.clientWidth, width = this.tip.offsetWidth;
    const x = left + 14 + width > room ? left - 14 - width : left + 14;
    this.tip.style.transform = `translate(${Math.round(Math.max(-40, x))}px, 6px)`;
  }
}

// spec adds: data: tidy series, extent, steps: [x0, x1], log, alarms: [{label, step, since, cleared, severity}], actions: [{label, step, text, dry_run}], flags
class StepChart extends Chart {
  get synced() { return true; }
  build() {
    const {spec} = this, series = [{}], tables = [], bands = [];
    for (const [k, s] of spec.data.entries()) {
      const color = css(s.hue), meta = spec.series[k];
      meta.at = series.length;
      series.push(line(color, {points: {filter: isolated, size: 5, fill: color}}));
      if (s.low) {
        bands.push({series: [series.length + 1, series.length], fill: color + css("band")});
        series.push(line("transparent", {width: 0}), line("transparent", {width: 0}));
      }
      tables.push(s.low ? [s.step, s.value, s.low, s.high] : [s.step, s.value]);
    }
    tables.push([spec.steps, spec.steps.map(() => undefined)]); // the runs' shared first and last step
    const data = uPlot.join(tables).slice(0, -1);
    const log = spec.log && spec.extent.pos !== null;
    const range = log ? logRange(spec.extent) : linearRange(spec.extent);
    const opts = {
      padding: [spec.flags ? 20 : 6, 10, 0, 0],
      scales: {x: {time: false}, y: {range, distr: log ? 3 : 1}},
      series, bands,
      axes: [axis({size: 26, grid: {show: false}, space: 56, values: (u, vals) => vals.map((v, i) => (Number.isInteger(v) ? (i ? "" : "step ") + fmtTick(v) : ""))}),
        log ? logAxis({size: 46, values: (u, vals) => vals.map(fmtTick)}, 2.2) : axis({size: 46, space: spec.height > 180 ? 44 : 22, values: (u, vals) => vals.map(fmtTick)})],
      cursor: {sync: {key: "steps", scales: ["x", null]}, y: false, drag: {x: true, y: false}, dataIdx: ownIdx,
        points: {size: 7, stroke: (u, i) => u.series[i].stroke(u, i), fill: css("paper"), show: (u, i) => spec.series.some((s) => s.at === i) && dot()}},
      hooks: {drawClear: [(u) => this.evidence(u)], draw: [(u) => this.marks(u)]},
    };
    return {opts, data};
  }
  evidence(u) {
    const {ctx, bbox} = u;
    ctx.save();
    ctx.fillStyle = css("evidence");
    for (const a of this.spec.alarms) {
      const x0 = Math.max(bbox.left, u.valToPos(a.since, "x", true)), x1 = Math.min(bbox.left + bbox.width, u.valToPos(a.step, "x", true));
      if (x1 > x0) ctx.fillRect(x0, bbox.top, x1 - x0, bbox.height);
    }
    ctx.restore();
  }
  marks(u) {
    const {ctx, bbox} = u, r = devicePixelRatio || 1, right = bbox.left + bbox.width, flags = [], acts = [];
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = css("ink");
    ctx.lineWidth = Math.max(1, Math.round(r));
    const rule = (step, dash) => {
      const x = Math.round(u.valToPos(step, "x", true));
      if (!(x >= bbox.left - 1 && x <= right + 1)) return null;
      ctx.setLineDash(dash.map((d) => d * r));
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      return x;
    };
    for (const a of this.spec.alarms) {
      ctx.globalAlpha = a.severity === "info" ? 0.45 : 0.8;
      const x = rule(a.step, []);
      if (x !== null) flags.push({x, label: a.label, heavy: a.severity === "critical"});
      ctx.globalAlpha = 0.45;
      if (finite(a.cleared)) rule(a.cleared, [2, 3]);
    }
    ctx.strokeStyle = css("guard");
    for (const a of this.spec.actions || []) {
      ctx.globalAlpha = a.dry_run ? 0.5 : 1;
      const x = rule(a.step, a.dry_run ? [1, 3] : [5, 2]);
      if (x !== null) acts.push({x, label: a.label});
    }
    ctx.strokeStyle = css("ink");
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
    if (this.spec.flags) this.drawFlags(ctx, flags, bbox, r);
    if (this.spec.flags) this.drawFlags(ctx, acts, bbox, r, true);
    const y = bbox.top + bbox.height - 5 * r;
    this.spec.data.forEach((s, k) => {
      ctx.strokeStyle = css(s.hue);
      ctx.lineWidth = 1.5 * r;
      s.value.forEach((v, i) => {
        if (v !== null) return;
        const x = u.valToPos(s.step[i], "x", true), d = 3 * r, base = y - k * 9 * r;
        if (x < bbox.left || x > right) return;
        ctx.beginPath(); ctx.moveTo(x - d, base - d); ctx.lineTo(x + d, base + d); ctx.moveTo(x - d, base + d); ctx.lineTo(x + d, base - d); ctx.stroke();
      });
    });
    ctx.restore();
  }
  drawFlags(ctx, flags, bbox, r, guard) { // alarms above the plot, the guard's actions at its foot
    ctx.font = `600 ${10 * r}px ${FONT}`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    const groups = [];
    for (const f of flags.sort((a, b) => a.x - b.x)) {
      const g = groups[groups.length - 1];
      if (g && f.x - g.last < 24 * r) { g.last = f.x; g.labels.push(f.label); g.heavy ||= f.heavy; } else groups.push({x: f.x, last: f.x, labels: [f.label], heavy: f.heavy});
    }
    for (const g of groups) {
      const text = g.labels.length > 2 ? `${g.labels[0]} +${g.labels.length - 1}` : g.labels.join(" ");
      const w = ctx.measureText(text).width + 9 * r, h = 15 * r, x = Math.min(bbox.left + bbox.width + 8 * r - w, Math.max(bbox.left, (g.x + g.last) / 2 - w / 2)), y = guard ? bbox.top + bbox.height - h - 2 * r : bbox.top - h - r;
      ctx.beginPath();
      ctx.roundRect(x, y, w, h, 3 * r);
      ctx.fillStyle = guard ? css("guard") : g.heavy ? css("ink") : css("paper");
      ctx.strokeStyle = guard ? css("guard") : css("ink");
      ctx.lineWidth = r;
      ctx.fill(); ctx.stroke();
      ctx.fillStyle = g.heavy || guard ? css("paper") : css("ink");
      ctx.fillText(text, x + w / 2, y + h / 2 + 0.5 * r);
    }
  }
  valueAt(k, idx) {
    const v = this.u.data[this.spec.series[k].at][idx];
    return v === undefined ? "" : v === null ? "not finite" : fmt(v);
  }
  tipRows(idx) {
    const step = this.u.data[0][idx], rows = [el("div", "tip-head", "step " + int(step))];
    this.spec.data.forEach((s, k) => {
      const at = s.at.get(this.u.data[0][ownIdx(this.u, this.spec.series[k].at, idx)]);
      if (at === undefined) return;
      const row = el("div", "tip-row"), v = s.value[at];
      row.appendChild(el("i", "swatch")).style.setProperty("--c", `var(--${s.hue})`);
      row.appendChild(el("span", "tip-name", s.label || this.spec.title));
      row.appendChild(el("b", "", v === null ? "not finite" : fmt(v)));
      if (s.low && finite(s.low[at])) row.appendChild(el("span", "tip-dim", `[${fmt(s.low[at])}, ${fmt(s.high[at])}]`));
      rows.push(row);
      const n = [];
      if (s.step[at] !== step) n.push("step " + int(s.step[at]));
      if (s.tokens) n.push(int(s.tokens[at]) + " tokens");
      if (s.trajectories) n.push(int(s.trajectories[at]) + " trajectories");
      if (n.length) rows.push(el("div", "tip-n", n.join(" · ")));
    });
    const px = (v) => this.u.valToPos(v, "x"), here = px(step);
    for (const a of this.spec.alarms) if (Math.abs(px(a.step) - here) < 7) rows.push(el("div", "tip-alarm", `${a.label} ${a.severity}: ${a.what || a.rule}`));
    for (const a of this.spec.actions || []) if (Math.abs(px(a.step) - here) < 7) rows.push(el("div", "tip-alarm", `${a.label} ${a.dry_run ? "guard, dry run" : "guard"}: ${a.text}`));
    return rows;
  }
}

// spec adds: curves: [{window, first, last, n_tokens, x, y}], hueName, survival, xRange, yRange
class ShareChart extends Chart {
  build() {
    const {spec} = this, {survival} = spec;
    const [xr, yr] = survival ? [spec.tailX, spec.tailY] : [spec.bodyX, [0, 1]];
    const clean = (c) => {
      const xs = [], ys = [];
      c.x.forEach((x, i) => {
        if (!finite(x) || x <= 0 || !finite(c.y[i])) return;
        const y = survival ? 1 - c.y[i] : c.y[i];
        if (survival && y < Math.max(1e-9, 0.5 / (c.n_tokens || 1e9))) return;
        xs.push(x); ys.push(y);
      });
      return [xs, ys];
    };
    const data = uPlot.join(spec.curves.map(clean));
    const color = css(spec.hueName);
    const series = [{}, ...spec.curves.map((c, k) => {
      spec.series[k].at = k + 1;
      return line(color, {dash: DASHES[c.window] || [], width: c.window === "late" ? 2.25 : 1.5, alpha: c.window === "early" ? 0.75 : 1});
    })];
    const opts = {
      padding: [6, 12, 0, 0],
      scales: {x: {time: false, distr: 3, range: xr}, y: {distr: survival ? 3 : 1, range: yr}},
      series,
      axes: [logAxis({size: 28, values: (u, vals) => vals.map(fmtTick)}, 2.5),
        survival ? logAxis({size: 54, values: (u, vals) => vals.map(fmtShare)}, 0) : axis({size: 54, values: (u, vals) => vals.map(fmtShare)})],
      cursor: {y: false, drag: {x: false, y: false}, dataIdx: ownIdx, points: {size: 7, stroke: color, fill: css("paper"), show: dot}},
      hooks: {drawClear: [(u) => this.levels(u)]},
    };
    return {opts, data};
  }
  levels(u) { // where p95 and p99 of the figure above are read off
    const {ctx, bbox} = u, r = devicePixelRatio || 1;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = css("ink-2");
    ctx.font = `${10 * r}px ${FONT}`;
    ctx.setLineDash([3 * r, 3 * r]);
    ctx.lineWidth = r;
    for (const [name, share] of [["p95", 0.05], ["p99", 0.01]]) {
      const y = Math.round(u.valToPos(this.spec.survival ? share : 1 - share, "y", true));
      if (!(y >= bbox.top && y <= bbox.top + bbox.height)) continue;
      ctx.globalAlpha = 0.6;
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      ctx.globalAlpha = 1;
      if (this.spec.survival) ctx.fillText(name, bbox.left + 4 * r, y - 4 * r);
    }
    ctx.restore();
  }
  valueAt(k, idx) { return fmtShare(this.u.data[this.spec.series[k].at][idx] ?? null); }
  tipRows(idx) {
    const {spec} = this, rows = [el("div", "tip-head", `|drift| ${spec.survival ? ">" : "≤"} ${fmt(this.u.data[0][idx])} nats`)];
    spec.curves.forEach((c, k) => {
      const at = ownIdx(this.u, spec.series[k].at, idx), row = el("div", "tip-row");
      row.appendChild(el("i", "swatch " + c.window)).style.setProperty("--c", `var(--${spec.hueName})`);
      row.appendChild(el("span", "tip-name", c.window));
      row.appendChild(el("b", "", fmtShare(this.u.data[spec.series[k].at][at] ?? null)));
      rows.push(row, el("div", "tip-n", `steps ${int(c.first)}–${int(c.last)} · ${int(c.n_tokens)} tokens`));
    });
    return rows;
  }
}
