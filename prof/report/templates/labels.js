// Texts that have to fit: their widths in pixels, cutting them, and placing them so that none lies on another.

const labels = (() => {
  const SIZE = 11, HEIGHT = 14, SHORTEST = 6; // pixels of the letters and of a line; characters of a text that was cut
  const context = document.createElement("canvas").getContext("2d");
  context.font = `${SIZE}px system-ui, sans-serif`;
  const widths = new Map();

  function width(text) {
    let found = widths.get(text);
    if (found === undefined) {
      if (widths.size > 20000) widths.clear();
      widths.set(text, (found = context.measureText(text).width));
    }
    return found;
  }

  // The text, with its middle left out where it is wider than `most`; nothing if too little would be left.
  function fit(text, most) {
    if (width(text) <= most) return text;
    let low = SHORTEST - 1, high = Math.min(text.length - 1, Math.ceil(most / 2));
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (width(format.cut(text, middle)) <= most) low = middle; else high = middle - 1;
    }
    return low < SHORTEST || width(format.cut(text, low)) > most ? "" : format.cut(text, low);
  }

  // A name and an amount side by side: the name is cut before the amount is, for the amount is what is looked for.
  function pair(name, amount, most) {
    const room = most - width(amount) - 8, cut = fit(name, room);
    return cut ? `${cut}  ${amount}` : fit(amount, most) === amount ? amount : "";
  }

  const meet = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
  const inside = (a, b) => a.x >= b.x && a.y >= b.y && a.x + a.width <= b.x + b.width && a.y + a.height <= b.y + b.height;

  // Whether a line from one point to another crosses a box.
  function crosses([[x, y], [u, v]], box) {
    for (let i = 0, steps = Math.max(1, Math.ceil(Math.hypot(u - x, v - y) / 4)); i <= steps; i++) {
      const px = x + ((u - x) * i) / steps, py = y + ((v - y) * i) / steps;
      if (px > box.x && px < box.x + box.width && py > box.y && py < box.y + box.height) return true;
    }
    return false;
  }

  // Gives each of `wanted` ({text, places: [[x, y of its top left], ...], own}) the first of its places that is within
  // `area` and on no other label or obstacle but its own, if possible on no line either. Those without a place are left out.
  function place(wanted, area, obstacles, lines) {
    const made = [];
    for (const { text, places, own } of wanted) {
      const size = { width: width(text) + 2, height: HEIGHT };
      const boxes = places.map(([x, y]) => ({ x, y, ...size, text }));
      const free = boxes.filter((box) => inside(box, area) && !made.some((other) => meet(box, other)) && !obstacles.some((other) => other !== own && meet(box, other)));
      const best = free.find((box) => !lines.some((line) => crosses(line, box))) ?? free[0];
      if (best) made.push(best);
    }
    return made;
  }

  return { width, fit, pair, place, meet, HEIGHT, SIZE };
})();
