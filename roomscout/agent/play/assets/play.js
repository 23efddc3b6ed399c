/* What the page shows when: welcome, practice, questions, pauses and the end; and what it asks of its server. */
const EVERY_MS = 1000;
const SOON_MS = 150;
const IDLE_MS = 120000;
const BEGUN = `begun ${location.search}`;
let turn = null; // what is asked, once it is there
let touched = Date.now();
let sending = false;
let paused = false;
let hasEnded = false; // all is answered: nothing is asked of the server any more
let timer = 0;
let looks = 0; // how often the server was asked for the state: an earlier answer than the last one counts no more
let practice = ""; // "begin" for a new practice question, then "on"
let welcome = null;

function url(path, more) {
  const own = practice ? { practice } : {};
  return `${path}?${new URLSearchParams([...new URLSearchParams(location.search), ...Object.entries({ ...own, ...more })])}`;
}

function button(textContent, onclick, className = "") {
  return make("button", { type: "button", textContent, onclick, className });
}

function paragraph(textContent, className = "") {
  return make("p", { textContent, className });
}

/* A page of its own in place of a question: its heading, which gets the focus, and what is below. */
function tell(title, ...more) {
  const heading = make("h1", { textContent: title, tabIndex: -1 });
  turn = null;
  busy(false);
  at("sure").close();
  at("game").hidden = true;
  at("say").replaceChildren(heading, ...more);
  heading.focus({ preventScroll: true });
}

/* A page that says what is being waited for. */
function wait(text, ...more) {
  if (at("say").dataset.waits === text && at("say").firstChild) return;
  tell(WORDS.title, make("p", { className: "waiting", role: "status", textContent: text }), ...more);
  at("say").dataset.waits = text;
}

function waitForQuestion({ left, number }) {
  if (practice) wait(say("waiting.practice"), button(say("practice.skip"), endPractice));
  else wait(left === null ? say("waiting.session") : say("waiting.view", { number }));
}

function busy(isBusy, text = "") {
  document.body.classList.toggle("busy", isBusy);
  at("game").setAttribute("aria-busy", isBusy);
  if (isBusy) at("text").textContent = text;
  sending = isBusy;
}

async function post(body) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key: turn.key, ...body }) };
  const reply = await fetch(url("reply.json", {}), options).catch(() => null);
  const isRead = reply !== null && reply.headers.get("Content-Type") === "application/json"; // not that of another server
  return isRead ? reply.json() : { error: say("waiting.lost") };
}

/* How the server reads a move or an answer, which is not sent yet. */
function checked(body) {
  return post({ ...body, check: true });
}

async function send(answer, comment = "") {
  if (sending || !turn) return;
  const isEmptyMove = answer === null && turn.fields.length && isEmpty(turn);
  if (isEmptyMove) {
    at("error").textContent = say("errors.no_move");
    return;
  }
  const values = answer === null ? valuesOf(turn) : {};
  const wording = at("given").textContent;
  busy(true, say("waiting.move"));
  const found = await post({ values, answer, comment });
  if (found.error) {
    busy(false);
    at("text").textContent = "";
    at("error").textContent = found.error;
  } else if (found.right !== undefined) {
    endPractice({ yours: wording, right: found.right, object: found.object });
    return;
  } else if (found.left === 0 && !practice) {
    end(found); // the server may end at once
    return;
  } else if (answer !== null) {
    turn = null;
  }
  look();
}

function end({ thanks }) {
  hasEnded = true;
  const text = make("div", { className: "thanks", innerHTML: thanks ?? "" }); // made by the server from Markdown, without its HTML
  clearTimeout(timer);
  at("live").textContent = "";
  tell(say("end.title"), paragraph(say("end.close")), text);
}

function begin(kind) {
  practice = kind;
  turn = null;
  if (!kind) sessionStorage.setItem(BEGUN, "1");
  waitForQuestion({ left: 1, number: asked.number ?? 1 });
  look();
  practice = kind && "on";
}

/* The page after the practice question, with its right answer if the person gave one. */
function endPractice({ yours, right, object } = {}) {
  clearTimeout(timer);
  looks += 1;
  practice = "";
  const feedback = [];
  if (right !== undefined) {
    const sentence = filled(WORDS.practice.objects[object].right, { count: Number(right) });
    feedback.push(make("p", { className: "feedback" }, make("b", { textContent: sentence }), ` ${say("practice.yours", { answer: yours })}`));
  }
  tell(say("practice.over"), ...feedback, paragraph(say("practice.next", { number: asked.number ?? 1 })), actions(say("practice.again")));
}

function actions(practise) {
  return make("p", { className: "buttons" }, button(say("begin"), () => begin(""), "send"), button(practise, () => begin("begin")));
}

function greet() {
  const text = make("div", { className: "instructions", innerHTML: welcome.instructions }); // see `end`
  const own = welcome.name ? [paragraph(say("for_person", { person: welcome.name }), "note")] : [];
  at("say").replaceChildren(...own, text, actions(say("practise")));
  if (!text.querySelector("h1")) at("say").prepend(make("h1", { textContent: WORDS.title }));
}

function pause() {
  paused = true;
  at("game").hidden = true;
  at("say").replaceChildren(make("h1", { textContent: say("paused.title") }), paragraph(say("paused.text")), button(say("continue"), resume, "send"));
  at("say").querySelector("button").focus();
  look();
}

function resume() {
  paused = false;
  touched = Date.now();
  at("say").replaceChildren();
  at("game").hidden = false;
  at("question").focus({ preventScroll: true });
  look();
}

let asked = {}; // what the server last said of the session

async function look() {
  clearTimeout(timer);
  looks += 1;
  const own = looks;
  if (!welcome) {
    const found = await fetch(url("welcome.json", {})).catch(() => null);
    welcome = found && found.ok ? await found.json() : null;
    if (welcome && welcome.instructions && !sessionStorage.getItem(BEGUN)) {
      greet();
      return;
    }
  }
  const inUse = paused || document.hidden || Date.now() - touched > IDLE_MS ? 0 : 1;
  const reply = await fetch(url("state.json", { in_use: inUse, has: turn ? turn.key : "" })).catch(() => null);
  if (own !== looks || hasEnded) return;
  if (reply && reply.status === 403) {
    tell(say("cut.title"), paragraph(say("cut.text")), paragraph(say("cut.ask")));
    return;
  }
  const found = reply && reply.ok ? await reply.json() : null;
  const isBack = found && at("live").classList.contains("lost");
  if (isBack) at("error").textContent = "";
  if (isBack && turn) compose(turn);
  const said = live(found);
  if (at("live").textContent !== said) at("live").textContent = said; // else a screen reader says it each second
  at("live").classList.toggle("lost", !found);
  if (found) react(found);
  if (hasEnded) return;
  timer = setTimeout(look, found && found.left !== 0 && !found.key ? SOON_MS : EVERY_MS);
}

function live(found) {
  if (!found) return say("waiting.lost");
  return found.left && !practice ? say("question.left", { count: found.left }) : "";
}

function react(found) {
  asked = { number: found.number ?? asked.number };
  if (paused) return;
  if (found.messages) show(found);
  else if (found.left === 0 && !practice) end(found);
  else if (!found.key && !turn) waitForQuestion(found);
  else if (found.key && sending) busy(false);
}

function onKey(event) {
  const { key, target, shiftKey, ctrlKey, altKey, metaKey } = event;
  if (document.querySelector("dialog[open]") || !turn || paused || sending) return;
  if (key === "Escape") at("move").reset();
  if (ctrlKey || altKey || metaKey || target.matches("select, textarea, input:not([type=radio])")) return;
  if (target.matches("[type=radio]") ? key.length > 1 : target.matches("button, summary, a") && [" ", "Enter"].includes(key)) return;
  const shortcut = turn.shortcuts.find((each) => each.key === (shiftKey ? "Shift+" : "") + key);
  const chosen = key.length === 1 && at("choices").querySelector(`input[type=radio][value^="${CSS.escape(key)}" i]`);
  const input = at("choices").querySelector(".written input");
  if (shortcut) apply(shortcut);
  else if (key === "Enter" && !turn.last) event.repeat || send(null);
  else if (chosen) {
    chosen.checked = true;
    chosen.focus();
    noteAnswer();
  } else {
    if (/^[\w.-]$/.test(key) && input) input.focus();
    return;
  }
  event.preventDefault();
}

at("practise").onclick = () => begin("begin");
at("skip").onclick = () => endPractice();
at("pause").onclick = pause;
at("move").onsubmit = () => {
  send(null);
  return false;
};
at("answer").onsubmit = () => {
  if (turn && !sending) confirmed(answerNow());
  return false;
};
for (const each of ["pointermove", "pointerdown", "keydown", "wheel"]) {
  addEventListener(each, () => { touched = Date.now(); }, { passive: true });
}
addEventListener("keydown", onKey);
look();
