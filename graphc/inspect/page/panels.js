// The source on the left and the details on the right, linked with the graph in both directions.

/** An element with properties and children; texts are never read as HTML. */
function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(given)) {
    if (key === "style") Object.assign(node.style, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("data-") || key.startsWith("aria-") || key === "role") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.filter((x) => x !== null && x !== undefined && x !== ""));
  return node;
}
const $ = (id) => document.getElementById(id);

// -- source ---------------------------------------------------------------------------------------

const WORDS = /(\/\/.*|#.*)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(step|param|state|fn|const|let|for|in|if|else|minimize|with|over|report|update|return|train|data|strategy|default|import|from|def|class|lambda|not|and|or|None|True|False|while|yield|as)\b|\b(\d[\w.]*)/g;

function showSource(file) {
  const source = data.sources[file], code = $("code");
  code.replaceChildren();
  code.dataset.file = file;
  for (const b of $("files").children) b.setAttribute("aria-pressed", String(b.dataset.file === String(file)));
  if (!source) return;
  const lines = linesOf(graphOf(app.stage));
  let quoted = false;
  source.text.split("\n").forEach((text, i) => {
    const number = i + 1, quotes = text.split('"""').length - 1, prose = quoted || quotes > 0;
    if (quotes % 2) quoted = !quoted;
    const names = lines.get(`${file}:${number}`) || [];
    const row = el("div", { "data-line": number }, el("i", {}, String(number)), el("b", { style: { background: lineColor(names) } }), ...lineTime(`${file}:${number}`), el("span", { className: prose ? "s" : "" }, ...(prose ? [text] : colored(text))));
    if (names.length) row.classList.add("has");
    code.append(row);
  });
  markLine();
}

/** The measured time of a line, where there is a profile. */
function lineTime(key) {
  if (!data.measured) return [];
  const seconds = measuredLines.get(key), most = Math.max(...measuredLines.values(), 1e-12);
  return [el("u", { style: seconds ? { color: heat(seconds / most) } : {}, title: seconds ? shareText(seconds) : "" }, seconds ? secondsText(seconds) : "")];
}

function lineColor(names) {
  if (!names.length) return "transparent";
  const graph = graphOf(app.stage), sums = [0, 0, 0];
  for (const n of names) { const g = R[graph.order[graph.at.get(n)]][F.group]; sums[g < 0 ? 0 : groups[g].part]++; }
  return sums[0] ? "var(--forward)" : sums[2] ? "var(--update)" : "var(--backward)";
}

function colored(text) {
  const out = [];
  let last = 0;
  for (const m of text.matchAll(WORDS)) {
    if (m.index > last) out.push(text.slice(last, m.index));
    out.push(el("span", { className: m[1] ? "c" : m[2] ? "s" : m[3] ? "w" : "n" }, m[0]));
    last = m.index + m[0].length;
  }
  out.push(text.slice(last));
  return out;
}

/** Mark the line of what is chosen, and that of what the pointer is on. */
function markLine() {
  const code = $("code"), file = Number(code.dataset.file);
  const of = (name) => {
    const graph = graphOf(app.stage), at = graph.at.get(name);
    const span = at === undefined ? -1 : R[graph.order[at]][F.origin];
    return span < 0 ? null : data.spans[span];
  };
  const chosen = app.chosenName >= 0 ? of(app.chosenName) : null, hover = app.hoverName >= 0 ? of(app.hoverName) : null;
  for (const row of code.querySelectorAll(".chosen, .lit")) row.classList.remove("chosen", "lit");
  const mark = (span, word, scroll) => {
    if (!span || span[0] !== file) return;
    const row = code.children[span[1] - 1];
    if (!row) return;
    row.classList.add(word);
    if (scroll) row.scrollIntoView({ block: "nearest" });
  };
  if (chosen && chosen[0] !== file && app.follow) { app.follow = false; showSource(chosen[0]); return; }
  mark(chosen, "chosen", true); mark(hover, "lit", false);
}

function startSource() {
  const box = $("source");
  const uses = data.sources.map(() => 0); // the file that most nodes come from is shown first
  for (const r of graphOf(0).order) if (R[r][F.origin] >= 0) uses[data.spans[R[r][F.origin]][0]]++;
  const shown = data.sources.map((s, i) => i).filter((i) => data.sources[i].text).sort((a, b) => uses[b] - uses[a]);
  if (!shown.length) { box.classList.add("none"); return; }
  for (const i of shown) {
    const file = data.sources[i].file;
    $("files").append(el("button", { "data-file": i, title: file, onclick: () => showSource(i) }, file.split("/").pop()));
  }
  const lineAt = (event) => event.target.closest("#code > div");
  const names = (row) => linesOf(graphOf(app.stage)).get(`${$("code").dataset.file}:${row.dataset.line}`) || [];
  $("code").addEventListener("mouseover", (event) => { const row = lineAt(event); light(row ? names(row) : []); });
  $("code").addEventListener("mouseleave", () => light([]));
  $("code").addEventListener("click", (event) => {
    const row = lineAt(event), found = row ? names(row) : [];
    if (found.length) { showTab("graph"); showLine(found, `${data.sources[$("code").dataset.file].file}:${row.dataset.line}`); }
  });
  showSource(shown[0]);
}

// -- details --------------------------------------------------------------------------------------

function nodeLink(name, text = `%${S[name]}`) {
  const known = graphOf(app.stage).at.has(name);
  if (!known) return el("span", { className: "dim" }, text);
  return el("a", { className: "node", tabIndex: 0, role: "button", onclick: () => choose(name, true),
    onkeydown: (e) => { if (e.key === "Enter") { e.stopPropagation(); choose(name, true); } },
    onmouseenter: () => light([name]), onmouseleave: () => light([]) }, text);
}

const rows = (pairs) => el("dl", {}, ...pairs.filter((p) => p[1] !== "" && p[1] !== null && p[1] !== undefined)
  .flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, ...(Array.isArray(v) ? v : [v]))]));

function listed(names) {
  const most = 24, out = [];
  names.slice(0, most).forEach((n, i) => { if (i) out.push(", "); out.push(nodeLink(n)); });
  if (names.length > most) out.push(` … ${names.length - most} more`);
  return out.length ? out : "";
}

function showPanel() {
  const panel = $("panel");
  panel.replaceChildren(...(app.chosenName >= 0 ? nodePanel(app.chosenName) : app.chosenGroup >= 0 ? groupPanel(app.chosenGroup) : stepPanel()));
  panel.scrollTop = 0;
}

function nodePanel(name) {
  let stage = Math.min(app.stage, PASSES - 1), graph = graphOf(stage), at = graph.at.get(name), ghost = false;
  if (at === undefined) {
    if (!stage || (at = graphOf(stage - 1).at.get(name)) === undefined) return [el("p", { className: "dim" }, `%${S[name]} is not in the graph after this pass.`)];
    graph = graphOf(stage - 1); ghost = true;
  }
  const r = R[graph.order[at]], kind = collectiveOf(r) || kindOf(r), span = r[F.origin];
  const title = { all_reduce: "collective", time: "over microbatches", local: "local conversion", space: "collective" }[kind] || kind.replace("_", " ");
  const out = [el("h2", {}, `%${S[name]}`), el("div", {}, el("span", { className: "chip", style: { background: `var(--${kind === "compute" ? partOf(r) : kind})` } }, COLLECTIVES[kind] ? "collective" : title), el("span", { className: "dim" }, `${partOf(r)}${ghost ? ", removed by this pass" : ""}`))];
  if (r[F.because] >= 0) out.push(becauseBox(data.reasons[r[F.because]]));
  const ends = graph.ends.get(name);
  out.push(rows([
    ["op", textOf(r, "op")], ["type", textOf(r, "type")], ["placement", textOf(r, "placement") || "the same on every device"],
    ["attributes", textOf(r, "attributes")], ["result", ends ? ends.join(", ") : ""],
    ["source", span < 0 ? "" : spanLink(data.spans[span])], ["scope", textOf(r, "scope")], ["in", groupPath(r[F.group])],
    ["order", textOf(r, "order")], ["needs", textOf(r, "needs")],
  ]));
  out.push(el("h3", {}, "Cost in a step, on one device"), rows([
    ["compute", r[F.operations] ? flopsText(r[F.operations]) : "none"],
    ["memory", r[F.bytes] ? `${bytesText(r[F.bytes])} read and written, if not fused` : "none: it is a view, or made where it is used"],
    ["sent", r[F.sent] ? `${bytesText(r[F.sent])} from each device` : ""],
    ["kernel", kernelOf(name)], ["measured", measuredText(name)],
  ]));
  out.push(el("h3", {}, "Operands"), el("div", {}, ...(listed(r[F.operands]) || ["none"])));
  out.push(el("h3", {}, "Used by"), el("div", {}, ...(listed(usersOf(graph).get(name) || []) || ["nothing"])));
  out.push(el("h3", {}, "Through the passes"), story(name));
  return out;
}

/** The groups around a node, each with a way to open and close it. */
function groupPath(g) {
  const out = [];
  for (; g >= 0 && groups[g].parent >= 0; g = groups[g].parent) {
    const id = g;
    out.unshift(el("a", { className: "node", tabIndex: 0, role: "button", title: app.open.has(id) ? "close this group" : "open this group", onclick: () => { toggleGroup(id); showPanel(); } }, `${app.open.has(id) ? "▾" : "▸"} ${clipped(groups[id].title, 40)}`), " ");
  }
  return out;
}

const partOf = (r) => (r[F.group] < 0 ? "forward" : PARTS[groups[r[F.group]].part]);

function becauseBox([by, rule, consumer, reason]) {
  return el("div", { className: "because" }, el("b", {}, "because "), `${S[by]}: ${S[rule]}`, ...(S[consumer] ? [", for ", nodeLink(consumer)] : []), S[reason] ? el("div", { className: "dim" }, S[reason]) : "");
}

function spanLink([file, line, col]) {
  const source = data.sources[file];
  return [el("a", { className: "node", tabIndex: 0, onclick: () => { showSource(file); $("code").children[line - 1]?.scrollIntoView({ block: "center" }); } }, `${source.file.split("/").pop()}:${line}:${col}`),
    source.text ? el("div", { className: "dim" }, (source.text.split("\n")[line - 1] || "").trim()) : ""];
}

function kernelOf(name) {
  const x = data.execution;
  if (!x) return "";
  const i = x.entries.findIndex((e) => e[2].includes(name) && e[0] !== "wait");
  if (i < 0) return "";
  return [el("a", { className: "node", tabIndex: 0, onclick: () => { showTab("time"); chooseEntry(i); } }, `${i + 1} of ${x.entries.length}`), x.entries[i][2].length > 1 ? `, fused with ${x.entries[i][2].length - 1} more` : ""];
}

/** What a profile says of the kernel of a node. */
function measuredText(name) {
  const entry = data.measured && data.execution ? data.execution.entries.find((e) => e[2].includes(name) && e[0] !== "wait") : null;
  const found = entry ? measuredKernel(entry[2]) : null;
  return found ? `${shareText(found[0])}${limitText(found)}${entry[2].length > 1 ? ", the whole kernel" : ""}` : "";
}

function story(name) {
  const items = storyOf(name).map(([stage, what]) => {
    const s = data.stages[stage];
    const detail = what === "changed" ? fieldChanges(R[diffOf(stage).changed.get(name)], R[graphOf(stage).order[graphOf(stage).at.get(name)]]) : [];
    return el("li", {}, el("span", { className: { added: "plus", removed: "minus", changed: "tilde" }[what] }, { added: "+ ", removed: "− ", changed: "~ " }[what]),
      el("a", { className: "node", tabIndex: 0, onclick: () => go(stage) }, s.name), stage ? ` ${what}` : " written",
      ...detail.map(([f, a, b]) => el("div", { className: "dim", style: { paddingLeft: "14px" } }, `${f}: `, el("span", { className: "minus" }, clipped(a, 80) || "∅"), " → ", el("span", { className: "plus" }, clipped(b, 80) || "∅"))));
  });
  return el("ul", {}, ...items);
}

function groupPanel(id) {
  const g = groups[id], scene = app.scene, graph = graphOf(app.stage);
  const inside = new Set();
  const walk = (x) => { inside.add(x); groups[x].children.forEach(walk); };
  walk(id);
  const own = graph.order.map((r) => R[r]).filter((r) => inside.has(r[F.group]));
  const sum = (f) => own.reduce((s, r) => s + r[F[f]], 0);
  const ops = new Map();
  for (const r of own) if (!r[F.minor]) ops.set(textOf(r, "op"), (ops.get(textOf(r, "op")) || 0) + 1);
  const out = [el("h2", {}, g.title), el("div", {}, el("span", { className: "chip", style: { background: `var(--${PARTS[g.part]})` } }, g.kind), el("span", { className: "dim" }, PARTS[g.part]))];
  out.push(el("p", {}, el("button", { onclick: () => toggleGroup(id) }, app.open.has(id) ? "Close (Enter)" : "Open (Enter)")));
  out.push(rows([["nodes", String(own.length)], ["compute", flopsText(sum("operations"))], ["memory", `${bytesText(sum("bytes"))} if not fused`], ["sent", sum("sent") ? `${bytesText(sum("sent"))} from each device` : ""]]));
  const exchanged = own.filter((r) => r[F.kind] === KIND.space);
  if (exchanged.length) out.push(el("h3", {}, "Collectives"), collectiveList(exchanged));
  out.push(el("h3", {}, "Operations"), el("ul", {}, ...[...ops].sort((a, b) => b[1] - a[1]).slice(0, 30).map(([op, n]) => el("li", {}, `${op} `, el("span", { className: "dim" }, `× ${n}`)))));
  out.push(el("h3", {}, "Nodes"), el("div", {}, ...(listed(own.filter((r) => !r[F.minor]).map((r) => r[F.name])) || [""])));
  return scene ? out : [];
}

function collectiveList(records) {
  return el("ul", {}, ...records.slice().sort((a, b) => b[F.sent] - a[F.sent]).slice(0, 60).map((r) => el("li", { className: "row" },
    el("span", { className: "chip", style: { background: `var(--${collectiveOf(r)})` } }, textOf(r, "op")), nodeLink(r[F.name]), el("span", { className: "dim" }, ` ${bytesText(r[F.sent])}`))));
}

/** With nothing chosen: the whole step. */
function stepPanel() {
  const graph = graphOf(app.stage), all = graph.order.map((r) => R[r]);
  const sum = (f) => all.reduce((s, r) => s + r[F[f]], 0);
  const out = [el("h2", {}, data.title), el("div", { className: "dim" }, `${data.strategy || "one graph"}${data.program ? `, program ${data.program}` : ""}`)];
  const x = data.execution, d = data.devices;
  const params = d.variables.filter((v) => v.kind === "param");
  out.push(rows([
    ["nodes", `${all.length}`], ["parameters", params.length ? `${params.length}: ${bytesText(params.reduce((s, v) => s + v.bytes, 0))}` : ""],
    ["compute", `${flopsText(sum("operations"))} on each device`], ["sent", sum("sent") ? `${bytesText(sum("sent"))} from each device` : "nothing"],
    ["measured", data.measured ? `${secondsText(data.measured.seconds)}, the median of the profile` : ""],
    ["memory", x ? [`${bytesText(x.arena + x.variables + x.constants)} on a device`] : ""],
  ]));
  const exchanged = all.filter((r) => r[F.kind] === KIND.space);
  if (exchanged.length) {
    const kinds = new Map();
    for (const r of exchanged) { const k = collectiveOf(r), t = kinds.get(k) || [0, 0]; kinds.set(k, [t[0] + 1, t[1] + r[F.sent]]); }
    const most = Math.max(...[...kinds.values()].map((t) => t[1]), 1);
    out.push(el("h3", {}, "Collectives"));
    for (const [k, [n, b]] of [...kinds].sort((a, c) => c[1][1] - a[1][1])) out.push(el("div", {}, `${n} × ${k} `, el("span", { className: "dim" }, bytesText(b)), el("div", { className: "bar" }, el("i", { style: { width: `${100 * b / most}%`, background: `var(--${k})` } }))));
    out.push(collectiveList(exchanged));
  }
  const costly = all.filter((r) => r[F.operations]).sort((a, b) => b[F.operations] - a[F.operations]).slice(0, 8);
  if (costly.length) out.push(el("h3", {}, "Most operations"), ...costly.map((r) => el("div", {}, nodeLink(r[F.name]), el("span", { className: "dim" }, ` ${flopsText(r[F.operations])}`), el("div", { className: "bar" }, el("i", { style: { width: `${100 * r[F.operations] / costly[0][F.operations]}%` } })))));
  return out;
}

function showLine(names, title) {
  app.chosenName = -1; app.chosenGroup = -1;
  const graph = graphOf(app.stage), own = names.map((n) => R[graph.order[graph.at.get(n)]]);
  const sum = (f) => own.reduce((s, r) => s + r[F[f]], 0);
  light(names, true);
  $("panel").replaceChildren(el("h2", {}, title.split("/").pop()), el("div", { className: "dim" }, `${names.length} nodes come from this line`),
    rows([["compute", flopsText(sum("operations"))], ["memory", `${bytesText(sum("bytes"))} if not fused`], ["sent", sum("sent") ? bytesText(sum("sent")) : ""]]),
    ...PARTS.flatMap((part) => {
      const of = own.filter((r) => partOf(r) === part && !r[F.minor]).map((r) => r[F.name]);
      return of.length ? [el("h3", {}, part), el("div", {}, ...listed(of))] : [];
    }));
  refresh();
}
