// Time by line of code: the innermost line of an operation's stack has its own time, and each line of it the time with callees.

const lines = (() => {
  const box = document.getElementById("lines");
  const MOST = 300; // lines of the table
  const NONE = "\n"; // the value of the filter for operations without a stack
  const sort = { key: "ns", down: true };
  let found = [], part = null;

  const COLUMNS = [
    ["line", "line", (at) => shown(at.line ? model.lineName(at.line) : "(no stack recorded)"), "wide", "file:line and function; the capture has no source text"],
    ["ns", "own time", (at) => format.ns(at.ns), "number", "of the operations whose innermost line it is"],
    ["ns", "share", (at) => format.percent(at.ns, model.total), "number", "own time, of the time of all operations"],
    ["all", "with callees", (at) => format.ns(at.all), "number", "time of the operations in whose stack it is, at any depth"],
    ["count", "operations", (at) => at.count.toLocaleString("en"), "number", "whose innermost line it is"],
    ["idle", "idle before", (at) => (at.idle ? format.ns(at.idle) : ""), "number", "time in which the GPU did nothing before these operations"],
    ["ops", "ops", (at) => named(at.ops), "wide", "what the line called, the longest first"],
    ["layers", "layer", (at) => named(at.layers).replaceAll("\x1f", " › "), "wide", "in which the operations ran, the longest first"],
  ];

  // On a phone without its folder; the whole is the cell's title.
  const shown = (line) => (box.clientWidth < 500 ? labels.fit(line.split("/").pop(), 115) : labels.fit(line, 250));

  function named(sums) {
    const names = [...sums].filter(([name]) => name).sort((a, b) => b[1] - a[1]).map(([name]) => name);
    return names.slice(0, 4).join(", ") + (names.length > 4 ? ` and ${names.length - 4} more` : "");
  }

  function gather() {
    const mask = state.mask("line"), { call, dur, idle } = model.rows, { trace, op, layer } = model.texts, sums = new Map();
    const of = (line) => sums.get(line) ?? sums.set(line, { line, ns: 0, all: 0, count: 0, idle: 0, ops: new Map(), layers: new Map() }).get(line);
    const stackOf = trace.map((text) => [...new Set(text.split("\n"))]), inner = trace.map((text) => text.split("\n").pop());
    for (let row = 0; row < mask.length; row++) {
      if (!mask[row]) continue;
      const c = call[row], ns = Math.max(0, dur[row]) || 0, at = of(inner[c]);
      at.ns += ns; at.count++; at.idle += idle[row];
      at.ops.set(op[c], (at.ops.get(op[c]) ?? 0) + ns);
      at.layers.set(layer[c], (at.layers.get(layer[c]) ?? 0) + ns);
      for (const line of stackOf[c]) of(line).all += ns;
    }
    const value = { line: (at) => at.line, ops: (at) => named(at.ops), layers: (at) => named(at.layers) }[sort.key] ?? ((at) => at[sort.key]);
    const less = (a, b) => (a < b ? -1 : a > b ? 1 : 0), sign = sort.down ? -1 : 1;
    return [...sums.values()].sort((a, b) => sign * less(value(a), value(b)) || b.all - a.all || less(a.line, b.line));
  }

  function heading([key, name, , className, meaning]) {
    const mine = sort.key === key && name !== "share", cell = element("th", { className: className === "number" ? "number" : "" },
      element("button", { type: "button", title: `sort by ${name}: ${meaning}`, textContent: name + (mine ? (sort.down ? " ▾" : " ▴") : ""), onclick: () => {
        Object.assign(sort, sort.key === key ? { down: !sort.down } : { key, down: className === "number" });
        part.changed();
      } }));
    if (mine) cell.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    return cell;
  }

  function entry(at) {
    const made = element("tr", { tabIndex: 0 }, ...COLUMNS.map(([, , get, className]) => element("td", { textContent: get(at), className, title: className !== "wide" ? "" : get === COLUMNS[0][2] ? model.lineName(at.line) : get(at).slice(0, 500) })));
    const choose = () => state.toggle("line", at.line || NONE, `line: ${at.line || "no stack recorded"}`);
    made.onclick = choose;
    made.onkeydown = ({ key }) => key === "Enter" && choose();
    if (state.value("line") === (at.line || NONE)) made.className = "chosen";
    return made;
  }

  function build() {
    found = gather();
    const more = found.length - MOST;
    const rest = more > 0 ? [element("tr", {}, element("td", { textContent: `and ${more.toLocaleString("en")} more`, colSpan: COLUMNS.length }))] : [];
    const { scrollLeft } = box;
    box.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...COLUMNS.map(heading))), element("tbody", {}, ...found.slice(0, MOST).map(entry), ...rest)));
    box.scrollLeft = scrollLeft;
  }

  function start() {
    document.getElementById("lines-section").hidden = !stacks.has;
    if (!stacks.has) return;
    part = draw.whenNear(box, build);
    state.subscribe(part.changed);
  }

  return { start, now: () => part?.now(), found: () => { part?.now(); return found; } };
})();
