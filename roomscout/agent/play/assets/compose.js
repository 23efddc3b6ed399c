/* The form of a move: directions, choices and exact numbers, and what they compose. */
const ARROWS = { "Shift+": "⇧", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
const GLYPHS = {
  rotation_angle_degrees: { plus: "↺", minus: "↻" },
  forward_meters: { plus: "↑", minus: "↓" },
  left_meters: { plus: "←", minus: "→" },
  z_delta_meters: { plus: "⤒", minus: "⤓" },
  pitch_angle_degrees: { plus: "⇧", minus: "⇩" },
};
let clicked = []; // pixels of the view that were chosen

const at = (id) => document.getElementById(id);

function make(tag, options, ...inside) {
  const made = Object.assign(document.createElement(tag), options);
  made.append(...inside);
  return made;
}

function field(name) {
  return at("move").querySelector(`[name="${CSS.escape(name)}"]`);
}

/* The select beside a number that says to which side it is; null for one without sides. */
function sideOf(name) {
  return at("move").querySelector(`[data-side="${CSS.escape(name)}"]`);
}

function showControls(turn) {
  clicked = [];
  at("move").hidden = turn.last;
  at("move").classList.toggle("watching", !turn.fields.length);
  at("how").textContent = turn.fields.length ? say("move.how", { count: turn.moves_left }) : say("move.watch");
  at("move").querySelector(".send").textContent = turn.fields.length ? say("move.go") : say("move.next");
  at("shortcuts").replaceChildren(...turn.shortcuts.filter(({ key }) => key).map((each) => direction(each)));
  if (turn.shortcuts.length) at("shortcuts").append(make("div", { id: "preview" }));
  const choosing = turn.fields.filter((each) => each.choices);
  const exact = turn.fields.filter((each) => !each.choices);
  const others = turn.shortcuts.filter(({ key }) => !key); // a second way to turn left, such as to turn around
  at("choosing").replaceChildren(...others.map((each) => further(each)), ...choosing.map((each) => choice(each)));
  at("fields").replaceChildren(...exact.map((each) => exactField(each, turn)));
  at("exact").hidden = exact.every((each) => isComposed(each, turn));
  at("exact").open = false;
  at("limits").textContent = turn.shortcuts.some((each) => each.per_unit) ? say("move.limits", turn.limits) : "";
  const points = turn.fields.find((each) => each.points);
  const aims = turn.shortcuts.some((each) => each.per_unit);
  const asks = points && (points.points > 1 ? say("move.points", { count: points.points }) : say("move.point"));
  at("click").textContent = asks ?? (aims ? say("move.click") : "");
  at("click").classList.toggle("needed", Boolean(points));
  compose(turn);
}

function direction(each) {
  const { way, side, amount, key } = each;
  const degrees = way.endsWith("degrees");
  const label = WORDS.ways[way][side].label;
  const glyph = make("span", { className: "glyph", textContent: GLYPHS[way][side] });
  glyph.setAttribute("aria-hidden", "true");
  const short = make("span", { className: "amount", textContent: degrees ? `${shown(amount)}°` : `${shown(amount)} m` });
  const made = make("button", { type: "button" }, glyph, make("span", { textContent: label }), short);
  made.dataset.way = `${way}-${side}`;
  made.setAttribute("aria-label", `${label} ${shown(amount)} ${degrees ? unitOf("degrees") : "m"}`);
  made.title = Object.entries(ARROWS).reduce((text, [long, sign]) => text.replace(long, sign), key);
  made.setAttribute("aria-keyshortcuts", key);
  made.onclick = () => apply(each);
  return made;
}

function further(each) {
  const { way, side, amount, set, append } = each;
  const move = capitalized(filled(WORDS.ways[way][side].part, { amount }));
  return make("button", { type: "button", onclick: () => apply(each), textContent: set || append ? named(set ?? append) : move });
}

function choice({ name, choices }) {
  const options = ["", ...choices].map((value) => make("option", { value, textContent: value && named(value) }));
  return make("label", {}, `${named(name)} `, make("select", { name }, ...options));
}

/* Whether buttons make all that a field of words can say. */
function isComposed(each, turn) {
  return Boolean(each.words) && each.words.every((word) => turn.shortcuts.some(({ append }) => append === word));
}

function exactField(each, turn) {
  const { name } = each;
  const input = make("input", { name, inputMode: each.number ? "decimal" : "text", autocomplete: "off" }); // type=number reads 1,5 as 15
  if (isComposed(each, turn)) input.type = "hidden";
  const ways = turn.shortcuts.filter((other) => other.field === name && other.add);
  const label = make("label", { hidden: input.type === "hidden" }, `${named(name)} `, input);
  if (ways.length !== 2) return label;
  const { way, per_unit: perUnit } = ways[0];
  if (Math.abs(perUnit) === 1) label.append(way.endsWith("degrees") ? " °" : " m");
  const sides = ways.sort((one, other) => other.add - one.add).map(({ side }, place) => make("option", { value: place ? "-" : "", textContent: WORDS.ways[way][side].side }));
  const select = make("select", {}, ...sides);
  select.dataset.side = name;
  select.setAttribute("aria-label", named(name));
  return make("div", { className: "exact" }, label, select);
}

function numberIn(name) {
  const number = Number(field(name).value.replace(",", "."));
  return sideOf(name)?.value ? -number : number;
}

function setNumber(name, number) {
  const rounded = Math.round(number * 1e6) / 1e6;
  const side = sideOf(name);
  if (side) side.value = rounded < 0 ? "-" : "";
  field(name).value = rounded ? String(side ? Math.abs(rounded) : rounded).replace(".", WORDS.decimal) : "";
}

function apply({ field: name, add, append, set, way }) {
  const into = field(name);
  const { between } = turn.fields.find((each) => each.name === name);
  if (add) setNumber(name, (numberIn(name) || 0) + add);
  else into.value = append ? [into.value, append].filter(Boolean).join(between) : set;
  if (way.endsWith("degrees") && !turn.fields.some((each) => each.points)) clicked = [];
  compose(turn);
}

/* Choose the clicked point of the view, or turn to it. */
async function aim({ currentTarget, clientX, clientY }) {
  const { left, top, width, height } = currentTarget.getBoundingClientRect();
  const x = Math.max(0, Math.round(((clientX - left) * currentTarget.naturalWidth) / width));
  const y = Math.max(0, Math.round(((clientY - top) * currentTarget.naturalHeight) / height));
  const points = turn.fields.find((each) => each.points);
  const { key } = turn;
  if (points) {
    const known = points.points > 1 ? field(points.name).value.split(";").filter(Boolean) : [];
    field(points.name).value = [...known, `${x}, ${y}`].slice(-points.points).join("; ");
    for (const { name, example } of turn.fields.filter((each) => each.choices)) field(name).value ||= example;
    compose(turn);
    return;
  }
  const reply = await fetch(url("aim.json", { key, x, y }));
  if (!reply.ok || !turn || turn.key !== key) return;
  const turned = Object.entries(await reply.json());
  for (const [name, value] of turned) setNumber(name, value);
  if (turned.length) clicked = [[x, y]];
  compose(turn);
}

function pointsIn(text) {
  return text.split(";").filter((part) => part.trim()).map((part) => part.split(/[\s,]+/).filter(Boolean).map(Number));
}

function valueOf({ name, still, number, points }) {
  const text = field(name).value.trim();
  if (text === "") return still;
  if (points) {
    const found = pointsIn(text).map((each) => (each.length === 1 ? each[0] : each));
    return points > 1 ? found : found[0];
  }
  return number && sideOf(name)?.value ? `-${text}` : text;
}

function valuesOf(shownTurn) {
  return Object.fromEntries(shownTurn.fields.map((each) => [each.name, valueOf(each)]));
}

function isEmpty(shownTurn) {
  return shownTurn.fields.every(({ name }) => !field(name).value.trim());
}

/* Say what the fields compose, as the server reads it, and show it from above. */
async function compose(shownTurn) {
  if (!shownTurn.fields.length) {
    at("composed").textContent = "";
    return;
  }
  const points = shownTurn.fields.find((each) => each.points);
  const figure = at("views").querySelector(".view");
  markPoints(figure, points ? pointsIn(field(points.name).value).filter((each) => each.length === 2) : clicked);
  const values = JSON.stringify(valuesOf(shownTurn));
  const empty = isEmpty(shownTurn);
  document.body.classList.toggle("composed", !empty);
  at("move").dataset.values = values;
  const read = empty ? { parts: [] } : await checked({ values: JSON.parse(values) });
  if (turn !== shownTurn || at("move").dataset.values !== values) return; // something else is composed by now
  const lacksPoints = points && points.points > 1 && pointsIn(field(points.name).value).length === 1;
  const sentence = empty ? say("move.nothing") : say("move.composed", { move: moveInWords(read.parts ?? [], read.measures), count: shownTurn.moves_left });
  at("composed").textContent = lacksPoints ? say("move.points", { count: points.points }) : read.error ?? sentence;
  at("preview")?.replaceChildren(compass(read.parts ?? []));
}

at("move").addEventListener("input", () => compose(turn));
at("move").addEventListener("reset", () => {
  clicked = [];
  at("move").querySelectorAll("[type=hidden]").forEach((each) => { each.value = ""; });
  setTimeout(() => turn && compose(turn), 0);
});
