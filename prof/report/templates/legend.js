// What the colours of a chart mean: swatches with names, above the chart. They are HTML, so that they wrap and none is cut.

const legend = (() => {
  const swatch = (color, className = "") => {
    const made = element("i", { className });
    if (className === "hollow") made.style.borderColor = color; else made.style.background = color;
    return made;
  };

  // `groups`: [title, [[name, color, amount, form], ...]]; the title, the amounts and the forms ("hollow") may be empty.
  function fill(id, groups) {
    document.getElementById(id).replaceChildren(...groups.filter(([, keys]) => keys.length).map(([title, keys]) =>
      element("ul", {}, ...(title ? [element("li", { className: "dim", textContent: `${title}:` })] : []),
        ...keys.map(([name, color, amount, form]) => element("li", {}, swatch(color, form), name,
          ...(amount ? [element("span", { className: "dim", textContent: ` ${amount}` })] : []))))));
  }

  // The keys of classes, in the order of the table of classes.
  const classes = (found) => model.data.classes.filter((name) => found.has(name)).map((name) => [name, draw.classColor(name)]);

  return { fill, classes, swatch };
})();
