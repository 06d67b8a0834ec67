// The table of kernels. Only the visible rows are in the document.

const kernels = (() => {
  const box = document.getElementById("kernels"), group = document.getElementById("kernels-group");
  const HEIGHT = 28;
  const perSecond = (amount, ns) => (ns > 0 ? (amount / ns) * 1e9 : NaN);
  const text = (key, name, width, by) => ({ key, name, width, get: (at) => clean(model.texts[key][at.call], by), shown: (value) => value });
  const number = (key, name, get, shown, width = 96) => ({ key, name, width, number: true, get, shown });
  const clean = (value, by) => (by ? value.replaceAll(by, " › ") : value);

  // The columns. `at` is a line of the table: sums over its rows, and the call of the first of them.
  const COLUMNS = [
    number("dur", "time", (at) => at.ns, format.ns, 90),
    number("share", "share", (at) => at.ns, (v) => format.percent(v, model.total), 70),
    number("count", "count", (at) => at.count, (v) => v.toLocaleString("en"), 70),
    number("start", "start", (at) => at.start, (v) => format.ns(v - timeline.bounds()[0])),
    text("name", "kernel", 260), text("op", "op", 150), text("dir", "direction", 95), text("layer", "layer", 200, "\x1f"),
    text("phase", "phase", 85), text("work", "kind of work", 130), text("aten", "aten op", 200), text("sizes", "shapes", 240),
    text("dtypes", "dtypes", 160), text("params", "arguments", 240),
    number("flops", "FLOPs", (at) => at.flops, (v) => format.si(v, "")),
    number("bytes", "bytes", (at) => at.bytes, (v) => format.si(v, "B")),
    number("flop_s", "FLOP/s", (at) => perSecond(at.flops, at.working), (v) => format.si(v, "")),
    number("byte_s", "bytes/s", (at) => perSecond(at.bytes, at.working), (v) => format.si(v, "B/s")),
    number("sol", "% of limit", (at) => at.sol / at.working, (v) => format.percent(v, 1), 90),
    text("bound", "bound by", 90), text("tc", "TC", 50), text("tcprec", "TC format", 90), text("unit", "unit", 80),
    number("wait", "launch to start", (at) => at.wait, format.ns, 120),
    number("idle", "idle before", (at) => at.idle, format.ns, 100),
    { key: "why", name: "cause of idle time", width: 200, get: (at) => (at.idle > 0 ? model.data.why[model.rows.why[at.row]]?.words ?? "" : ""), shown: (v) => v },
    number("step", "step", (at) => at.step, (v) => String(v), 60),
    { key: "lane", name: "stream", width: 110, get: (at) => model.data.lanes[at.lane].name, shown: (v) => v },
    text("grid", "grid", 100), text("block", "block", 100), text("role", "role", 60), text("trace", "code line", 220, "\n"),
    text("long", "full name", 320), text("reason", "why it has no op", 200),
  ];
  const ONE = new Set(["start", "wait", "idle", "why", "step", "lane"]); // of single operations only
  const GROUPS = {
    "": "each operation", name: "by kernel", op: "by op", layer: "by layer", work: "by kind of work", aten: "by aten op",
    sizes: "by shapes", params: "by arguments", phase: "by phase", path: "by layer, op and kernel",
  };
  // The texts that all rows of a group have in common.
  const SHARED = { name: ["name"], op: ["op"], layer: ["layer"], work: ["work"], aten: ["aten"], sizes: ["sizes"], params: ["params"], phase: ["phase"], path: ["layer", "op", "name"] };
  const chosen = new Set(["count", "dur", "share", "name", "op", "dir", "layer", "work", "sizes", "flops", "flop_s", "byte_s", "sol", "bound"]);
  const sort = { key: "dur", down: true };
  let lines = [], columns = [], widths = new Map();

  function line(row) {
    const c = model.rows.call[row], { flops, bytes, sol_ns } = model.numbers;
    return {
      row, call: c, count: 1, ns: model.rows.dur[row], working: model.working(row), flops: flops[c], bytes: bytes[c], sol: sol_ns[c],
      start: model.rows.start[row], wait: model.rows.wait[row], step: model.rows.step[row] >= 0 ? model.rows.step[row] : NaN, lane: model.rows.lane[row], idle: model.rows.idle[row],
    };
  }

  // The sums of each group; unknown FLOPs of one row make those of its group unknown.
  function gather(mask) {
    const found = new Map(), key = group.value, texts = model.texts[key];
    for (let row = 0; row < mask.length; row++) {
      if (!mask[row]) continue;
      const each = key ? texts[model.rows.call[row]] : row, at = found.get(each);
      if (!at) { found.set(each, line(row)); continue; }
      const next = line(row);
      at.count++; at.ns += next.ns; at.working += next.working; at.flops += next.flops; at.bytes += next.bytes; at.sol += next.sol;
    }
    return [...found.values()];
  }

  function update() {
    const shared = SHARED[group.value];
    columns = COLUMNS.filter((column) => shared ? shared.includes(column.key) || (column.number && !ONE.has(column.key) && chosen.has(column.key))
      : chosen.has(column.key) && column.key !== "count");
    if (shared) columns.sort((a, b) => shared.includes(b.key) - shared.includes(a.key));
    lines = gather(state.mask());
    order();
    document.getElementById("kernels-count").textContent = `${lines.length.toLocaleString("en")} lines`;
    build();
  }

  function order() {
    const column = COLUMNS.find(({ key }) => key === sort.key), values = new Map(lines.map((at) => [at, column.get(at)]));
    const less = column.number ? (a, b) => a - b : (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const missing = (value) => (column.number ? Number.isNaN(value) : value === "");
    lines.sort((a, b) => {
      const [x, y] = [values.get(a), values.get(b)];
      return missing(x) - missing(y) || (sort.down ? less(y, x) : less(x, y)) || a.row - b.row;
    });
  }

  function build() {
    const narrow = box.clientWidth < 500, of = (column) => (narrow && !column.number ? Math.min(column.width, 150) : column.width);
    const least = columns.reduce((sum, column) => sum + of(column), 0), width = Math.max(least, box.clientWidth - 1);
    const wide = columns.find((column) => !column.number); // takes the remaining width
    widths = new Map(columns.map((column) => [column, of(column) + (column === wide ? width - least : 0)]));
    const head = element("div", { className: "head" }, ...columns.map(headCell)), body = element("div", { className: "body" });
    body.style.cssText = `position:relative;height:${lines.length * HEIGHT}px;width:${width}px`;
    head.style.width = `${width}px`;
    const { scrollLeft } = box;
    box.replaceChildren(head, body);
    box.scrollTop = 0;
    box.scrollLeft = scrollLeft;
    fill();
  }

  function headCell(column) {
    const mark = sort.key === column.key ? (sort.down ? " ▾" : " ▴") : "";
    const cell = element("button", { type: "button", className: `cell${column.number ? " number" : ""}`, textContent: column.name + mark, title: [`sort by ${column.name}`, model.data.meanings[column.key]].filter(Boolean).join(": ") });
    cell.style.width = `${widths.get(column)}px`;
    cell.onclick = () => {
      Object.assign(sort, sort.key === column.key ? { down: !sort.down } : { key: column.key, down: Boolean(column.number) });
      order();
      build();
    };
    return cell;
  }

  function fill() {
    const body = box.querySelector(".body"), first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - 5);
    const made = [];
    for (let i = first; i < Math.min(lines.length, first + Math.ceil(box.clientHeight / HEIGHT) + 12); i++) {
      const row = element("div", { className: "row" }, ...columns.map((column) => bodyCell(column, lines[i])));
      row.style.top = `${i * HEIGHT}px`;
      row.tabIndex = 0;
      row.onclick = () => picked(lines[i]);
      row.onkeydown = ({ key }) => key === "Enter" && picked(lines[i]);
      made.push(row);
    }
    body?.replaceChildren(...made);
  }

  const shown = (column, at) => {
    const value = column.get(at);
    return column.number && !Number.isFinite(value) ? "" : column.shown(value);
  };

  function bodyCell(column, at) {
    const textContent = shown(column, at);
    const cell = element("div", { className: `cell${column.number ? " number" : ""}`, textContent, title: column.number ? "" : textContent.slice(0, 500) });
    cell.style.width = `${widths.get(column)}px`;
    return cell;
  }

  // A click on a group filters by it; a click on an operation shows its details and filters by its kernel.
  function picked(at) {
    if (group.value) {
      const value = model.texts[group.value][at.call];
      state.set(group.value, value, `${GROUPS[group.value].replace("by ", "")}: ${value.replaceAll("\x1f", " › ")}`);
      group.value = "";
    } else {
      state.set("name", model.texts.name[at.call], `kernel: ${model.texts.name[at.call]}`);
    }
    detail(at.row);
  }

  const DETAIL = [["op", "op"], ["layer", "layer"], ["sizes", "shapes"], ["work", "kind of work"], ["phase", "phase"], ["aten", "aten op"]];

  function detail(row) {
    const panel = document.getElementById("detail"), list = element("dl"), at = line(row);
    for (const column of COLUMNS) {
      const value = column.key === "trace" ? model.text("trace", row) : shown(column, at);
      if (value && column.key !== "count") list.append(element("dt", { textContent: column.name }), element("dd", { textContent: value }));
    }
    if (model.text("args", row)) list.append(element("dt", { textContent: "aten values" }), element("dd", { textContent: model.text("args", row) }));
    const buttons = DETAIL.filter(([key]) => model.text(key, row)).map(([key, name]) => element("button", {
      type: "button", textContent: `filter by ${name}`,
      onclick: () => state.set(key, model.text(key, row), `${name}: ${model.text(key, row).replaceAll("\x1f", " › ")}`),
    }));
    const close = element("button", { type: "button", textContent: "close", onclick: () => { panel.hidden = true; } });
    panel.replaceChildren(element("div", { className: "tools" }, ...buttons, close), list);
    panel.hidden = false;
  }

  // Plain numbers in base units, every field quoted.
  function csv() {
    const quoted = (value) => `"${String(value).replaceAll('"', '""')}"`;
    const cell = (column, at) => (column.key === "share" ? at.ns / model.total : column.get(at));
    const body = lines.map((at) => columns.map((column) => quoted(Number.isNaN(cell(column, at)) ? "" : cell(column, at))).join(","));
    return [columns.map((column) => quoted(column.key)).join(","), ...body].join("\r\n");
  }

  async function copy() {
    const button = document.getElementById("kernels-copy");
    const done = await written(csv());
    button.textContent = done ? "copied" : "could not copy";
    setTimeout(() => { button.textContent = "copy as CSV"; }, 1500);
  }

  async function written(content) {
    try {
      await navigator.clipboard.writeText(content);
      return true;
    } catch { // this browser does not allow it for a file: copy from a text area
      const area = element("textarea", { value: content });
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  function start() {
    for (const [value, name] of Object.entries(GROUPS)) group.append(new Option(name, value));
    group.value = "name";
    group.onchange = update;
    for (const column of COLUMNS) {
      const tick = element("input", { type: "checkbox", checked: chosen.has(column.key) });
      tick.onchange = () => { chosen[tick.checked ? "add" : "delete"](column.key); update(); };
      document.getElementById("kernels-columns").append(element("label", {}, tick, ` ${column.name}`));
      const meaning = model.data.meanings[column.key];
      if (meaning) document.getElementById("kernels-meanings").append(element("dt", { textContent: column.name }), element("dd", { textContent: meaning }));
    }
    const search = document.getElementById("search");
    search.oninput = () => state.set("search", search.value.toLowerCase(), `search: ${search.value}`);
    document.getElementById("kernels-copy").onclick = copy;
    box.onscroll = fill;
    let width = box.clientWidth;
    new ResizeObserver(() => {
      if (box.clientWidth === width) return fill();
      width = box.clientWidth;
      build();
    }).observe(box);
    state.subscribe(() => {
      if (!state.value("search")) search.value = "";
      update();
    });
  }

  return { start, update, detail, csv, lines: () => lines };
})();
