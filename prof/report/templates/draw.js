// Colours, and charts that follow the theme and their box.

const draw = (() => {
  const charts = [];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const palette = () => Object.fromEntries(
    ["page", "card", "ink", "dim", "line", "grid", "accent", "idle", "forward", "backward", "optimizer", "data", "other"]
      .map((name) => [name, color(name)]));
  let colors = palette();
  let classColors = [];

  function refresh() {
    colors = palette();
    classColors = model.data.classes.map((_, i) => color(`c${i}`));
  }

  // `option(width)` gives the chart's option; `picked(params)` is called on a click; `written(instance, box)` gives texts
  // whose place depends on where the chart has put the rest.
  function chart(id, option, picked, written) {
    const box = document.getElementById(id);
    const made = { box, instance: null, update, rebuild };
    function update() {
      const height = box.style.height;
      const next = option(box.clientWidth, box);
      if (box.style.height !== height) made.instance.resize();
      made.instance.setOption({ ...base(), ...next }, { notMerge: true });
      if (written) made.instance.setOption({ graphic: written(made.instance, box) });
    }
    function rebuild() {
      made.instance?.dispose();
      made.instance = echarts.init(box, null, { renderer: "canvas" });
      made.instance.on("click", picked);
      update();
    }
    let width = box.clientWidth;
    new ResizeObserver(() => {
      if (box.clientWidth === width) return;
      width = box.clientWidth;
      made.instance?.resize();
      made.instance && update();
    }).observe(box);
    charts.push(made);
    return made;
  }

  function base() {
    return {
      animation: false,
      textStyle: { fontFamily: "system-ui, sans-serif", color: colors.ink },
      aria: { enabled: true },
    };
  }

  // A part that takes long to build, and that few readers scroll to: built when it comes near the window, and from then
  // on again when it has changed and is near. `now` builds it wherever it is.
  function whenNear(box, build) {
    let near = false, stale = true;
    const now = () => { if (stale) { stale = false; build(); } };
    new IntersectionObserver((seen) => { if ((near = seen.at(-1).isIntersecting)) now(); }, { rootMargin: "600px" }).observe(box);
    addEventListener("beforeprint", now);
    return { now, changed: () => { stale = true; if (near) now(); } };
  }

  const tooltip = (content) => ({
    confine: true,
    backgroundColor: "transparent",
    borderWidth: 0,
    padding: 0,
    extraCssText: "box-shadow:none",
    formatter: content, // returns an element: ECharts would take a text for HTML
  });

  const axis = (more = {}) => ({
    axisLine: { lineStyle: { color: colors.line } },
    axisLabel: { color: colors.dim, ...more.axisLabel },
    nameTextStyle: { color: colors.dim },
    splitLine: { lineStyle: { color: colors.grid } },
    ...Object.fromEntries(Object.entries(more).filter(([key]) => key !== "axisLabel")),
  });

  // Black or white, whichever is easier to read on a colour (WCAG 2's relative luminance).
  function inkOn(color) {
    const [r, g, b] = [1, 3, 5].map((i) => (parseInt(color.slice(i, i + 2), 16) / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.26 ? "#111" : "#fff";
  }

  return {
    inkOn,
    charts, chart, refresh, whenNear, tooltip, axis,
    get colors() { return colors; },
    opColor: (name, call) => classColors[Math.max(0, model.data.classes.indexOf(model.opClass(name) ?? model.texts.class[call]))],
    classColor: (name) => classColors[Math.max(0, model.data.classes.indexOf(name))],
    whyColor: (name) => color({ sync: "c5", data: "data", copy: "c6", host: "c8", launch: "c3", queued: "c9" }[name] ?? "other"),
    phaseColor: (name) => colors[name] ?? colors.other,
  };
})();
