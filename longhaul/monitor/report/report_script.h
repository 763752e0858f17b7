#pragma once

namespace longhaul::monitor {

/// The report's script: values under the pointer, smoothing, and zoom over steps. It
/// draws from the data attributes that draw_plot and heat_panel write; the page is whole
/// without it.
inline constexpr const char* kReportScript = R"js("use strict";
(() => {
const left = 62, right = 620, top = 14, bottom = 222, width = 640;  // as in plot.cpp
const spans = [0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
let zoom = null, span = 0;

const numbers = text => text ? text.split(" ").map(Number) : text === "" ? [] : null;

function readCurve(g) {
  let at = 0;
  const data = g.dataset, first = numbers(data.x).map(step => at += step);
  const y = numbers(data.y), low = numbers(data.low) || y, high = numbers(data.high) || y;
  const last = first.map((x, i) =>
    low === y ? x : i + 1 < first.length ? first[i + 1] - 1 : Number(data.end));
  const x = first.map((value, i) => (value + last[i]) / 2);
  return {g, first, last, x, y, low, high, name: data.name, style: data.style,
          dots: g.querySelector("circle") !== null};
}

function element(svg, parent, tag, attributes, text) {
  const one = document.createElementNS(svg.namespaceURI, tag);
  for (const name in attributes) one.setAttribute(name, attributes[name]);
  if (text !== undefined) one.textContent = text;
  parent.append(one);
  return one;
}

// Writes a number in so many digits, or in as many as tell ticks of a step apart.
function label(value, unit, step, largest) {
  if (!isFinite(value)) return "not finite";
  if (value === 0) return {bytes: "0 B", percent: "0%", number: "0"}[unit];
  const decade = number => Math.floor(Math.log10(number) + 1e-9);
  let digits = 5, power = 0;
  if (step) digits = Math.max(1, 1 + decade(largest) - decade(step));
  if (unit === "percent") value *= 100;
  const size = Math.abs(step ? largest : value);
  if (unit === "bytes" || (unit === "number" && size >= 1e4 && size < 1e15)) {
    while (power < 5 && size >= 1000 ** (power + 1)) power++;
  }
  const scaled = value / 1000 ** power;
  const tiny = scaled !== 0 && (size < 1e-3 || size >= 1e15);
  const number = tiny ? scaled.toExponential(Math.min(digits - 1, 3))
                      : String(Number(scaled.toPrecision(Math.min(digits, 9))));
  return number + (unit === "percent" ? "%" : unit === "bytes"
    ? [" B", " KB", " MB", " GB", " TB", " PB"][power] : ["", "k", "M", "G", "T", "P"][power]);
}
const grouped = step => String(Math.round(step)).replace(/\B(?=(\d{3})+$)/g, ",");

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(f => f * power >= rough * (1 - 1e-9)) * power;
  const at = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) at.push(k * step);
  return {step, at};
}

function yAxis(plot, low, high) {
  if (!(low <= high)) [low, high] = [0, 1];
  if (plot.zero) [low, high] = [Math.min(0, low), Math.max(0, high * 1.02)];
  if (!plot.zero && low > 0 && high > 30 * low) {
    const at = [];
    for (let p = Math.floor(Math.log10(low)); 10 ** p <= high * 1.1; p++) {
      for (const f of high / low < 1e3 ? [1, 2, 5] : [1]) at.push(f * 10 ** p);
    }
    const from = Math.log(low / 1.1), to = Math.log(high * 1.1);
    const place = y => (Math.log(y) - from) / (to - from);
    return {log: true, place, step: 0, at: at.filter(y => place(y) >= 0 && place(y) <= 1)};
  }
  if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) {
    const room = Math.abs(high) * 0.05 || 1;
    [low, high] = [low - room, high + room];
  }
  const {step} = ticks(low, high, 5);
  low = Math.floor(low / step + 1e-9) * step;
  high = Math.ceil(high / step - 1e-9) * step;
  return {log: false, place: y => (y - low) / (high - low), ...ticks(low, high, 5)};
}

// The mean with weights that fall by e with every `span` steps back.
function smoothed(curve) {
  let sum = 0, weight = 0, before = null;
  return curve.y.map((y, i) => {
    if (!isFinite(y)) return NaN;
    const keep = before === null ? 0 : Math.exp((before - curve.x[i]) / span);
    before = curve.x[i];
    sum = sum * keep + y;
    weight = weight * keep + 1;
    return sum / weight;
  });
}

const range = plot => zoom || plot.x;
const across = (x, [from, to]) => left + (x - from) / (to - from) * (right - left);

function draw(plot) {
  const shown = range(plot), [from, to] = shown, {svg} = plot;
  let low = Infinity, high = -Infinity;
  for (const curve of plot.curves) {
    curve.shown = curve.x.map((x, i) => i).filter(i => curve.x[i] >= from && curve.x[i] <= to);
    curve.smooth = span && !curve.dots ? smoothed(curve) : null;
    for (const i of curve.shown) {
      if (!isFinite(curve.y[i])) continue;
      low = Math.min(low, curve.low[i]);
      high = Math.max(high, curve.high[i]);
    }
  }
  const axis = yAxis(plot, low, high);
  const up = y => (bottom - Math.min(1, Math.max(0, axis.place(y))) * (bottom - top)).toFixed(1);
  const point = (curve, i, values) => across(curve.x[i], shown).toFixed(1) + " " + up(values[i]);
  drawAxes(plot, axis, up, shown);
  for (const curve of plot.curves) {
    for (const old of curve.g.querySelectorAll(".line,.band")) old.remove();
    const path = (style, d) => {
      if (d) curve.g.prepend(element(svg, curve.g, "path", {class: style + " " + curve.style, d}));
    };
    const line = values => {
      let d = "", together = 0;
      const endPiece = () => {
        if (together === 1) d += "m-2.2 0a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0";
        together = 0;
      };
      for (const i of curve.shown) {
        if (isFinite(values[i])) d += (together++ ? "L" : "M") + point(curve, i, values);
        else endPiece();
      }
      endPiece();
      return d;
    };
    if (curve.smooth) path("line", line(curve.smooth));
    path(curve.smooth ? "line pale" : "line", line(curve.y));
    if (curve.low === curve.y || !curve.shown.length) continue;
    const edge = [...curve.shown.map(i => point(curve, i, curve.high)),
                  ...curve.shown.map(i => point(curve, i, curve.low)).reverse()];
    path(curve.smooth ? "band pale" : "band", "M" + edge.join("L") + "Z");
  }
  for (const mark of svg.querySelectorAll("[data-at]")) {
    const x = Number(mark.dataset.at);
    mark.style.display = x >= from && x <= to ? "" : "none";
    if (mark.dataset.value) {
      mark.setAttribute("cx", across(x, shown).toFixed(1));
      mark.setAttribute("cy", up(Number(mark.dataset.value)));
    } else {
      mark.setAttribute("transform", `translate(${across(x, shown) - across(x, plot.x)})`);
    }
  }
}

function drawAxes(plot, axis, up, shown) {
  const {svg} = plot, grid = svg.querySelector(".grid"), frame = svg.querySelector(".axis");
  const text = (x, y, anchor, words) =>
    element(svg, frame, "text", {x, y, "text-anchor": anchor}, words);
  grid.replaceChildren();
  frame.replaceChildren();
  const largest = Math.max(...axis.at.map(Math.abs));
  for (const y of axis.at) {
    element(svg, grid, "path", {d: `M${left} ${up(y)}H${right}`});
    text(left - 7, Number(up(y)) + 3.5, "end", label(y, plot.unit, axis.step, largest));
  }
  const steps = ticks(...shown, 7);
  for (const x of steps.at) {
    element(svg, frame, "path", {d: `M${across(x, shown)} ${bottom}v4`});
    text(across(x, shown), bottom + 16, "middle", label(x, "number", steps.step, shown[1]));
  }
  element(svg, frame, "path", {d: `M${left} ${bottom}H${right}`});
  text(left - 7, bottom + 16, "end", "step");
  if (axis.log) text(left, 9.5, "start", "log scale");
}

function nearest(curve, x) {
  const among = curve.shown || curve.x.keys();
  let best = -1;
  for (const i of among) {
    if (best < 0 || Math.abs(curve.x[i] - x) < Math.abs(curve.x[best] - x)) best = i;
  }
  return best;
}

const steps = (curve, i) => curve.first[i] === curve.last[i]
  ? "step " + grouped(curve.first[i])
  : `steps ${grouped(curve.first[i])} to ${grouped(curve.last[i])}`;

// Curves of many values, or those of few where there are no others.
function leaders(plot) {
  const many = plot.curves.filter(curve => !curve.dots && curve.x.length);
  return many.length ? many : plot.curves;
}

// Shows the values at a step: a hair line, and a box of one line for each curve there.
function show(plot, x) {
  const far = curve => {
    const i = nearest(curve, x);
    return i < 0 ? Infinity : Math.abs(curve.x[i] - x);
  };
  const lead = leaders(plot).reduce((a, b) => far(b) < far(a) ? b : a);
  const at = nearest(lead, x);
  if (at < 0) return hide(plot);
  plot.at = at;
  const place = across(lead.x[at], range(plot));
  plot.hair.setAttribute("d", `M${place.toFixed(1)} ${top}V${bottom}`);
  const head = document.createElement("b");
  head.textContent = steps(lead, at);
  plot.tip.replaceChildren(head);
  for (const curve of plot.curves) {
    const i = nearest(curve, lead.x[at]);
    const ended = curve.last[curve.last.length - 1] < lead.first[at];
    if (i < 0 || (ended && !curve.dots)) continue;
    const row = document.createElement("div"), key = document.createElement("i");
    const value = y => label(y, plot.unit);
    let words = (curve.name ? curve.name + " " : "") + value(curve.y[i]);
    if (curve.low[i] < curve.high[i]) words += ` (${value(curve.low[i])} to ${value(curve.high[i])})`;
    if (curve.smooth) words += ", smoothed " + value(curve.smooth[i]);
    const elsewhere = curve.last[i] < lead.first[at] || curve.first[i] > lead.last[at];
    if (elsewhere) words += ", " + steps(curve, i);
    key.className = "key " + curve.style;
    row.append(key, words);
    plot.tip.append(row);
  }
  plot.tip.hidden = false;
  const box = plot.svg.getBoundingClientRect(), card = plot.card.getBoundingClientRect();
  const x0 = box.left - card.left + place / width * box.width;
  const room = card.width - plot.tip.offsetWidth - 4;
  plot.tip.style.left = Math.max(4, Math.min(room, x0 > card.width / 2
    ? x0 - plot.tip.offsetWidth - 12 : x0 + 12)) + "px";
  plot.tip.style.top = box.top - card.top + 18 + "px";
}

function hide(plot) {
  plot.tip.hidden = true;
  plot.hair.setAttribute("d", "");
}

function setUp(svg) {
  const plot = {svg, card: svg.parentElement, unit: svg.dataset.unit, zero: "zero" in svg.dataset,
                x: numbers(svg.dataset.range), curves: [...svg.querySelectorAll("g.curve")]
                  .map(readCurve)};
  plot.tip = document.createElement("div");
  plot.tip.className = "tip";
  plot.tip.hidden = true;
  plot.card.append(plot.tip);
  plot.hair = element(svg, svg, "path", {class: "hair"});
  const chosen = element(svg, svg, "path", {class: "chosen"});
  const stepAt = event => {
    const box = svg.getBoundingClientRect(), [from, to] = range(plot);
    const place = ((event.clientX - box.left) / box.width * width - left) / (right - left);
    return from + Math.min(1, Math.max(0, place)) * (to - from);
  };
  let begin = null;
  svg.addEventListener("pointerdown", event => {
    if (event.pointerType === "touch") return show(plot, stepAt(event));
    if (event.button === 0) begin = {x: stepAt(event), place: event.clientX};
  });
  svg.addEventListener("pointermove", event => {
    show(plot, stepAt(event));
    if (!begin) return;
    const [a, b] = [begin.x, stepAt(event)].map(x => across(x, range(plot)).toFixed(1));
    chosen.setAttribute("d", `M${a} ${top}H${b}V${bottom}H${a}Z`);
  });
  addEventListener("pointerup", event => {
    if (!begin) return;
    const [a, b] = [begin.x, stepAt(event)].sort((p, q) => p - q);
    const dragged = Math.abs(event.clientX - begin.place) > 5 && b > a;
    begin = null;
    chosen.setAttribute("d", "");
    if (dragged) setZoom([a, b]);
  });
  svg.addEventListener("pointerleave", () => hide(plot));
  svg.addEventListener("blur", () => hide(plot));
  svg.addEventListener("dblclick", () => setZoom(null));
  svg.tabIndex = 0;
  svg.addEventListener("keydown", event => {
    const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20}[event.key];
    if (event.key === "Escape") hide(plot);
    if (!by) return;
    event.preventDefault();
    const {x} = leaders(plot).reduce((a, b) => b.x.length > a.x.length ? b : a);
    const next = plot.tip.hidden ? x.length - 1 : (plot.at || 0) + by;
    show(plot, x[Math.min(x.length - 1, Math.max(0, next))]);
  });
  return plot;
}

// A map of experts: the load under the pointer.
function setUpMap(svg) {
  let at = 0;
  const first = numbers(svg.dataset.x).map(step => at += step), rows = Number(svg.dataset.rows);
  const percent = numbers(svg.dataset.percent), frame = svg.querySelector(".frame");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  svg.parentElement.append(tip);
  const show = event => {
    const box = frame.getBoundingClientRect(), map = svg.parentElement.getBoundingClientRect();
    const i = Math.floor((event.clientX - box.left) / box.width * first.length);
    const row = Math.floor((event.clientY - box.top) / box.height * rows);
    const value = first[i] === undefined ? undefined : percent[row * first.length + i];
    tip.hidden = value === undefined;
    if (tip.hidden) return;
    tip.textContent = `expert ${row} from step ${grouped(first[i])}: ` +
      (isFinite(value) ? value / 100 + " of an even share" : "not known");
    const room = map.width - tip.offsetWidth - 4;
    tip.style.left = Math.max(4, Math.min(room, event.clientX - map.left + 12)) + "px";
    tip.style.top = event.clientY - map.top + 16 + "px";
  };
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
}

document.querySelectorAll("svg.heat").forEach(setUpMap);
const plots = [...document.querySelectorAll("svg.plot")].map(setUp);
const tools = document.querySelector(".tools");
if (!plots.length) return;
tools.hidden = false;
const [slider, said, reset] = tools.querySelectorAll("input,output,button");
function setZoom(to) {
  zoom = to;
  reset.disabled = !zoom;
  plots.forEach(hide);
  plots.forEach(draw);
}
slider.max = spans.length - 1;
slider.addEventListener("input", () => {
  span = spans[slider.value];
  said.textContent = span ? `over ${grouped(span)} steps` : "off";
  plots.forEach(draw);
});
reset.addEventListener("click", () => setZoom(null));
})();
)js";

/// The script's SHA-256, by which the page's policy knows it and refuses every other one.
/// After a change of the script a test tells the new value.
inline constexpr const char* kReportScriptHash =
    "sha256-Vzsyt188XGpQ6sbT0KTbK3PFLhohtG1BvJ+qirBoqzU=";

}  // namespace longhaul::monitor
