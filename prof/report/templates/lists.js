// Advice, operations without an op, operations without known FLOPs or bytes.

const lists = (() => {
  const { data } = model;

  function fill(id, entries, none) {
    const box = document.getElementById(id);
    box.className = "list";
    box.replaceChildren(...(entries.length ? entries : [element("p", { className: "dim", textContent: none })]));
  }

  function unattributed() {
    const amounts = ({ rows, ns }) => [`${rows.toLocaleString("en")} ×`, format.ns(ns), format.percent(ns, model.total)];
    fill("unattributed", data.unattributed.slice(0, 50).flatMap((each) => [
      element("h3", {}, listEntry(each.reason || "the capture does not say why", amounts(each), () => choose(each.reason))),
      ...(each.remedy ? [element("p", { className: "dim", textContent: each.remedy })] : []),
      ...each.names.slice(0, 100).map((one) => listEntry(one.name || "(no name)", amounts(one), () => choose(each.reason, one.name))),
    ]), "Every operation has an op.");
  }

  // Filters by the reason, or by a kernel without an op for that reason.
  function choose(reason, name) {
    if (name === undefined) return state.toggle("reason", reason, `no op: ${reason}`);
    if (reason) state.set("reason", reason, `no op: ${reason}`);
    state.toggle("name", name, `kernel: ${name}`);
  }

  function uncounted(key, what) {
    fill(key, data[key].slice(0, 500).map(({ name, ns }) => listEntry(
      name, [format.ns(ns), format.percent(ns, model.total)],
      () => state.toggle(...dimension(name)))), `${what} are known for every operation.`);
  }

  // The entry is named by the innermost op there is: aten op, op or kernel.
  function dimension(name) {
    const key = ["aten", "op", "name"].find((found) => model.texts[found].includes(name)) ?? "name";
    return [key, name, `${key === "name" ? "kernel" : key}: ${name}`];
  }

  // A card is a change: rule, op, layer, trace, kernels, time_ms, gpu_ms, saved_ms, title, why, how, and sure: its amounts in words.
  function advice() {
    if (!data.advice.length) return;
    const section = document.getElementById("advice");
    section.querySelector(".advice").replaceChildren(...data.advice.map(card));
    section.hidden = false;
  }

  function card(found) {
    const made = element("article", {}, element("h3", { textContent: found.title }));
    const where = [found.op, found.layer, found.trace].filter(Boolean).join(" · ");
    for (const textContent of [found.why, found.how].filter(Boolean)) made.append(element("p", { textContent }));
    for (const textContent of [where, found.sure].filter(Boolean)) made.append(element("p", { className: "dim", textContent }));
    const name = model.texts.op.find((text) => text === found.op || text.endsWith(`.${found.op}`));
    if (name) made.append(element("button", { type: "button", textContent: `show ${format.cut(name, 40)}`, onclick: () => op.show(name) }));
    return made;
  }

  return { start: () => { advice(); unattributed(); uncounted("uncounted", "FLOPs"); uncounted("bytes_uncounted", "Bytes"); } };
})();
