// Where boxes are drawn: layered, and linear in what is visible. A step is folded as in
// graphc/inspect/layout.py: forward runs down, backward beside it up again, updates down on the
// right. An open group is laid out by itself, and is one large box for what surrounds it.

const GAP_X = 18, GAP_Y = 30, LANE_GAP = 60, PAD = 16, HEAD = 30, ABREAST = 7, UPRIGHT = 5;
const LANES = 8; // variables | forward | exchange | constants | backward | exchange | slots | update
const MAIN_LANE = [1, 4, 7], SIDE_LANE = [0, 3, 6], EXCHANGE_LANE = [2, 5, 7];
const LANE_TITLES = ["variables", "forward", "exchange", "", "backward", "exchange", "", "update"];

/**
 * A scene: the boxes that are visible, with edges between them.
 * open: the ids of open groups; details: whether minor nodes are boxes
 */
function sceneOf(stage, open, details, ghosts) {
  const records = sceneRecords(stage, ghosts);
  const n = records.length, at = new Map();
  records.forEach((x, i) => at.set(x.name, i));
  const hidden = new Uint8Array(n), cache = new Array(n);
  if (!details) records.forEach((x, i) => { hidden[i] = x.record[F.minor]; });
  const reach = (i) => { // the operands that are drawn, through hidden nodes
    if (cache[i]) return cache[i];
    const stack = [i];
    while (stack.length) {
      const top = stack[stack.length - 1];
      const inner = [];
      for (const x of records[top].record[F.operands]) {
        const j = at.get(x);
        if (j !== undefined && j !== top && hidden[j] && !cache[j] && j < top) inner.push(j);
      }
      if (inner.length) { stack.push(...inner); continue; }
      const found = new Set();
      for (const x of records[top].record[F.operands]) {
        const j = at.get(x);
        if (j === undefined || j >= n) continue;
        if (!hidden[j]) found.add(j); else if (cache[j] && found.size < 64) cache[j].forEach((y) => found.add(y));
      }
      cache[top] = found; stack.pop();
    }
    return cache[i];
  };
  const tree = visibleTree(records, hidden, open);
  const boxOf = tree.boxOf, edges = new Map();
  for (let i = 0; i < n; i++) {
    if (hidden[i]) continue;
    const b = boxOf[i];
    for (const j of reach(i)) {
      const a = boxOf[j];
      if (a === b) continue;
      const key = a * tree.boxes.length + b;
      const e = edges.get(key);
      if (e) e.count++; else edges.set(key, { a, b, count: 1, from: j, to: i });
    }
  }
  return { stage, records, at, hidden, boxes: tree.boxes, boxOf, edges: [...edges.values()], roots: tree.roots };
}

/** Nodes of a stage in order, and those that the pass removed, each before what followed it. */
function sceneRecords(stage, ghosts) {
  const graph = graphOf(stage);
  const make = (r, ghost) => ({ r, record: R[r], name: R[r][F.name], ghost });
  const gone = ghosts && stage < PASSES ? diffOf(stage).removed : [];
  if (!gone.length) return graph.order.map((r) => make(r, false));
  const removed = new Set(gone), before = new Map();
  let waiting = [];
  for (const r of orderOf(stage - 1)) {
    if (removed.has(r)) waiting.push(r);
    else if (waiting.length && graph.at.has(R[r][F.name])) { before.set(R[r][F.name], waiting); waiting = []; }
  }
  const out = [];
  for (const r of graph.order) {
    for (const x of before.get(R[r][F.name]) || []) out.push(make(x, true));
    out.push(make(r, false));
  }
  for (const x of waiting) out.push(make(x, true));
  return out;
}

/** The boxes: nodes whose groups are all open, and the outermost closed group of all others. */
function visibleTree(records, hidden, open) {
  const size = new Int32Array(groups.length);
  records.forEach((x, i) => { if (!hidden[i]) { const g = x.record[F.group]; if (g >= 0) size[g]++; } });
  for (let g = groups.length - 1; g >= 0; g--) if (groups[g].parent >= 0) size[groups[g].parent] += size[g];
  const boxes = [], roots = [], boxOf = new Int32Array(records.length).fill(-1), ofGroup = new Map();
  const isOpen = (g) => groups[g].parent < 0 || open.has(g) || size[g] < 2;
  // Exchanges that are shown one by one lie where they are needed: without a frame around them.
  const noFrame = (g) => groups[g].parent < 0 || size[g] < 2 || (open.has(g) && groups[g].kind === "exchange");
  const chain = new Array(groups.length); // the groups around, outermost first, up to a closed one
  const chainOf = (g) => {
    if (chain[g] === undefined) {
      const up = groups[g].parent < 0 ? [] : chainOf(groups[g].parent);
      const last = up.length ? up[up.length - 1] : -1;
      chain[g] = last >= 0 && !isOpen(last) ? up : noFrame(g) ? up : [...up, g];
    }
    return chain[g];
  };
  const boxOfGroup = (path) => {
    const g = path[path.length - 1];
    if (!ofGroup.has(g)) {
      const up = path.length > 1 ? boxOfGroup(path.slice(0, -1)) : -1;
      const opened = open.has(g);
      ofGroup.set(g, add({ group: g, open: opened, part: groups[g].part, members: [], children: [], up }));
    }
    return ofGroup.get(g);
  };
  const add = (box) => {
    box.id = boxes.length; boxes.push(box);
    (box.up >= 0 ? boxes[box.up].children : roots).push(box.id);
    return box.id;
  };
  const fed = (b) => { for (; b >= 0 && !boxes[b].input; b = boxes[b].up) boxes[b].input = true; };
  records.forEach((x, i) => {
    if (hidden[i]) return;
    const g = x.record[F.group], path = g < 0 ? [] : chainOf(g);
    const inner = path.length ? boxOfGroup(path) : -1;
    if (inner >= 0 && !boxes[inner].open) {
      boxOf[i] = inner; boxes[inner].members.push(i);
      if (x.record[F.kind] === KIND.input) fed(inner);
      return;
    }
    const part = g < 0 ? 0 : groups[g].part;
    boxOf[i] = add({ group: -1, node: i, part, members: [i], children: [], up: inner });
    if (x.record[F.kind] === KIND.input) fed(boxOf[i]);
  });
  // What is hidden belongs to the closed group around it, so that it can be counted and found.
  records.forEach((x, i) => {
    if (!hidden[i]) return;
    const g = x.record[F.group], path = g < 0 ? [] : chainOf(g);
    const last = path.length ? ofGroup.get(path[path.length - 1]) : undefined;
    if (last !== undefined && !boxes[last].open) { boxOf[i] = last; boxes[last].members.push(i); }
  });
  return { boxes, roots, boxOf };
}

/** Give every box of a scene x, y (of its center), w and h. */
function layoutScene(scene, measure) {
  const { boxes } = scene;
  const inner = new Map(); // open box, or -1 -> edges between its children
  for (const e of scene.edges) {
    let a = e.a, b = e.b;
    const above = (x) => { const list = []; for (; x >= 0; x = boxes[x].up) list.push(x); return list.reverse(); };
    const p = above(a), q = above(b);
    let k = 0;
    while (k < p.length - 1 && k < q.length - 1 && p[k] === q[k]) k++;
    if (p[k] === q[k]) continue;
    const around = k ? p[k - 1] : -1;
    if (!inner.has(around)) inner.set(around, []);
    inner.get(around).push([p[k], q[k]]);
  }
  // Children come after the boxes around them, so backwards is from the inside out.
  for (let i = boxes.length - 1; i >= 0; i--) {
    const box = boxes[i];
    if (!box.open) { const [w, h] = measure(box); box.w = w; box.h = h; continue; }
    const size = layoutInside(boxes, box.children, inner.get(i) || [], box.part === 1);
    const [w] = measure(box);
    box.w = Math.max(w, size.w + 2 * PAD); box.h = size.h + PAD + HEAD;
    box.inside = size;
  }
  const step = layoutStep(scene, inner.get(-1) || []);
  const place = (id, x, y) => {
    const box = boxes[id];
    box.x = x; box.y = y;
    if (!box.open) return;
    const left = x - box.inside.w / 2, top = y - box.h / 2 + HEAD;
    for (const c of box.children) place(c, left + boxes[c].dx, top + boxes[c].dy);
  };
  for (const id of scene.roots) place(id, boxes[id].dx, boxes[id].dy);
  scene.lanes = step.lanes; scene.w = step.w; scene.h = step.h;
  return scene;
}

/** Predecessors and successors by position in `ids`; what runs backwards there is left out. */
function linksOf(ids, edges) {
  const at = new Map(ids.map((id, i) => [id, i]));
  const before = ids.map(() => []), after = ids.map(() => []);
  for (const [a, b] of edges) {
    const i = at.get(a), j = at.get(b);
    if (i === undefined || j === undefined || i === j) continue;
    before[j].push(i); after[i].push(j);
  }
  return { before, after, sorted: sortedBy(before, after) };
}

/** A topological order; groups may use each other in a circle, of which the first edge is cut. */
function sortedBy(before, after) {
  const n = before.length, missing = before.map((x) => x.length), done = new Uint8Array(n), order = [];
  const ready = [];
  for (let i = n - 1; i >= 0; i--) if (!missing[i]) ready.push(i);
  let next = 0;
  while (order.length < n) {
    if (!ready.length) { while (done[next]) next++; ready.push(next); }
    const i = ready.pop();
    if (done[i]) continue;
    done[i] = 1; order.push(i);
    for (let k = after[i].length - 1; k >= 0; k--) { const j = after[i][k]; if (--missing[j] <= 0 && !done[j]) ready.push(j); }
  }
  const rank = new Int32Array(n);
  order.forEach((i, k) => { rank[i] = k; });
  for (let i = 0; i < n; i++) { // what is cut counts no longer
    before[i] = before[i].filter((j) => rank[j] < rank[i]);
    after[i] = after[i].filter((j) => rank[j] > rank[i]);
  }
  return order;
}

/** An open group: rows by the longest path, downwards or (backward) upwards. Sets dx, dy. */
function layoutInside(boxes, ids, edges, upwards) {
  const { before, after, sorted } = linksOf(ids, edges);
  const row = new Int32Array(ids.length);
  for (const i of sorted) for (const j of before[i]) row[i] = Math.max(row[i], row[j] + 1);
  for (let k = sorted.length - 1; k >= 0; k--) { // just above the first user
    const i = sorted[k];
    let least = Infinity;
    for (const j of after[i]) least = Math.min(least, row[j] - 1);
    if (least < Infinity) row[i] = Math.max(row[i], least);
  }
  const last = row.reduce((a, b) => Math.max(a, b), 0), rows = [];
  ids.forEach((_, i) => { const r = upwards ? last - row[i] : row[i]; (rows[r] = rows[r] || []).push(i); });
  const lines = [];
  for (const r of rows) if (r) lines.push(...brokenLines(ids, r));
  orderLines(lines, before, after);
  const x = placeLines(lines, boxes, ids, before, after);
  let y = 0, left = Infinity, right = -Infinity;
  for (const line of lines) {
    const tall = Math.max(...line.map((i) => boxes[ids[i]].h));
    for (const i of line) {
      const box = boxes[ids[i]];
      box.dy = y + tall / 2; box.dx = x[i];
      left = Math.min(left, x[i] - box.w / 2); right = Math.max(right, x[i] + box.w / 2);
    }
    y += tall + GAP_Y;
  }
  if (!lines.length) return { w: 40, h: 20 };
  markOuter(lines, boxes, ids);
  for (const i of ids) boxes[i].dx -= left;
  return { w: right - left, h: y - GAP_Y };
}

/** Which boxes are the first and the last of their line: an edge that came out behind a neighbor
 * would seem to be the neighbor's. */
function markOuter(lines, boxes, ids) {
  for (const line of lines) line.forEach((i, k) => {
    boxes[ids[i]].outer = [k === 0, k === line.length - 1];
  });
}

/** A long row as several, so that it stays readable; wide graphs get wider rows. */
function brokenLines(ids, row) {
  const most = Math.max(ABREAST, Math.ceil(Math.sqrt(row.length) * 1.5)), lines = [];
  for (let k = 0; k < row.length; k += most) lines.push(row.slice(k, k + most));
  return lines;
}

/** Order each line by the mean position of the neighbors, down and up again (Sugiyama's barycenters). */
function orderLines(lines, before, after) {
  const column = [];
  const spread = (line) => line.forEach((i, k) => { column[i] = k - (line.length - 1) / 2; });
  lines.forEach(spread);
  for (let sweep = 0; sweep < 4; sweep++) {
    const down = sweep % 2 === 0;
    for (let k = 0; k < lines.length; k++) {
      const line = lines[down ? k : lines.length - 1 - k];
      if (line.length < 2) continue;
      const pull = new Map(line.map((i) => {
        const near = [...before[i], ...after[i]];
        return [i, near.length ? near.reduce((s, j) => s + column[j], 0) / near.length : column[i]];
      }));
      line.sort((a, b) => pull.get(a) - pull.get(b) || a - b);
      spread(line);
    }
  }
}

/** The center of each box: near its neighbors, without overlap, in the order of its line. */
function placeLines(lines, boxes, ids, before, after) {
  const x = new Float64Array(ids.length), w = (i) => boxes[ids[i]].w;
  for (const line of lines) {
    let at = -line.reduce((s, i) => s + w(i) + GAP_X, -GAP_X) / 2;
    for (const i of line) { x[i] = at + w(i) / 2; at += w(i) + GAP_X; }
  }
  for (let sweep = 0; sweep < 6; sweep++) {
    for (let k = 0; k < lines.length; k++) {
      const line = lines[sweep % 2 ? lines.length - 1 - k : k];
      const wish = line.map((i) => {
        const near = before[i].length + after[i].length;
        if (!near) return x[i];
        let sum = 0;
        for (const j of before[i]) sum += x[j];
        for (const j of after[i]) sum += x[j];
        return sum / near;
      });
      apart(line.map(w), wish).forEach((v, m) => { x[line[m]] = v; });
    }
  }
  return x;
}

/** The centers nearest to `wish` that do not overlap: isotonic regression by pooling neighbors. */
function apart(widths, wish) {
  const shift = [0];
  for (let i = 1; i < widths.length; i++) shift.push(shift[i - 1] + (widths[i - 1] + widths[i]) / 2 + GAP_X);
  const pools = [];
  wish.forEach((v, i) => {
    let pool = { sum: v - shift[i], n: 1 };
    while (pools.length && pools[pools.length - 1].sum / pools[pools.length - 1].n > pool.sum / pool.n) {
      const last = pools.pop();
      pool = { sum: pool.sum + last.sum, n: pool.n + last.n };
    }
    pools.push(pool);
  });
  const out = [];
  for (const pool of pools) for (let k = 0; k < pool.n; k++) out.push(pool.sum / pool.n + shift[out.length]);
  return out;
}

// -- the whole step -------------------------------------------------------------------------------

/** The outermost boxes: lanes from left to right, common rows. Sets dx, dy. */
function layoutStep(scene, edges) {
  const { boxes } = scene, ids = scene.roots;
  const links = linksOf(ids, edges), { before, after, sorted } = links;
  const info = ids.map((id) => boxInfo(scene, boxes[id]));
  const heavy = new Uint8Array(ids.length);
  for (const i of sorted) heavy[i] = info[i].input || before[i].some((j) => heavy[j]) ? 1 : 0;
  const updated = new Set(edges.filter(([a]) => boxes[a].part === 2).map(([, b]) => b)); // takes something of an update
  const part = info.map((x, i) => {
    if (!x.exchange) return x.part;
    return updated.has(ids[i]) ? 2 : x.part === 2 && before[i].length ? info[before[i][0]].part : x.part;
  });
  const lane = ids.map((_, i) => (info[i].exchange ? EXCHANGE_LANE : heavy[i] ? MAIN_LANE : SIDE_LANE)[part[i]]);
  const row = stepRows({ before, after, sorted, heavy, part });
  return placeStep(scene, ids, links, lane, row);
}

function boxInfo(scene, box) {
  const kind = box.group >= 0 ? -1 : scene.records[box.node].record[F.kind];
  const exchange = box.group >= 0 ? groups[box.group].kind === "exchange" : kind === KIND.space || kind === KIND.time;
  return { part: box.part, input: !!box.input, exchange };
}

/** Rows: forward down, backward up so that a value lies beside its gradient, update below. */
function stepRows({ before, after, sorted, heavy, part }) {
  const n = part.length;
  const depths = (p, least) => {
    const d = new Map();
    for (const i of sorted) if (part[i] === p) {
      let most = least(i);
      if (heavy[i]) for (const j of before[i]) if (d.has(j) && heavy[j]) most = Math.max(most, d.get(j) + 1);
      d.set(i, most);
    }
    return gather(p, d);
  };
  const gather = (p, d) => {
    for (let k = n - 1; k >= 0; k--) {
      const i = sorted[k];
      if (part[i] !== p || heavy[i]) continue;
      let least = Infinity;
      for (const j of after[i]) if (d.has(j)) least = Math.min(least, d.get(j));
      if (least < Infinity) d.set(i, least);
    }
    return d;
  };
  const late = (p, d) => {
    for (let k = n - 1; k >= 0; k--) {
      const i = sorted[k];
      if (part[i] !== p || !heavy[i]) continue;
      let least = Infinity;
      for (const j of after[i]) if (d.has(j)) least = Math.min(least, d.get(j) - 1);
      if (least < Infinity) d.set(i, Math.max(d.get(i), least));
    }
    return gather(p, d);
  };
  const most = (m) => { let x = 0; for (const v of m.values()) x = Math.max(x, v); return x; };
  const rows = new Float64Array(n);
  const forward = late(0, depths(0, () => 0)), backward = late(1, depths(1, () => 0));
  const last = Math.max(most(forward), most(backward));
  forward.forEach((d, i) => { rows[i] = d; });
  backward.forEach((d, i) => { rows[i] = last - d; });
  const stretchForward = () => late(0, depths(0, (i) => {
    let least = Infinity;
    for (const j of after[i]) if (part[j] === 1 && heavy[j]) least = Math.min(least, rows[j]);
    return least === Infinity ? 0 : least;
  })).forEach((d, i) => { rows[i] = d; });
  const stretchBackward = () => late(1, depths(1, (i) => {
    let far = -Infinity;
    for (const j of before[i]) if (part[j] === 0 && heavy[j]) far = Math.max(far, rows[j]);
    return far === -Infinity ? 0 : last - far;
  })).forEach((d, i) => { rows[i] = last - d; });
  if (most(backward) > most(forward)) { stretchForward(); stretchBackward(); } else { stretchBackward(); stretchForward(); }
  depths(2, (i) => {
    let below = 0;
    for (const j of before[i]) if (part[j] !== 2 && heavy[j]) below = Math.max(below, rows[j]);
    return below;
  }).forEach((d, i) => { rows[i] = d; });
  const top = rows.reduce((a, b) => Math.min(a, b), n ? rows[0] : 0);
  return Int32Array.from(rows, (r) => r - top);
}

function placeStep(scene, ids, { before, after }, lane, row) {
  const { boxes } = scene, cells = new Map();
  ids.forEach((_, i) => { const key = row[i] * LANES + lane[i]; if (!cells.has(key)) cells.set(key, []); cells.get(key).push(i); });
  const byLane = Array.from({ length: LANES }, () => []), byRow = new Map();
  for (const key of [...cells.keys()].sort((a, b) => a - b)) {
    const members = cells.get(key), l = key % LANES, r = Math.floor(key / LANES);
    const lines = l % 3 === 0 ? stacked(members) : l % 3 === 2 && members.length <= UPRIGHT ? members.map((i) => [i]) : brokenLines(ids, members);
    byLane[l].push(...lines);
    if (!byRow.has(r)) byRow.set(r, []);
    byRow.get(r).push(lines);
  }
  const lanes = [];
  let left = 0;
  byLane.forEach((lines, l) => {
    if (!lines.length) return;
    orderLines(lines, before, after);
    const own = new Set(lines.flat()), near = (list) => list.map((js) => js.filter((j) => own.has(j)));
    const x = placeLines(lines, boxes, ids, near(before), near(after));
    let lo = Infinity, hi = -Infinity;
    for (const line of lines) for (const i of line) { lo = Math.min(lo, x[i] - boxes[ids[i]].w / 2); hi = Math.max(hi, x[i] + boxes[ids[i]].w / 2); }
    for (const line of lines) for (const i of line) boxes[ids[i]].dx = x[i] - lo + left;
    markOuter(lines, boxes, ids);
    lanes.push({ lane: l, x: left, w: hi - lo });
    left += hi - lo + LANE_GAP;
  });
  let y = 0;
  for (const r of [...byRow.keys()].sort((a, b) => a - b)) {
    const heights = byRow.get(r).map((lines) => lines.reduce((s, line) => s + GAP_Y + Math.max(...line.map((i) => boxes[ids[i]].h)), 0));
    const tall = Math.max(...heights);
    byRow.get(r).forEach((lines, k) => {
      let at = y + (tall - heights[k]) / 2;
      for (const line of lines) {
        const high = Math.max(...line.map((i) => boxes[ids[i]].h));
        for (const i of line) boxes[ids[i]].dy = at + high / 2;
        at += high + GAP_Y;
      }
    });
    y += tall;
  }
  return { lanes, w: Math.max(0, left - LANE_GAP), h: Math.max(0, y - GAP_Y) };
}

/** What stands aside lies in up to three lines. */
function stacked(members) {
  const most = Math.max(2, Math.ceil(members.length / 3)), lines = [];
  for (let k = 0; k < members.length; k += most) lines.push(members.slice(k, k + most));
  return lines;
}
