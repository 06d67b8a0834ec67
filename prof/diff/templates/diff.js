// The difference's page: theme, search, and what is within noise.

(() => {
  const search = document.getElementById("search"), still = document.getElementById("still");
  const rows = [...document.querySelectorAll("#entries tbody tr")], count = document.getElementById("count");

  function show() {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0, change = 0;
    for (const row of rows) {
      const found = !wanted || row.textContent.toLowerCase().includes(wanted);
      row.hidden = !found || (row.classList.contains("still") && !still.checked && !wanted);
      if (row.hidden || row.classList.contains("total")) continue;
      shown += 1;
      change += Number(row.dataset.change);
    }
    count.textContent = wanted ? `${shown} rows, ${change > 0 ? "+" : ""}${(change / 1e6).toPrecision(4)} ms together` : "";
  }

  theme.start(() => {});
  search.addEventListener("input", show);
  still.addEventListener("change", show);
  show();
  document.documentElement.dataset.ready = "1";
})();
