"use strict";
// Elements and charts. All that is shown goes in as text or as an SVG attribute: nothing is parsed as markup.
const drawing = (() => {
  /** An element with a class, attributes, and children (elements, or strings that become text). */
  function el(tag, options, ...children) {
    return fill(document.createElement(tag), options, children);
  }
  /** The same of SVG; its namespace is that of the empty drawing in the page. */
  function svg(tag, options, ...children) {
    return fill(document.createElementNS(document.getElementById("drawing").namespaceURI, tag), options, children);
  }
  function fill(node, options, children) {
    const { cls, on, ...attributes } = options || {};
    if (cls) node.setAttribute("class", cls);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    for (const [event, handler] of Object.entries(on || {})) node.addEventListener(event, handler);
    node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  }

  const COLOURS = 8; // as in the style sheet
  const LABEL = 42; // pixels beside a chart for the numbers of its axis

  /** A number in few digits. */
  function brief(value) {
    const size = Math.abs(value);
    if (value === 0) return "0";
    const text = size >= 1e6 || size < 1e-3 ? value.toExponential(1) : size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(size < 0.1 ? 4 : 3);
    return (text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text).replace("-", "\u2212");
  }

  /** Some round numbers from low to high. */
  function ticks(low, high, count, whole) {
    const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
    let width = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
    if (whole) width = Math.max(1, Math.round(width));
    const found = [];
    for (let value = Math.ceil(low / width - 1e-9) * width; value <= high + width * 1e-9 && found.length < 20; value += width) found.push(Math.abs(value) < width * 1e-9 ? 0 : value);
    return found;
  }

  /** The lowest and highest value to draw: from 0 where that is near. */
  function rangeOf(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > 0 && low < 0.6 * high) low = 0;
    if (high - low < 1e-9 * Math.max(1, Math.abs(high))) { const room = Math.max(0.5, Math.abs(high) / 2); return [low === 0 ? 0 : low - room, high + room]; }
    const room = 0.06 * (high - low);
    return [low === 0 ? 0 : low - room, high === 0 ? 0 : high + room];
  }

  /** A place that draws itself at the width it has, and again when that changes. */
  function atItsWidth(draw) {
    const place = el("div", { cls: "plot" });
    let width = 0;
    new ResizeObserver(() => {
      if (Math.abs(place.clientWidth - width) < 2) return;
      width = place.clientWidth;
      if (width > 60) place.replaceChildren(...draw(width));
    }).observe(place);
    return place;
  }

  /** A table behind a summary, made when it is opened; `open` remembers which ones are. */
  function tableBehind(words, key, open, rows) {
    const node = el("details", { cls: "figures", open: open.has(key) }, el("summary", null, words));
    let made = false;
    const make = () => {
      if (made || !node.open) return;
      made = true;
      const [head, ...body] = rows();
      node.append(el("div", { cls: "scroll", tabindex: "0", role: "group", "aria-label": words }, el("table", null,
        el("thead", null, el("tr", null, ...head.map((cell) => el("th", { scope: "col" }, cell)))),
        el("tbody", null, ...body.map((cells) => el("tr", null, ...cells.map((cell, k) => el(k ? "td" : "th", k ? null : { scope: "row" }, cell))))))));
    };
    node.addEventListener("toggle", () => { if (node.open) open.add(key); else open.delete(key); make(); });
    make();
    return node;
  }

  const STYLES = { raw: "thin", smooth: "thick", sampled: "dashed", greedy: "dotted" };
  const paint = (colour) => (colour === "n" ? "cn" : "c" + (colour % COLOURS));
  function swatch(colour, style) {
    return svg("svg", { cls: "swatch-line", viewBox: "0 0 22 10", width: 22, height: 10, "aria-hidden": "true" },
      svg("path", { cls: `line ${paint(colour)} ${STYLES[style] || ""}`, d: "M1 5H21" }),
      style === "sampled" ? svg("circle", { cls: `dot ${paint(colour)}`, cx: 11, cy: 5, r: 2.5 }) : null,
      style === "greedy" ? svg("rect", { cls: `dot ${paint(colour)}`, x: 8.5, y: 2.5, width: 5, height: 5 }) : null);
  }

  /**
   * Lines over the steps.
   * @param chart { key, title, lines: [{ label, name, colour, style, steps, values, share }], fixed: [low, high] or null,
   *   several: whether colours stand for runs, which the page's own legend names }
   * @param span [first, last] step of the axis
   * @param onStep called with the step that is clicked
   * @param open keys of the charts whose table is open
   */
  function lineChart(chart, span, onStep, open) {
    const lines = chart.lines.filter((line) => line.steps.length);
    const byStep = new Map();
    lines.forEach((line, k) => line.steps.forEach((step, at) => {
      if (!byStep.has(step)) byStep.set(step, []);
      byStep.get(step)[k] = line.values[at];
    }));
    const steps = [...byStep.keys()].sort((a, b) => a - b);
    const said = lines.map((line) => `${line.label}: ${brief(line.values[0])} at step ${line.steps[0]}` +
      (line.steps.length > 1 ? `, ${brief(line.values[line.values.length - 1])} at step ${line.steps[line.steps.length - 1]}` : "")).join("; ");
    const readout = el("p", { cls: "readout", "aria-hidden": "true" });
    const tell = (step) => {
      readout.replaceChildren(...(step === null ? [] : [el("b", null, "step " + step), ...lines.flatMap((line, k) => {
        const value = byStep.get(step)[k];
        return value === undefined ? [] : [el("span", null, lines.length > 1 ? swatch(line.colour, line.style) : null, brief(value))];
      })]));
    };
    const kinds = chart.several ? lines.filter((line, k) => lines.findIndex((other) => other.name === line.name) === k) : lines;
    const legend = kinds.length > 1 ? el("div", { cls: "legend lines" }, ...kinds.map((line) =>
      el("span", null, swatch(chart.several ? "n" : line.colour, line.style), line.name + (line.share ? " (right axis)" : "")))) : null;
    const plot = atItsWidth((width) => {
      const height = chart.tall ? Math.min(300, Math.max(190, width * 0.36)) : 150;
      const own = lines.filter((line) => !line.share), beside = own.length && lines.some((line) => line.share);
      const left = LABEL, right = beside ? LABEL : 12, top = 8, bottom = 22;
      const [low, high] = chart.fixed || (own.length ? rangeOf(own.flatMap((line) => line.values)) : [0, 1]);
      const [first, last] = span[0] === span[1] ? [span[0] - 1, span[1] + 1] : span;
      const x = (step) => left + ((width - left - right) * (step - first)) / (last - first);
      const y = (value, share) => top + (height - top - bottom) * (1 - (share ? value : (value - low) / (high - low)));
      const nodes = [];
      for (const value of ticks(low, high, chart.tall ? 5 : 3)) {
        nodes.push(svg("path", { cls: "rule", d: `M${left} ${y(value)}H${width - right}` }),
          svg("text", { cls: "number end", x: left - 6, y: y(value) + 4 }, brief(value)));
      }
      if (beside) for (const value of [0, 0.5, 1]) nodes.push(svg("text", { cls: "number", x: width - right + 6, y: y(value, true) + 4 }, brief(value)));
      for (const step of ticks(span[0], span[1] === span[0] ? span[0] + 0.5 : span[1], Math.max(2, Math.floor(width / 90)), true)) {
        nodes.push(svg("text", { cls: "number middle", x: x(step), y: height - 6 }, String(step)));
      }
      for (const line of lines) {
        const points = line.steps.map((step, k) => [x(step), y(line.values[k], line.share)]);
        nodes.push(svg("path", { cls: `line ${paint(line.colour)} ${STYLES[line.style] || ""}`, d: points.map(([a, b], k) => `${k ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("") }));
        const marked = line.share || points.length === 1 || (line.style === "raw" && points.length <= 60);
        if (marked) for (const [a, b] of points) {
          nodes.push(line.style === "greedy" ? svg("rect", { cls: `dot ${paint(line.colour)}`, x: a - 3, y: b - 3, width: 6, height: 6 })
            : svg("circle", { cls: `dot ${paint(line.colour)}${line.style === "raw" ? " thin" : ""}`, cx: a, cy: b, r: line.share ? 3.2 : points.length === 1 ? 3 : 1.8 }));
        }
      }
      const cursor = svg("path", { cls: "cursor", d: "" });
      const nearest = (event) => {
        const box = node.getBoundingClientRect(), at = event.clientX - box.left;
        return steps.reduce((best, step) => (Math.abs(x(step) - at) < Math.abs(x(best) - at) ? step : best), steps[0]);
      };
      const node = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${chart.title} by step. ${said}`, on: {
        pointermove: (event) => { const step = nearest(event); cursor.setAttribute("d", `M${x(step)} ${top}V${height - bottom}`); tell(step); },
        pointerleave: () => { cursor.setAttribute("d", ""); tell(null); },
        click: (event) => onStep(nearest(event)),
      } }, ...nodes, cursor);
      return [node];
    });
    const table = tableBehind("Figures", chart.key, open, () => [["step", ...lines.map((line) => line.label)],
      ...steps.map((step) => [el("button", { type: "button", cls: "link", title: "only this step in the list", on: { click: () => onStep(step) } }, String(step)),
        ...lines.map((_, k) => (byStep.get(step)[k] === undefined ? "" : brief(byStep.get(step)[k])))])]);
    return el("figure", { cls: "chart" + (chart.tall ? " tall" : ""), "data-chart": chart.key },
      el("figcaption", null, el("b", null, chart.title), readout), legend, plot, table);
  }

  const percent = (share) => (100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0) + " %";

  /**
   * Shares by column (steps) and by part of the video, its beginning at the bottom.
   * @param map { key, title, columns: [[name, steps or null, frames, shares]], by }
   * @param onColumn called with the column that is clicked
   */
  function heatMap(map, onColumn, open) {
    const places = map.columns[0][3].length;
    const most = Math.max(...map.columns.flatMap((column) => column[3]), 1e-9);
    const part = (place) => `${(100 * place) / places} to ${(100 * (place + 1)) / places} %`;
    const peak = ([, , , shares]) => shares.indexOf(Math.max(...shares));
    const words = ([name, , frames, shares], at) => `${map.by} ${name}: ${frames.toLocaleString("en")} frames` + (frames ? `, most at ${part(at)} (${percent(shares[at])})` : "");
    const readout = el("p", { cls: "readout", "aria-hidden": "true" });
    const shown = map.columns.filter((column) => column[2]);
    const said = shown.length ? [shown[0], shown[shown.length - 1]].map((column) => words(column, peak(column))).join("; ") : "";
    const plot = atItsWidth((width) => {
      const left = LABEL, right = 12, top = 6, bottom = 22, height = 232;
      const cell = Math.min(64, (width - left - right) / map.columns.length), row = (height - top - bottom) / places;
      const nodes = [svg("rect", { cls: "ground", x: left, y: top, width: cell * map.columns.length, height: row * places })];
      for (const share of [0, 0.5, 1]) nodes.push(svg("text", { cls: "number end", x: left - 6, y: top + (1 - share) * row * places + 4 }, percent(share)));
      const longest = Math.max(...map.columns.map(([name]) => name.length));
      const every = Math.max(1, Math.ceil((Math.min(longest, 14) * 7 + 10) / cell));
      map.columns.forEach(([name, , , shares], k) => {
        shares.forEach((share, place) => {
          if (share) nodes.push(svg("rect", { cls: "heat", x: (left + k * cell).toFixed(2), y: (top + (places - 1 - place) * row).toFixed(2), width: Math.max(1, cell - 0.5).toFixed(2), height: (row + 0.2).toFixed(2), "fill-opacity": (0.08 + (0.92 * share) / most).toFixed(3) }));
        });
        if (k % every === 0) nodes.push(svg("text", { cls: "number " + (cell > 20 ? "middle" : ""), x: left + k * cell + (cell > 20 ? cell / 2 : 0), y: height - 6 }, name.length > 14 ? name.slice(0, 13) + "\u2026" : name));
      });
      const cursor = svg("rect", { cls: "frame", y: top, width: cell, height: row * places, visibility: "hidden" });
      const under = (event) => {
        const box = node.getBoundingClientRect();
        const k = Math.floor((event.clientX - box.left - left) / cell), place = places - 1 - Math.floor((event.clientY - box.top - top) / row);
        return k >= 0 && k < map.columns.length ? [k, Math.min(places - 1, Math.max(0, place))] : null;
      };
      const node = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${map.title}. ${said}`, on: {
        pointermove: (event) => {
          const at = under(event);
          cursor.setAttribute("visibility", at ? "visible" : "hidden");
          if (at) cursor.setAttribute("x", left + at[0] * cell);
          readout.textContent = at ? `${map.by} ${map.columns[at[0]][0]}: ${percent(map.columns[at[0]][3][at[1]])} of ${map.columns[at[0]][2].toLocaleString("en")} frames at ${part(at[1])} of the video` : "";
        },
        pointerleave: () => { cursor.setAttribute("visibility", "hidden"); readout.textContent = ""; },
        click: (event) => { const at = under(event); if (at) onColumn(map.columns[at[0]]); },
      } }, ...nodes, cursor);
      return [node];
    });
    const legend = el("div", { cls: "legend lines" }, el("span", null, "share of a column's frames:"), ...[0.25, 0.5, 0.75, 1].map((share) => el("span", null,
      svg("svg", { cls: "swatch-line", viewBox: "0 0 12 10", width: 12, height: 10, "aria-hidden": "true" }, svg("rect", { cls: "heat", width: 12, height: 10, "fill-opacity": 0.08 + 0.92 * share })), percent(share * most))));
    const table = tableBehind("Figures", map.key, open, () => [[map.by, "frames", ...Array.from({ length: places }, (_, place) => part(place))],
      ...map.columns.map((column) => [el("button", { type: "button", cls: "link", title: "only these in the list", on: { click: () => onColumn(column) } }, column[0]),
        column[2].toLocaleString("en"), ...column[3].map((share) => (share ? percent(share) : ""))])]);
    return el("figure", { cls: "chart tall", "data-chart": map.key }, el("figcaption", null, map.caption ? el("b", null, map.caption) : null, readout), legend, plot, table);
  }

  return { el, lineChart, heatMap, swatch, brief };
})();
