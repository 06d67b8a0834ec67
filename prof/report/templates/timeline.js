// The timeline, on a canvas. What lies within the view is found by bisection, and what shares a pixel is drawn once, so
// that the work per frame depends on the number of pixels and not of kernels.

const timeline = (() => {
  const box = document.getElementById("timeline"), canvas = box.querySelector("canvas");
  const tip = document.getElementById("tip");
  const LANE = 24, THIN = 14, TITLE = 15, AXIS = 22;
  const LAYERS = 4; // levels of layers over a stream; deeper ones are in the layers' chart
  const wanted = document.getElementById("timeline-ranges");
  const { rows, data } = model;
  const view = { low: 0, high: 1 };
  let bounds = [0, 1], tracks = [], hit = null, drawn = 0;

  // Tracks: per device its gaps and streams, these with what the program did over them, then the threads' launches. Each
  // has starts and ends, both rising.
  function build() {
    tracks = [];
    const byLane = data.lanes.map(() => []), byThread = data.threads.map(() => []);
    for (let row = 0; row < model.count; row++) {
      if (Number.isNaN(rows.start[row])) continue;
      byLane[rows.lane[row]].push(row);
      if (rows.thread[row] >= 0 && rows.wait[row] === rows.wait[row]) byThread[rows.thread[row]].push(row);
    }
    data.owners.forEach((owner, number) => {
      const lanes = data.lanes.map((_, i) => i).filter((i) => data.lanes[i].owner === number && byLane[i].length);
      if (!lanes.length) return;
      tracks.push(gaps(data.owners.length > 1 ? `${data.gap}, ${owner}` : data.gap, lanes.flatMap((i) => byLane[i])));
      for (const i of lanes) {
        if (wanted.checked) tracks.push(...ranges(data.lanes[i].name, byLane[i]));
        tracks.push(track(data.lanes[i].name, "row", i, byLane[i], (row) => rows.start[row], (row) => rows.dur[row]));
      }
    });
    byThread.forEach((list, i) => {
      if (list.length) tracks.push(track(`launches, ${data.threads[i]}`, "launch", i, list, (row) => rows.start[row] - rows.wait[row], (row) => Math.max(0, rows.api_dur[row] || 0)));
    });
    let y = AXIS;
    for (const each of tracks) {
      each.y = y + (each.name ? TITLE : 0);
      each.height = each.kind === "row" ? LANE : THIN;
      y = each.y + each.height + (each.kind === "range" ? 1 : 4);
    }
    const starts = tracks.map((each) => each.start[0]), ends = tracks.map((each) => each.until[each.until.length - 1]);
    bounds = tracks.length ? [Math.min(...starts), Math.max(...ends)] : [0, 1];
    canvas.style.height = `${y + 4}px`;
  }

  function track(name, kind, number, list, startOf, durOf) {
    list.sort((a, b) => startOf(a) - startOf(b));
    const start = Float64Array.from(list, startOf), end = Float64Array.from(list, (row) => startOf(row) + durOf(row));
    const until = end.slice(); // the latest end so far, which rises also where rows overlap: bisection needs that
    for (let i = 1; i < until.length; i++) until[i] = Math.max(until[i], until[i - 1]);
    return { name, kind, number, list, start, end, until };
  }

  function gaps(name, list) {
    list.sort((a, b) => rows.start[a] - rows.start[b]);
    let next = list.filter((row) => rows.idle[row] > 0); // the operations that end the gaps
    if (!next.length) next = [list[0]];
    const end = Float64Array.from(next, (row) => rows.start[row]);
    return { name, kind: "gap", list: null, next, start: end.map((time, i) => time - rows.idle[next[i]]), end, until: end };
  }

  // What each call is part of (phase, layers, op), and per level a number for everything down to it.
  const parts = [], nodes = [];
  function takeApart() {
    const known = new Map();
    for (let call = 0; call < model.calls; call++) {
      const layers = model.texts.layer[call] ? model.texts.layer[call].split("\x1f").slice(0, LAYERS) : [];
      const mine = [["phase", model.texts.phase[call]], ...layers.map((text) => ["layer", text])];
      if (model.texts.op[call]) mine.push(["op", model.texts.op[call]]);
      let path = "";
      parts.push(mine);
      nodes.push(mine.map(([kind, text]) => {
        path += `\x1f${kind}\x1f${text}`;
        if (!known.has(path)) known.set(path, known.size);
        return text ? known.get(path) : -1;
      }));
    }
  }

  // One track per level: neighbours on a stream that share a phase, a layer or a call of an op.
  function ranges(name, list) {
    if (!parts.length) takeApart();
    list.sort((a, b) => rows.start[a] - rows.start[b]);
    const found = [];
    const deepest = list.reduce((most, row) => Math.max(most, nodes[rows.call[row]].length), 0);
    for (let level = 0; level < deepest; level++) {
      const first = [], from = [], last = [], start = [], end = [];
      let before = -1, instance = -1, step = -1;
      for (let i = 0; i < list.length; i++) {
        const row = list[i], call = rows.call[row], node = nodes[call][level] ?? -1;
        const mine = node >= 0 && parts[call][level][0] === "op" ? rows.instance[row] : -1;
        if (node !== before || mine !== instance || rows.step[row] !== step) {
          if (node >= 0) { first.push(row); from.push(i); last.push(i); start.push(rows.start[row]); end.push(0); }
          [before, instance, step] = [node, mine, rows.step[row]];
        }
        if (node >= 0) { last[last.length - 1] = i; end[end.length - 1] = Math.max(end[end.length - 1], rows.start[row] + rows.dur[row]); }
      }
      for (let k = 0; k < end.length; k++) { // operations of a stream may overlap
        const following = list[last[k] + 1];
        if (following !== undefined) end[k] = Math.min(end[k], Math.max(start[k], rows.start[following]));
      }
      if (first.length) {
        found.push({ name: found.length ? "" : `${name}: phases, layers, ops`, kind: "range", level, list: first, from, last, all: list,
          start: Float64Array.from(start), end: Float64Array.from(end), until: Float64Array.from(end) });
      }
    }
    return found;
  }

  // The first index whose value is greater.
  function bisect(values, wanted) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > wanted) high = middle; else low = middle + 1;
    }
    return low;
  }

  function paint() {
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const scale = width / (view.high - view.low), mask = state.mask();
    whys = data.why.map(({ name }) => draw.whyColor(name));
    drawn = 0;
    ruler(context, width, height, scale);
    for (const each of tracks) {
      context.fillStyle = draw.colors.dim;
      context.fillText(each.name, 4, each.y - 7);
      context.fillStyle = draw.colors.grid;
      context.fillRect(0, each.y, width, each.height);
      boxes(context, each, width, scale, mask);
    }
    if (hit !== null) flow(context, scale);
  }

  // Whether any operation of a range passes the filters; computed once per filter.
  function passing(each, mask) {
    if (each.kind !== "range") return null;
    if (each.mask !== mask) {
      const before = new Int32Array(each.all.length + 1);
      for (let i = 0; i < each.all.length; i++) before[i + 1] = before[i] + mask[each.all[i]];
      each.passes = Uint8Array.from(each.from, (low, i) => (before[each.last[i] + 1] > before[low] ? 1 : 0));
      each.mask = mask;
    }
    return each.passes;
  }

  function boxes(context, each, width, scale, mask) {
    const cover = new Float32Array(width + 1), longest = new Int32Array(width + 1).fill(-1), most = new Float32Array(width + 1);
    const ranges = passing(each, mask);
    for (let i = bisect(each.until, view.low); i < each.start.length && each.start[i] < view.high; i++) {
      const left = (each.start[i] - view.low) * scale, right = (each.end[i] - view.low) * scale;
      const row = each.list ? each.list[i] : -1, passes = ranges ? ranges[i] : row < 0 || mask[row];
      if (right - left < 1) {
        const x = Math.max(0, Math.floor(left)), wide = (right - left + 1e-6) * (passes ? 1 : 0.1);
        cover[x] += wide;
        if (wide > most[x]) { most[x] = wide; longest[x] = i; }
      } else {
        bar(context, each, row, i, Math.max(0, left), Math.min(width, right) - (right - left > 3 ? 0.5 : 0), passes);
      }
    }
    // Operations narrower than a pixel: the pixel has the colour of the longest, as strong as the pixel is covered.
    for (let x = 0; x < width; x++) {
      if (longest[x] < 0) continue;
      context.globalAlpha = Math.min(1, Math.max(cover[x], each.kind === "launch" ? 0.4 : 0.1));
      context.fillStyle = colorOf(each, each.list ? each.list[longest[x]] : -1, longest[x]);
      context.fillRect(x, each.y, 1, each.height);
      drawn++;
    }
    context.globalAlpha = 1;
  }

  function colorOf(each, row, i) {
    if (each.kind === "gap") return whys[rows.why[each.next[i]]] ?? draw.colors.other;
    if (each.kind !== "range") return draw.classColor(model.text("class", row));
    const [kind, text] = parts[rows.call[row]][each.level];
    return kind === "phase" ? draw.phaseColor(text) : kind === "op" ? draw.opColor(text, rows.call[row]) : draw.colors.idle;
  }
  let whys = []; // colours of the causes of gaps

  const titleOf = (each, row) => (each.kind === "range" ? parts[rows.call[row]][each.level][1] : model.text("name", row));

  function bar(context, each, row, i, left, right, passes) {
    const color = colorOf(each, row, i);
    context.globalAlpha = passes ? 1 : 0.15;
    context.fillStyle = color;
    context.fillRect(left, each.y, right - left, each.height);
    if ((each.kind === "row" || each.kind === "range") && right - left > 34) {
      context.fillStyle = passes ? draw.inkOn(color) : draw.colors.ink;
      context.fillText(labels.fit(titleOf(each, row), right - left - 6), left + 3, each.y + each.height / 2);
    }
    context.globalAlpha = 1;
    drawn++;
  }

  function ruler(context, width, height, scale) {
    const wanted = (view.high - view.low) / Math.max(2, width / (width < 500 ? 65 : 110));
    const size = 10 ** Math.floor(Math.log10(wanted)), step = size * ([1, 2, 5, 10].find((n) => n * size >= wanted) ?? 10);
    for (let k = Math.ceil((view.low - bounds[0]) / step); k * step + bounds[0] < view.high; k++) {
      const x = (k * step + bounds[0] - view.low) * scale;
      context.fillStyle = draw.colors.line;
      context.fillRect(x, 0, 1, height);
      context.fillStyle = draw.colors.dim;
      if (x + 3 + labels.width(format.ns(k * step)) <= width) context.fillText(format.ns(k * step), x + 3, 10);
    }
  }

  // A line from the launch to the operation under the pointer.
  function flow(context, scale) {
    const from = tracks.find((each) => each.kind === "launch" && each.number === rows.thread[hit]);
    const to = tracks.find((each) => each.kind === "row" && each.number === rows.lane[hit]);
    const x = (time) => (time - view.low) * scale;
    context.strokeStyle = draw.colors.ink;
    context.strokeRect(x(rows.start[hit]), to.y - 0.5, Math.max(1, rows.dur[hit] * scale), to.height + 1);
    if (!from || !(rows.wait[hit] === rows.wait[hit])) return;
    context.beginPath();
    context.moveTo(x(rows.start[hit] - rows.wait[hit]), from.y);
    context.lineTo(x(rows.start[hit]), to.y + to.height);
    context.stroke();
  }

  function at(x, y) {
    const each = tracks.find((found) => y >= found.y && y < found.y + found.height);
    if (!each) return null;
    const scale = canvas.clientWidth / (view.high - view.low), time = view.low + x / scale, near = 3 / scale;
    for (let i = bisect(each.until, time - near); i < each.start.length && each.start[i] <= time + near; i++) {
      if (each.end[i] >= time - near) return { each, i, row: each.list?.[i] };
    }
    return null;
  }

  function describe({ each, i, row }) {
    const long = format.ns(each.end[i] - each.start[i]), when = `at ${format.ns(each.start[i] - bounds[0])}`;
    if (each.kind === "gap") return tipContent(`${data.gap} ${long}`, [when, whyOf(each.next[i]), `before ${model.text("name", each.next[i])}`]);
    if (each.kind === "range") return tipContent(titleOf(each, row), [`${parts[rows.call[row]][each.level][0]}, ${long} ${when}`, model.text("layer", row).replaceAll("\x1f", " › ")]);
    const flops = model.number("flops", row), bytes = model.number("bytes", row), sol = model.number("sol_ns", row), ns = model.working(row);
    return tipContent(each.kind === "launch" ? `${model.text("api", row) || "launch"}: ${model.text("name", row)}` : model.text("name", row), [
      `${long} ${when}`,
      [model.text("op", row), model.text("dir", row), model.text("layer", row).replaceAll("\x1f", " › ")].filter(Boolean).join(" · "),
      rows.wait[row] >= 0 ? `${format.ns(rows.wait[row])} after its launch began` : "",
      each.kind === "row" && flops > 0 && ns > 0 ? `${format.si((flops / ns) * 1e9, "FLOP/s")}, ${format.si((bytes / ns) * 1e9, "B/s")}` : "",
      each.kind === "row" && sol > 0 && ns > 0 ? `${format.percent(sol, ns)} of the limit (${model.text("bound", row) || "bound unknown"})` : "",
    ]);
  }

  const whyOf = (row) => data.why[rows.why[row]]?.words ?? "cause unknown";

  function hover(event) {
    const found = at(event.offsetX, event.offsetY), row = found && found.each.kind !== "range" ? found.row ?? null : null;
    tip.hidden = !found;
    if (found) {
      tip.replaceChildren(...describe(found).childNodes);
      tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
      tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8))}px`;
    }
    if (row !== hit) { hit = row; later(); }
  }

  let asked = false;
  function later() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  }

  function show(low, high) {
    const span = Math.max(100, Math.min(high - low, bounds[1] - bounds[0])); // ns
    view.low = Math.max(bounds[0], Math.min(low, bounds[1] - span));
    view.high = view.low + span;
    later();
  }

  function zoom(factor, around = (view.low + view.high) / 2) {
    show(around - (around - view.low) * factor, around + (view.high - around) * factor);
  }

  const move = (share) => show(view.low + share * (view.high - view.low), view.high + share * (view.high - view.low));

  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.5), right: () => move(0.5),
    fit: () => show(...bounds),
    range: () => state.set("range", [view.low, view.high], `time: ${format.ns(view.low - bounds[0])} to ${format.ns(view.high - bounds[0])}`),
  };

  // Pointers: one drags, two pinch; a press that does not move is a click.
  const pointers = new Map();
  let moved = 0;
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    moved = 0;
  };
  canvas.onpointermove = (event) => {
    if (!pointers.has(event.pointerId)) return hover(event);
    const before = [...pointers.values()], from = pointers.get(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    moved += Math.abs(event.offsetX - from);
    const perPixel = (view.high - view.low) / canvas.clientWidth;
    if (pointers.size === 1) return show(view.low - (event.offsetX - from) * perPixel, view.high - (event.offsetX - from) * perPixel);
    const after = [...pointers.values()], gap = (xs) => Math.max(8, Math.abs(xs[0] - xs[1]));
    zoom(gap(before) / gap(after), view.low + ((after[0] + after[1]) / 2) * perPixel);
  };
  canvas.onpointerup = (event) => {
    pointers.delete(event.pointerId);
    if (moved > 4) return;
    const found = at(event.offsetX, event.offsetY);
    if (!found) return;
    if (found.each.kind === "gap") return chooseWhy(rows.why[found.each.next[found.i]]);
    if (found.each.kind === "range") return chooseRange(found);
    state.toggle("name", model.text("name", found.row), `kernel: ${model.text("name", found.row)}`);
    kernels.detail(found.row);
  };
  canvas.onpointercancel = (event) => pointers.delete(event.pointerId);
  canvas.onpointerleave = () => { tip.hidden = true; if (hit !== null) { hit = null; later(); } };
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(1.0015 ** event.deltaY, view.low + (event.offsetX / canvas.clientWidth) * (view.high - view.low));
    else move(event.deltaX / canvas.clientWidth);
  }, { passive: false });
  canvas.onkeydown = ({ key }) => ({ ArrowLeft: actions.left, ArrowRight: actions.right, "+": actions.in, "-": actions.out })[key]?.();

  function chooseWhy(why) {
    if (why >= 0) state.toggle("why", why, `cause of idle time: ${data.why[why].words}`);
  }

  function chooseRange({ each, row }) {
    const [kind, text] = parts[rows.call[row]][each.level];
    if (kind !== "layer") return state.toggle(kind, text);
    const path = parts[rows.call[row]].slice(1, each.level + 1).map(([, name]) => name).join("\x1f");
    state.toggle("path", path, `layer: ${path.replaceAll("\x1f", " › ")}`);
  }

  // Causes of the idle time before the operations that pass the filters.
  function causes() {
    const sums = data.why.map(() => 0), mask = state.mask("why");
    let unknown = 0;
    for (let row = 0; row < mask.length; row++) {
      if (!mask[row] || !(rows.idle[row] > 0)) continue;
      if (rows.why[row] >= 0) sums[rows.why[row]] += rows.idle[row]; else unknown += rows.idle[row];
    }
    const found = sums.map((ns, i) => ({ ns, i })).filter(({ ns }) => ns > 0).sort((a, b) => b.ns - a.ns);
    const buttons = found.map(({ ns, i }) => element("button", { type: "button", onclick: () => chooseWhy(i), title: "filter by the operations that ended these gaps" }, legend.swatch(draw.whyColor(data.why[i].name)), `${data.why[i].words} ${format.ns(ns)}`));
    document.getElementById("timeline-idle").replaceChildren(...(found.length ? [element("span", { className: "dim", textContent: "idle time before these operations, each gap by the cause of most of it:" })] : []),
      ...buttons, ...(found.length && unknown ? [element("span", { className: "dim", textContent: `cause unknown: ${format.ns(unknown)}` })] : []));
  }

  function key() {
    const classes = new Set(model.texts.class), phases = new Set(model.texts.phase);
    legend.fill("timeline-legend", [["ops, kernels, launches", legend.classes(classes)],
      ["phases", wanted.checked ? data.phases.filter((name) => phases.has(name)).map((name) => [name, draw.phaseColor(name)]) : []],
      ["", wanted.checked && model.texts.layer.some(Boolean) ? [["layers", draw.colors.idle]] : []]]);
  }

  function controls() {
    wanted.onchange = () => { build(); key(); later(); };
    for (const button of document.querySelectorAll("#timeline-tools button")) button.onclick = actions[button.dataset.do];
    const select = document.getElementById("timeline-step"), steps = data.steps.filter((step) => step.step !== null);
    document.getElementById("timeline-step-label").hidden = steps.length < 2;
    steps.forEach((step, i) => select.append(new Option(`${step.step}${data.owners.length > 1 ? ` (${data.owners[step.owner].split(", ").slice(1).join(", ")})` : ""}`, i)));
    select.onchange = () => show(steps[select.value].start, steps[select.value].start + steps[select.value].span);
    if (steps.length) show(steps[0].start, steps[0].start + steps[0].span);
  }

  function start() {
    build();
    if (!model.timed) {
      for (const id of ["timeline-tools", "timeline-hint"]) document.getElementById(id).hidden = true;
      box.replaceChildren(element("p", { className: "hint", textContent: "There is no timeline, because the table has no start times (as in PyProf's own net.dict)." }));
      return;
    }
    show(...bounds);
    controls();
    key();
    new ResizeObserver(later).observe(canvas);
    state.subscribe(later);
    state.subscribe(causes);
    causes();
  }

  return { start, paint: () => { if (model.timed) { key(); causes(); paint(); } }, tracks: () => tracks, drawn: () => drawn, show, view, bounds: () => bounds };
})();
