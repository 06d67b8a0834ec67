// Bytes in use and in reserve over time, with the peak. Only on pages of captures that record allocations.

const memory = (() => {
  const shown = model.data.memory;
  if (!shown) return null;

  const line = (name, values, color, more = {}) => ({
    name, type: "line", step: "end", symbol: "none", lineStyle: { width: 1.5, color }, itemStyle: { color }, data: values.map((bytes, i) => [shown.time[i], bytes]), ...more,
  });

  function option(width) {
    const colors = draw.colors;
    const entries = [["in use", colors.accent, format.si(shown.peak.bytes, "B")], ...(shown.reserved ? [["reserved", colors.dim, format.si(Math.max(...shown.reserved), "B")]] : [])];
    legend.fill("memory-legend", [["", entries]]);
    const at = shown.peak.time === null ? shown.time[0] : shown.peak.time;
    const end = at > (shown.time[0] + shown.time[shown.time.length - 1]) / 2;
    return {
      grid: { left: 64, right: 16, top: 26, bottom: 30 },
      tooltip: { ...draw.tooltip(([first, second]) => tipContent(format.ns(first.value[0]), [
        `in use: ${format.si(first.value[1], "B")}`, ...(second ? [`reserved: ${format.si(second.value[1], "B")}`] : []),
      ])), trigger: "axis" },
      xAxis: draw.axis({ type: "value", min: "dataMin", max: "dataMax", axisLabel: { formatter: format.ns, hideOverlap: true }, splitNumber: width < 500 ? 3 : 6 }),
      yAxis: draw.axis({ type: "value", axisLabel: { formatter: (bytes) => format.si(bytes, "B") } }),
      series: [
        line("in use", shown.in_use, colors.accent, {
          areaStyle: { color: colors.accent, opacity: 0.12 },
          markPoint: {
            symbol: "circle", symbolSize: 8, itemStyle: { color: colors.ink }, data: [{ coord: [at, shown.peak.bytes] }],
            label: { show: true, color: colors.ink, position: end ? "left" : "right", formatter: () => `peak ${format.si(shown.peak.bytes, "B")}` },
          },
        }),
        ...(shown.reserved ? [line("reserved", shown.reserved, colors.dim)] : []),
      ],
    };
  }

  return draw.chart("memory", option, () => {});
})();
