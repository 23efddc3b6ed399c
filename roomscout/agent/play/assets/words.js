/* The sentences of the page: those of its words file, filled in. */
const WORDS = JSON.parse(document.getElementById("words").textContent);
const PLURALS = new Intl.PluralRules(WORDS.language);
const NUMBERS = new Intl.NumberFormat(WORDS.language, { maximumFractionDigits: 2, useGrouping: false });

/* A sentence by its dotted name. One with plural forms is chosen by the value `count`. */
function say(name, values = {}) {
  const text = name.split(".").reduce((part, key) => part[key], WORDS);
  return filled(text, values);
}

function filled(text, values) {
  const form = typeof text === "string" ? text : text[PLURALS.select(values.count)] ?? text.other;
  return form.replace(/\{\{|\}\}|\{(\w+)\}/g, (found, key) => (key ? shown(values[key]) : found[0]));
}

function shown(value) {
  return typeof value === "number" ? NUMBERS.format(value) : value;
}

/* What a field or a choice of an action space is called. */
function named(name) {
  const plain = name.replaceAll("_", " ");
  return WORDS.names[name] ?? plain[0].toUpperCase() + plain.slice(1);
}

/* The unit as it is written after numbers; that of counts is not. */
function unitOf(unit) {
  return unit === "objects" ? "" : WORDS.units[unit]?.[0] ?? unit;
}

function capitalized(sentence) {
  return sentence.slice(0, 1).toLocaleUpperCase(WORDS.language) + sentence.slice(1);
}

/* The turns and ways of a move, as the server reads them, as one sentence. */
function moveInWords(parts, measures) {
  const said = parts.map(({ way, side, amount }) => filled(WORDS.ways[way][side].part, { amount }));
  if (measures) said.unshift(say("move.measure"));
  return capitalized(said.join(", ") || say("move.still"));
}

/* What the last move did, as sentences. */
function outcomeInWords({ turned_deg, pitch_deg, moved_m, asked_m, stopped, limited, measured_m }) {
  const said = measured_m.map((amount) => (amount === null ? say("outcome.unmeasured") : say("outcome.measured", { amount })));
  if (limited) said.push(say("outcome.limited"));
  const turned = Math.round(Math.abs(turned_deg));
  if (turned) said.push(say(turned_deg > 0 ? "outcome.left" : "outcome.right", { amount: turned }));
  if (pitch_deg !== null) said.push(say(pitch_deg >= 0 ? "outcome.up" : "outcome.down", { amount: Math.round(Math.abs(pitch_deg)) }));
  if (stopped === "blocked" && moved_m < 0.005) said.push(say("outcome.stuck"));
  else if (stopped) said.push(say(`outcome.${stopped}`, { amount: moved_m, asked: asked_m }));
  else if (asked_m) said.push(say("outcome.moved", { amount: moved_m }));
  return said.join(" ") || say("outcome.stayed");
}

function aheadAndAside(ahead, left) {
  const [x, y] = [ahead, left].map((metres) => Math.round(metres * 10) / 10);
  return {
    ahead: say(x >= 0 ? "where.ahead" : "where.behind", { amount: Math.abs(x) }),
    aside: say(y >= 0 ? "where.left" : "where.right", { amount: Math.abs(y) }),
  };
}

/* Where the camera is and how far the room reaches, as sentences. */
function whereInWords({ in_scan, pose, floor_m, extent }) {
  const said = [];
  if (pose && in_scan) {
    const [x, y, height, heading] = pose;
    said.push(say("where.scan", { x, y, heading: Math.round(heading), floor: floor_m }), say("where.height", { amount: height }));
  } else if (pose) {
    const [x, y, height, heading] = pose;
    const side = ((Math.round(heading) + 540) % 360) - 180;
    const looks = side > 0 ? "where.looks_left" : side < 0 ? "where.looks_right" : "where.looks_ahead";
    said.push(Math.hypot(x, y) < 0.05 ? say("where.start") : say("where.away", aheadAndAside(x, y)));
    said.push(say(looks, { amount: Math.abs(side) }), say("where.height", { amount: height }));
  }
  if (extent) {
    const [x0, x1, y0, y1] = extent.map((metres) => Math.round(metres * 10) / 10);
    said.push(in_scan ? say("where.scan_extent", { x0, x1, y0, y1 }) : say("where.extent", { ahead: x1, behind: -x0, left: y1, right: -y0 }));
  }
  return said;
}

/* An object that is told, with its place and size. */
function objectInWords(box, inScan) {
  return say(inScan ? "where.scan_object" : "where.object", { ...box, ...aheadAndAside(box.x, box.y) });
}
