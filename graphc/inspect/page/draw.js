// Painting a scene on a canvas: only what is in view, with less detail from afar.

const FONT = 12, SMALL = 11, CHAR = 7.25, SMALL_CHAR = 6.65;
let palette = {};
const canvas = document.getElementById("canvas"), map = document.getElementById("map");
const camera = { x: 0, y: 0, scale: 1 };

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  palette = new Proxy({}, { get: (known, name) => (known[name] ??= style.getPropertyValue(`--${String(name).replace("_far", "-far")}`).trim()
    || style.getPropertyValue(`--${String(name)}`).trim()) });
}

/** What a box says: title, line below it, third line. */
function labelsOf(scene, box) {
  if (box.labels) return box.labels;
  box.labels = box.group >= 0 ? groupLabels(scene, box) : nodeLabels(scene.records[box.node]);
  return box.labels;
}

function nodeLabels({ record, name }) {
  const op = textOf(record, "op"), text = S[name], type = textOf(record, "type"), at = textOf(record, "placement");
  const kind = record[F.kind];
  const own = text === op || (text.startsWith(op + ".") && /^[.\d]+$/.test(text.slice(op.length)));
  const title = own || kind === KIND.space || kind === KIND.time ? op : text;
  if (kind === KIND.space) return [op, `${textOf(record, "attributes").match(/axis="([^"]*)"/)?.[1] ?? ""} · ${bytesText(record[F.sent])} sent`];
  const second = kind === KIND.variable || kind === KIND.slot || kind === KIND.input || own ? type : `${op}  ${type}`;
  return at ? [clipped(title, 40), clipped(second, 46), clipped(at, 46)] : [clipped(title, 40), clipped(second, 46)];
}

function groupLabels(scene, box) {
  const g = groups[box.group];
  const total = totalsOf(scene, box);
  const shown = box.members.filter((i) => !scene.hidden[i]).length;
  const parts = [`${shown} node${shown === 1 ? "" : "s"}`];
  if (g.kind === "repeat") parts.unshift(`× ${g.children.filter((c) => box.members.some((i) => inGroup(scene.records[i].record[F.group], c))).length}`);
  if (total.operations) parts.push(flopsText(total.operations));
  return [clipped(g.title, 42), parts.join(" · ")];
}

function inGroup(g, around) {
  while (g > around) g = groups[g].parent;
  return g === around;
}

/** Sums over a box: what it costs, its collectives, and what the pass changed in it. */
function totalsOf(scene, box) {
  if (box.totals) return box.totals;
  const d = scene.ghosts ? diffOf(scene.stage) : null;
  const t = { operations: 0, bytes: 0, sent: 0, seconds: 0, collectives: new Map(), added: 0, removed: 0, changed: 0 };
  const count = (i) => {
    const x = scene.records[i], r = x.record;
    if (x.ghost) { t.removed++; return; }
    t.seconds += measuredOf.get(r[F.name]) || 0; t.operations += r[F.operations]; t.bytes += r[F.bytes]; t.sent += r[F.sent];
    const kind = collectiveOf(r);
    if (kind) t.collectives.set(kind, (t.collectives.get(kind) || 0) + r[F.sent]);
    if (d && d.added.has(x.name)) t.added++;
    else if (d && d.changed.has(x.name)) t.changed++;
  };
  box.members.forEach(count);
  for (const c of box.children) {
    const inner = totalsOf(scene, scene.boxes[c]);
    for (const k of ["operations", "bytes", "sent", "seconds", "added", "removed", "changed"]) t[k] += inner[k];
    inner.collectives.forEach((v, k) => t.collectives.set(k, (t.collectives.get(k) || 0) + v));
  }
  return (box.totals = t);
}

/** [w, h] of a closed box; of an open group, what its title needs. */
function measureIn(scene) {
  return (box) => {
    const labels = labelsOf(scene, box);
    const w = Math.max(labels[0].length * CHAR, ...labels.slice(1).map((x) => x.length * SMALL_CHAR)) + 28;
    if (box.group >= 0 && !box.open && totalsOf(scene, box).collectives.size) return [Math.max(w, 120) + 6, 60];
    return [Math.max(w, 56) + (box.group >= 0 ? 14 : 0), 12 + labels.length * 16];
  };
}

/** The color of a box, and what a legend says of it. */
function colorOf(scene, box, by) {
  const total = { cost: "operations", sent: "sent", time: "seconds" }[by];
  if (box.group >= 0 && !total) return palette[exchangeOf(scene, box) || groupKind(scene, box) || PARTS[box.part]];
  if (total) return heat(totalsOf(scene, box)[total] / (scene.most?.[by] || 1));
  const { record } = scene.records[box.node], kind = kindOf(record);
  if (by === "placement") return placementColor(textOf(record, "placement"));
  if (kind === "space") return palette[collectiveOf(record)];
  if (kind === "compute") return palette[PARTS[box.part]];
  return palette[kind];
}

/** For a group of exchanges, the kind of its collectives. */
function exchangeOf(scene, box) {
  if (groups[box.group].kind !== "exchange") return "";
  const kinds = [...totalsOf(scene, box).collectives.keys()];
  return kinds.length ? kinds[0] : "time";
}

/** For a group of inputs, variables or slots, what they are. */
function groupKind(scene, box) {
  if (groups[box.group].kind !== "ends" || !box.members.length) return "";
  const kind = kindOf(scene.records[box.members[0]].record);
  return ["input", "variable", "slot"].includes(kind) ? kind : "";
}

function heat(x) {
  if (!(x > 0)) return palette.faint;
  const h = 215 - 205 * Math.sqrt(Math.min(1, x));
  return `hsl(${h} 75% ${isDark() ? 62 : 47}%)`;
}

const placementHues = new Map();
function placementColor(text) {
  if (!text) return palette.faint;
  if (!placementHues.has(text)) placementHues.set(text, (placementHues.size * 67 + 205) % 360);
  return `hsl(${placementHues.get(text)} 62% ${isDark() ? 62 : 45}%)`;
}
const isDark = () => document.documentElement.dataset.theme === "dark";

// -- the picture ----------------------------------------------------------------------------------

/** Paint the part of the scene that the camera sees. look: what is chosen, lit, and how it colors. */
function paint(scene, look) {
  const ratio = look.ratio || window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio);
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.fillStyle = look.ratio ? "#fff" : palette.back; c.fillRect(0, 0, w, h); // paper is white
  if (!scene) return;
  const s = camera.scale;
  c.setTransform(ratio * s, 0, 0, ratio * s, ratio * (w / 2 - camera.x * s), ratio * (h / 2 - camera.y * s));
  const view = { l: camera.x - w / 2 / s, r: camera.x + w / 2 / s, t: camera.y - h / 2 / s, b: camera.y + h / 2 / s, s };
  paintLanes(c, scene, view);
  for (const box of scene.boxes) if (box.open && inView(box, view)) paintFrame(c, scene, box, view, look);
  paintEdges(c, scene, view, look);
  for (const box of scene.boxes) if (!box.open && inView(box, view)) paintBox(c, scene, box, view, look);
}

const inView = (box, v) => box.x + box.w / 2 > v.l && box.x - box.w / 2 < v.r && box.y + box.h / 2 > v.t && box.y - box.h / 2 < v.b;

function paintLanes(c, scene, view) {
  for (const lane of scene.lanes) {
    const main = MAIN_LANE.includes(lane.lane);
    if (main) { c.fillStyle = palette.lane; round(c, lane.x - 22, -46, lane.w + 44, scene.h + 68, 14); c.fill(); }
    if (view.s < 0.12 || !LANE_TITLES[lane.lane]) continue;
    c.fillStyle = main ? palette[PARTS[MAIN_LANE.indexOf(lane.lane)]] : palette.faint;
    const size = Math.min(Math.max(12, Math.min(30, 11 / view.s)), (lane.w + 40) / (LANE_TITLES[lane.lane].length * 0.8));
    c.font = `600 ${size}px ${sans}`; c.textAlign = "center"; c.textBaseline = "alphabetic";
    c.fillText(LANE_TITLES[lane.lane].toUpperCase(), lane.x + lane.w / 2, -22);
  }
}

const sans = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const mono = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";

function paintFrame(c, scene, box, view, look) {
  const color = palette[exchangeOf(scene, box) || PARTS[box.part]], left = box.x - box.w / 2, top = box.y - box.h / 2;
  c.fillStyle = palette.frame; c.strokeStyle = color; c.lineWidth = look.chosen === box.id ? 2.5 : 1;
  round(c, left, top, box.w, box.h, 10); c.fill(); c.globalAlpha = look.chosen === box.id ? 1 : 0.55; c.stroke(); c.globalAlpha = 1;
  if (view.s < 0.25) return;
  c.font = `600 ${SMALL}px ${mono}`; c.textAlign = "left"; c.textBaseline = "middle"; c.fillStyle = color;
  c.fillText("▾ " + clipped(groups[box.group].title, Math.max(8, Math.floor((box.w - 30) / SMALL_CHAR))), left + 12, top + 15);
}

function paintBox(c, scene, box, view, look) {
  const left = box.x - box.w / 2, top = box.y - box.h / 2, color = colorOf(scene, box, look.by);
  const mark = look.marks ? markOf(scene, box) : "";
  if (view.s < 0.08) { c.fillStyle = look.lit.has(box.id) ? palette.lit : mark ? palette[mark] : color; c.fillRect(left, top, box.w, box.h); return; }
  const one = box.group < 0 ? scene.records[box.node] : null, kind = one ? kindOf(one.record) : "group", lit = look.lit.has(box.id), chosen = look.chosen === box.id;
  const dimmed = look.lit.size > 0 && !lit && !chosen && look.fade;
  const filled = kind === "space" || kind === "time" || (box.group >= 0 && exchangeOf(scene, box) !== ""), pill = filled || kind === "input" || kind === "variable" || kind === "slot";
  const r = pill ? Math.min(box.h / 2, 14) : 7;
  c.globalAlpha = one && one.ghost ? 0.45 : dimmed ? 0.35 : 1;
  if (box.group >= 0) { // a stack of cards
    c.fillStyle = palette.paper; c.strokeStyle = color; c.lineWidth = 1;
    for (const d of [6, 3]) { round(c, left + d, top + d, box.w, box.h, 8); c.fill(); c.globalAlpha *= 0.6; c.stroke(); c.globalAlpha /= 0.6; }
  }
  c.fillStyle = filled ? color : lit ? palette.lit : palette.paper;
  round(c, left, top, box.w, box.h, r); c.fill();
  const alpha = c.globalAlpha;
  if (!filled && !lit) { c.globalAlpha = alpha * (look.by === "kind" ? 0.1 : 0.32); c.fillStyle = color; c.fill(); c.globalAlpha = alpha; }
  c.strokeStyle = mark ? palette[mark] : color; c.lineWidth = mark ? 2.5 : 1.2;
  c.setLineDash(mark === "removed" || kind === "local" ? [5, 3] : []); c.stroke(); c.setLineDash([]);
  if (!pill) { c.fillStyle = mark ? palette[mark] : color; round(c, left, top, 5, box.h, [r, 0, 0, r]); c.fill(); }
  if (chosen) { c.strokeStyle = palette.accent; c.lineWidth = 3; round(c, left - 4, top - 4, box.w + 8, box.h + 8, r + 4); c.stroke(); }
  if (view.s * FONT >= 8) paintText(c, scene, box, { filled, color, lit });
  else paintTitle(c, scene, box, view, filled);
  if (look.marks && box.group >= 0) paintCounts(c, scene, box, left + box.w, top);
  c.globalAlpha = 1;
}

/** From afar: the title alone, as large as the box allows and no larger than it needs to be. */
function paintTitle(c, scene, box, view, filled) {
  const text = labelsOf(scene, box)[0], size = Math.min(9.5 / view.s, box.h * 0.62, (box.w - 14) / (text.length * 0.61));
  if (size * view.s < 4.5) return;
  c.font = `600 ${size}px ${mono}`; c.textAlign = "center"; c.textBaseline = "middle";
  c.fillStyle = filled ? (isDark() ? "#10141b" : "#fff") : palette.ink; c.fillText(text, box.x, box.y);
}

function paintText(c, scene, box, { filled, color, lit }) {
  const labels = labelsOf(scene, box), total = box.group >= 0 ? totalsOf(scene, box) : null;
  const chips = total && total.collectives.size, lines = labels.length + (chips ? 1 : 0);
  let y = box.y - (lines - 1) * 8;
  c.textAlign = "center"; c.textBaseline = "middle";
  labels.forEach((text, i) => {
    c.font = i ? `${SMALL}px ${mono}` : `600 ${FONT}px ${mono}`;
    c.fillStyle = filled ? (isDark() ? "#10141b" : "#fff") : i === 0 ? palette.ink : i === 1 ? palette.dim : color;
    c.fillText(text, box.x, y); y += 16;
  });
  if (!chips) return;
  c.font = `${SMALL - 1}px ${mono}`;
  const texts = [...total.collectives].map(([kind, sent]) => [kind, bytesText(sent)]);
  let x = box.x - texts.reduce((s, t) => s + t[1].length * 6 + 22, 0) / 2;
  c.textAlign = "left";
  for (const [kind, text] of texts) {
    c.fillStyle = filled ? "transparent" : palette[kind]; c.beginPath(); c.arc(x + 6, y, 4, 0, 7); c.fill();
    c.fillStyle = filled ? isDark() ? "#10141b" : "#fff" : palette.dim; c.fillText(text, x + 13, y); x += text.length * 6 + 22;
  }
}

function paintCounts(c, scene, box, right, top) {
  const t = totalsOf(scene, box);
  const texts = [["added", t.added, "+"], ["removed", t.removed, "−"], ["changed", t.changed, "~"]].filter((x) => x[1]);
  let x = right - 2;
  c.font = `600 10px ${mono}`; c.textAlign = "center"; c.textBaseline = "middle";
  for (const [kind, n, sign] of texts.reverse()) {
    const text = `${sign}${n}`, w = text.length * 6.5 + 8;
    c.fillStyle = palette[kind]; round(c, x - w, top - 8, w, 15, 7); c.fill();
    c.fillStyle = isDark() ? "#10141b" : "#fff"; c.fillText(text, x - w / 2, top);
    x -= w + 3;
  }
}

/** What the pass did to a box: added, removed, changed or nothing. */
function markOf(scene, box) {
  if (box.group >= 0) return "";
  const x = scene.records[box.node];
  if (x.ghost) return "removed";
  const d = diffOf(scene.stage);
  return d.added.has(x.name) ? "added" : d.changed.has(x.name) ? "changed" : "";
}

function round(c, x, y, w, h, r) { c.beginPath(); c.roundRect(x, y, w, h, r); }

// -- edges ----------------------------------------------------------------------------------------

function paintEdges(c, scene, view, look) {
  const { boxes } = scene, edges = [...scene.edges, ...feedbackOf(scene, look)], margin = 80;
  const plain = new Path2D(), far = new Path2D(), colored = new Map(), chosen = new Path2D(), back = new Path2D();
  const tiny = view.s < 0.1 && edges.length > 3000;
  const heads = [];
  for (const e of edges) {
    const a = boxes[e.a], b = boxes[e.b];
    if (Math.max(a.x, b.x) < view.l - margin || Math.min(a.x, b.x) > view.r + margin) continue;
    if (Math.max(a.y, b.y) < view.t - margin || Math.min(a.y, b.y) > view.b + margin) continue;
    const mine = look.chosen === e.a || look.chosen === e.b || look.hover === e.a || look.hover === e.b;
    const color = mine ? "" : edgeColor(scene, e);
    if (tiny && !color && !mine) { plain.moveTo(a.x, a.y); plain.lineTo(b.x, b.y); continue; }
    let path = e.back ? back : mine ? chosen : plain;
    if (color) { if (!colored.has(color)) colored.set(color, new Path2D()); path = colored.get(color); }
    else if (!mine && Math.abs(a.y - b.y) + Math.abs(a.x - b.x) > 700) path = far;
    const end = route(path, a, b);
    if (view.s > 0.3) heads.push([end, mine ? palette.accent : color || palette.edge]);
  }
  const width = Math.max(1.1, 0.5 / view.s);
  c.lineWidth = width; c.strokeStyle = palette.edge_far; c.stroke(far);
  c.strokeStyle = palette.edge; if (tiny) c.globalAlpha = 0.25; c.stroke(plain); c.globalAlpha = 1;
  colored.forEach((path, color) => { c.strokeStyle = color; c.lineWidth = width * 1.5; c.stroke(path); });
  c.strokeStyle = palette.accent; c.lineWidth = Math.max(2, 1 / view.s); c.stroke(chosen);
  c.strokeStyle = palette.update; c.setLineDash([6, 4]); c.stroke(back); c.setLineDash([]);
  for (const [[x, y, dx, dy], color] of heads) {
    c.fillStyle = color; c.beginPath(); c.moveTo(x, y);
    c.lineTo(x - dx * 7 - dy * 3.5, y - dy * 7 - dx * 3.5); c.lineTo(x - dx * 7 + dy * 3.5, y - dy * 7 + dx * 3.5); c.fill();
  }
}

/** From what is chosen to the variable that it is the new value of, or the other way round. */
function feedbackOf(scene, look) {
  const found = [];
  if (scene.stage >= PASSES || look.chosen < 0) return found;
  for (const [variable, x] of data.stages[scene.stage].updates) {
    const to = scene.reads.get(variable), from = scene.at.get(x);
    if (to === undefined || from === undefined) continue;
    const a = scene.boxOf[from], b = scene.boxOf[to];
    if (a >= 0 && b >= 0 && a !== b && (a === look.chosen || b === look.chosen)) found.push({ a, b, from, to, back: true, count: 1 });
  }
  return found;
}

function edgeColor(scene, e) {
  if (e.color === undefined) {
    const from = scene.records[e.from].record, to = scene.records[e.to].record;
    const kind = collectiveOf(from) || collectiveOf(to);
    e.kind = kind || (from[F.kind] === KIND.time || to[F.kind] === KIND.time ? "time" : "");
  }
  return e.kind ? palette[e.kind] : "";
}

/** A curve from box a to box b: vertical where they lie above each other, else side to side.
 * Returns where it ends and in which direction. */
function route(path, a, b) {
  const beside = a.x + a.w / 2 + 8 < b.x - b.w / 2 ? 1 : b.x + b.w / 2 + 8 < a.x - a.w / 2 ? -1 : 0;
  const below = a.y + a.h / 2 + 4 < b.y - b.h / 2 ? 1 : b.y + b.h / 2 + 4 < a.y - a.h / 2 ? -1 : 0;
  const steep = Math.abs(b.y - a.y) > 2 * Math.abs(b.x - a.x), free = (box, right) => !box.outer || box.outer[right];
  const hidden = !free(a, beside > 0 ? 1 : 0) || !free(b, beside > 0 ? 0 : 1);
  if (beside && !(below && (steep || hidden))) {
    const x0 = a.x + beside * a.w / 2, x1 = b.x - beside * b.w / 2, bend = Math.max(22, 0.42 * Math.abs(x1 - x0));
    path.moveTo(x0, a.y); path.bezierCurveTo(x0 + beside * bend, a.y, x1 - beside * bend, b.y, x1, b.y);
    return [x1, b.y, beside, 0];
  }
  const down = below || 1, y0 = a.y + down * a.h / 2, y1 = b.y - down * b.h / 2;
  const bend = Math.max(14, Math.min(70, 0.45 * Math.abs(y1 - y0)));
  const drift = Math.max(-a.w / 2 + 10, Math.min(a.w / 2 - 10, (b.x - a.x) * 0.15));
  const swing = Math.abs(b.y - a.y) > 160 && Math.abs(b.x - a.x) < 30 ? -(Math.max(a.w, b.w) / 2 + 26) : 0;
  path.moveTo(a.x + drift, y0);
  path.bezierCurveTo(a.x + drift + swing, y0 + down * bend, b.x + swing, y1 - down * bend, b.x, y1);
  return [b.x, y1, 0, down];
}

// -- the map --------------------------------------------------------------------------------------

function paintMap(scene) {
  const ratio = window.devicePixelRatio || 1, w = map.clientWidth, h = map.clientHeight;
  if (!w || !scene) return;
  const vw = canvas.clientWidth / camera.scale, vh = canvas.clientHeight / camera.scale;
  const all = camera.x - vw / 2 <= 0 && camera.x + vw / 2 >= scene.w && camera.y - vh / 2 <= 0 && camera.y + vh / 2 >= scene.h;
  map.classList.toggle("idle", all);
  if (all) return;
  map.width = w * ratio; map.height = h * ratio;
  const c = map.getContext("2d"), s = mapScale(scene);
  c.setTransform(ratio, 0, 0, ratio, 0, 0); c.clearRect(0, 0, w, h);
  c.translate(w / 2, h / 2); c.scale(s, s); c.translate(-scene.w / 2, -scene.h / 2);
  const step = Math.max(1, Math.floor(scene.boxes.length / 20000));
  for (let i = 0; i < scene.boxes.length; i += step) {
    const box = scene.boxes[i];
    if (box.open) continue;
    c.fillStyle = colorOf(scene, box, "kind");
    c.fillRect(box.x - box.w / 2, box.y - box.h / 2, Math.max(box.w, 1 / s), Math.max(box.h, 1 / s));
  }
  c.strokeStyle = palette.accent; c.lineWidth = 1.5 / s; c.strokeRect(camera.x - vw / 2, camera.y - vh / 2, vw, vh);
}

const mapScale = (scene) => Math.min(map.clientWidth / (scene.w + 60), map.clientHeight / (scene.h + 60));
