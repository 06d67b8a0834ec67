// The data island as typed arrays: calls (what repeats) and rows (a call and its times).

const model = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.format !== 1) throw new Error(`this page reads format 1 of the data, found ${data.format}`);
  const unknown = (list, Type) => Type.from(list, (value) => (value === null ? (Type === Float64Array ? NaN : -1) : value));

  function column(name, Type) {
    const list = data.rows[name];
    if (Array.isArray(list)) return unknown(list, Type);
    return new Type(list.count).fill(list.all === null ? (Type === Float64Array ? NaN : -1) : list.all);
  }

  function starts() {
    const start = column("start", Float64Array);
    if (!Array.isArray(data.rows.start)) return start;
    let time = 0;
    for (let i = 0; i < start.length; i++) if (!Number.isNaN(start[i])) start[i] = time += start[i];
    return start;
  }

  const call = column("call", Int32Array);
  const rows = {
    call,
    start: starts(),
    dur: column("dur", Float64Array),
    step: column("step", Float64Array),
    lane: column("lane", Int32Array),
    wait: column("wait", Float64Array),
    api_dur: column("api_dur", Float64Array),
    thread: column("thread", Int32Array),
  };
  const texts = {};
  for (const [key, coded] of Object.entries(data.calls.texts)) {
    texts[key] = coded.codes.map((code) => (code < 0 ? "" : coded.values[code]));
  }
  const numbers = {};
  for (const [key, list] of Object.entries(data.calls.numbers)) numbers[key] = unknown(list, Float64Array);
  const calls = numbers.flops.length;

  // The layers' path: layers, then ops, then the kernel.
  const path = [];
  for (let i = 0; i < calls; i++) {
    const layer = texts.layer[i] ? texts.layer[i].split("\x1f") : [];
    path.push([...layer, ...(texts.op[i] ? [texts.op[i]] : []), texts.name[i] || "(no name)"].join("\x1f"));
  }
  texts.path = path;
  texts.search = path.map((text, i) =>
    `${text} ${texts.aten[i]} ${texts.sizes[i]} ${texts.dtypes[i]} ${texts.trace[i]} ${texts.class[i]}`.toLowerCase());

  return {
    data, rows, texts, numbers, calls,
    count: call.length,
    total: rows.dur.reduce((sum, ns) => sum + (ns > 0 ? ns : 0), 0),
    timed: rows.start.some((start) => !Number.isNaN(start)),
    text: (key, row) => texts[key][call[row]],
    number: (key, row) => numbers[key][call[row]],
  };
})();
