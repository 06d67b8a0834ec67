// Layers as an icicle, the outermost on the left. A click enlarges a layer to the whole width and filters by it.

const layers = (() => {
  const metric = document.getElementById("layers-metric"), direction = document.getElementById("layers-dir");
  const SMALLEST = 1.2; // pixels: smaller boxes are not drawn
  let boxes = [];

  function tree() {
    const sums = new Float64Array(model.calls), mask = state.mask("path");
    const { call, dur } = model.rows;
    for (let row = 0; row < mask.length; row++) {
      if (!mask[row]) continue;
      const value = metric.value === "dur" ? dur[row] : model.numbers[metric.value][call[row]];
      if (value > 0 && (!direction.value || model.texts.dir[call[row]] === direction.value)) sums[call[row]] += value;
    }
    const root = node("", "", -1);
    for (let c = 0; c < model.calls; c++) if (sums[c]) add(root, c, sums[c]);
    return root;
  }

  const node = (name, path, call, op = false) => ({ name, path, call, op, value: 0, children: new Map() });

  function add(root, c, value) {
    root.value += value;
    const parts = model.texts.path[c].split("\x1f"), ofOp = model.texts.op[c] ? parts.length - 2 : -1;
    let at = root, path = "";
    for (const [i, part] of parts.entries()) {
      path = path ? `${path}\x1f${part}` : part;
      let child = at.children.get(part);
      if (!child) at.children.set(part, (child = node(part, path, c, i === ofOp)));
      child.value += value;
      at = child;
    }
  }

  function find(root, path) {
    let at = root;
    for (const part of path ? path.split("\x1f") : []) {
      at = at.children.get(part);
      if (!at) return null;
    }
    return at;
  }

  // Boxes from the node to the right: [depth, top, bottom, node].
  function place(top, columns, height) {
    const found = [], total = top.value, first = top.children.size ? -1 : 0; // the top itself is named in the path above
    (function walk(at, depth, low) {
      const share = at.value / total;
      if (share * height < SMALLEST) return;
      if (depth >= 0) found.push([depth, low, low + share, at]);
      if (depth + 1 >= columns) return;
      for (const child of [...at.children.values()].sort((a, b) => b.value - a.value)) {
        walk(child, depth + 1, low);
        low += child.value / total;
      }
    })(top, first, 0);
    return found;
  }

  const depthOf = (at) => Math.max(0, ...[...at.children.values()].map((child) => 1 + depthOf(child)));

  function option(width, box) {
    const root = tree();
    const top = find(root, state.value("path")) ?? root;
    drawPath(top);
    const columns = Math.max(1, Math.min(depthOf(top), Math.floor(width / (width < 500 ? 100 : 150)) || 1, 7));
    boxes = top.value ? place(top, columns, box.clientHeight) : [];
    const classes = new Set(boxes.map(([, , , at]) => classOf(at)).filter(Boolean));
    legend.fill("layers-legend", [["ops and kernels", legend.classes(classes)], ["", boxes.some(([, , , at]) => !classOf(at)) ? [["layers", draw.colors.idle]] : []]]);
    return {
      grid: { left: 0, right: 0, top: 0, bottom: 0 },
      tooltip: draw.tooltip(({ dataIndex }) => tip(boxes[dataIndex][3], root)),
      xAxis: { type: "value", min: 0, max: columns, show: false },
      yAxis: { type: "value", min: 0, max: 1, inverse: true, show: false },
      graphic: boxes.length ? [] : [{ type: "text", left: "center", top: "middle", style: { text: "No operation passes the filters", fill: draw.colors.dim } }],
      series: [{ type: "custom", clip: true, renderItem: (_, api) => rectangle(api), encode: { x: [0], y: [1, 2] },
        data: boxes.map(([depth, low, high], i) => [depth, low, high, i]) }],
    };
  }

  function rectangle(api) {
    const [x, y] = api.coord([api.value(0), api.value(1)]);
    const [right, bottom] = api.coord([api.value(0) + 1, api.value(2)]);
    const at = boxes[api.value(3)][3], height = bottom - y, width = right - x;
    const kind = classOf(at), fill = kind ? draw.classColor(kind) : draw.colors.idle, room = width - 14;
    const text = height < 14 ? "" : height < 32 ? labels.pair(at.name || "all", amount(at.value), room)
      : [labels.fit(at.name || "all", room), labels.fit(amount(at.value), room)].filter(Boolean).join("\n");
    return {
      type: "rect",
      shape: { x, y, width: width - 1, height: Math.max(1, height - (height > 4 ? 1 : 0.3)) },
      style: { fill },
      textConfig: { position: "insideLeft", distance: 6 },
      textContent: { style: { text, fill: kind ? draw.inkOn(fill) : draw.colors.ink, fontSize: labels.SIZE, lineHeight: labels.HEIGHT, fontFamily: "system-ui, sans-serif" } },
    };
  }

  // The class of an op or a kernel; a layer has none.
  const classOf = (at) => (at.op ? model.opClass(at.name) : at.children.size ? "" : model.texts.class[at.call]);

  const amount = (value) => metric.value === "dur" ? format.ns(value) : format.si(value, metric.value === "flops" ? "FLOP" : "B");

  function tip(at, root) {
    return tipContent(at.path.replaceAll("\x1f", " › ") || "all", [
      `${amount(at.value)}, ${format.percent(at.value, root.value)} of all`, at.children.size ? "" : model.texts.work[at.call],
    ]);
  }

  function drawPath({ path, value }) {
    const parts = path ? path.split("\x1f") : [];
    const crumb = (name, to) => element("button", { type: "button", textContent: format.cut(name, 40), onclick: () => choose(to) });
    document.getElementById("layers-path").replaceChildren(
      crumb("all", ""), ...parts.map((part, i) => crumb(part, parts.slice(0, i + 1).join("\x1f"))),
      element("span", { className: "dim", textContent: amount(value) }));
  }

  const choose = (path) => state.set("path", path, `layer: ${path.replaceAll("\x1f", " › ")}`);

  function picked({ dataIndex }) {
    const { path } = boxes[dataIndex][3];
    choose(path === state.value("path") ? path.split("\x1f").slice(0, -1).join("\x1f") : path);
  }

  if (!model.texts.layer.some(Boolean)) {
    document.getElementById("layers-hint").textContent = "The capture names no layers, so these are ops and kernels. Capture with pyprof.init() or pyprof run to record layers.";
  }
  const made = draw.chart("layers", option, picked);
  metric.onchange = () => made.update();
  direction.onchange = () => state.set("dir", direction.value, `direction: ${direction.selectedOptions[0].textContent}`);
  state.subscribe(() => { direction.value = state.value("dir") ?? ""; });
  return Object.assign(made, { boxes: () => boxes });
})();
