"use strict";
/* Shows the turn that waits for this person, composes a reply with keys, buttons and clicks, and posts it. */
(() => {
  const EVERY_MS = 1000, SOON_MS = 150, IDLE_MS = 120000;
  const THANKS = "All questions are answered. Thank you!";
  const ARROWS = { "Shift+": "⇧", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
  const at = (id) => document.getElementById(id);
  const url = (path, more) => `${path}?${new URLSearchParams([...new URLSearchParams(location.search), ...Object.entries(more)])}`;
  const field = (name) => at("fields").querySelector(`[name="${CSS.escape(name)}"]`);
  const make = (tag, options, ...inside) => { const made = Object.assign(document.createElement(tag), options); made.append(...inside); return made; };
  const input = (name, inputMode) => make("input", { name, inputMode, autocomplete: "off" }); // type=number reads 1,5 as 15
  const keys = (key) => Object.entries(ARROWS).reduce((text, [long, short]) => text.replace(long, short), key);
  let turn = null, touched = Date.now(), sending = false, timer = 0;

  function say(...words) {
    turn = null;
    at("game").hidden = true;
    at("say").replaceChildren(...words);
  }

  function figures({ images }) {
    return images.map(({ name, number }) => make("figure", {},
      make("img", { src: url(`images/${number}`, { key: turn.key }), alt: name, loading: "lazy" }),
      make("figcaption", { className: "note", textContent: images.length > 1 ? name : "" })));
  }

  function show(next) {
    turn = next;
    const earlier = turn.messages.slice(0, -1), now = turn.messages.at(-1), { options, number, unit, form } = turn.answer;
    at("say").textContent = at("error").textContent = "";
    at("game").hidden = false;
    at("question").textContent = turn.question;
    at("place").textContent = `Turn ${turn.turn}`;
    at("views").replaceChildren(...figures(now));
    at("text").textContent = now.text;
    at("told").textContent = earlier.filter(({ role }) => role === "system").map(({ text }) => text).join("\n");
    at("turns").replaceChildren(...earlier.filter(({ role }) => role !== "system").map((each) =>
      make("div", {}, ...figures(each), make("p", { className: "said", textContent: each.text }))));
    at("move").hidden = turn.last;
    at("move").classList.toggle("watching", !turn.fields.length);
    at("move").classList.toggle("aims", turn.fields.some((each) => each.points) || turn.shortcuts.some((each) => each.per_unit));
    at("shortcuts").replaceChildren(...turn.shortcuts.map((each) => make("button", { type: "button", onclick: () => apply(each) },
      `${each.label} `, make("kbd", { textContent: keys(each.key) }))));
    at("fields").replaceChildren(...turn.fields.map((each) => make("label", {}, each.name, each.choices
      ? make("select", { name: each.name }, ...["", ...each.choices].map((one) => make("option", { textContent: one })))
      : input(each.name, "text"))));
    at("views").querySelector("img").onclick = aim;
    at("form").textContent = `The answer is ${form}. Type it, then press Enter.`;
    at("choices").replaceChildren(...(options.length ? options : [[null, unit]]).map(([value, text]) => make("label", {},
      value === null ? input("answer", number ? "decimal" : "text") : make("input", { type: "radio", name: "answer", value }), ` ${text}`)));
    at("question").focus({ preventScroll: true });
  }

  function apply({ field: name, add, append, set }) {
    const into = field(name), { between } = turn.fields.find((each) => each.name === name);
    if (add) into.value = Math.round((Number(into.value) + add) * 1e6) / 1e6 || "";
    else into.value = append ? [into.value, append].filter(Boolean).join(between) : set;
  }

  async function aim({ target, offsetX, offsetY }) {
    const [x, y] = [offsetX, offsetY].map((each) => Math.max(0, Math.round(each * target.naturalWidth / target.clientWidth)));
    const points = turn.fields.find((each) => each.points), { key } = turn;
    if (points) {
      const known = points.points > 1 ? JSON.parse(field(points.name).value || "[]") : [];
      field(points.name).value = JSON.stringify(points.points > 1 ? [...known, [x, y]].slice(-points.points) : [x, y]);
      for (const { name, example } of turn.fields.filter((each) => each.choices)) field(name).value ||= example;
      return;
    }
    const reply = await fetch(url("aim.json", { key, x, y }));
    if (reply.ok && turn && turn.key === key) for (const [name, value] of Object.entries(await reply.json())) field(name).value = value;
  }

  function valueOf({ name, still, choices, words }) {
    const text = field(name).value.trim();
    if (text === "" || choices || words) return text || still;
    try { return JSON.parse(text); } catch { return text; }
  }

  async function send(answer) {
    if (sending || !turn) return;
    if (answer === null && turn.fields.length && turn.fields.every(({ name }) => !field(name).value.trim())) {
      at("error").textContent = "Choose a move first: this one would take a turn and change nothing.";
      return;
    }
    sending = true;
    const values = Object.fromEntries(turn.fields.map((each) => [each.name, valueOf(each)]));
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key: turn.key, values, answer }) };
    const reply = await fetch(url("reply.json", {}), options).catch(() => null);
    sending = false;
    const { error, left } = reply ? await reply.json() : {};
    at("error").textContent = error || "";
    if (left === 0) say(THANKS); // the server may end at once
    look();
  }

  async function look() {
    clearTimeout(timer);
    const in_use = document.hidden || Date.now() - touched > IDLE_MS ? 0 : 1;
    const reply = await fetch(url("state.json", { in_use, has: turn ? turn.key : "" })).catch(() => null);
    const found = reply && reply.ok ? await reply.json() : null;
    if (reply && reply.status === 403) at("live").textContent = "Your answers are saved; this address is an old one: open the one that the command printed.";
    else if (found === null) at("live").textContent = "The server has ended. Your answers are saved; this page goes on once it runs again.";
    else if (found.annotators) say("Who are you?", ...found.annotators.map((name) => make("a", { href: url("", { annotator: name }), textContent: name })));
    else {
      at("live").textContent = found.left ? `${found.left} question${found.left === 1 ? "" : "s"} left` : "";
      if (found.messages) show(found);
      else if (found.left === 0) say(THANKS);
      else if (!found.key && !turn) say("The view is being drawn…");
    }
    timer = setTimeout(look, found && found.left !== 0 && !found.key ? SOON_MS : EVERY_MS);
  }

  at("move").onsubmit = () => { send(null); return false; };
  at("answer").onsubmit = () => { send(new FormData(at("answer")).get("answer") || ""); return false; };
  for (const each of ["pointermove", "pointerdown", "keydown", "wheel"]) addEventListener(each, () => { touched = Date.now(); }, { passive: true });
  addEventListener("keydown", (event) => {
    const { key, target, shiftKey, ctrlKey, altKey, metaKey } = event;
    if (key === "Escape") at("move").reset();
    if (!turn || ctrlKey || altKey || metaKey || target.matches("select, input:not([type=radio])")) return;
    if (target.matches("[type=radio]") ? key.length > 1 : target.matches("button, summary, a") && [" ", "Enter"].includes(key)) return;
    const shortcut = turn.shortcuts.find((each) => each.key === (shiftKey ? "Shift+" : "") + key);
    const option = key.length === 1 && at("choices").querySelector(`input[value^="${CSS.escape(key)}" i]`);
    if (shortcut) apply(shortcut);
    else if (key === "Enter" && !turn.last) event.repeat || send(null);
    else if (option) { option.checked = true; option.focus(); }
    else {
      if (/^[\w.-]$/.test(key) && !turn.answer.options.length) at("choices").querySelector("input").focus();
      return;
    }
    event.preventDefault();
  });
  look();
})();
