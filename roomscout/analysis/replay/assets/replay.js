"use strict";
/* The conversation and the timeline of a replay. All text of a run is set as text, never as markup. */
(() => {
  const PLAY_MS = 1500;
  const data = JSON.parse(document.getElementById("data").textContent);
  const { turns, question } = data;
  const byId = (id) => document.getElementById(id);
  let room = null, current = 0, through = false, playing = null;

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value) made.setAttribute(name, value);
    made.append(...children.filter(Boolean));
    return made;
  }

  const folded = (title, text) => text && element("details", {}, element("summary", {}, title), element("pre", {}, text));

  function list(...facts) {
    return element("dl", {}, ...facts.filter(([, value]) => value).flatMap(([name, value, css]) =>
      [element("dt", {}, name), element("dd", { class: css }, value)]));
  }

  function aboutQuestion() {
    const { options, outcome, score } = question;
    const css = (given, right) => [given && "is-given", right && "is-right"].filter(Boolean).join(" ");
    byId("asked").textContent = question.question || "The text of this question is not recorded.";
    byId("question").append(...[
      options.length && element("ul", { class: "options" }, ...options.map(([text, given, right]) => element("li", { class: css(given, right) },
        text, given && element("em", {}, "given"), right && element("em", {}, "right answer")))),
      list(["Outcome", score === null ? outcome : `${outcome}, score ${score.toFixed(2)}`, outcome], ["Answer", question.answer], ["Truth", question.truth],
        ["Error", question.error, "noted"], ["Objects", data.objects_in_words], ["Never in view", data.unseen_in_words, "noted"], ["Path", `${turns.length} ${turns.length === 1 ? "turn" : "turns"}, ${question.distance.toFixed(2)} m`]),
      element("p", { class: "quiet" }, [data.title, data.run, question.scene, question.type, `id ${question.id}`].filter(Boolean).join(" · ")),
      folded("What the model was told", question.system),
      data.missing.length && element("ul", { class: "missing" }, ...data.missing.map((sentence) => element("li", {}, sentence))),
    ].filter(Boolean));
  }

  /* What the colours in the scan mean, of those that there are. */
  function legend() {
    const right = data.answers.some(({ name }) => name === "right");
    const given = data.answers.some(({ name, point }) => name === "given" && point);
    const colours = {
      current: "this turn", before: turns.length > 1 && "earlier", later: turns.length > 1 && "later", stopped: turns.some((turn) => turn.goal) && "a stopped move",
      object: data.objects.length && "objects of the question", unseen: data.unseen_in_words && "never in view",
      right: right && (data.photo ? "where the photo was taken" : "the right answer"), given: given && "the answer given",
      believed: turns.some((turn) => turn.believed.length) && "where the model believes objects to be",
    };
    const named = Object.entries(colours).filter(([, words]) => words);
    byId("legend").append(...named.map(([css, words]) => element("li", { class: css }, words)));
  }

  function card(turn, place) {
    const button = element("button", {}, element("span", {}, `Turn ${turn.turn}`), element("span", {}, turn.action));
    button.addEventListener("click", () => go(place));
    const view = turn.view
      ? element("img", { src: turn.view, alt: `What the camera saw in turn ${turn.turn}, at ${turn.pose}` })
      : element("p", { class: "noted" }, `The view of turn ${turn.turn} is missing or damaged.`);
    const more = (turn.more || []).map(([name, address]) => element("figure", {}, address
      ? element("img", { src: address, alt: `${name}, as turn ${turn.turn} showed it` })
      : element("p", { class: "noted" }, `The ${name} image of turn ${turn.turn} is missing or damaged.`),
    element("figcaption", { class: "quiet" }, name.charAt(0).toUpperCase() + name.slice(1))));
    if (turn.view) view.style.aspectRatio = turn.place.half[0] / turn.place.half[1]; // known before the image, so that scrolling lands right
    const noted = [turn.requested && `The model asked for: ${turn.requested}`, turn.error && `Not parsed: ${turn.error}`, turn.truncated && "The reply was truncated at the token limit.", ...turn.clamped.map((each) => `Out of range: ${each}`)];
    return element("li", {}, element("h2", {}, button), view, ...more,
      turn.camera && element("p", { class: turn.stopped && "noted" }, `Camera: ${turn.camera}`),
      element("p", { class: "quiet" }, turn.pose),
      turn.reply && element("pre", {}, turn.reply),
      turn.comment && element("p", {}, `Comment: ${turn.comment}`),
      ...noted.filter(Boolean).map((words) => element("p", { class: "noted" }, words)),
      turn.forced && folded(`If this turn were the last: ${turn.forced[0]}`, turn.forced[1] || "No text."),
      turn.belief && folded(`Objects believed to be (m forward, m left): ${turn.belief[0]}`, turn.belief[1] || "No text."),
      folded("What the model read", turn.read));
  }

  function show(place) {
    current = Math.min(Math.max(place, 0), turns.length - 1);
    byId("slider").value = current;
    byId("slider").setAttribute("aria-valuetext", `turn ${turns[current].turn}`);
    byId("now").textContent = `turn ${turns[current].turn} of ${turns.at(-1).turn}`;
    byId("previous").disabled = current === 0;
    byId("next").disabled = current === turns.length - 1;
    [...byId("turns").children].forEach((item, i) => item.classList.toggle("current", i === current));
    const covered = getComputedStyle(byId("asked")).position === "sticky" ? byId("asked").offsetHeight : 0;
    byId("talk").scrollTop = current ? byId("turns").children[current].offsetTop - covered : 0;
    history.replaceState(null, "", `#${turns[current].turn}`);
    if (room) room.show(current);
  }

  function play(on) {
    clearInterval(playing);
    playing = null;
    if (on) {
      if (current === turns.length - 1) show(0);
      playing = setInterval(() => (current < turns.length - 1 ? show(current + 1) : play(false)), PLAY_MS);
    }
    byId("play").textContent = on ? "Pause" : "Play";
  }

  function go(place) {
    play(false);
    show(place);
  }

  function mark(camera) {
    through = camera;
    byId("through").setAttribute("aria-pressed", through);
    byId("overview").setAttribute("aria-pressed", !through);
  }

  function lookThrough(camera) {
    mark(camera);
    room.lookThrough(camera);
  }

  function overview() {
    mark(false);
    room.overview();
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=range]")) return;
    const keys = { ArrowRight: () => go(current + 1), ArrowLeft: () => go(current - 1) };
    if (!event.target.matches("button, input, summary")) keys[" "] = () => play(playing === null);
    if (room) Object.assign(keys, { c: () => lookThrough(!through), o: overview });
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  aboutQuestion();
  legend();
  byId("turns").append(...turns.map(card));
  byId("about").textContent = data.scan.about;
  byId("slider").max = turns.length - 1;
  byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  byId("previous").addEventListener("click", () => go(current - 1));
  byId("next").addEventListener("click", () => go(current + 1));
  byId("play").addEventListener("click", () => play(playing === null));
  document.addEventListener("keydown", onKey);
  const named = () => Math.max(turns.findIndex((turn) => `#${turn.turn}` === location.hash), 0);
  window.addEventListener("hashchange", () => go(named()));
  show(named());

  const parts = { canvas: byId("canvas"), labels: byId("labels"), frame: byId("frame"), scan: data.scan, turns, objects: data.objects, answers: data.answers, photo: data.photo };
  makeRoom({ ...parts, picked: go, moved: () => mark(false) }).then((made) => {
    room = made;
    byId("through").addEventListener("click", () => lookThrough(true));
    byId("overview").addEventListener("click", overview);
    byId("ceiling").addEventListener("change", (event) => room.withCeiling(event.target.checked));
    byId("named").hidden = !data.objects.length;
    byId("objects").addEventListener("change", (event) => {
      room.withObjects(event.target.checked);
      byId("legend").classList.toggle("without-objects", !event.target.checked);
    });
    document.body.dataset.drawn = "yes";
    room.show(current);
  }).catch((error) => {
    byId("tools").hidden = true;
    byId("failed").textContent = `This browser cannot draw the scan (${error.message}). The conversation is complete.`;
    byId("failed").hidden = false;
  });
})();
