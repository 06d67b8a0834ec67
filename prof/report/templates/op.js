// The page of one op, shown while the filter names an op: its sets of arguments with the time of their calls, its layers
// and code lines, and how long its calls last. Its address is #op=NAME.

const op = (() => {
  const section = document.getElementById("op");
  const MOST = 300; // sets of arguments, lines of a list
  const BINS = 30;
  let chart = null, calls = [];

  // The op in the filter, or the op at the end of the path in the filter.
  function name() {
    if (state.value("op")) return state.value("op");
    const path = state.value("path");
    if (!path) return "";
    const call = model.texts.path.findIndex((text) => text === path || text.startsWith(`${path}\x1f`));
    if (call < 0 || !model.texts.op[call]) return "";
    const layers = model.texts.layer[call] ? model.texts.layer[call].split("\x1f").length : 0;
    return path.split("\x1f").length > layers ? model.texts.op[call] : "";
  }

  function rowsOf(wanted) {
    const mask = state.mask(), found = [];
    const mine = Uint8Array.from({ length: model.calls }, (_, call) => (model.texts.op[call] === wanted ? 1 : 0));
    for (let row = 0; row < mask.length; row++) if (mask[row] && mine[model.rows.call[row]]) found.push(row);
    return found;
  }

  // Rows with the same direction, aten op and arguments.
  function sets(rows) {
    const found = new Map(), { texts, numbers } = model;
    for (const row of rows) {
      const call = model.rows.call[row], key = `${texts.dir[call]}\x1f${texts.aten[call]}\x1f${texts.params[call]}`;
      let at = found.get(key);
      if (!at) found.set(key, (at = { call, times: new Map(), ns: 0, working: 0, flops: 0, bytes: 0, sol: 0, kernels: new Map(), bounds: new Map() }));
      const ns = model.rows.dur[row], instance = model.rows.instance[row];
      at.times.set(instance, (at.times.get(instance) ?? 0) + ns);
      at.ns += ns; at.working += model.working(row); at.flops += numbers.flops[call]; at.bytes += numbers.bytes[call]; at.sol += numbers.sol_ns[call];
      add(at.kernels, texts.name[call] || "(no name)", 1);
      if (texts.bound[call]) add(at.bounds, texts.bound[call], ns);
    }
    return [...found.values()].sort((a, b) => b.ns - a.ns);
  }

  const add = (sums, key, value) => sums.set(key, (sums.get(key) ?? 0) + value);
  const ordered = (sums) => [...sums].sort((a, b) => b[1] - a[1]);
  const direction = (text) => ({ fprop: "forward", bprop: "backward" })[text] ?? "";

  const COLUMNS = [
    ["direction", (at) => direction(model.texts.dir[at.call])],
    ["aten op", (at) => model.texts.aten[at.call].replace("aten::", "")],
    ["time", (at) => format.ns(at.ns), "number", "dur"],
    ["share", (at) => format.percent(at.ns, model.total), "number"],
    ["arguments", (at) => model.texts.params[at.call].replaceAll(",", ", ") || "(not recorded)", "wide", "params"],
    ["calls", (at) => at.times.size.toLocaleString("en"), "number", "calls"],
    ["time per call", (at) => format.ns(at.ns / at.times.size), "number"],
    ["range", (at) => spread([...at.times.values()]), "number"],
    ["FLOPs per call", (at) => format.si(at.flops / at.times.size, ""), "number"],
    ["bytes per call", (at) => format.si(at.bytes / at.times.size, "B"), "number"],
    ["FLOP/s", (at) => (at.working > 0 ? format.si((at.flops / at.working) * 1e9, "") : ""), "number"],
    ["bytes/s", (at) => (at.working > 0 ? format.si((at.bytes / at.working) * 1e9, "B/s") : ""), "number"],
    ["% of limit", (at) => (Number.isNaN(at.sol) ? "" : format.percent(at.sol, at.working)), "number", "sol"],
    ["bound by", (at) => ordered(at.bounds)[0]?.[0] ?? ""],
    ["TC", (at) => model.texts.tc[at.call]],
    ["kernels", (at) => ordered(at.kernels).map(([text, count]) => `${format.cut(text, 60)} × ${count.toLocaleString("en")}`).join(", "), "wide"],
  ];

  function spread(times) {
    const low = times.reduce((a, b) => Math.min(a, b)), high = times.reduce((a, b) => Math.max(a, b));
    return low === high ? "" : `${format.ns(low)} to ${format.ns(high)}`;
  }

  function table(found) {
    const head = element("tr", {}, ...COLUMNS.map(([textContent, , className, key]) => element("th", { textContent, className: className ?? "", title: model.data.meanings[key ?? textContent] ?? "" })));
    const lines = found.slice(0, MOST).map((at) => {
      const line = element("tr", { tabIndex: 0 }, ...COLUMNS.map(([, get, className]) => element("td", { textContent: get(at), className: className ?? "", title: className === "wide" ? get(at).slice(0, 2000) : "" })));
      const choose = () => pick(at.call);
      line.onclick = choose;
      line.onkeydown = ({ key }) => key === "Enter" && choose();
      return line;
    });
    if (found.length > MOST) lines.push(element("tr", {}, element("td", { textContent: `and ${(found.length - MOST).toLocaleString("en")} more`, colSpan: COLUMNS.length })));
    document.getElementById("op-sets").replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines)));
  }

  // Filters by the direction, aten op and arguments of a set; a second click removes the filter.
  function pick(call) {
    const mine = [["dir", "direction"], ["aten", "aten op"], ["params", "arguments"]].map(([key, label]) => [key, label, model.texts[key][call]]);
    const again = mine.every(([key, , value]) => !value || state.value(key) === value);
    for (const [key, label, value] of mine) state.set(key, again ? undefined : value, `${label}: ${value}`);
  }

  function list(id, rows, key, none, label) {
    const sums = new Map(), counts = new Map();
    for (const row of rows) {
      add(sums, model.text(key, row), model.rows.dur[row]);
      add(counts, model.text(key, row), 1);
    }
    const lines = ordered(sums).slice(0, MOST).map(([text, ns]) => listEntry(shown(key, text) || none,
      [`${counts.get(text).toLocaleString("en")} ×`, format.ns(ns)], () => text && state.toggle(key, text, `${label}: ${shown(key, text)}`)));
    document.getElementById(id).replaceChildren(...lines);
  }

  const shown = (key, text) => (key === "trace" ? model.lineName(text.split("\n").pop()) : text.replaceAll("\x1f", " › "));

  // How long calls last, by direction.
  function times(rows) {
    const found = new Map();
    for (const row of rows) {
      const instance = model.rows.instance[row], at = found.get(instance);
      if (at) at.ns += model.rows.dur[row];
      else found.set(instance, { ns: model.rows.dur[row], dir: direction(model.text("dir", row)) || "other" });
    }
    return [...found.values()].filter((at) => at.ns > 0);
  }

  function option(width) {
    if (!calls.length) return { series: [] };
    let low = Infinity, high = -Infinity;
    for (const { ns } of calls) { low = Math.min(low, ns); high = Math.max(high, ns); }
    const wide = high / low > 8, bins = low === high ? 1 : BINS, scale = wide ? Math.log : (v) => v, back = wide ? Math.exp : (v) => v;
    const edge = (i) => back(scale(low) + ((scale(high) - scale(low)) * i) / bins);
    const place = (ns) => (low === high ? 0 : Math.min(bins - 1, Math.floor(((scale(ns) - scale(low)) / (scale(high) - scale(low))) * bins)));
    const names = ["forward", "backward", "other"].filter((text) => calls.some(({ dir }) => dir === text));
    const counts = Object.fromEntries(names.map((text) => [text, new Array(bins).fill(0)]));
    for (const { ns, dir } of calls) counts[dir][place(ns)]++;
    const span = (i) => (bins === 1 ? format.ns(low) : `${format.ns(edge(i))} to ${format.ns(edge(i + 1))}`);
    legend.fill("op-legend", [["", names.map((text) => [text, draw.phaseColor(text)])]]);
    return {
      grid: { left: 8, right: 16, top: 10, bottom: 24, containLabel: true },
      tooltip: draw.tooltip(({ seriesName, dataIndex, value }) => tipContent(`${value.toLocaleString("en")} calls, ${seriesName}`, [span(dataIndex)])),
      xAxis: draw.axis({ type: "category", data: Array.from({ length: bins }, (_, i) => format.ns(edge(i))), splitLine: { show: false }, axisLabel: { hideOverlap: true }, name: "time of a call (bars: calls)", nameLocation: "middle", nameGap: 24 }),
      yAxis: draw.axis({ type: "value", minInterval: 1, splitNumber: 3 }),
      series: names.map((text) => ({ name: text, type: "bar", stack: "calls", barCategoryGap: "8%", itemStyle: { color: draw.phaseColor(text) }, data: counts[text] })),
    };
  }

  function update() {
    const wanted = name(), was = section.hidden;
    section.hidden = !wanted;
    address(wanted);
    calls = [];
    if (!wanted) return;
    const rows = rowsOf(wanted);
    calls = times(rows);
    const ns = rows.reduce((sum, row) => sum + model.rows.dur[row], 0);
    section.querySelector("h2").textContent = `Op: ${wanted}`;
    section.querySelector(".hint").textContent = `${calls.length.toLocaleString("en")} calls in ${rows.length.toLocaleString("en")} operations, ${format.ns(ns)}, ${format.percent(ns, model.total)} of all time. A call is one call of an aten op, which may launch several kernels. Click a line to filter by it.`;
    table(sets(rows));
    list("op-layers", rows, "layer", "(no layer)", "layer");
    list("op-traces", rows, "trace", "(no code line)", "line");
    list("op-kernels", rows, "name", "(no name)", "kernel");
    if (was) chart.instance.resize();
    chart.update();
  }

  function address(wanted) {
    const hash = wanted ? `#op=${encodeURIComponent(wanted)}` : "";
    if (location.hash === hash || (!wanted && !location.hash.startsWith("#op="))) return;
    try { history.replaceState(null, "", hash || location.pathname + location.search); } catch { /* refused for a file: no address */ }
  }

  function follow() {
    if (!location.hash.startsWith("#op=")) return;
    let wanted = "";
    try { wanted = decodeURIComponent(location.hash.slice(4)); } catch { return; } // not an address of this page
    if (model.texts.op.includes(wanted) && wanted !== name()) show(wanted);
  }

  function go() {
    for (const above of [stacks, lines]) above.now(); // built later, they would move this part out of sight
    section.style.scrollMarginTop = `${document.getElementById("filters").offsetHeight + 8}px`; // the bar stays on top
    section.scrollIntoView({ block: "start" });
    section.querySelector("h2").focus({ preventScroll: true });
  }

  // Chooses an op, and goes to its page when that is there.
  function show(wanted) {
    state.set("op", wanted);
    requestAnimationFrame(() => requestAnimationFrame(go));
  }

  function start() {
    state.subscribe(update);
    addEventListener("hashchange", follow);
    follow();
  }

  chart = draw.chart("op-times", option, () => {});
  return { start, name, go, show, sets: () => sets(rowsOf(name())), calls: () => calls, chart };
})();
