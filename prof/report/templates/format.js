"use strict";
// Numbers as texts, and elements. Text is inserted with textContent only.

const format = {
  ns(ns) {
    if (!Number.isFinite(ns)) return "";
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
      if (Math.abs(ns) >= size) return `${format.digits(ns / size)} ${unit}`;
    }
    return `${Math.round(ns)} ns`;
  },
  digits(value, count = 4) {
    if (!Number.isFinite(value)) return "";
    return Math.abs(value) >= 10 ** count ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(count)));
  },
  si(value, unit) {
    if (!Number.isFinite(value)) return "";
    for (const [size, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${format.digits(value / size)} ${prefix}${unit}`;
    }
    return `${format.digits(value)} ${unit}`;
  },
  percent(part, whole) {
    if (!(whole > 0)) return "";
    const share = (100 * part) / whole;
    if (share > 0 && share < 0.05) return "<0.1%";
    if (share >= 99.95 && share < 100) return ">99.9%";
    return share === 0 || share === 100 ? `${share}%` : `${share.toFixed(1)}%`;
  },
  cut(text, length) {
    if (text.length <= length) return text;
    const half = (length - 1) >> 1;
    return `${text.slice(0, length - 1 - half)}…${text.slice(text.length - half)}`;
  },
};

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// A line of a list: its name, the texts on its right, and what a click does.
function listEntry(name, right, choose) {
  return element("button", { type: "button", onclick: choose }, element("span", { textContent: name }),
    ...right.map((textContent) => element("span", { className: "dim", textContent })));
}

// A tooltip's content: a bold first line, then lines.
function tipContent(title, lines) {
  const box = element("div", { className: "tip" });
  box.append(element("b", { textContent: format.cut(title, 160) }), lines.filter(Boolean).join("\n"));
  return box;
}
