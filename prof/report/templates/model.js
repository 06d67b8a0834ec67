// The data island as typed arrays: calls (what repeats) and rows (a call and its times).

const model = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.format !== 3) throw new Error(`this page reads format 3 of the data, found ${data.format}`);
  const unknown = (list, Type) => Type.from(list, (value) => (value === null ? (Type === Float64Array ? NaN : -1) : value));

  // Varints in base64: 0 for an unknown number, or else 1 more than its zigzag form (0, -1, 1, -2, ...).
  function unpacked(text, count, Type) {
    const bytes = atob(text), values = new Type(count), none = Type === Float64Array ? NaN : -1;
    for (let i = 0, at = 0; i < count; i++) {
      let code = 0, scale = 1, byte;
      do {
        byte = bytes.charCodeAt(at++);
        code += (byte & 127) * scale;
        scale *= 128;
      } while (byte > 127);
      values[i] = code === 0 ? none : code % 2 ? (code - 1) / 2 : -code / 2;
    }
    return values;
  }

  function repeated(values, lengths, rows) {
    const all = new values.constructor(rows);
    for (let i = 0, at = 0; i < values.length; at += lengths[i++]) all.fill(values[i], at, at + lengths[i]);
    return all;
  }

  function column(name, Type) {
    const list = data.rows[name];
    if (Array.isArray(list)) return unknown(list, Type);
    if (list.lengths) return repeated(unpacked(list.packed, list.count, Type), unpacked(list.lengths, list.count, Int32Array), list.rows);
    if (list.packed) return unpacked(list.packed, list.count, Type);
    return new Type(list.count).fill(list.all === null ? (Type === Float64Array ? NaN : -1) : list.all);
  }

  // A column that is stored as differences from one row to the next.
  function rising(name) {
    const values = column(name, Float64Array);
    if ("all" in data.rows[name]) return values;
    let now = 0;
    for (let i = 0; i < values.length; i++) if (!Number.isNaN(values[i])) values[i] = now += values[i];
    return values;
  }

  const call = column("call", Int32Array);
  const rows = {
    call,
    start: rising("start"),
    dur: column("dur", Float64Array),
    step: column("step", Float64Array),
    lane: column("lane", Int32Array),
    wait: column("wait", Float64Array),
    api_dur: column("api_dur", Float64Array),
    thread: column("thread", Int32Array),
    instance: rising("instance"), // which call of an op
    why: column("why", Int32Array), // cause of the gap before it, an index
  };
  const texts = {};
  for (const [key, coded] of Object.entries(data.calls.texts)) {
    texts[key] = coded.codes.map((code) => (code < 0 ? "" : coded.values[code]));
  }
  const numbers = {};
  for (const [key, list] of Object.entries(data.calls.numbers)) numbers[key] = unknown(list, Float64Array);
  const calls = numbers.flops.length;

  rows.idle = gapsBefore();

  // The gap before each row on its device; rows come in order of their start.
  function gapsBefore() {
    const idle = new Float64Array(call.length), last = new Map();
    if (data.incomplete) return idle.fill(NaN); // something that is not on record may have run in them
    for (let row = 0; row < idle.length; row++) {
      if (Number.isNaN(rows.start[row])) continue;
      const { owner } = data.lanes[rows.lane[row]], before = last.get(owner), end = rows.start[row] + Math.max(0, rows.dur[row]);
      if (before !== undefined && rows.start[row] > before) idle[row] = rows.start[row] - before;
      last.set(owner, before === undefined ? end : Math.max(before, end));
    }
    return idle;
  }

  // The path of a call: layers, then the op, then the kernel.
  const path = [];
  for (let i = 0; i < calls; i++) {
    const layer = texts.layer[i] ? texts.layer[i].split("\x1f") : [];
    path.push([...layer, ...(texts.op[i] ? [texts.op[i]] : []), texts.name[i] || "(no name)"].join("\x1f"));
  }
  texts.path = path;
  texts.search = path.map((text, i) =>
    `${text} ${texts.aten[i]} ${texts.sizes[i]} ${texts.dtypes[i]} ${texts.trace[i]} ${texts.work[i]} ${texts.params[i]}`.toLowerCase());

  // The class of an op: that of the forward kernels that do most of its FLOPs, or, where none are counted, take most of its
  // time. So casts, fills and copies around a product do not colour it. An op without forward kernels goes by all of its own.
  const opClasses = (() => {
    const sums = new Map();
    for (let row = 0; row < call.length; row++) {
      const c = call[row], name = texts.op[c];
      if (!name) continue;
      if (!sums.has(name)) sums.set(name, new Map());
      const of = sums.get(name), key = texts.class[c], at = of.get(key) ?? [0, 0, 0];
      const forward = texts.dir[c] === "bprop" ? 0 : 1, ns = Math.max(0, rows.dur[row]) || 0;
      of.set(key, [at[0] + forward * (numbers.flops[c] || 0), at[1] + forward * ns, at[2] + ns]);
    }
    const more = (a, b) => b[0] - a[0] || b[1] - a[1] || b[2] - a[2];
    return new Map([...sums].map(([name, of]) => [name, [...of].sort((a, b) => more(a[1], b[1]))[0][0]]));
  })();

  // The function that a line of code is in, where the capture has it.
  const functionOf = new Map();
  for (let i = 0; i < calls; i++) {
    const lines = texts.functions[i] ? texts.trace[i].split("\n") : [], names = texts.functions[i].split("\n");
    if (lines.length === names.length) lines.forEach((line, k) => { if (names[k]) functionOf.set(line, names[k]); });
  }

  return {
    data, rows, texts, numbers, calls,
    lineName: (line) => (functionOf.has(line) ? `${line} ${functionOf.get(line)}` : line),
    opClass: (name) => opClasses.get(name),
    count: call.length,
    total: rows.dur.reduce((sum, ns) => sum + (ns > 0 ? ns : 0), 0),
    timed: rows.start.some((start) => !Number.isNaN(start)),
    text: (key, row) => texts[key][call[row]],
    // The time that rates are over: unknown for a CPU op that launched work which the capture does not have.
    working: (row) => (texts.reason[call[row]] === data.launching ? NaN : rows.dur[row]),
    number: (key, row) => numbers[key][call[row]],
  };
})();
