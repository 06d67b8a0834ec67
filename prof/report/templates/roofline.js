// The roofline, log-log: one dot per op, kernel or layer. Its size is its time, its colour its class of work. Where
// Nsight Compute measured its kernels, a hollow diamond is where the measured FLOPs and bytes of these put it.

const roofline = (() => {
  const group = document.getElementById("roofline-group"), choice = document.getElementById("roofline-roofs");
  const DOTS = 400; // the longest; the others would be too small to see
  let shown = [], roofsShown = [], frame = null, written = [];

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
      if (!(flops > 0 && bytes > 0 && model.working(row) > 0)) { without += dur[row]; continue; }
      const key = dirs ? `${keys[c]}\x1f${dirs[c]}` : keys[c];
      let dot = found.get(key);
      if (!dot) found.set(key, (dot = { key: keys[c], dir: dirs?.[c] ?? "", flops: 0, bytes: 0, ns: 0, count: 0, measured: { flops: 0, bytes: 0, ns: 0, count: 0 }, classes: new Map(), works: new Map(), units: new Map(), sol: 0 }));
      dot.flops += flops; dot.bytes += bytes; dot.ns += dur[row]; dot.count++; dot.sol += numbers.sol_ns[c];
      if (numbers.exec_flops?.[c] > 0 && numbers.dram[c] > 0) add(dot.measured, numbers.exec_flops[c], numbers.dram[c], dur[row]);
      dot.classes.set(texts.class[c], (dot.classes.get(texts.class[c]) ?? 0) + dur[row]);
      dot.works.set(texts.work[c], (dot.works.get(texts.work[c]) ?? 0) + dur[row]);
      dot.units.set(texts.unit[c], (dot.units.get(texts.unit[c]) ?? 0) + dur[row]);
    }
    const list = [...found.values()].sort((a, b) => b.ns - a.ns).slice(0, DOTS);
    for (const dot of list) Object.assign(dot, { class: most(dot.classes), work: most(dot.works), unit: most(dot.units), name: nameOf(dot) });
    return { list, without, total };
  }

  function add(sum, flops, bytes, ns) {
    sum.flops += flops; sum.bytes += bytes; sum.ns += ns; sum.count++;
  }

  const point = (sum) => [sum.flops / sum.bytes, (sum.flops / sum.ns) * 1e9]; // FLOP/byte, FLOP/s

  const most = (sums) => [...sums].sort((a, b) => b[1] - a[1])[0][0];
  const nameOf = (dot) => `${dot.key.replaceAll("\x1f", ".") || "(none)"}${dot.dir === "bprop" ? ", backward" : ""}`;

  const peaksOf = (device, list) => {
    const used = new Set(list.map((dot) => dot.unit));
    return Object.entries(device.flop_per_s).filter(([unit]) => choice.value === "all" || used.has(unit) || unit === "fp32");
  };

  // The names of dots and roofs, placed so that none lies on another or on a dot.
  function texts(chart, box) {
    if (!shown.length) return [{ type: "text", left: "center", top: "30%", style: { text: "No operation here has a count of FLOPs", fill: draw.colors.dim } }];
    const pixel = (value) => chart.convertToPixel({ gridIndex: 0 }, value);
    const [left, bottom] = pixel([frame.low, frame.min]), [right, top] = pixel([frame.high, frame.max]);
    const dots = shown.map((dot) => {
      const [x, y] = pixel([dot.flops / dot.bytes, (dot.flops / dot.ns) * 1e9]), r = dot.size / 2;
      return { x: x - r, y: y - r, width: dot.size, height: dot.size };
    });
    const lines = roofsShown.map(({ data }) => data.map(pixel)), narrow = box.clientWidth < 500;
    const roofTexts = roofsShown.filter(({ label }) => label).map(({ label: text, at, data }) => {
      const wide = labels.width(text) + 2, [[x, y], [u, v]] = data.map(pixel);
      const along = Array.from({ length: 19 }, (_, k) => (at ? u - wide - 4 - (k * (u - x)) / 20 : x + ((k + 2) * (u - x)) / 22));
      return { text, places: at ? along.flatMap((px) => [[px, y - labels.HEIGHT - 1], [px, y + 4]])
        : along.map((px) => [px + 8, v + ((u - px) * (y - v)) / (u - x || 1) + 5]) };
    });
    const dotTexts = shown.slice(0, narrow ? 6 : 14).map((dot, i) => {
      const own = dots[i], text = format.cut(dot.name, 28), wide = labels.width(text) + 2, { HEIGHT } = labels;
      const cx = own.x + own.width / 2, cy = own.y + own.height / 2, [e, w] = [own.x + own.width + 3, own.x - wide - 3], [n, s] = [own.y - HEIGHT - 1, own.y + own.height + 1];
      return { text, own, places: [[e, cy - HEIGHT / 2], [w, cy - HEIGHT / 2], [cx - wide / 2, n], [cx - wide / 2, s], [e - 4, n + 4], [e - 4, s - 4], [w + 4, n + 4], [w + 4, s - 4]] };
    });
    const hollow = measured(shown).map((dot) => {
      const [x, y] = pixel(point(dot.measured)), size = diamond(dot);
      return { x: x - size / 2, y: y - size / 2, width: size, height: size };
    });
    written = labels.place([...roofTexts, ...dotTexts], { x: left, y: top - labels.HEIGHT, width: right - left, height: bottom - top + labels.HEIGHT }, [...dots, ...hollow], lines);
    return written.map(({ x, y, text }) => ({ type: "text", silent: true, z: 5, x: x + 1, y: y + 1, style: { text, fill: draw.colors.ink, fontSize: labels.SIZE, fontFamily: "system-ui, sans-serif" } }));
  }

  // The device's roofs and, dotted, its data sheet's where others were measured.
  function roofs(low, high, scale, list, box) {
    const device = model.data.devices.find((found) => found.byte_per_s) ?? null;
    if (!device) return [];
    const sheet = model.data.sheets.find((found) => found.name === device.name) ?? { flop_per_s: {} };
    const peaks = peaksOf(device, list).sort((a, b) => a[1] - b[1]), top = Math.max(...peaks.map(([, peak]) => peak), 0);
    const near = Math.log10(scale.max / scale.min) * (16 / Math.max(100, box.clientHeight - 50)); // decades of a label's height
    const narrow = box.clientWidth < 500;
    const other = ([unit, peak]) => (sheet.flop_per_s[unit] && sheet.flop_per_s[unit] !== peak ? sheet.flop_per_s[unit] : null);
    const slower = sheet.byte_per_s && sheet.byte_per_s !== device.byte_per_s ? sheet.byte_per_s : null;
    const level = (peak, faint, name) => roof(name, faint, [[Math.max(low, peak / device.byte_per_s), peak], [high, peak]], 1);
    const groups = []; // of peaks whose labels would lie on one another
    for (const each of peaks) {
      const last = groups[groups.length - 1];
      if (last && Math.log10(each[1] / last[last.length - 1][1]) < near) last.push(each); else groups.push([each]);
    }
    const slope = (rate, faint, name) => {
      const start = Math.max(low, (scale.min ?? 0) / rate), end = top ? Math.min(top / rate, high) : high; // within the picture
      return roof(name, faint, [[start, start * rate], [end, end * rate]], 0);
    };
    return [
      ...(slower ? [slope(slower, true, "")] : []),
      ...peaks.filter(other).map((each) => level(other(each), true, "")),
      slope(device.byte_per_s, false, `memory ${amounts([device.byte_per_s], [slower].filter(Boolean), "B/s", narrow)}`),
      ...groups.flatMap((group) => group.map(([, peak], i) => level(peak, false, i < group.length - 1 ? "" : labelOf(group, other, narrow)))),
    ];
  }

  // Each unit with its own rate: "fp64 9.7 TFLOP/s; fp32 19.5 TFLOP/s"; of one rate together: "fp16, bf16 tensor cores 989.4 TFLOP/s".
  function labelOf(group, other, narrow) {
    const alike = new Map();
    for (const each of group) {
      const rate = narrow && group.some(([, peak]) => peak !== each[1]) ? "" : amounts([each[1]], [other(each)].filter(Boolean), "FLOP/s", narrow);
      alike.set(rate, [...(alike.get(rate) ?? []), model.data.unit_names[each[0]] ?? each[0]]);
    }
    return [...alike].map(([rate, units]) => `${units.join(", ")} ${rate}`.trim()).join("; ");
  }

  // "811 TFLOP/s measured (data sheet: 989.4 TFLOP/s)"
  function amounts(rates, sheet, unit, narrow) {
    const shown = (values) => [...new Set(values.map((value) => format.si(value, unit)))].join(", ");
    if (narrow) return rates.length > 1 ? "" : shown(rates);
    return sheet.length === rates.length ? `${shown(rates)} measured (data sheet: ${shown(sheet)})` : shown(rates);
  }

  // `at`: the end that has the label.
  const roof = (name, faint, data, at) => ({
    name: name || "roof", label: name, at, type: "line", data, symbol: "none", silent: true, z: 1,
    lineStyle: { color: draw.colors.dim, width: faint ? 1 : 1.5, type: faint ? "dotted" : at ? "dashed" : "solid" },
  });

  const measured = (list) => list.filter((dot) => dot.measured.count);
  const points = (list) => [...list.map(point), ...measured(list).map((dot) => point(dot.measured))];

  // Whole decades around the dots and the highest peak in use.
  function heights(list) {
    const rates = points(list).map(([, rate]) => rate);
    const known = [...model.data.devices, ...model.data.sheets];
    const peaks = known.flatMap((device) => list.length ? peaksOf(device, list).map(([, peak]) => peak) : []);
    if (!rates.length) return {};
    return { min: 10 ** Math.floor(Math.log10(Math.min(...rates) / 2)), max: 10 ** Math.ceil(Math.log10(2 * Math.max(...rates, ...peaks))) };
  }

  function option(width, box) {
    const { list, without, total } = dots();
    shown = list;
    document.getElementById("roofline-hint").textContent = total
      ? `The dots are ${format.percent(total - without, total)} of the time; the rest has no FLOPs, or FLOPs or bytes are unknown. A dot is the sum of its operations. A dot above a roof reads from caches.${measured(list).length ? " A diamond has the FLOPs that these executed and their DRAM traffic, as Nsight Compute measured them, in the time of this capture." : ""}`
      : "No operation passes the filters.";
    const ai = points(list).map(([each]) => each), longest = Math.max(1, ...list.map((dot) => dot.ns));
    const low = 10 ** Math.floor(Math.log10(Math.min(0.1, ...ai))), high = 10 ** Math.ceil(Math.log10(Math.max(1000, ...ai)));
    const scale = heights(list);
    const classes = model.data.classes.filter((name) => list.some((dot) => dot.class === name));
    for (const dot of list) dot.size = 6 + 34 * Math.sqrt(dot.ns / longest);
    const kinds = measured(list).length ? [["the algorithm's FLOPs and bytes", draw.colors.dim], ["measured by Nsight Compute", draw.colors.dim, "", "hollow"]] : [];
    legend.fill("roofline-legend", [["", legend.classes(new Set(classes))], ["", kinds]]);
    frame = { low, high, ...scale };
    roofsShown = list.length ? roofs(low, high, scale, list, box) : [];
    return {
      grid: { left: 16, right: 24, top: 28, bottom: 34, containLabel: true },
      tooltip: draw.tooltip(({ data }) => (data?.dot ? tip(data.dot) : "")),
      xAxis: draw.axis({ type: "log", min: low, max: high, name: "FLOP / byte", nameLocation: "middle", nameGap: 26, axisLabel: { formatter: (v) => format.digits(v) } }),
      yAxis: draw.axis({ type: "log", ...scale, axisLabel: { formatter: (v) => format.si(v, "").trim() }, name: "FLOP/s", nameLocation: "end", nameGap: 6, nameTextStyle: { align: "left", color: draw.colors.dim } }),
      series: [
        ...roofsShown.map(({ label, at, ...series }) => series),
        ...classes.map((name) => ({
          name, type: "scatter", z: 3, itemStyle: { color: draw.classColor(name), opacity: 0.8, borderColor: draw.colors.card },
          data: list.flatMap((dot) => dot.class !== name ? [] : ({ value: point(dot), symbolSize: dot.size, dot })),
        })),
        ...diamonds(measured(list)),
      ],
    };
  }

  const diamond = (dot) => Math.max(9, Math.min(18, dot.size));

  // The measured points, each with a line to its dot.
  function diamonds(list) {
    if (!list.length) return [];
    const outline = (dot) => ({ color: draw.colors.card, opacity: 0.9, borderColor: draw.classColor(dot.class), borderWidth: 2 });
    return [
      { name: "measured - algorithm", type: "lines", coordinateSystem: "cartesian2d", silent: true, z: 2,
        data: list.map((dot) => ({ coords: [point(dot), point(dot.measured)], lineStyle: { color: draw.classColor(dot.class), width: 1, opacity: 0.6 } })) },
      { name: "measured", type: "scatter", symbol: "diamond", z: 4,
        data: list.map((dot) => ({ value: point(dot.measured), symbolSize: diamond(dot), itemStyle: outline(dot), dot })) },
    ];
  }

  function measuredLine({ measured: { flops, bytes, count }, ...dot }) {
    if (!count) return "";
    const of = count < dot.count ? ` (${count.toLocaleString("en")} operations)` : `: ${format.digits(flops / dot.flops)} and ${format.digits(bytes / dot.bytes)} times the algorithm's`;
    return `measured: ${format.si(flops, "FLOP")} executed, ${format.si(bytes, "B")} of DRAM traffic${of}`;
  }

  function tip(dot) {
    return tipContent(dot.name, [
      `${format.ns(dot.ns)} in ${dot.count.toLocaleString("en")} operations, ${dot.work}`,
      `${format.si(dot.flops, "FLOP")}, ${format.si(dot.bytes, "B")}: ${format.digits(dot.flops / dot.bytes)} FLOP/byte`,
      `${format.si((dot.flops / dot.ns) * 1e9, "FLOP/s")}, ${format.si((dot.bytes / dot.ns) * 1e9, "B/s")}`,
      measuredLine(dot),
      dot.sol > 0 ? `${format.percent(dot.sol, dot.ns)} of the limit (${model.data.unit_names[dot.unit] ?? "memory"})` : "",
    ]);
  }

  function picked({ data }) {
    if (!data?.dot) return;
    const label = group.selectedOptions[0].textContent.split(" ").pop();
    state.toggle(group.value, data.dot.key, `${label}: ${data.dot.key.replaceAll("\x1f", ".")}`);
    if (data.dot.dir) state.set("dir", state.value(group.value) ? data.dot.dir : undefined, `direction: ${data.dot.dir}`);
  }

  const made = draw.chart("roofline", option, picked, texts);
  group.onchange = choice.onchange = () => made.update();
  return Object.assign(made, { shown: () => shown, labels: () => written });
})();
