/* A turn on the page: the question, what is seen, and the form of the answer. */
const LONG = 200; // characters of a question

function show(next) {
  const isNew = turn === null || turn.question !== next.question || next.turn === 0;
  const wasMoving = at("move").contains(document.activeElement);
  const kept = isNew ? "" : answerNow();
  turn = next;
  busy(false);
  at("sure").close(); // it asked about another turn
  at("say").replaceChildren();
  at("error").textContent = "";
  at("game").hidden = false;
  at("question").textContent = turn.question;
  at("question").classList.toggle("long", turn.question.length > LONG);
  at("number").textContent = practice ? say("practice.title") : say("question.number", { number: turn.number, of: turn.of });
  at("place").textContent = turn.last ? say("question.no_moves") : say("question.moves_left", { count: turn.moves_left });
  at("practice").hidden = !practice;
  at("skip").hidden = !practice;
  at("practise").hidden = Boolean(practice) || turn.number > 1 || turn.turn > 0 || !turn.can_practise;
  at("text").textContent = turn.outcome ? outcomeInWords(turn.outcome) : "";
  showViews();
  showPlace();
  showControls(turn);
  showAnswer();
  keepAnswer(kept);
  const target = wasMoving && !isNew && !turn.last ? at("move").querySelector(".send") : at("question");
  target.focus({ preventScroll: true });
  const columns = document.querySelector(".columns"); // which scrolls on phones, there with the question
  columns.scrollTop = isNew || turn.question.length <= LONG ? 0 : at("views").offsetTop - columns.offsetTop;
  if (isNew) scrollTo(0, 0);
}

function isPicture({ name }) {
  return name.startsWith("picture");
}

function address(image) {
  return url(`images/${image.number}`, { key: turn.key });
}

function caption({ name }) {
  if (isPicture({ name })) return say("views.picture");
  return WORDS.views[name] ?? named(name);
}

function showViews() {
  const now = turn.messages.at(-1);
  const pictures = turn.messages.flatMap(({ images }) => images.filter(isPicture));
  const seen = [...pictures, ...now.images.filter((each) => !isPicture(each))];
  at("views").dataset.count = Math.min(seen.length, 3);
  at("views").replaceChildren(...seen.map((image, place) => figure(image, place === pictures.length)));
  const before = turn.messages.slice(0, -1).map(({ images }, place) => images.filter((each) => !isPicture(each)).map((image) => thumbnail(image, place + 1)));
  at("earlier").replaceChildren(...before.flat());
}

function figure(image, isView) {
  const picture = make("img", { src: address(image), alt: caption(image) });
  const framed = make("div", { className: "frame" }, picture);
  const made = make("figure", { className: isView ? "view" : "" }, framed);
  made.style.setProperty("--ratio", image.ratio);
  if (at("views").dataset.count !== "1") made.append(make("figcaption", { textContent: caption(image) }));
  if (isView && turn.fields.length) picture.onclick = aim;
  return made;
}

function thumbnail(image, count) {
  const made = make("button", { type: "button", onclick: enlarge }, make("img", { src: address(image), alt: say("question.seen_from", { count }) }));
  made.setAttribute("aria-label", say("question.enlarge", { count }));
  return made;
}

function enlarge({ currentTarget }) {
  const small = currentTarget.querySelector("img");
  Object.assign(at("large").querySelector("img"), { src: small.src, alt: small.alt });
  at("large").showModal();
}

function showPlace() {
  const said = whereInWords(turn.where).map((text) => make("p", { textContent: text }));
  if (turn.objects) {
    const { boxes, in_scan: inScan } = turn.objects;
    const title = boxes.length ? say(turn.objects.new ? "where.objects_new" : "where.objects") : say("where.no_objects");
    said.push(make("h2", { textContent: title }), make("ul", {}, ...boxes.map((box) => make("li", { textContent: objectInWords(box, inScan) }))));
  }
  at("where").hidden = !said.length;
  at("where").open = Boolean(turn.objects);
  at("told").replaceChildren(...said);
}

function showAnswer() {
  const { kind, options, unit, form, here, in_moves: inMoves } = turn.answer;
  const yesNo = kind === "yes_no" ? ["yes", "no"].map((value) => [value, say(`answer.${value}`)]) : [];
  const choices = options.length ? options : yesNo;
  const send = at("answer").querySelector(".send");
  send.textContent = here ? say("answer.here") : say("answer.send");
  send.hidden = inMoves > 0;
  at("choices").hidden = inMoves > 0;
  at("choices").replaceChildren(...(here ? [make("input", { type: "hidden", name: "answer", value: "here" })] : choices.map(([value, text]) => option(value, text))));
  at("choices").role = choices.length ? "radiogroup" : null;
  at("choices").ariaLabel = choices.length ? say("answer.title") : null;
  if (!here && !choices.length) at("choices").append(written(kind, unitOf(unit)));
  const waits = turn.watching ? say("answer.at_end") : say("answer.from_move", { count: inMoves });
  at("form").textContent = inMoves > 0 ? waits : here ? say("answer.where") : capitalized(form);
}

function option(value, text) {
  return make("label", {}, make("input", { type: "radio", name: "answer", value }), make("span", { textContent: text, dir: "auto" }));
}

function written(kind, unit) {
  const input = make("input", { name: "answer", inputMode: kind === "number" ? "decimal" : "text", autocomplete: "off", dir: "auto" });
  const labels = { number: unit ? say("answer.number_of", { unit }) : say("answer.number"), point: say("answer.point") };
  return make("label", { className: "written" }, make("span", { textContent: labels[kind] ?? say("answer.text") }), input);
}

/* Ask whether to send an answer, once the server can read it. */
async function confirmed(answer) {
  const asked = turn;
  const chosen = at("choices").querySelector(":checked");
  if (!answer) {
    at("error").textContent = say(at("choices").querySelector("[type=radio]") ? "errors.choose" : "errors.write");
    return;
  }
  const isWritten = at("choices").querySelector(".written") !== null;
  const read = isWritten ? await checked({ answer }) : { answer };
  if (turn !== asked || at("sure").open) return;
  at("error").textContent = read.error ?? "";
  if (read.error) return;
  const { kind, here, unit } = turn.answer;
  const number = kind === "number" ? String(read.answer).replace(".", WORDS.decimal) : read.answer;
  at("given").textContent = here ? say("answer.here") : chosen ? chosen.parentElement.textContent.trim() : `${number} ${unitOf(unit)}`.trim();
  at("comment").value = "";
  at("remark").hidden = Boolean(practice);
  at("sure").returnValue = "";
  at("sure").onclose = () => {
    if (at("sure").returnValue === "send") send(answer, at("comment").value);
    else at("question").focus({ preventScroll: true });
  };
  at("sure").showModal();
}

function answerNow() {
  return new FormData(at("answer")).get("answer")?.trim();
}

/* Put back an answer that was chosen or written before a move. */
function keepAnswer(answer) {
  const input = at("choices").querySelector(".written input");
  if (input) input.value = answer ?? "";
  for (const each of at("choices").querySelectorAll("[type=radio]")) each.checked = each.value === answer;
  noteAnswer();
}

/* Note whether there is an answer, so that its button becomes the primary one. */
function noteAnswer() {
  document.body.classList.toggle("answered", Boolean(answerNow()) && !turn.answer.here);
}

at("answer").addEventListener("input", () => {
  at("error").textContent = "";
  noteAnswer();
});
