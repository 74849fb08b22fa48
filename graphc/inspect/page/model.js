// The data of the page, decoded: the graph after each pass, what each pass changed, and who uses what.

const data = JSON.parse(document.getElementById("data").textContent);
const F = Object.fromEntries(data.fields.map((name, i) => [name, i]));
const S = data.strings, R = data.records;
const KIND = Object.fromEntries(data.kinds.map((name, i) => [name, i]));
const PASSES = data.stages.length, STAGES = PASSES + data.lowering.length;
const COLLECTIVES = {
  all_reduce: "all_reduce", tree_reduce: "all_reduce", reduce_scatter: "reduce_scatter",
  all_gather: "all_gather", all_to_all: "all_to_all", broadcast: "broadcast", pull: "broadcast",
  reduce: "reduce", barrier: "barrier",
};
const PARTS = ["forward", "backward", "update"];

const textOf = (record, field) => S[record[F[field]]];
const nameOf = (record) => S[record[F.name]];
const kindOf = (record) => data.kinds[record[F.kind]];

/** The groups, with their parents before them; fold: why they are one, level: where they open. */
const groups = data.groups.map(([parent, fold, title, level], id) => (
  { id, parent, kind: S[fold], title: S[title], level, depth: 0, part: 0, children: [] }));
for (const g of groups) {
  if (g.parent < 0) { g.part = Math.max(0, PARTS.indexOf(g.title)); continue; }
  const up = groups[g.parent];
  g.depth = up.depth + 1; g.part = up.part; up.children.push(g.id);
}

const decoded = [];
/** The record numbers of a pass's graph, in order. */
function orderOf(stage) {
  while (decoded.length <= stage) {
    const before = decoded.length ? decoded[decoded.length - 1] : [];
    const after = [];
    for (const item of data.stages[decoded.length].order) {
      if (typeof item === "number") after.push(item);
      else for (let i = 0; i < item[1]; i++) after.push(before[item[0] + i]);
    }
    decoded.push(after);
  }
  return decoded[stage];
}

const graphCache = new Map();
/** A pass's graph: `order` of record numbers, `at` from name to position. */
function graphOf(stage) {
  stage = Math.min(stage, PASSES - 1);
  if (!graphCache.has(stage)) {
    if (graphCache.size > 4) graphCache.delete(graphCache.keys().next().value);
    const order = orderOf(stage), at = new Map();
    order.forEach((r, i) => at.set(R[r][F.name], i));
    graphCache.set(stage, { stage, order, at, users: null, lines: null, ends: endsOf(stage) });
  }
  return graphCache.get(stage);
}

function endsOf(stage) {
  const found = new Map();
  const add = (name, text) => found.set(name, [...(found.get(name) || []), text]);
  const s = data.stages[stage];
  for (const [label, name] of s.outputs) add(name, `output ${label}`);
  for (const [label, name] of s.updates) add(name, `update ${label}`);
  for (const [label, name] of s.minimize) add(name, `minimize ${label}`);
  return found;
}

/** name -> names of those that use it */
function usersOf(graph) {
  if (!graph.users) {
    graph.users = new Map();
    for (const r of graph.order) for (const x of R[r][F.operands]) {
      if (!graph.users.has(x)) graph.users.set(x, []);
      graph.users.get(x).push(R[r][F.name]);
    }
  }
  return graph.users;
}

/** "file:line" -> names of the nodes that come from it */
function linesOf(graph) {
  if (!graph.lines) {
    graph.lines = new Map();
    for (const r of graph.order) {
      const span = R[r][F.origin];
      if (span < 0) continue;
      const key = data.spans[span][0] + ":" + data.spans[span][1];
      if (!graph.lines.has(key)) graph.lines.set(key, []);
      graph.lines.get(key).push(R[r][F.name]);
    }
  }
  return graph.lines;
}

const diffCache = new Map();
/** What a pass changed: names added and changed, and the records that are gone. */
function diffOf(stage) {
  if (!diffCache.has(stage)) {
    const added = new Set(), changed = new Map(), removed = [];
    if (stage > 0 && stage < PASSES) {
      const before = new Map();
      for (const r of orderOf(stage - 1)) before.set(R[r][F.name], r);
      for (const r of orderOf(stage)) {
        const name = R[r][F.name], old = before.get(name);
        if (old === undefined) added.add(name);
        else { before.delete(name); if (old !== r && differs(R[old], R[r])) changed.set(name, old); }
      }
      removed.push(...before.values());
    }
    diffCache.set(stage, { added, changed, removed });
  }
  return diffCache.get(stage);
}

const SHOWN = ["op", "type", "placement", "attributes", "scope", "needs", "order"];
function differs(a, b) { return fieldChanges(a, b).length > 0; }
/** [[field, before, after], ...] */
function fieldChanges(a, b) {
  const found = [];
  for (const f of SHOWN) if (a[F[f]] !== b[F[f]]) found.push([f, textOf(a, f), textOf(b, f)]);
  const x = a[F.operands], y = b[F.operands];
  if (x.length !== y.length || x.some((v, i) => v !== y[i]))
    found.push(["operands", x.map((i) => S[i]).join(", "), y.map((i) => S[i]).join(", ")]);
  return found;
}

/** The passes that made and changed a node: [[stage, what], ...]. */
function storyOf(name) {
  const found = [];
  let old = -1;
  for (let s = 0; s < PASSES; s++) {
    const d = s ? diffOf(s) : null;
    const at = graphOf(s).at.get(name);
    const now = at === undefined ? -1 : graphOf(s).order[at];
    if (now >= 0 && old < 0) found.push([s, "added"]);
    else if (now < 0 && old >= 0) found.push([s, "removed"]);
    else if (d && d.changed.has(name)) found.push([s, "changed"]);
    old = now;
  }
  return found;
}

const LINES_MOST = 4000;
const lineDiffs = new Map();
/** A stage of the lowering against the one before: [[mark, text], ...], mark '+', '-' or ' '. */
function listingDiff(i) {
  if (!lineDiffs.has(i)) {
    const now = data.lowering[i].lines, before = i ? data.lowering[i - 1].lines : null;
    lineDiffs.set(i, before ? merged(before, now) : now.map((x) => [" ", x]));
  }
  return lineDiffs.get(i);
}

/** Common lines found in order, each by its nearest next appearance: linear in the lines. */
function merged(before, now) {
  const places = new Map(), out = [], key = (id) => S[id].replace(/\s+/g, " ").trim(); // indents may differ
  before.forEach((id, i) => { const x = key(id); if (!places.has(x)) places.set(x, []); places.get(x).push(i); });
  const used = new Map();
  let at = 0;
  for (const id of now) {
    const x = key(id), list = places.get(x);
    let k = used.get(x) || 0;
    while (list && k < list.length && list[k] < at) k++;
    used.set(x, k);
    if (list && k < list.length && list[k] - at < 400) {
      while (at < list[k]) out.push(["-", before[at++]]);
      out.push([" ", id]); at++;
    } else out.push(["+", id]);
  }
  while (at < before.length) out.push(["-", before[at++]]);
  return out;
}

/** Measured seconds of each node in a step: a kernel's time, divided by the operations of its nodes. */
const measuredOf = new Map(), measuredLines = new Map(), measuredKernels = new Map();
function readMeasured() {
  if (!data.measured) return;
  const graph = graphOf(PASSES - 1);
  for (const kernel of data.measured.kernels) {
    const weights = kernel[0].map((n) => { const at = graph.at.get(n); return at === undefined ? 0 : 1 + R[graph.order[at]][F.operations]; });
    const total = weights.reduce((a, b) => a + b, 0) || 1;
    kernel[0].forEach((n, i) => { measuredOf.set(n, (measuredOf.get(n) || 0) + kernel[1] * weights[i] / total); });
    const key = kernel[0].join();
    measuredKernels.set(key, [(measuredKernels.get(key)?.[0] || 0) + kernel[1], kernel[2], kernel[3]]);
  }
  for (const [file, line, seconds] of data.measured.lines) measuredLines.set(`${file}:${line}`, seconds);
}
/** What was measured of a kernel that computes these nodes: [seconds, share of a limit, which], or null. */
const measuredKernel = (names) => measuredKernels.get(names.join()) || null;
const shareText = (seconds) => `${secondsText(seconds)}, ${(100 * seconds / data.measured.seconds).toFixed(1)} % of the step`;
const limitText = (k) => (k[1] >= 0 ? ` (${Math.round(100 * k[1])} % of what the machine can do: ${k[2]})` : "");

// -- text ------------------------------------------------------------------------------------------

/** Three digits, as graphc/support/units.py has them. */
function amount(x, base, units) {
  const rounded = (y) => (y < 1000 ? Number(y.toPrecision(3)) : Math.round(y));
  let i = 0;
  while (i < units.length - 1 && rounded(x / base) >= 1) { x /= base; i++; }
  return `${rounded(x).toLocaleString("en")} ${units[i]}`;
}
const bytesText = (x) => amount(x, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
const flopsText = (x) => amount(x, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]);
const secondsText = (x) => amount(1e9 * x, 1000, ["ns", "µs", "ms", "s"]);
const clipped = (text, n) => (text.length > n ? text.slice(0, n - 1) + "…" : text);

function collectiveOf(record) {
  return record[F.kind] === KIND.space ? COLLECTIVES[textOf(record, "op")] || "all_reduce" : "";
}
