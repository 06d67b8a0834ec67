// Light, dark, or as the system is: the page's button goes through them.

const theme = (() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const NAMES = ["system", "light", "dark"];
  let name = stored() ?? "system";

  function stored() {
    try { return localStorage.getItem("pyprof-theme"); } catch { return null; } // a file may be refused storage
  }

  function dress() {
    root.dataset.theme = name === "system" ? (dark.matches ? "dark" : "light") : name;
    button.textContent = `Theme: ${name}`;
  }

  // Dress the page; `changed` is called whenever it is dressed anew.
  function start(changed) {
    const again = () => { dress(); changed(); };
    button.onclick = () => {
      name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
      try { localStorage.setItem("pyprof-theme", name); } catch { /* for this visit only */ }
      again();
    };
    dark.addEventListener("change", again);
    dress();
  }

  return { start };
})();
