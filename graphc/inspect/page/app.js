// What the page is doing, and what keys and pointers change.

const app = {
  stage: 0, tab: "graph", open: new Set(), details: false, by: "kind", scene: null,
  chosenName: -1, chosenGroup: -1, hoverName: -1, hoverBox: -1, litNames: new Set(), held: false, follow: true,
};
const TABS = [["graph", "Graph"], ["time", "Time and memory"], ["devices", "Devices"]];
const LEVEL_NAMES = ["model", "layers", "ops", "values"]; // the last draws constants and casts, too
const FIT_MOST = 60; // boxes that are drawn at first

// -- state ----------------------------------------------------------------------------------------

let frame = 0;
function refresh() {
  if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); });
}

function draw(ratio = 0) {
  if (app.tab !== "graph" || !app.scene) return;
  const scene = app.scene;
  const lit = new Set();
  for (const n of app.litNames) { const at = scene.at.get(n); if (at !== undefined && scene.boxOf[at] >= 0) lit.add(scene.boxOf[at]); }
  paint(scene, { by: app.by, chosen: chosenBox(), hover: app.hoverBox, lit, fade: true, marks: scene.ghosts, ratio });
  paintMap(scene);
}

function chosenBox() {
  const scene = app.scene;
  if (app.chosenName >= 0) { const at = scene.at.get(app.chosenName); return at === undefined ? -1 : scene.boxOf[at]; }
  return app.chosenGroup >= 0 ? scene.boxes.findIndex((b) => b.group === app.chosenGroup) : -1;
}

/** Lay the graph out anew. keep: the group whose place on the screen stays the same. */
function relayout(keep = -1) {
  const before = keep >= 0 ? app.scene.boxes.find((b) => b.group === keep) : null;
  const ghosts = $("changes").checked && app.stage > 0 && app.stage < PASSES;
  const scene = sceneOf(Math.min(app.stage, PASSES - 1), app.open, app.details, ghosts);
  scene.ghosts = ghosts;
  layoutScene(scene, measureIn(scene));
  scene.reads = new Map(); // variable -> the node that reads it
  scene.records.forEach((x, i) => { const k = x.record[F.kind]; if (k === KIND.variable || k === KIND.slot) scene.reads.set((textOf(x.record, "attributes").match(/source_name="((?:[^"\\]|\\.)*)"/) || [])[1], i); });
  scene.most = { cost: 1, sent: 1, time: 1e-12 };
  for (const box of scene.boxes) if (!box.open) {
    const t = totalsOf(scene, box);
    scene.most.cost = Math.max(scene.most.cost, t.operations); scene.most.sent = Math.max(scene.most.sent, t.sent); scene.most.time = Math.max(scene.most.time, t.seconds);
  }
  app.scene = scene; app.hoverBox = -1;
  if (before) {
    const at = scene.boxes.find((b) => b.group === keep) || scene.boxes.find((b) => b.members.some((i) => scene.records[i].record[F.group] === keep));
    if (at) { camera.x += at.x - before.x; camera.y += (at.y - at.h / 2) - (before.y - before.h / 2); }
  }
  showLegend();
  refresh();
}

function fit() {
  const scene = app.scene, w = canvas.clientWidth, h = canvas.clientHeight;
  if (!scene || !w) return;
  const s = Math.min((w - 36) / (scene.w + 44), (h - 110) / (scene.h + 70), 1.25);
  camera.scale = Math.max(s, 0.01); camera.x = scene.w / 2; camera.y = scene.h / 2 - 12 + 8 / camera.scale;
  app.fitted = [camera.x, camera.y, camera.scale].join();
  refresh();
}

/** Whether the camera shows all, as `fit` left it: then it goes on doing so. */
const isWhole = () => !app.fitted || app.fitted === [camera.x, camera.y, camera.scale].join();

function center(box, scale = Math.max(camera.scale, 0.6)) {
  const w = canvas.clientWidth / scale, h = canvas.clientHeight / scale;
  const seen = scale === camera.scale && Math.abs(box.x - camera.x) < w / 2 - 60 && Math.abs(box.y - camera.y) < h / 2 - 50;
  if (!seen) { camera.scale = scale; camera.x = box.x; camera.y = box.y; }
  refresh();
}

/** Go to a pass or a stage of the lowering. */
function go(stage) {
  app.stage = Math.max(0, Math.min(STAGES - 1, stage));
  $("slider").value = app.stage;
  showStage();
  showSource(Number($("code").dataset.file || 0));
  if (app.stage >= PASSES) { showTab("kernels"); showKernels(app.stage - PASSES); }
  else if (app.tab === "kernels") showTab("graph");
  const whole = isWhole();
  relayout();
  if (whole) fit();
  showPanel();
}

function showStage() {
  const i = app.stage, text = $("stage");
  [...$("stops").children].forEach((li, k) => { if (k === i) { li.setAttribute("aria-current", "true"); li.scrollIntoView({ block: "nearest", inline: "nearest" }); } else li.removeAttribute("aria-current"); });
  if (i >= PASSES) {
    const s = data.lowering[i - PASSES];
    const d = listingDiff(i - PASSES), count = (mark) => d.filter((x) => x[0] === mark).length;
    text.replaceChildren(el("b", {}, s.name), ` · ${s.lines.length} lines`, ...(i > PASSES ? [" · ", el("span", { className: "plus" }, `+${count("+")} new`), " ", el("span", { className: "minus" }, `−${count("-")} gone`), ` · ${secondsText(s.seconds)}`] : []), ` · ${s.purpose}`);
    return;
  }
  const s = data.stages[i], d = diffOf(i), graph = graphOf(i);
  const none = !d.added.size && !d.removed.length && !d.changed.size;
  const changes = i && none ? [" · changed nothing"] : i ? [" · ", el("span", { className: "plus" }, `+${d.added.size} added`), " ", el("span", { className: "minus" }, `−${d.removed.length} removed`), " ", el("span", { className: "tilde" }, `~${d.changed.size} changed`)] : [];
  text.replaceChildren(el("b", {}, s.name + s.options), ` · ${graph.order.length} nodes`, ...changes, s.seconds ? ` · ${secondsText(s.seconds)} with its check · ` : " · ", s.purpose);
  text.title = text.textContent;
}

function toggleGroup(id) {
  if (app.open.has(id)) app.open.delete(id); else app.open.add(id);
  relayout(id);
  if (app.chosenGroup === id) showPanel();
}

/** Show a node: open what is around it, and bring it into view. */
function choose(name, reveal) {
  app.chosenName = name; app.chosenGroup = -1; app.held = false; app.litNames = new Set();
  if (reveal && app.tab !== "time") {
    if (app.stage >= PASSES) { showTab("graph"); }
    const graph = graphOf(app.stage), at = graph.at.get(name);
    if (at !== undefined) {
      const r = R[graph.order[at]];
      let changed = false;
      for (let g = r[F.group]; g >= 0; g = groups[g].parent) if (groups[g].parent >= 0 && !app.open.has(g)) { app.open.add(g); changed = true; }
      if (r[F.minor] && !app.details) { app.details = true; $("minor").checked = true; changed = true; }
      if (changed) relayout();
    }
    const b = chosenBox();
    if (b >= 0) center(app.scene.boxes[b]);
  }
  app.follow = true;
  showPanel(); markLine(); refresh();
}

function chooseBox(box) {
  if (box.group >= 0) { app.chosenGroup = box.group; app.chosenName = -1; app.held = false; app.litNames = new Set(); showPanel(); markLine(); refresh(); }
  else choose(app.scene.records[box.node].name, false);
}

/** Light up nodes; held: until something else is chosen. */
function light(names, held = false) {
  if (app.held && !held && !names.length) return;
  app.held = held; app.litNames = new Set(names);
  refresh();
}

function clear() {
  app.chosenName = -1; app.chosenGroup = -1; app.held = false; app.litNames = new Set(); timeView.chosen = -1;
  showPanel(); markLine(); refresh(); paintTime();
}

function showTab(tab) {
  app.tab = tab;
  for (const id of ["graph", "time", "devices", "kernels"]) $(id).hidden = id !== tab;
  for (const b of $("tabs").children) b.setAttribute("aria-selected", String(b.dataset.tab === tab));
  if (tab === "graph" && app.stage >= PASSES) { app.stage = PASSES - 1; $("slider").value = app.stage; showStage(); relayout(); }
  if (tab === "devices") showDevices();
  if (tab === "time") { paintTime(); if (timeView.chosen < 0 && app.chosenName < 0 && data.execution) chooseEntry(timeView.peak); }
  if (tab === "kernels" && app.stage < PASSES && data.lowering.length) { app.stage = STAGES - 1; $("slider").value = app.stage; showStage(); showKernels(app.stage - PASSES); }
  refresh();
}

/** The groups that are open at a level. */
const openAt = (level) => new Set(groups.filter((g) => g.parent >= 0 && g.level <= level).map((g) => g.id));

/** The deepest level that fits on a screen. */
function fittingLevel() {
  for (let level = LEVEL_NAMES.length - 2; level > 0; level--) {
    const scene = sceneOf(PASSES - 1, openAt(level), false, false);
    if (scene.boxes.filter((b) => !b.open).length <= FIT_MOST) return level;
  }
  return 0;
}

function takeLevel(level) {
  app.open = openAt(level); $("level").value = level;
  app.details = $("minor").checked = level === LEVEL_NAMES.length - 1;
}

function setLevel(level) {
  takeLevel(level);
  relayout(); fit();
}

// -- legend, tips ---------------------------------------------------------------------------------

function showLegend() {
  const scene = app.scene, found = new Map();
  const add = (color, text) => { if (!found.has(text)) found.set(text, color); };
  if (app.by === "placement") for (const b of scene.boxes) if (b.group < 0) { const text = textOf(scene.records[b.node].record, "placement"); add(placementColor(text), text || "replicated"); }
  if (["cost", "sent", "time"].includes(app.by)) { add(heat(1), { cost: `${flopsText(scene.most.cost)} on a device`, sent: `${bytesText(scene.most.sent)} sent`, time: `${secondsText(scene.most.time)} measured` }[app.by]); add(heat(0.08), "less"); add(heat(0), "none"); }
  if (app.by === "kind") {
    for (const p of PARTS) add(palette[p], p);
    for (const x of scene.records) { const k = collectiveOf(x.record) || kindOf(x.record); if (k !== "compute" && k !== "space" && k !== "constant") add(palette[k], { time: "over microbatches", local: "conversion that sends nothing", slot: "optimizer slot" }[k] || k.replace(/_/g, " ")); }
  }
  if (scene.ghosts) { add(palette.added, "added by the pass"); add(palette.changed, "changed"); add(palette.removed, "removed"); }
  $("legend").replaceChildren(...[...found].slice(0, 18).map(([text, color]) => el("span", {}, el("i", { style: { background: color } }), text)));
}

function showTip(event, ...children) {
  const tip = $("tip"), area = $("stagearea").getBoundingClientRect();
  tip.replaceChildren(...children); tip.hidden = false;
  if (tip.parentElement !== $("stagearea")) $("stagearea").append(tip);
  const x = event.clientX - area.left + 14, y = event.clientY - area.top + 14;
  tip.style.left = `${Math.min(x, area.width - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y + tip.offsetHeight > area.height ? y - tip.offsetHeight - 24 : y}px`;
}

function boxTip(event, box) {
  const scene = app.scene, t = totalsOf(scene, box);
  const costs = [t.seconds ? shareText(t.seconds) : "", t.operations ? flopsText(t.operations) : "", t.sent ? `${bytesText(t.sent)} sent` : ""].filter(Boolean).join(" · ");
  if (box.group >= 0) { showTip(event, el("b", {}, groups[box.group].title), el("div", { className: "dim" }, `${box.members.length || box.children.length} inside${costs ? " · " + costs : ""} · double click ${box.open ? "closes" : "opens"}`)); return; }
  const r = scene.records[box.node].record, b = r[F.because] >= 0 ? data.reasons[r[F.because]] : null;
  showTip(event, el("b", {}, `%${S[r[F.name]]}`), el("div", {}, el("code", {}, `${textOf(r, "op")} ${textOf(r, "type")} ${textOf(r, "placement")}`)), costs ? el("div", { className: "dim" }, costs) : "", b ? el("div", {}, `because ${S[b[0]]}: ${S[b[1]]}${S[b[3]] ? `: ${S[b[3]]}` : ""}`) : "");
}

// -- pointer --------------------------------------------------------------------------------------

const world = (event) => ({ x: camera.x + (event.offsetX - canvas.clientWidth / 2) / camera.scale, y: camera.y + (event.offsetY - canvas.clientHeight / 2) / camera.scale });

function boxAt({ x, y }) {
  const boxes = app.scene ? app.scene.boxes : [];
  let frameHit = null;
  for (let i = boxes.length - 1; i >= 0; i--) {
    const b = boxes[i];
    if (Math.abs(x - b.x) > b.w / 2 || Math.abs(y - b.y) > b.h / 2) continue;
    if (!b.open) return b;
    if (!frameHit) frameHit = b;
  }
  return frameHit;
}

function startPointer() {
  let from = null, moved = false;
  canvas.addEventListener("pointerdown", (e) => { canvas.focus({ preventScroll: true }); from = { x: e.clientX, y: e.clientY, cx: camera.x, cy: camera.y }; moved = false; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    if (from) {
      const dx = e.clientX - from.x, dy = e.clientY - from.y;
      if (Math.abs(dx) + Math.abs(dy) > 3) moved = true;
      if (moved) { camera.x = from.cx - dx / camera.scale; camera.y = from.cy - dy / camera.scale; canvas.classList.add("drag"); $("tip").hidden = true; refresh(); }
      return;
    }
    const box = boxAt(world(e)), id = box ? box.id : -1;
    canvas.classList.toggle("over", id >= 0);
    if (id !== app.hoverBox) {
      app.hoverBox = id;
      app.hoverName = box && box.group < 0 ? app.scene.records[box.node].name : -1;
      markLine(); refresh();
    }
    if (box) boxTip(e, box); else $("tip").hidden = true;
  });
  canvas.addEventListener("pointerup", (e) => {
    canvas.classList.remove("drag");
    if (from && !moved) { const box = boxAt(world(e)); if (box) chooseBox(box); else clear(); }
    from = null;
  });
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; app.hoverBox = -1; app.hoverName = -1; markLine(); refresh(); });
  canvas.addEventListener("dblclick", (e) => { const box = boxAt(world(e)); if (box && box.group >= 0) toggleGroup(box.group); });
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault(); $("tip").hidden = true;
    if (!e.ctrlKey && e.shiftKey) { camera.x += e.deltaY / camera.scale; refresh(); return; }
    const at = world(e), factor = Math.exp(-Math.max(-120, Math.min(120, e.deltaY)) * 0.0022);
    zoom(factor, at);
  }, { passive: false });
  map.addEventListener("pointerdown", mapMove);
  map.addEventListener("pointermove", (e) => { if (e.buttons) mapMove(e); });
}

function zoom(factor, at = { x: camera.x, y: camera.y }) {
  const s = Math.max(0.004, Math.min(4, camera.scale * factor)), f = s / camera.scale;
  camera.x = at.x + (camera.x - at.x) / f; camera.y = at.y + (camera.y - at.y) / f; camera.scale = s;
  refresh();
}

function mapMove(e) {
  const s = mapScale(app.scene);
  camera.x = app.scene.w / 2 + (e.offsetX - map.clientWidth / 2) / s; camera.y = app.scene.h / 2 + (e.offsetY - map.clientHeight / 2) / s;
  refresh();
}

// -- keys -----------------------------------------------------------------------------------------

const KEYS = [["/", "search; arrows choose, Enter shows, Esc leaves"], ["←  ↑  ↓  →", "go to the next box on that side; in time, to the next kernel"], ["Enter", "open or close a group"], ["[  ]", "pass before, next pass"],
  ["f", "show all"], ["+  −", "larger, smaller"], ["c", "mark what the pass changed"], ["1  2  3  4", "graph, time and memory, devices, kernels"], ["d", "light or dark"], ["p", "print"], ["Esc", "choose nothing"]];

/** The nearest box in a direction. */
function neighbor(dx, dy) {
  const scene = app.scene, from = scene.boxes[chosenBox()];
  if (!from) { const first = boxAt(camera) || scene.boxes.find((b) => !b.open); return first; }
  let best = null, least = Infinity;
  for (const b of scene.boxes) {
    if (b.open || b === from) continue;
    const x = b.x - from.x, y = b.y - from.y, along = x * dx + y * dy;
    if (along <= 4) continue;
    const distance = along + 2.5 * Math.abs(x * dy + y * dx);
    if (distance < least) { least = distance; best = b; }
  }
  return best;
}

function startKeys() {
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target.matches("input[type=search], select") || (e.target.matches("input[type=range]") && e.key.startsWith("Arrow"));
    if (typing) return;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (arrows[e.key] && app.tab === "graph") { const b = neighbor(...arrows[e.key]); if (b) { chooseBox(b); center(b, camera.scale); } e.preventDefault(); return; }
    if (arrows[e.key] && arrows[e.key][0] && app.tab === "time" && data.execution) { stepEntry(arrows[e.key][0]); e.preventDefault(); return; }
    const chosen = app.scene ? app.scene.boxes[chosenBox()] : null;
    const action = {
      "/": () => { $("search").focus(); $("search").select(); }, Escape: clear, "[": () => go(app.stage - 1), "]": () => go(app.stage + 1),
      f: fit, "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), c: () => $("changes").click(), d: flipTheme, p: () => window.print(),
      1: () => showTab("graph"), 2: () => showTab("time"), 3: () => showTab("devices"), 4: () => showTab("kernels"), "?": () => $("keys").showModal(),
      Enter: () => { if (e.target.matches("button, a, .card")) return false; if (chosen && chosen.group >= 0) toggleGroup(chosen.group); return undefined; },
    }[e.key];
    if (action && action() !== false) e.preventDefault();
  });
  $("keys").append(el("h2", {}, "Keys"), el("table", {}, ...KEYS.map(([k, text]) => el("tr", {}, el("td", {}, ...k.split("  ").flatMap((x) => [el("kbd", {}, x), " "])), el("td", {}, text)))));
  $("keys").addEventListener("click", () => $("keys").close());
}

// -- search ---------------------------------------------------------------------------------------

function startSearch() {
  const input = $("search"), list = $("found");
  let hits = [], at = 0;
  const close = () => { list.hidden = true; hits = []; };
  const mark = () => { [...list.children].forEach((li, i) => { li.setAttribute("aria-selected", String(i === at)); if (i === at) li.scrollIntoView({ block: "nearest" }); }); if (hits[at] !== undefined) light([hits[at]]); };
  const take = (i) => { if (hits[i] === undefined) return; const name = hits[i]; close(); input.blur(); if (app.tab !== "graph") showTab("graph"); choose(name, true); canvas.focus({ preventScroll: true }); };
  const find = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) { close(); light([]); return; }
    const graph = graphOf(app.stage), scored = [];
    for (const r of graph.order) {
      const x = R[r], name = S[x[F.name]].toLowerCase(), op = textOf(x, "op");
      const all = `${name} ${op} ${textOf(x, "type")} ${textOf(x, "placement")} ${textOf(x, "scope")} ${textOf(x, "attributes")}`.toLowerCase();
      if (!words.every((w) => all.includes(w))) continue;
      scored.push([name === words[0] ? 0 : name.startsWith(words[0]) ? 1 : name.includes(words[0]) ? 2 : op.includes(words[0]) ? 3 : 4, scored.length, x]);
      if (scored.length > 5000) break;
    }
    scored.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    hits = scored.slice(0, 80).map((s) => s[2][F.name]); at = 0;
    list.replaceChildren(...scored.slice(0, 80).map(([, , x], i) => el("li", { role: "option", onmousedown: (e) => { e.preventDefault(); take(i); } }, `%${S[x[F.name]]}`, el("span", {}, `${textOf(x, "op")} ${textOf(x, "type")}`))));
    if (!scored.length) list.replaceChildren(el("li", { className: "dim" }, "nothing found"));
    list.hidden = false; mark();
  };
  input.addEventListener("input", find);
  input.addEventListener("focus", () => { if (input.value) find(); });
  input.addEventListener("blur", () => setTimeout(close, 150));
  input.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown") at = Math.min(hits.length - 1, at + 1);
    else if (e.key === "ArrowUp") at = Math.max(0, at - 1);
    else if (e.key === "Enter") { take(at); e.preventDefault(); return; }
    else if (e.key === "Escape") { input.value = ""; close(); light([]); input.blur(); e.stopPropagation(); return; }
    else return;
    e.preventDefault(); mark();
  });
}

// -- start ----------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readPalette();
  if (app.scene) { showLegend(); refresh(); paintTime(); }
}
const flipTheme = () => setTheme(isDark() ? "light" : "dark");

function startGrips() {
  for (const grip of document.querySelectorAll(".grip")) {
    const box = $(grip.dataset.for), sign = grip.dataset.for === "source" ? 1 : -1;
    grip.addEventListener("pointerdown", (e) => {
      const from = e.clientX, wide = box.offsetWidth;
      grip.setPointerCapture(e.pointerId);
      grip.onpointermove = (m) => { box.style.width = `${Math.max(120, Math.min(900, wide + sign * (m.clientX - from)))}px`; };
      grip.onpointerup = () => { grip.onpointermove = null; };
    });
  }
}

function start() {
  readMeasured();
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => setTheme(e.matches ? "dark" : "light"));
  $("title").textContent = data.title; $("strategy").textContent = data.strategy || "graph";
  $("mesh").textContent = data.stages[PASSES - 1].mesh;
  const tabs = data.lowering.length ? [...TABS, ["kernels", "Kernels"]] : TABS;
  $("tabs").append(...tabs.map(([id, text]) => el("button", { role: "tab", "data-tab": id, "aria-selected": String(id === "graph"), onclick: () => showTab(id) }, text)));
  const slider = $("slider");
  slider.max = STAGES - 1;
  $("track").style.setProperty("--stops", STAGES);
  $("stops").append(...data.stages.map((s, i) => stop(i, s.name, i ? countsText(diffOf(i)) : "", `${s.name}${s.options}: ${s.purpose}`)),
    ...data.lowering.map((s, i) => stop(PASSES + i, s.name, i ? linesText(listingDiff(i)) : "", s.purpose, "low")));
  slider.addEventListener("input", () => go(Number(slider.value)));
  $("earlier").onclick = () => go(app.stage - 1); $("later").onclick = () => go(app.stage + 1);
  $("level").append(...LEVEL_NAMES.map((t, v) => el("option", { value: v }, t)));
  $("colors").append(...[["kind", "color: kind"], ["placement", "color: placement"], ["cost", "color: operations"], ["sent", "color: bytes sent"], ...(data.measured ? [["time", "color: measured time"]] : [])].map(([v, t]) => el("option", { value: v }, t)));
  $("level").onchange = (e) => { setLevel(Number(e.target.value)); e.target.blur(); };
  $("colors").onchange = (e) => { app.by = e.target.value; showLegend(); refresh(); e.target.blur(); };
  $("minor").onchange = (e) => { app.details = e.target.checked; relayout(); };
  $("changes").onchange = () => { relayout(); if (app.tab === "kernels") showKernels(app.stage - PASSES); };
  $("fit").onclick = fit; $("closer").onclick = () => zoom(1.3); $("farther").onclick = () => zoom(1 / 1.3);
  $("theme").onclick = flipTheme; $("help").onclick = () => $("keys").showModal();
  startSource(); startPointer(); startKeys(); startSearch(); startGrips(); startTime();
  app.stage = PASSES - 1; if (data.measured) { app.by = "time"; $("colors").value = "time"; }
  takeLevel(data.level ? LEVEL_NAMES.indexOf(data.level) : fittingLevel());
  go(firstStage()); fit(); draw();
  new ResizeObserver(() => { if (isWhole()) fit(); refresh(); paintTime(); }).observe($("stagearea"));
  let theme = "";
  window.addEventListener("beforeprint", () => { theme = document.documentElement.dataset.theme; setTheme("light"); if (app.scene) fit(); draw(3); });
  window.addEventListener("afterprint", () => { setTheme(theme); draw(); });
}

/** The last run of the pass that the page was asked to open at. */
function firstStage() {
  const names = [...data.stages, ...data.lowering].map((s) => s.name), at = names.lastIndexOf(data.after || "");
  return at < 0 ? PASSES - 1 : at;
}

function stop(i, name, counts, title, word = "") {
  const own = i > 0 && i < PASSES && !counts ? " quiet" : "";
  return el("li", { className: word + own, title, onclick: () => go(i) }, name, counts ? el("small", {}, ...counts) : el("small", {}));
}

function linesText(lines) {
  const added = lines.filter((x) => x[0] === "+").length, gone = lines.filter((x) => x[0] === "-").length;
  return added || gone ? [el("span", { className: "plus" }, `+${added} `), el("span", { className: "minus" }, `−${gone}`)] : "";
}

function countsText(d) {
  const out = [];
  if (d.added.size) out.push(el("span", { className: "plus" }, `+${d.added.size} `));
  if (d.removed.length) out.push(el("span", { className: "minus" }, `−${d.removed.length} `));
  if (d.changed.size) out.push(el("span", { className: "tilde" }, `~${d.changed.size}`));
  return out.length ? out : "";
}

/** For tests, and for pages around this one: where nodes are on the screen. */
window.graphcPage = {
  app, data,
  place(name) {
    const id = textIds.get(name), at = app.scene.at.get(id);
    if (at === undefined || app.scene.boxOf[at] < 0) return null;
    const b = app.scene.boxes[app.scene.boxOf[at]], r = canvas.getBoundingClientRect();
    return { x: r.left + r.width / 2 + (b.x - camera.x) * camera.scale, y: r.top + r.height / 2 + (b.y - camera.y) * camera.scale, group: b.group };
  },
};

start();
window.graphcPage.ready = performance.now();
