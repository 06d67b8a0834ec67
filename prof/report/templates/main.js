// Starts the page: the theme, then each part, then what follows the filters.

(() => {
  theme.start(() => {
    draw.refresh();
    for (const chart of draw.charts) chart.rebuild();
    timeline.paint();
    stacks.changed();
  });

  draw.refresh();
  for (const chart of draw.charts) chart.rebuild();
  timeline.start();
  stacks.start();
  lines.start();
  kernels.start();
  kernels.update();
  lists.start();
  op.start();
  state.subscribe(drawFilters);
  state.subscribe(() => draw.charts.forEach((chart) => chart.update()));
  // For tests and curious readers.
  window.pyprof = { model, state, draw, phases, roofline, layers, stacks, lines, legend, labels, timeline, op, kernels };
  requestAnimationFrame(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); });
})();
