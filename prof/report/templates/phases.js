// Step time by phase: the whole step, or, when a filter is set, the time of the operations that pass it.

const phases = (() => {
  const { data } = model;
  const LIMIT = 12; // bars at once; more scroll
  const GAP = data.gap; // the name of the time in which nothing recorded ran
  const hint = () => document.querySelector("#phases").previousElementSibling;

  function bars() {
    const others = [...state.filters.keys()].some((dimension) => dimension !== "phase" && dimension !== "step");
    return others || !data.steps.length ? chosen() : data.steps.map((step) => ({ ...step, label: label(step.step, step.owner) }));
  }

  function label(step, owner) {
    const where = data.owners.length > 1 ? `${data.owners[owner].split(", ").slice(1).join(", ")} ` : "";
    return `${where}${step === null || Number.isNaN(step) ? "all" : `step ${step}`}`;
  }

  function chosen() {
    const sums = new Map();
    const mask = state.mask("phase");
    for (let row = 0; row < mask.length; row++) {
      if (!mask[row]) continue;
      const owner = data.lanes[model.rows.lane[row]].owner, step = model.rows.step[row];
      const key = `${owner} ${step}`;
      if (!sums.has(key)) sums.set(key, { owner, step, phases: {}, idle: 0, label: label(step, owner) });
      const found = sums.get(key).phases, phase = phaseOf(row);
      found[phase] = (found[phase] ?? 0) + model.rows.dur[row];
    }
    return [...sums.values()].sort((a, b) => a.owner - b.owner || a.step - b.step);
  }

  const phaseOf = (row) => (data.phases.includes(model.text("phase", row)) ? model.text("phase", row) : "other");

  function option(width, box) {
    const found = bars();
    const whole = found.some((bar) => bar.span !== undefined);
    hint().textContent = whole
      ? `Every instant counts once. ${GAP === "idle" ? "Idle: no operation runs on the device" : "Outside ops: what ran then is not recorded"}. Click a phase to filter by it.`
      : "Sum of the durations of the operations that pass the filters. Click a phase to filter by it.";
    box.style.height = `${Math.min(found.length, LIMIT) * 26 + 62}px`;
    const names = [...data.phases, GAP].filter((name) => found.some((bar) => amount(bar, name) > 0));
    const alone = found.length === 1;
    legend.fill("phases-legend", [["", names.map((name) => [name, name === GAP ? draw.colors.idle : draw.phaseColor(name), alone ? format.ns(amount(found[0], name)) : ""])]]);
    const many = found.length > LIMIT, longest = Math.max(...found.map(all));
    const left = Math.min(width * 0.35, 16 + 7 * Math.max(...found.map((bar) => bar.label.length)));
    return {
      grid: { left, right: many ? 48 : 30, top: 8, bottom: 26 },
      tooltip: draw.tooltip(({ dataIndex, seriesName }) => tip(found[dataIndex], seriesName)),
      xAxis: draw.axis({ type: "value", axisLabel: { formatter: format.ns, hideOverlap: true }, splitNumber: width < 500 ? 3 : 6 }),
      yAxis: draw.axis({ type: "category", data: found.map((bar) => bar.label), inverse: true, splitLine: { show: false }, axisLabel: { width: left - 14, overflow: "truncate" } }),
      dataZoom: many ? [{ type: "slider", yAxisIndex: 0, startValue: 0, endValue: LIMIT - 1, width: 16, right: 4, showDetail: false, showDataShadow: false }] : [],
      series: names.map((name) => ({
        name, type: "bar", stack: "step", barMaxWidth: 22,
        itemStyle: { color: name === GAP ? draw.colors.idle : draw.phaseColor(name), borderColor: draw.colors.card, borderWidth: 1,
          opacity: !state.value("phase") || state.value("phase") === name ? 1 : 0.3 },
        label: { show: true, color: name === GAP ? draw.colors.dim : draw.inkOn(draw.phaseColor(name)), formatter: ({ dataIndex }) => inside(found[dataIndex], name, (width - left - 40) / longest) },
        data: found.map((bar) => amount(bar, name)),
      })),
    };
  }

  const amount = (bar, name) => (name === GAP ? bar.idle : bar.phases[name] ?? 0);
  const all = (bar) => bar.span ?? Object.values(bar.phases).reduce((a, b) => a + b, 0);

  const inside = (bar, name, scale) => (amount(bar, name) * scale > 48 ? format.percent(amount(bar, name), all(bar)) : "");

  function tip(bar, name) {
    return tipContent(`${bar.label}: ${name}`, [
      `${format.ns(amount(bar, name))}, ${format.percent(amount(bar, name), all(bar))} of ${format.ns(all(bar))}`,
    ]);
  }

  function picked({ seriesName, dataIndex }) {
    const bar = bars()[dataIndex];
    if (seriesName === GAP) state.toggle("step", bar.step ?? undefined, `step ${bar.step}`);
    else state.toggle("phase", seriesName);
  }

  return draw.chart("phases", option, picked);
})();
