// The other views: memory and kernels in the order of execution, the devices, and the lowering.

// -- time -----------------------------------------------------------------------------------------

const timeView = { chosen: -1, hover: -1, scale: "order", canvas: null, live: null };

function startTime() {
  const x = data.execution, view = $("time");
  if (!x) { view.append(el("p", { className: "dim", style: { padding: "20px" } }, "This graph was not compiled: there is no order of execution.")); return; }
  timeView.live = x.entries.map(() => 0);
  const highest = new Map();
  x.buffers.forEach((b, k) => { for (const [first, last] of b[3]) for (let t = first; t <= last && t < x.entries.length; t++) timeView.live[t] += b[1]; highest.set(k, b[1]); });
  timeView.peak = timeView.live.reduce((best, v, i) => (v > timeView.live[best] ? i : best), 0);
  const c = el("canvas", { tabIndex: 0 });
  c.setAttribute("aria-label", "Memory in the order of execution");
  timeView.canvas = c;
  const pick = el("select", { "aria-label": "Width of an entry", onchange: (e) => { timeView.scale = e.target.value; paintTime(); } },
    el("option", { value: "order" }, "each kernel equally wide"), el("option", { value: "operations" }, "by operations"), el("option", { value: "bytes" }, "by bytes moved"),
    ...(data.measured ? [el("option", { value: "seconds" }, "by measured time")] : []));
  view.append(c, el("div", { className: "bar2" }, el("h2", {}, "One step on one device"), el("span", { className: "dim", id: "timenote" },
    `${x.entries.length} kernels and host instructions; arena ${bytesText(x.arena)}, variables ${bytesText(x.variables)}, constants ${bytesText(x.constants)}`), el("span", { className: "gap" }), pick));
  c.addEventListener("mousemove", (e) => { const i = entryAt(e.offsetX); if (i !== timeView.hover) { timeView.hover = i; light(i < 0 ? [] : x.entries[i][2]); paintTime(); } timeTip(e); });
  c.addEventListener("mouseleave", () => { timeView.hover = -1; light([]); $("tip").hidden = true; paintTime(); });
  c.addEventListener("click", (e) => chooseEntry(entryAt(e.offsetX)));
}

function entryPart(entry) {
  const graph = graphOf(PASSES - 1);
  for (const n of entry[2]) { const at = graph.at.get(n); if (at !== undefined) return R[graph.order[at]]; }
  return null;
}

/** The left edges of all entries, from 0 to 1. */
function entryEdges() {
  const x = data.execution, graph = graphOf(PASSES - 1);
  const weight = x.entries.map((e) => {
    if (timeView.scale === "order") return 1;
    if (timeView.scale === "seconds") return (measuredKernel(e[2]) || [0])[0];
    let sum = 0;
    for (const n of e[2]) { const at = graph.at.get(n); if (at !== undefined) sum += R[graph.order[at]][F[timeView.scale]]; }
    return sum;
  });
  const total = weight.reduce((a, b) => a + b, 0) || 1, floor = 0.15 / weight.length;
  const edges = [0];
  weight.forEach((v) => edges.push(edges[edges.length - 1] + v / total + floor));
  return edges.map((v) => v / edges[edges.length - 1]);
}

const TIME_LEFT = 70, TIME_TOP = 56, TIME_BOTTOM = 116;

function entryAt(px) {
  const edges = entryEdges(), w = timeView.canvas.clientWidth - TIME_LEFT - 24, at = (px - TIME_LEFT) / w;
  if (at < 0 || at >= 1) return -1;
  let lo = 0, hi = edges.length - 1;
  while (hi - lo > 1) { const mid = (lo + hi) >> 1; if (edges[mid] <= at) lo = mid; else hi = mid; }
  return lo;
}

function paintTime() {
  const x = data.execution, cv = timeView.canvas;
  if (!x || !cv || !cv.clientWidth) return;
  const ratio = window.devicePixelRatio || 1, w = cv.clientWidth, h = cv.clientHeight;
  cv.width = w * ratio; cv.height = h * ratio;
  const c = cv.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0); c.fillStyle = palette.back; c.fillRect(0, 0, w, h);
  const edges = entryEdges(), left = TIME_LEFT, wide = w - left - 24, tall = h - TIME_TOP - TIME_BOTTOM, floor = TIME_TOP + tall;
  const px = (t) => left + edges[Math.max(0, Math.min(edges.length - 1, t))] * wide;
  const most = Math.max(x.arena, ...timeView.live, 1), py = (b) => floor - b / most * tall;
  c.font = `11px ${sans}`; c.textBaseline = "middle";
  for (const [start, first, stop, turns] of x.loops) {
    const spans = first === stop ? [[start, stop, `each of ${turns} microbatches`]] : [[start, first, "first microbatch"], [first, stop, turns === 2 ? "second microbatch" : `each of ${turns - 1} more`]];
    for (const [a, b, text] of spans) {
      c.fillStyle = palette.lane; c.fillRect(px(a), TIME_TOP - 22, px(b) - px(a) - 2, tall + 124);
      c.fillStyle = palette.time; c.textAlign = "left"; c.fillText(text, px(a) + 6, TIME_TOP - 12);
    }
  }
  c.textAlign = "right"; c.strokeStyle = palette.line; c.lineWidth = 1;
  for (let k = 0; k <= 4; k++) { const y = py(most * k / 4); c.fillStyle = palette.dim; c.fillText(bytesText(most * k / 4), left - 8, y); c.beginPath(); c.moveTo(left, y + .5); c.lineTo(left + wide, y + .5); c.stroke(); }
  const graph = graphOf(PASSES - 1), byName = new Map();
  const colorFor = (name) => { // a buffer is named after a node
    if (!byName.has(name)) { const at = graph.at.get(name), r = at === undefined ? null : R[graph.order[at]]; byName.set(name, r ? collectiveOf(r) ? palette[collectiveOf(r)] : palette[partOf(r)] : palette.faint); }
    return byName.get(name);
  };
  const focus = timeView.hover >= 0 ? timeView.hover : timeView.chosen;
  for (const [name, size, offset, lives] of x.buffers) for (const [first, last] of lives) {
    const x0 = px(first), x1 = px(last + 1), y0 = py(offset + size), y1 = py(offset);
    const on = focus >= first && focus <= last;
    c.globalAlpha = focus < 0 ? 0.55 : on ? 0.85 : 0.22; c.fillStyle = colorFor(name); c.fillRect(x0, y0, Math.max(1, x1 - x0 - .5), Math.max(.8, y1 - y0 - .5));
    c.globalAlpha = 1;
    if (y1 - y0 > 13 && x1 - x0 > S[name].length * 6.6 + 8) { c.fillStyle = isDark() ? "#0b0e13" : "#fff"; c.textAlign = "left"; c.font = `11px ${mono}`; c.fillText(S[name], x0 + 5, (y0 + y1) / 2); }
  }
  c.beginPath(); c.strokeStyle = palette.ink; c.lineWidth = 1.4; // bytes alive
  timeView.live.forEach((v, t) => { c[t ? "lineTo" : "moveTo"](px(t), py(v)); c.lineTo(px(t + 1), py(v)); }); c.stroke();
  const p = timeView.peak, x0 = (px(p) + px(p + 1)) / 2;
  c.fillStyle = palette.removed; c.beginPath(); c.arc(x0, py(timeView.live[p]), 4.5, 0, 7); c.fill();
  c.textAlign = x0 > w - 220 ? "right" : "left"; c.font = `600 11px ${sans}`; c.fillText(`peak ${bytesText(timeView.live[p])}`, x0 + (x0 > w - 220 ? -9 : 9), Math.max(TIME_TOP - 8, py(timeView.live[p]) - 9));
  paintEntries(c, x, px, floor, focus);
}

/** The rows below the memory: what computes, and what exchanges. */
function paintEntries(c, x, px, floor, focus) {
  const rowsOf = [["kernels", floor + 22], ["exchange", floor + 50], ["host, feed", floor + 78]];
  c.font = `11px ${sans}`; c.textAlign = "right"; c.fillStyle = palette.dim;
  for (const [text, y] of rowsOf) c.fillText(text, TIME_LEFT - 8, y + 9);
  x.entries.forEach((entry, t) => {
    const r = entryPart(entry), graph = graphOf(PASSES - 1);
    let kind = "";
    for (const n of entry[2]) { const at = graph.at.get(n); if (at !== undefined) kind = kind || collectiveOf(R[graph.order[at]]); }
    const row = entry[0] === "kernel" ? 0 : entry[0] === "start" || entry[0] === "wait" ? 1 : 2;
    const draw = (i, color) => { c.fillStyle = color; c.globalAlpha = focus < 0 || focus === t ? 1 : 0.5; c.fillRect(px(t), rowsOf[i][1], Math.max(1, px(t + 1) - px(t) - 1), 20); c.globalAlpha = 1; };
    if (row !== 1) draw(row, r ? palette[partOf(r)] : palette.faint);
    if (kind) draw(1, palette[kind]);
    const name = entry[2].length ? S[entry[2][entry[2].length - 1]] : "";
    if (row !== 1 && px(t + 1) - px(t) > name.length * 6.4 + 6) { c.fillStyle = isDark() ? "#0b0e13" : "#fff"; c.textAlign = "left"; c.fillText(name, px(t) + 4, rowsOf[row][1] + 10); }
    if (t === timeView.chosen) { c.strokeStyle = palette.accent; c.lineWidth = 2; c.strokeRect(px(t), TIME_TOP, px(t + 1) - px(t), floor + 100 - TIME_TOP); }
  });
}

/** The entry after or before the one that is chosen. */
function stepEntry(by) {
  const from = timeView.chosen < 0 ? timeView.peak : timeView.chosen;
  chooseEntry(Math.max(0, Math.min(data.execution.entries.length - 1, from + by)));
}

function timeTip(event) {
  const i = timeView.hover, tip = $("tip");
  if (i < 0) { tip.hidden = true; return; }
  const [kind, part, names] = data.execution.entries[i];
  showTip(event, el("b", {}, `${i + 1}. ${kind}, ${S[part]}`), el("div", {}, el("code", {}, clipped(names.map((n) => S[n]).join(", "), 160))), el("div", { className: "dim" }, `${bytesText(timeView.live[i])} alive in the arena`));
}

function chooseEntry(i) {
  timeView.chosen = i;
  paintTime();
  if (i < 0) return;
  app.chosenName = -1; app.chosenGroup = -1;
  const x = data.execution, [kind, part, names] = x.entries[i];
  const alive = x.buffers.filter((b) => b[3].some(([a, z]) => a <= i && i <= z)).sort((a, b) => b[1] - a[1]);
  const most = alive.length ? alive[0][1] : 1, graph = graphOf(PASSES - 1);
  let flops = 0, moved = 0;
  for (const n of names) { const at = graph.at.get(n); if (at !== undefined) { flops += R[graph.order[at]][F.operations]; moved += R[graph.order[at]][F.sent]; } }
  $("panel").replaceChildren(el("h2", {}, `${kind} ${i + 1} of ${x.entries.length}`), el("div", { className: "dim" }, `${S[part]}${i === timeView.peak ? ", where memory is at its peak" : ""}`),
    rows([["measured", data.measured && measuredKernel(names) ? shareText(measuredKernel(names)[0]) + limitText(measuredKernel(names)) : ""], ["compute", flops ? flopsText(flops) : ""], ["sent", moved ? bytesText(moved) : ""], ["alive", `${bytesText(timeView.live[i])} in the arena`]]),
    el("h3", {}, names.length > 1 ? "Fused into it" : "Node"), el("div", {}, ...(listed(names) || ["nothing of the graph"])),
    el("h3", {}, "Alive now"), ...alive.slice(0, 60).map((b) => el("div", {}, nodeLink(b[0]), el("span", { className: "dim" }, ` ${bytesText(b[1])}`), el("div", { className: "bar" }, el("i", { style: { width: `${100 * b[1] / most}%` } })))));
}

// -- devices --------------------------------------------------------------------------------------

const deviceView = { chosen: 0 };

function showDevices() {
  const d = data.devices, x = data.execution, view = $("devices");
  const axes = d.axes.map(([name, size, over, link]) => `${name} = ${size} over ${over}${link && link !== "memory" ? ` (${link})` : ""}`).join(", ");
  view.replaceChildren(el("h2", {}, d.count === 1 ? "One device" : `${d.count} devices`), el("p", { className: "dim" }, axes || "Every value is on it."));
  const held = d.at.map((_, rank) => d.variables.reduce((s, v) => s + partBytes(v, rank), 0));
  const most = Math.max(...held.map((v) => v + (x ? x.arena + x.constants : 0)), 1);
  view.append(el("div", { className: "cards" }, ...d.at.map((at, rank) => {
    const pieces = [["variables", held[rank], "var(--variable)"], ["arena", x ? x.arena : 0, "var(--forward)"], ["constants", x ? x.constants : 0, "var(--constant)"]];
    return el("div", { className: "card" + (rank === deviceView.chosen ? " on" : ""), tabIndex: 0, onclick: () => { deviceView.chosen = rank; showDevices(); }, onkeydown: (e) => { if (e.key === "Enter") { deviceView.chosen = rank; showDevices(); } } },
      el("h4", {}, `device ${rank}`, el("span", { className: "dim", style: { fontWeight: 400 } }, "  " + d.axes.filter((a) => a[2] === "space").map((a) => `${a[0]}=${at[a[0]]}`).join(" "))),
      el("div", { className: "stack" }, ...pieces.map(([, b, color]) => el("i", { style: { width: `${100 * b / most}%`, background: color } }))),
      ...pieces.filter((p) => p[1]).map(([text, b, color]) => el("p", {}, el("span", { style: { color } }, text), el("span", {}, bytesText(b)))),
      el("p", {}, el("span", {}, "sends, on average"), el("span", {}, bytesText(d.sent))));
  })));
  const shown = d.variables.filter((v) => v.kind !== "hyper");
  view.append(el("h2", {}, `Where variables are, device ${deviceView.chosen}`), el("table", {}, el("tr", {}, ...["variable", "kind", "type", "placement", "here", "part", "of this device"].map((t) => el("th", {}, t))),
    ...shown.slice(0, 400).map((v) => el("tr", {}, el("td", {}, v.name), el("td", {}, v.kind), el("td", {}, v.type), el("td", {}, v.placement || "on every device"), el("td", { className: "n" }, bytesText(partBytes(v, deviceView.chosen))), el("td", {}, strip(v, deviceView.chosen)), el("td", {}, partText(v, deviceView.chosen))))));
  if (x) view.append(...runsHere(x, d));
  const exchanged = graphOf(PASSES - 1).order.map((r) => R[r]).filter((r) => r[F.kind] === KIND.space);
  if (exchanged.length) view.append(el("h2", { style: { marginTop: "24px" } }, "What devices exchange in a step"), collectiveTable(exchanged));
}

/** What the chosen device runs that others don't. */
function runsHere(x, d) {
  const at = d.at[deviceView.chosen] || {}, runs = (e) => Object.entries(e[3]).every(([axis, index]) => at[axis] === index);
  const here = x.entries.filter(runs), own = here.filter((e) => Object.keys(e[3]).length);
  const title = el("h2", { style: { marginTop: "24px" } }, `What device ${deviceView.chosen} runs`);
  if (here.length === x.entries.length) return [title, el("p", { className: "dim" }, `All ${x.entries.length} kernels and host instructions of the step, as every device does, on its part of the data.`)];
  return [title, el("p", { className: "dim" }, `${here.length} of ${x.entries.length} kernels and host instructions of the step; ${own.length} of them run on some devices only:`),
    el("table", {}, el("tr", {}, ...["", "on", "computes"].map((t) => el("th", {}, t))), ...own.slice(0, 200).map((e) => el("tr", {},
      el("td", {}, el("a", { className: "node", tabIndex: 0, onclick: () => { showTab("time"); chooseEntry(x.entries.indexOf(e)); } }, `${e[0]} ${x.entries.indexOf(e) + 1}`)),
      el("td", {}, Object.entries(e[3]).map(([a, k]) => `${a}=${k}`).join(", ")), el("td", {}, clipped(e[2].map((n) => S[n]).join(", "), 120)))))];
}

function partBytes(v, rank) {
  const total = v.shape.reduce((a, b) => a * b, 1);
  if (!v.parts.length) return v.bytes;
  const part = v.parts[rank];
  return part ? Math.round(v.bytes * (total ? part.reduce((s, p) => s * p[1], 1) / total : 1)) : 0;
}

function strip(v, rank) {
  const box = el("div", { className: "strip" }), part = v.parts[rank];
  if (!v.parts.length || part === undefined) return box;
  if (part === null) return box;
  const dim = part.findIndex((p, i) => p[1] < v.shape[i]);
  if (dim < 0) box.append(el("i", { className: "all", style: { left: "0", right: "0" } }));
  else box.append(el("i", { style: { left: `${100 * part[dim][0] / v.shape[dim]}%`, width: `${100 * part[dim][1] / v.shape[dim]}%` } }));
  return box;
}

function partText(v, rank) {
  const part = v.parts[rank];
  if (!v.parts.length) return "";
  if (!part) return "not here";
  const cut = part.map((p, i) => [p, i]).filter(([p, i]) => p[1] < v.shape[i]);
  return cut.length ? cut.map(([p, i]) => `dim ${i}: ${p[0]} to ${p[0] + p[1] - 1}`).join(", ") : "all of it";
}

function collectiveTable(records) {
  const graph = graphOf(PASSES - 1);
  return el("table", {}, el("tr", {}, ...["collective", "node", "of", "over", "sent", "because"].map((t) => el("th", {}, t))),
    ...records.slice(0, 500).map((r) => { const b = r[F.because] >= 0 ? data.reasons[r[F.because]] : null;
      return el("tr", {}, el("td", { style: { color: `var(--${collectiveOf(r)})` } }, textOf(r, "op")), el("td", {}, el("a", { className: "node", tabIndex: 0, onclick: () => { go(PASSES - 1); choose(r[F.name], true); showTab("graph"); } }, S[r[F.name]])),
        el("td", {}, r[F.operands].map((n) => { const o = R[graph.order[graph.at.get(n)]]; return textOf(o, "type"); }).join(", ")), el("td", {}, textOf(r, "attributes").match(/axis="([^"]*)"/)?.[1] ?? ""), el("td", { className: "n" }, bytesText(r[F.sent])), el("td", { style: { fontFamily: "var(--sans)" } }, b ? clipped(`${S[b[1]]}${S[b[2]] ? ` for %${S[b[2]]}` : ""}${S[b[3]] ? `: ${S[b[3]]}` : ""}`, 110) : "")); }));
}

// -- lowering -------------------------------------------------------------------------------------

function showKernels(i) {
  const stage = data.lowering[i], view = $("kernels"), lines = listingDiff(i);
  const pre = el("pre", {}), most = Math.min(lines.length, LINES_MOST), known = graphOf(PASSES - 1).at;
  const marks = $("changes").checked;
  for (let k = 0; k < most; k++) {
    const [mark, id] = lines[k];
    if (mark === "-" && !marks) continue;
    pre.append(el("div", { className: marks ? { "+": "add", "-": "gone", " ": "" }[mark] : "", "data-line": id }, S[id] || " "));
  }
  if (lines.length > most) pre.append(el("div", { className: "dim" }, `… ${lines.length - most} more lines: graphc show --after ${stage.name} prints them`));
  const added = lines.filter((l) => l[0] === "+").length, gone = lines.filter((l) => l[0] === "-").length;
  view.replaceChildren(el("h2", {}, stage.name, el("span", { className: "dim", style: { fontWeight: 400, marginLeft: "10px" } }, stage.purpose)),
    el("p", { className: "dim" }, i ? [`${added} lines are new, ${gone} are gone.`] : `${lines.length} lines.`), pre);
  const namesIn = (text) => [...text.matchAll(/%?([\w./-]+)/g)].map((m) => textIds.get(m[1])).filter((n) => n !== undefined && known.has(n));
  pre.addEventListener("mouseover", (e) => { const row = e.target.closest("pre > div"); light(row ? namesIn(row.textContent) : []); });
  pre.addEventListener("mouseleave", () => light([]));
  pre.addEventListener("click", (e) => { const row = e.target.closest("pre > div"), names = row ? namesIn(row.textContent) : []; if (names.length) choose(names[0], false); });
}
const textIds = new Map(S.map((text, i) => [text, i]));
