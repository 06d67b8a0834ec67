// Roofline, log-log: a dot an op, kernel or layer; its size is its time, its colour its class.

const roofline = (() => {
  const group = document.getElementById("roofline-group");
  const DOTS = 400; // the longest; the rest would be specks
  let shown = [];

  function dots() {
    const found = new Map();
    const mask = state.mask();
    const { call, dur } = model.rows, { texts, numbers } = model;
    const keys = texts[group.value], dirs = group.value === "op" ? texts.dir : null;
    let without = 0, total = 0;
    for (let row = 0; row < mask.length; row++) {
      if (!mask[row]) continue;
      const c = call[row], flops = numbers.flops[c], bytes = numbers.bytes[c];
      total += dur[row];
      if (!(flops > 0 && bytes > 0 && dur[row] > 0)) { without += dur[row]; continue; }
      const key = dirs ? `${keys[c]}\x1f${dirs[c]}` : keys[c];
      let dot = found.get(key);
      if (!dot) found.set(key, (dot = { key: keys[c], dir: dirs?.[c] ?? "", flops: 0, bytes: 0, ns: 0, count: 0, classes: new Map(), units: new Map(), sol: 0 }));
      dot.flops += flops; dot.bytes += bytes; dot.ns += dur[row]; dot.count++; dot.sol += numbers.sol_ns[c];
      dot.classes.set(texts.class[c], (dot.classes.get(texts.class[c]) ?? 0) + dur[row]);
      dot.units.set(texts.unit[c], (dot.units.get(texts.unit[c]) ?? 0) + dur[row]);
    }
    const list = [...found.values()].sort((a, b) => b.ns - a.ns).slice(0, DOTS);
    for (const dot of list) Object.assign(dot, { class: most(dot.classes), unit: most(dot.units), name: nameOf(dot) });
    return { list, without, total };
  }

  const most = (sums) => [...sums].sort((a, b) => b[1] - a[1])[0][0];
  const nameOf = (dot) => `${dot.key.replaceAll("\x1f", ".") || "(none)"}${dot.dir === "bprop" ? ", backward" : ""}`;

  function roofs(low, high, bottom, list) {
    const device = model.data.devices.find((found) => found.byte_per_s) ?? null;
    if (!device) return [];
    const used = new Set(list.map((dot) => dot.unit));
    const units = Object.entries(device.flop_per_s).filter(([unit]) => used.has(unit) || unit === "fp32");
    const top = Math.max(...units.map(([, peak]) => peak), 0);
    const ridge = top / device.byte_per_s;
    const lines = units.sort((a, b) => a[1] - b[1]).map(([unit, peak]) =>
      roof(`${unit} ${format.si(peak, "FLOP/s")}`, [[Math.max(low, peak / device.byte_per_s), peak], [high, peak]], "end"));
    const start = Math.max(low, (bottom ?? 0) / device.byte_per_s); // where the slope enters the picture
    const end = top ? Math.min(ridge, high) : high;
    return [roof(`memory ${format.si(device.byte_per_s, "B/s")}`, [[start, start * device.byte_per_s], [end, end * device.byte_per_s]], "start"), ...lines];
  }

  const roof = (name, data, at) => ({
    name, type: "line", data, symbol: "none", silent: true, z: 1,
    lineStyle: { color: draw.colors.dim, width: 1.5, type: at === "start" ? "solid" : "dashed" },
    markPoint: {
      symbol: "rect", symbolSize: 0.1, silent: true, data: [{ coord: at === "start" ? data[0] : data[1] }],
      label: { formatter: name, color: draw.colors.dim, fontSize: 11, position: at === "start" ? [18, -6] : [-4, -15], align: at === "start" ? "left" : "right" },
    },
  });

  // Whole decades around the dots and the highest peak in use.
  function heights(list) {
    const rates = list.map((dot) => (dot.flops / dot.ns) * 1e9);
    const peaks = model.data.devices.flatMap((device) => list.map((dot) => device.flop_per_s[dot.unit] ?? 0));
    if (!rates.length) return {};
    return { min: 10 ** Math.floor(Math.log10(Math.min(...rates) / 2)), max: 10 ** Math.ceil(Math.log10(2 * Math.max(...rates, ...peaks))) };
  }

  function option(width) {
    const { list, without, total } = dots();
    shown = list;
    document.getElementById("roofline-hint").textContent = total
      ? `${format.percent(total - without, total)} of the time shown: the rest has no FLOPs or no count. Rates are a group's sums; a dot above a roof reads from the caches.`
      : "Nothing passes the filter.";
    const ai = list.map((dot) => dot.flops / dot.bytes), longest = Math.max(1, ...list.map((dot) => dot.ns));
    const low = 10 ** Math.floor(Math.log10(Math.min(0.1, ...ai))), high = 10 ** Math.ceil(Math.log10(Math.max(1000, ...ai)));
    const scale = heights(list), place = (dot) => Math.log(dot.flops / dot.bytes / low) / Math.log(high / low); // 0 left, 1 right
    const classes = model.data.classes.filter((name) => list.some((dot) => dot.class === name));
    const labelled = width < 500 ? 4 : 10; // the longest
    return {
      grid: { left: 16, right: 24, top: 46, bottom: 34, containLabel: true },
      legend: { top: 0, left: 0, type: "scroll", data: classes, textStyle: { color: draw.colors.ink }, itemWidth: 14, selectedMode: false },
      tooltip: draw.tooltip(({ data }) => (data?.dot ? tip(data.dot) : "")),
      xAxis: draw.axis({ type: "log", min: low, max: high, name: "FLOP / byte", nameLocation: "middle", nameGap: 26, axisLabel: { formatter: (v) => format.digits(v) } }),
      yAxis: draw.axis({ type: "log", ...scale, axisLabel: { formatter: (v) => format.si(v, "").trim() }, name: "FLOP/s", nameLocation: "end", nameGap: 6, nameTextStyle: { align: "left", color: draw.colors.dim } }),
      graphic: list.length ? [] : [{ type: "text", left: "center", top: "30%", style: { text: "No operation here has a count of FLOPs", fill: draw.colors.dim } }],
      series: [
        ...roofs(low, high, scale.min, list),
        ...classes.map((name) => ({
          name, type: "scatter", z: 3, itemStyle: { color: draw.classColor(name), opacity: 0.8, borderColor: draw.colors.card },
          labelLayout: { hideOverlap: true },
          label: { show: true, color: draw.colors.ink, textBorderColor: draw.colors.card, textBorderWidth: 2, fontSize: 11, lineHeight: 17, formatter: ({ data }) => (data.rank < labelled ? format.cut(data.dot.name, 28) : "") },
          data: list.flatMap((dot, rank) => dot.class !== name ? [] : ({
            rank, label: { position: place(dot) > (width < 500 ? 0.55 : 0.8) ? "left" : "right" }, value: [dot.flops / dot.bytes, (dot.flops / dot.ns) * 1e9], symbolSize: 6 + 34 * Math.sqrt(dot.ns / longest), dot,
          })),
        })),
      ],
    };
  }

  function tip(dot) {
    return tipContent(dot.name, [
      `${format.ns(dot.ns)} in ${dot.count.toLocaleString("en")} operations, ${dot.class}`,
      `${format.si(dot.flops, "FLOP")}, ${format.si(dot.bytes, "B")}: ${format.digits(dot.flops / dot.bytes)} FLOP/byte`,
      `${format.si((dot.flops / dot.ns) * 1e9, "FLOP/s")}, ${format.si((dot.bytes / dot.ns) * 1e9, "B/s")}`,
      dot.sol > 0 ? `${format.percent(dot.sol, dot.ns)} of the limit (${dot.unit || "memory"})` : "",
    ]);
  }

  function picked({ data }) {
    if (!data?.dot) return;
    const label = group.selectedOptions[0].textContent.split(" ").pop();
    state.toggle(group.value, data.dot.key, `${label}: ${data.dot.key.replaceAll("\x1f", ".")}`);
    if (data.dot.dir) state.set("dir", state.value(group.value) ? data.dot.dir : undefined, `direction: ${data.dot.dir}`);
  }

  const made = draw.chart("roofline", option, picked);
  group.onchange = () => made.update();
  return Object.assign(made, { shown: () => shown });
})();
