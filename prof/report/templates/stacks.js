// Time by Python stack, as a flame graph that hangs from its root: the outermost line on top, below the innermost the op. Each
// box is a button, so that it can be reached by keyboard and is read out. A click enlarges a box and filters by it.

const stacks = (() => {
  const box = document.getElementById("stacks"), search = document.getElementById("stacks-search");
  const ROW = 22, MOST = 1500, SMALLEST = 3; // pixels of a row, boxes, pixels of a box
  const NONE = "\n"; // the value of the filter for operations without a stack
  const has = model.texts.trace.some(Boolean);
  let placed = [], root = null, focused = "", part = null;

  const node = (name, path, up, op = "", kind = "") => ({ name, path, up, op, kind, ns: 0, rows: 0, children: new Map() });

  // The lines of a call's stack; operations without one have a box of their own.
  const linesOf = (call) => (model.texts.trace[call] ? model.texts.trace[call].split("\n") : [NONE]);

  function tree() {
    const mask = state.mask("stack"), { call, dur } = model.rows, sums = new Float64Array(model.calls), counts = new Int32Array(model.calls);
    for (let row = 0; row < mask.length; row++) if (mask[row] && dur[row] > 0) { sums[call[row]] += dur[row]; counts[call[row]]++; }
    const top = node("all", "", null);
    for (let c = 0; c < model.calls; c++) if (counts[c]) add(top, c, sums[c], counts[c]);
    return top;
  }

  function add(top, c, ns, rows) {
    let at = top, path = "";
    const count = (found) => { found.ns += ns; found.rows += rows; };
    const step = (key, name, op, kind) => {
      if (!at.children.has(key)) at.children.set(key, node(name, path, at, op, kind));
      at = at.children.get(key);
      count(at);
    };
    count(top);
    for (const line of linesOf(c)) {
      path = line === NONE ? NONE : path ? `${path}\n${line}` : line;
      step(`line ${line}`, line === NONE ? "(no stack recorded)" : model.lineName(line), "");
    }
    const op = model.texts.op[c] || model.texts.name[c] || "(no name)";
    step(`op ${op}`, op, op, model.opClass(op) ?? model.texts.class[c]);
  }

  function find(path) {
    let at = root;
    for (const line of path === NONE ? [NONE] : path ? path.split("\n") : []) {
      at = at.children.get(`line ${line}`);
      if (!at) return root;
    }
    return at;
  }

  // The boxes below a node, the widest of each row first on the left; those too narrow to see are left out.
  function place(top, width) {
    const found = [], queue = [[top, 0, 0]];
    for (let i = 0; i < queue.length && found.length < MOST; i++) {
      const [at, depth, low] = queue[i];
      let left = low;
      for (const child of [...at.children.values()].sort((a, b) => b.ns - a.ns)) {
        const share = child.ns / top.ns;
        if (share * width >= SMALLEST) {
          found.push({ at: child, depth, left, share });
          queue.push([child, depth + 1, left]);
        }
        left += share;
      }
    }
    return found.slice(0, MOST);
  }

  function build() {
    const had = box.contains(document.activeElement);
    root = tree();
    const top = find(state.value("stack") ?? ""), width = Math.max(100, box.clientWidth);
    placed = top.ns ? place(top, width) : [];
    drawPath(top);
    const wanted = search.value.trim().toLowerCase();
    const hit = ({ name }) => wanted && name.toLowerCase().includes(wanted);
    const depth = placed.reduce((most, each) => Math.max(most, each.depth + 1), 0);
    const stage = element("div", { className: "stage" }, ...placed.map((each) => button(each, width, hit(each.at), wanted)));
    stage.style.height = `${Math.max(1, depth) * ROW}px`;
    box.replaceChildren(placed.length ? stage : element("p", { className: "hint", textContent: "No operation passes the filters." }));
    focusable(placed.find(({ at }) => at.path + at.op === focused) ?? placed[0]);
    legend.fill("stacks-legend", [["ops", legend.classes(new Set(placed.filter(({ at }) => at.op).map(({ at }) => at.kind)))],
      ["", placed.some(({ at }) => !at.op) ? [["lines of code", draw.colors.idle]] : []]]);
    tellFound(wanted);
    if (had) placed.find(({ button: made }) => made.tabIndex === 0)?.button.focus();
  }

  const share = (at) => `${format.ns(at.ns)}, ${format.percent(at.ns, model.total)} of all time, ${at.rows.toLocaleString("en")} operations`;

  function button(each, width, found, wanted) {
    const { at, depth, left } = each, fill = at.op ? draw.classColor(at.kind) : draw.colors.idle;
    const wide = each.share * width - 1, short = at.op ? at.name : at.name.split("/").pop(); // the folder is in the tip
    const made = element("button", { type: "button", tabIndex: -1, title: `${at.name}\n${share(at)}`, textContent: named(short, format.ns(at.ns), wide - 8) });
    made.setAttribute("aria-label", `${at.op ? "op" : "line"} ${at.name}: ${share(at)}`);
    Object.assign(made.style, { left: `${100 * left}%`, width: `${Math.max(2, wide)}px`, top: `${depth * ROW}px`, height: `${ROW - 1}px`, background: fill, color: at.op ? draw.inkOn(fill) : draw.colors.ink });
    made.className = `frame${found ? " found" : wanted ? " other" : ""}`;
    made.onclick = () => choose(at);
    made.onfocus = () => { focusable(each); tell(at); };
    made.onmouseenter = () => tell(at);
    each.button = made;
    return made;
  }

  // The name and, where there is room for both, the time.
  function named(name, time, room) {
    return labels.width(`${name}  ${time}`) <= room ? `${name}  ${time}` : labels.fit(name, room);
  }

  const tell = (at) => { document.getElementById("stacks-detail").textContent = `${at.name}: ${share(at)}`; };

  // Only one box is reached by Tab; arrows lead from box to box.
  function focusable(each) {
    if (!each) return;
    for (const other of placed) other.button.tabIndex = -1;
    each.button.tabIndex = 0;
    focused = each.at.path + each.at.op;
  }

  function choose(at) {
    if (at.op) return model.texts.op.includes(at.op) ? state.toggle("op", at.op) : state.toggle("name", at.op, `kernel: ${at.op}`);
    const path = at.path === state.value("stack") ? at.path.split("\n").slice(0, -1).join("\n") : at.path;
    zoom(at.path === NONE && state.value("stack") === NONE ? "" : path);
  }

  const zoom = (path) => state.set("stack", path, path === NONE ? "no stack recorded" : `stack: ${path.replaceAll("\n", " › ")}`);

  function drawPath(top) {
    const parts = top.path === NONE ? [NONE] : top.path ? top.path.split("\n") : [];
    const crumb = (name, to) => element("button", { type: "button", textContent: format.cut(name, 40), onclick: () => zoom(to) });
    document.getElementById("stacks-path").replaceChildren(crumb("all", ""),
      ...parts.map((part, i) => (part === NONE ? crumb("(no stack recorded)", NONE) : crumb(model.lineName(part), parts.slice(0, i + 1).join("\n")))),
      element("span", { className: "dim", textContent: format.ns(top.ns) }));
  }

  // How much time the search has found: boxes inside others that were found are not counted again.
  function tellFound(wanted) {
    let ns = 0, count = 0;
    (function walk(at, within) {
      const hit = wanted && at !== root && at.name.toLowerCase().includes(wanted);
      if (hit) count++;
      if (hit && !within) ns += at.ns;
      for (const child of at.children.values()) walk(child, within || hit);
    })(root, false);
    document.getElementById("stacks-found").textContent = wanted ? `${count.toLocaleString("en")} found, ${format.ns(ns)} (${format.percent(ns, model.total)})` : "";
  }

  function key(event) {
    const i = placed.findIndex(({ button: made }) => made === document.activeElement), each = placed[i];
    if (!each) return;
    const row = placed.filter(({ depth }) => depth === each.depth).sort((a, b) => a.left - b.left), at = row.indexOf(each);
    const to = {
      ArrowLeft: () => row[at - 1], ArrowRight: () => row[at + 1],
      ArrowUp: () => placed.find((other) => other.at === each.at.up),
      ArrowDown: () => placed.find((other) => other.at.up === each.at),
      Home: () => row[0], End: () => row[row.length - 1],
    }[event.key];
    if (event.key === "Escape" && state.value("stack")) zoom(state.value("stack").split("\n").slice(0, -1).join("\n"));
    if (!to) return;
    event.preventDefault();
    to()?.button.focus();
  }

  function start() {
    if (!has) {
      for (const id of ["stacks-tools", "stacks-detail", "stacks"]) document.getElementById(id).hidden = true;
      document.getElementById("stacks-hint").textContent = "The capture records no Python stacks. Capture with pyprof run --trace user, pyprof.init(trace=True), or torch.profiler's with_stack=True.";
      return;
    }
    part = draw.whenNear(box, build);
    search.oninput = part.changed;
    box.onkeydown = key;
    state.subscribe(part.changed);
    let width = box.clientWidth;
    new ResizeObserver(() => {
      if (box.clientWidth === width) return;
      width = box.clientWidth;
      part.changed();
    }).observe(box);
  }

  return { start, has, changed: () => part?.changed(), now: () => part?.now(), boxes: () => { part?.now(); return placed; } };
})();
