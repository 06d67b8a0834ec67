// The theme: light, dark or the system's. The button switches between them.

const theme = (() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const NAMES = ["system", "light", "dark"];
  let name = stored() ?? "system";

  function stored() {
    try { return localStorage.getItem("pyprof-theme"); } catch { return null; } // browsers may refuse storage to a file
  }

  function apply() {
    root.dataset.theme = name === "system" ? (dark.matches ? "dark" : "light") : name;
    button.textContent = `Theme: ${name}`;
  }

  // Sets the theme; `changed` is called after each change.
  function start(changed) {
    const again = () => { apply(); changed(); };
    button.onclick = () => {
      name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
      try { localStorage.setItem("pyprof-theme", name); } catch { /* the choice holds for this visit only */ }
      again();
    };
    dark.addEventListener("change", again);
    apply();
  }

  return { start };
})();
