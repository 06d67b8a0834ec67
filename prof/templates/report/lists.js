// Advice, what has no op, what has no count.

const lists = (() => {
  const { data } = model;

  function entry(name, right, choose) {
    return element("button", { type: "button", onclick: choose }, element("span", { textContent: name }),
      ...right.map((textContent) => element("span", { className: "dim", textContent })));
  }

  function fill(id, entries, none) {
    const box = document.getElementById(id);
    box.className = "list";
    box.replaceChildren(...(entries.length ? entries : [element("p", { className: "dim", textContent: none })]));
  }

  function unattributed() {
    fill("unattributed", data.unattributed.slice(0, 500).map(({ name, reason, rows, ns }) => entry(
      `${name || "(no name)"}: ${reason}`, [`${rows.toLocaleString("en")} ×`, format.ns(ns), format.percent(ns, model.total)],
      () => state.toggle("name", name, `kernel: ${name}`))), "Every operation has an op.");
  }

  function uncounted() {
    fill("uncounted", data.uncounted.slice(0, 500).map(({ name, ns }) => entry(
      name, [format.ns(ns), format.percent(ns, model.total)],
      () => state.toggle(...dimension(name)))), "Every operation has a count.");
  }

  // Named by the innermost op there is: aten, op or kernel.
  function dimension(name) {
    const key = ["aten", "op", "name"].find((found) => model.texts[found].includes(name)) ?? "name";
    return [key, name, `${key === "name" ? "kernel" : key}: ${name}`];
  }

  // A card: title, text, where (code lines), change (code), now_ns, expected_ns, and a filter of ours.
  function advice() {
    if (!data.advice.length) return;
    const cards = data.advice.map((card) => {
      const made = element("article", {}, element("h3", { textContent: card.title ?? "Advice" }));
      const gain = card.now_ns > 0 && card.expected_ns >= 0 ? `${format.ns(card.now_ns)} now, ${format.ns(card.expected_ns)} expected` : "";
      for (const textContent of [gain, card.text].filter(Boolean)) made.append(element("p", { textContent }));
      if (card.where?.length) made.append(element("p", { className: "dim", textContent: [card.where].flat().join(", ") }));
      if (card.change) made.append(element("pre", { textContent: card.change }));
      for (const [key, value] of Object.entries(card.filter ?? {})) {
        if (model.texts[key]) made.append(element("button", { type: "button", textContent: `show: ${format.cut(value, 50)}`, onclick: () => state.toggle(key, value) }));
      }
      return made;
    });
    const section = document.getElementById("advice");
    section.querySelector(".advice").replaceChildren(...cards);
    section.hidden = false;
  }

  return { start: () => { advice(); unattributed(); uncounted(); } };
})();
