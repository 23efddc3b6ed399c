"use strict";
/* Shows the turn that waits for this person, composes a reply with keys, buttons and clicks, and posts it. */
(() => {
  const EVERY_MS = 1000, SOON_MS = 150, IDLE_MS = 120000, BEGUN = `begun ${location.search}`;
  const THANKS = "All questions are answered. Thank you!";
  const ARROWS = { "Shift+": "⇧", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
  const at = (id) => document.getElementById(id);
  const field = (name) => at("fields").querySelector(`[name="${CSS.escape(name)}"]`);
  const make = (tag, options, ...inside) => { const made = Object.assign(document.createElement(tag), options); made.append(...inside); return made; };
  const input = (name, inputMode) => make("input", { name, inputMode, autocomplete: "off" }); // type=number reads 1,5 as 15
  const keys = (key) => Object.entries(ARROWS).reduce((text, [long, short]) => text.replace(long, short), key);
  const button = (textContent, onclick, className = "") => make("button", { type: "button", textContent, onclick, className });
  const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  let turn = null, touched = Date.now(), sending = false, timer = 0, practice = "", welcome = null;

  function url(path, more) {
    return `${path}?${new URLSearchParams([...new URLSearchParams(location.search), ...Object.entries({ ...(practice ? { practice } : {}), ...more })])}`;
  }

  function say(...words) {
    turn = null;
    at("game").hidden = true;
    at("say").replaceChildren(...words);
  }

  function image(number, name) {
    return make("img", { src: url(`images/${number}`, { key: turn.key }), alt: name });
  }

  function show(next) {
    turn = next;
    const earlier = turn.messages.slice(0, -1), now = turn.messages.at(-1), { options, number, unit, form } = turn.answer;
    const asked = earlier.filter(({ role }) => role === "user");
    at("say").replaceChildren();
    at("error").textContent = "";
    at("game").hidden = false;
    at("question").textContent = turn.question;
    at("number").textContent = practice ? "Practice question" : `Question ${turn.number} of ${turn.of}`;
    at("place").textContent = turn.last ? "No moves are left: give your answer now." : `${many(turn.moves_left, "move")} left`;
    at("practise").hidden = Boolean(practice) || turn.number > 1 || turn.turn > 0 || !turn.can_practise;
    const ofQuestion = ({ name }) => name.startsWith("picture");
    const pictures = turn.messages.flatMap(({ images }) => images.filter(ofQuestion));
    const seen = [...pictures, ...now.images.filter((each) => !ofQuestion(each))];
    const caption = (name) => ({ rgb: "your view" })[name] || name.replace(/^picture/, "picture of the question, ");
    at("views").replaceChildren(...seen.map(({ name, number: at_ }) => make("figure", {}, image(at_, name),
      make("figcaption", { className: "note", textContent: seen.length > 1 ? caption(name) : "" }))));
    at("text").textContent = now.text;
    at("told").textContent = earlier.filter(({ role }) => role === "system").map(({ text }) => text).join("\n");
    at("earlier").replaceChildren(...asked.flatMap(({ images }, place) => images.filter((each) => !ofQuestion(each)).map(({ name, number: at_ }) =>
      make("button", { type: "button", title: `${name} of turn ${place}`, onclick: enlarge }, image(at_, `${name} of turn ${place}`)))));
    at("move").hidden = turn.last;
    at("move").classList.toggle("watching", !turn.fields.length);
    at("move").classList.toggle("aims", turn.fields.some((each) => each.points) || turn.shortcuts.some((each) => each.per_unit));
    at("shortcuts").replaceChildren(...turn.shortcuts.map((each) => make("button", { type: "button", onclick: () => apply(each) },
      `${each.label} `, make("kbd", { textContent: keys(each.key) }))));
    at("fields").replaceChildren(...turn.fields.map((each) => make("label", {}, each.label, each.choices
      ? make("select", { name: each.name }, ...["", ...each.choices].map((one) => make("option", { textContent: one })))
      : input(each.name, "text"))));
    at("views").querySelectorAll("img")[pictures.length].onclick = aim;
    at("form").textContent = options.length ? "" : `The answer is ${form}.`;
    at("choices").replaceChildren(...(options.length ? options : [[null, unit]]).map(([value, text]) => make("label", {},
      value === null ? input("answer", number ? "decimal" : "text") : make("input", { type: "radio", name: "answer", value, checked: options.length === 1 }), ` ${text}`)));
    at("question").focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  function enlarge({ currentTarget }) {
    at("large").querySelector("img").src = currentTarget.querySelector("img").src;
    at("large").showModal();
  }

  function apply({ field: name, add, append, set }) {
    const into = field(name), { between } = turn.fields.find((each) => each.name === name);
    if (add) into.value = Math.round((Number(into.value.replace(",", ".")) + add) * 1e6) / 1e6 || "";
    else into.value = append ? [into.value, append].filter(Boolean).join(between) : set;
  }

  async function aim({ target, offsetX, offsetY }) {
    const [x, y] = [offsetX, offsetY].map((each) => Math.max(0, Math.round(each * target.naturalWidth / target.clientWidth)));
    const points = turn.fields.find((each) => each.points), { key } = turn;
    if (points) {
      const known = points.points > 1 ? field(points.name).value.split(";").filter(Boolean) : [];
      field(points.name).value = [...known, `${x}, ${y}`].slice(-points.points).join("; ");
      for (const { name, example } of turn.fields.filter((each) => each.choices)) field(name).value ||= example;
      return;
    }
    const reply = await fetch(url("aim.json", { key, x, y }));
    if (reply.ok && turn && turn.key === key) for (const [name, value] of Object.entries(await reply.json())) field(name).value = value;
  }

  function valueOf({ name, still, choices, words, points }) {
    const text = field(name).value.trim();
    if (text === "" || choices || words) return text || still;
    if (points) {
      const found = text.split(";").filter(Boolean).map((each) => each.split(/[\s,]+/).filter(Boolean).map(Number));
      return points > 1 ? found.map((each) => (each.length === 1 ? each[0] : each)) : found[0].length === 1 ? found[0][0] : found[0];
    }
    const value = Number(text.replace(",", "."));
    return Number.isFinite(value) ? value : text;
  }

  async function send(answer) {
    if (sending || !turn) return;
    if (answer === null && turn.fields.length && turn.fields.every(({ name }) => !field(name).value.trim())) {
      at("error").textContent = "Choose a move first: this one would take a turn and change nothing.";
      return;
    }
    sending = true;
    const values = answer === null ? Object.fromEntries(turn.fields.map((each) => [each.name, valueOf(each)])) : {};
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key: turn.key, values, answer }) };
    const reply = await fetch(url("reply.json", {}), options).catch(() => null);
    sending = false;
    const { error, left, right } = reply ? await reply.json() : {};
    at("error").textContent = error || "";
    if (right !== undefined) {
      practice = "";
      say(make("p", { textContent: `Your answer was ${answer}; the right one is ${right}. This was practice and does not count.` }), actions());
      return;
    }
    if (left === 0) say(THANKS); // the server may end at once
    look();
  }

  function confirmed(answer) {
    const chosen = at("choices").querySelector(":checked"), { unit } = turn.answer;
    if (!answer) { at("error").textContent = turn.answer.options.length ? "Choose an answer first." : "Type an answer first."; return; }
    at("given").textContent = chosen ? chosen.parentElement.textContent.trim() : `${answer} ${unit}`.trim();
    at("sure").returnValue = "";
    at("sure").onclose = () => { if (at("sure").returnValue === "send") send(answer); else at("question").focus({ preventScroll: true }); };
    at("sure").showModal();
  }

  function begin(kind) {
    practice = kind;
    if (!kind) sessionStorage.setItem(BEGUN, "1");
    say("The view is being drawn…");
    look();
    practice = kind && "on";
  }

  function actions() {
    return make("p", { className: "actions" }, button("Begin", () => begin(""), "send"), button("Try a practice question", () => begin("begin")));
  }

  function greet() {
    const text = make("div", { innerHTML: welcome.instructions }); // made by the server from Markdown, without its HTML
    say(...(welcome.name ? [make("p", { className: "note", textContent: `This page is for ${welcome.name}.` })] : []), text, actions());
  }

  async function look() {
    clearTimeout(timer);
    if (!welcome) {
      const found = await fetch(url("welcome.json", {})).catch(() => null);
      welcome = found && found.ok ? await found.json() : null;
      if (welcome && welcome.instructions && !sessionStorage.getItem(BEGUN)) { greet(); return; }
    }
    const in_use = document.hidden || Date.now() - touched > IDLE_MS ? 0 : 1;
    const reply = await fetch(url("state.json", { in_use, has: turn ? turn.key : "" })).catch(() => null);
    const found = reply && reply.ok ? await reply.json() : null;
    if (reply && reply.status === 403) at("live").textContent = "Your answers are saved; this address is an old one: open the one that the command printed.";
    else if (found === null) at("live").textContent = "The server has ended. Your answers are saved; this page goes on once it runs again.";
    else {
      at("live").textContent = found.left && !practice ? `${many(found.left, "question")} left` : "";
      if (found.messages) show(found);
      else if (found.left === 0 && !practice) say(THANKS);
      else if (!found.key && !turn) say("The view is being drawn…");
    }
    timer = setTimeout(look, found && found.left !== 0 && !found.key ? SOON_MS : EVERY_MS);
  }

  at("practise").onclick = () => begin("begin");
  at("move").onsubmit = () => { send(null); return false; };
  at("answer").onsubmit = () => { confirmed(new FormData(at("answer")).get("answer")?.trim()); return false; };
  for (const each of ["pointermove", "pointerdown", "keydown", "wheel"]) addEventListener(each, () => { touched = Date.now(); }, { passive: true });
  addEventListener("keydown", (event) => {
    const { key, target, shiftKey, ctrlKey, altKey, metaKey } = event;
    if (document.querySelector("dialog[open]")) return;
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
