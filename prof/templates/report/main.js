// The page: theme, then each part, then what follows the shared filter.

(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const THEMES = ["system", "light", "dark"];
  let theme = stored() ?? "system";

  function stored() {
    try { return localStorage.getItem("pyprof-theme"); } catch { return null; } // a file may be refused storage
  }

  function dress() {
    root.dataset.theme = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
    button.textContent = `Theme: ${theme}`;
    draw.refresh();
  }

  function dressAgain() {
    dress();
    for (const chart of draw.charts) chart.rebuild();
    timeline.paint();
  }

  button.onclick = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("pyprof-theme", theme); } catch { /* for this visit only */ }
    dressAgain();
  };
  dark.addEventListener("change", dressAgain);

  dress();
  for (const chart of draw.charts) chart.rebuild();
  timeline.start();
  kernels.start();
  kernels.update();
  lists.start();
  op.start();
  state.subscribe(drawFilters);
  state.subscribe(() => draw.charts.forEach((chart) => chart.update()));
  // What a test (or a curious reader) may ask of the page.
  window.pyprof = { model, state, draw, phases, roofline, layers, timeline, op, kernels };
  requestAnimationFrame(() => { root.dataset.ready = String(Math.round(performance.now())); });
})();
