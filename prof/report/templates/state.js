// The filters that all parts of the page share: dimension -> what was chosen. A part leaves its own dimension out of its
// mask, so that what was not chosen stays visible, pale.

const state = (() => {
  const filters = new Map(); // dimension -> {value, label}
  const listeners = [];
  const masks = new Map();
  let asked = false;

  const ofCall = {
    path: (value) => (call) => model.texts.path[call] === value || model.texts.path[call].startsWith(`${value}\x1f`),
    // The lines of a stack from the outermost on; no line: operations without a stack.
    stack: (value) => (call) => (value === "\n" ? !model.texts.trace[call] : `${model.texts.trace[call]}\n`.startsWith(`${value}\n`)),
    line: (value) => (call) => model.texts.trace[call].split("\n").pop() === (value === "\n" ? "" : value),
    search: (value) => (call) => model.texts.search[call].includes(value),
  };
  const ofRow = {
    step: (value) => (row) => model.rows.step[row] === value,
    why: (value) => (row) => model.rows.why[row] === value && model.rows.idle[row] > 0,
    lane: (value) => (row) => model.rows.lane[row] === value,
    range: ([low, high]) => (row) => model.rows.start[row] < high && model.rows.start[row] + model.rows.dur[row] > low,
  };

  function build(except) {
    const mask = new Uint8Array(model.count).fill(1);
    for (const [dimension, { value }] of filters) {
      if (dimension === except) continue;
      if (ofRow[dimension]) {
        const passes = ofRow[dimension](value);
        for (let row = 0; row < mask.length; row++) if (mask[row] && !passes(row)) mask[row] = 0;
      } else {
        const test = ofCall[dimension] ? ofCall[dimension](value) : (call) => model.texts[dimension][call] === value;
        const passes = Uint8Array.from({ length: model.calls }, (_, call) => (test(call) ? 1 : 0));
        for (let row = 0; row < mask.length; row++) mask[row] &= passes[model.rows.call[row]];
      }
    }
    return mask;
  }

  function changed() {
    masks.clear();
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      for (const listener of listeners) listener();
    });
  }

  return {
    filters,
    mask(except = "") {
      const key = filters.has(except) ? except : "";
      if (!masks.has(key)) masks.set(key, build(key));
      return masks.get(key);
    },
    value: (dimension) => filters.get(dimension)?.value,
    set(dimension, value, label) {
      if (value === undefined || value === "") filters.delete(dimension);
      else filters.set(dimension, { value, label: label ?? `${dimension}: ${value}` });
      changed();
    },
    toggle(dimension, value, label) {
      state.set(dimension, filters.get(dimension)?.value === value ? undefined : value, label);
    },
    clear() {
      filters.clear();
      changed();
    },
    subscribe: (listener) => listeners.push(listener),
    changed,
  };
})();

// The bar of filters; a click on one removes it.
function drawFilters() {
  const bar = document.getElementById("filters");
  bar.replaceChildren();
  bar.hidden = !state.filters.size;
  for (const [dimension, { label }] of state.filters) {
    bar.append(element("button", {
      type: "button", textContent: `${format.cut(label, 80)} ×`, title: "remove this filter",
      onclick: () => state.set(dimension, undefined),
    }));
  }
  if (!bar.hidden) {
    bar.append(element("button", { type: "button", id: "clear", textContent: "clear all", onclick: state.clear }));
    if (op.name()) {
      bar.append(element("button", { type: "button", textContent: `page of ${format.cut(op.name(), 30)} ↓`, onclick: op.go }));
    }
    bar.append(element("span", { className: "dim", textContent: filteredShare() }));
  }
}

function filteredShare() {
  const mask = state.mask();
  let rows = 0, ns = 0;
  for (let i = 0; i < mask.length; i++) if (mask[i]) { rows++; ns += model.rows.dur[i]; }
  return `${rows.toLocaleString("en")} of ${model.count.toLocaleString("en")} operations, ${format.ns(ns)} (${format.percent(ns, model.total)})`;
}
