"use strict";
/* The table of a report and the pages of its questions. All text of a run is set as text, never as markup. */
const roomscout = (() => {
  const SYMBOLS = { right: "✓", partly: "◐", wrong: "✗", unscored: "–", awaiting: "?", exhausted: "∅", failed: "!", unfinished: "…", pending: "·" };
  const ANSWERS = { right: { colour: "green", words: "the right answer" }, given: { colour: "orange", words: "the answer given" } };
  const QUESTION = /^#(q\d+(?:_s\d+)?)$/;
  const SVG = "http://www.w3.org/2000/svg";
  const run = document.getElementById("run");
  const page = document.getElementById("question");
  const form = document.getElementById("filters");
  const field = (name) => form.elements.namedItem(name);
  const pages = new Map();
  const waiting = new Map();
  const cards = new Map();
  const rows = [];
  const byName = new Map();
  let leftOut = [];
  let table = null;
  let built = null;
  let shown = null;
  let seen = false;
  let returnTo = { hash: "", scroll: 0 };

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) if (value !== null) made.setAttribute(name, value);
    made.append(...children.filter((child) => child !== null && child !== ""));
    return made;
  }

  function drawn(tag, attributes, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
  const fixed = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

  /* The table */

  function index(data) {
    take(data);
    restoreFilters();
    makeTable();
    addEventListener("hashchange", route);
    run.addEventListener("click", (event) => { // a link to the filters that are set already changes no address
      const link = event.target.closest('a[href^="#questions?"]');
      if (link && link.hash === location.hash) route();
    });
    if (!location.hash && document.body.dataset.only) location.replace("#" + document.body.dataset.only);
    else route();
  }

  /* Adds the rows of an index to those known, or replaces them; returns the rows, and whether any is new. */
  function take(data) {
    const taken = data.rows.map(([name, type, scene, question, outcome, score, answer, truth, turns, metres, sight, person, twin]) => ({
      position: position(name), name, type: data.types[type], scene: data.scenes[scene], question,
      outcome: data.outcomes[outcome], order: outcome, score, answer, truth, turns, metres,
      sight: sight === null ? "" : data.sights[sight], sightOrder: sight, person: person === null ? "" : data.people[person], twin,
    }));
    leftOut = data.left_out;
    const before = rows.length;
    for (const row of taken) {
      if (byName.has(row.name)) Object.assign(byName.get(row.name), row);
      else {
        byName.set(row.name, row);
        rows.push(row);
      }
    }
    for (const row of rows) {
      const both = [row, byName.get(row.twin)].map((each) => (each ? each.score : null));
      row.pair = both.includes(null) ? null : Math.min(...both);
    }
    rows.sort((a, b) => a.position - b.position);
    for (const [name, values] of [["type", data.types], ["scene", data.scenes], ["person", data.people]]) offer(field(name), values);
    field("person").parentElement.hidden = field("person").options.length === 1;
    return [taken, rows.length > before];
  }

  function position(name) {
    const [, number, sample] = /^q(\d+)(?:_s(\d+))?$/.exec(name);
    return 1e6 * Number(number) + Number(sample || 1);
  }

  /* Adds the values that a select lacks, in their order. */
  function offer(select, values) {
    for (const value of [...values].sort()) {
      const [, ...options] = select.options;
      if (options.some((option) => option.value === value)) continue;
      select.add(element("option", { value }, value), options.find((option) => option.value > value) || null);
    }
  }

  /* Shows the rows of an index that have changed since the page was loaded. Keeps filters, sorting and scrolling. */
  async function update(data) {
    const [changed, anyNew] = take(data);
    for (const row of changed) pages.delete(row.name);
    await built;
    const holder = table.element.querySelector(".tabulator-tableholder");
    const { scrollTop, scrollLeft } = holder;
    if (anyNew) await table.replaceData(rows);
    else if (changed.length) { // Tabulator refuses to update no rows
      await table.updateData(changed);
      table.refreshFilter();
      if (table.getSorters().length) table.setSort(table.getSorters().map(({ field, dir }) => ({ column: field, dir })));
    }
    holder.scrollTop = scrollTop;
    holder.scrollLeft = scrollLeft;
    seen = seen && shown === null;
    const name = shown;
    if (changed.some((row) => row.name === name)) load(name).then((now) => { if (shown === name) refresh(name, now); }, () => {});
  }

  function makeTable() {
    const outcome = (cell) => element("span", { class: cell.getValue() }, `${SYMBOLS[cell.getValue()]} ${cell.getValue()}`);
    const link = (cell) => element("a", { href: "#" + cell.getValue() }, cell.getValue());
    const sight = (cell) => element("span", { class: cell.getValue() || null }, cell.getValue().replaceAll("_", " "));
    const words = (cell) => element("span", { title: cell.getValue() }, cell.getValue());
    const type = (cell) => element("span", { title: cell.getValue() }, cell.getValue().replaceAll("_", "_\u200b")); // may break there
    const scenes = [...new Set(rows.map((row) => row.scene))];
    const shared = sharedStart(scenes);
    const scene = (cell) => element("span", { title: cell.getValue() }, (shared ? "…" : "") + cell.getValue().slice(shared));
    const digits = (count) => (cell) => (cell.getValue() === null ? "" : fixed(cell.getValue(), count));
    const right = { hozAlign: "right", headerHozAlign: "right" };
    const by = (key) => (a, b, first, second) => first.getData()[key] - second.getData()[key];
    const holder = document.getElementById("table");
    holder.textContent = "";
    const sort = new URLSearchParams(location.hash.split("?")[1] || "").get("sort") || "";
    const [column, direction] = sort.split(".");
    const columns = [
      { title: "Question", field: "name", formatter: link, sorter: by("position"), width: 108, responsive: 0 },
      { title: "Text", field: "question", formatter: words, widthGrow: 6, minWidth: 130, responsive: 1 },
      { title: "Outcome", field: "outcome", formatter: outcome, sorter: by("order"), width: 116, responsive: 0 },
      { title: "Score", field: "score", formatter: digits(2), width: 84, responsive: 2, sorter: "number", ...right },
      ...(rows.some((row) => row.twin) ? [{ title: "Pair", field: "pair", formatter: digits(2), width: 76, responsive: 2, sorter: "number", ...right }] : []),
      { title: "Answer given", field: "answer", formatter: words, widthGrow: 1, minWidth: 126, responsive: 3 },
      { title: "Right answer", field: "truth", formatter: words, widthGrow: 1, minWidth: 126, responsive: 3 },
      ...(rows.some((row) => row.sight) ? [{ title: "In view", field: "sight", formatter: sight, sorter: by("sightOrder"), width: 98, responsive: 4 }] : []),
      { title: "Turns", field: "turns", width: 84, responsive: 5, sorter: "number", ...right },
      { title: "Type", field: "type", formatter: type, width: 150, responsive: 4 },
      ...(rows.some((row) => row.person) ? [{ title: "Person", field: "person", formatter: words, width: 100, responsive: 3 }] : []),
      ...(scenes.length > 1 ? [{ title: "Scene", field: "scene", formatter: scene, width: 96, responsive: 6 }] : []),
      { title: "Metres moved", field: "metres", formatter: digits(1), width: 136, responsive: 7, sorter: "number", ...right },
    ];
    table = new Tabulator(holder, {
      data: rows, index: "name", maxHeight: "75vh", layout: "fitColumns", responsiveLayout: "hide", columns,
      placeholder: "No answer passes the filters.", selectableRows: false, columnDefaults: { headerWordWrap: true },
      initialSort: columns.some((each) => each.field === column) ? [{ column, dir: direction === "desc" ? "desc" : "asc" }] : [],
    });
    table.on("rowClick", (event, row) => { if (!event.target.closest("a")) location.hash = row.getData().name; });
    table.on("dataFiltered", count);
    table.on("dataSorted", rememberState);
    built = new Promise((resolve) => table.on("tableBuilt", resolve));
    table.on("tableBuilt", () => {
      applyFilters();
      for (const each of table.getColumns()) sortableByKeyboard(each);
    });
    form.addEventListener("input", () => { applyFilters(); rememberState(); });
    form.addEventListener("reset", () => setTimeout(() => { applyFilters(); rememberState(); }));
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  /* How many characters all names begin with, up to a separator, if leaving them out saves some. */
  function sharedStart(names) {
    let same = 0;
    while (names.every((name) => same < name.length - 1 && name[same] === names[0][same])) same += 1;
    while (same && !"_-/. ".includes(names[0][same - 1])) same -= 1;
    return same > 4 ? same : 0;
  }

  function sortableByKeyboard(column) {
    const header = column.getElement();
    header.tabIndex = 0;
    header.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      const [sorted] = table.getSorters();
      table.setSort(column.getField(), sorted && sorted.field === column.getField() && sorted.dir === "asc" ? "desc" : "asc");
    });
  }

  const below = (row) => row.score !== null && row.score < 1;

  function passes(row) {
    const words = field("q").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${row.name} ${row.question} ${row.answer} ${row.truth} ${row.scene} ${row.type}`.toLowerCase();
    const outcome = field("outcome").value;
    return words.every((word) => text.includes(word))
      && (!field("type").value || row.type === field("type").value)
      && (!field("scene").value || row.scene === field("scene").value)
      && (!outcome || (outcome === "below" ? below(row) : row.outcome === outcome))
      && (!field("sight").value || row.sight === field("sight").value)
      && (!field("person").value || row.person === field("person").value)
      && (field("from").value === "" || row.turns >= Number(field("from").value))
      && (field("to").value === "" || row.turns <= Number(field("to").value));
  }

  function applyFilters() {
    table.setFilter(passes);
  }

  /* The number of answers; of some of them also the mean, apart for types that the overall leaves out. Of all, that is
     the overall above the table. */
  function count(filters, found) {
    const means = [];
    if (found.length < rows.length) {
      const scored = found.map((row) => row.getData()).filter((row) => row.score !== null);
      for (const name of ["", ...leftOut]) {
        const group = scored.filter((row) => (leftOut.includes(row.type) ? row.type : "") === name);
        const mean = group.reduce((sum, row) => sum + row.score, 0) / group.length;
        const answers = `${group.length.toLocaleString("en")} ${name ? `of ${name}` : "scored"}`;
        if (group.length) means.push(`${fixed(100 * mean, 1)} % over ${answers}`);
      }
    }
    const words = means.length ? `; mean ${means.join(", ")}` : "";
    document.getElementById("count").value = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} answers${words}`;
  }

  function stateHash() {
    const state = new URLSearchParams();
    for (const name of ["q", "type", "scene", "outcome", "sight", "person", "from", "to"]) if (field(name).value) state.set(name, field(name).value);
    const [sorted] = table.getSorters();
    if (sorted) state.set("sort", `${sorted.field}.${sorted.dir}`);
    return state.size ? `#questions?${state}` : "";
  }

  function rememberState() {
    if (shown === null && table && table.initialized && !QUESTION.test(location.hash)) history.replaceState(null, "", stateHash() || location.pathname + location.search);
  }

  function restoreFilters() {
    const state = new URLSearchParams(location.hash.startsWith("#questions?") ? location.hash.split("?")[1] : "");
    for (const name of ["q", "type", "scene", "outcome", "sight", "from", "to"]) field(name).value = state.get(name) || "";
  }

  /* The page of a question */

  function route() {
    const found = QUESTION.exec(location.hash);
    if (found) return open(found[1]);
    seen = seen || shown === null;
    if (shown !== null) close();
    else if (location.hash.startsWith("#questions?")) {
      restoreFilters();
      if (table.initialized) applyFilters();
      document.getElementById("questions").scrollIntoView();
    }
  }

  function open(name) {
    if (shown === null) returnTo = { hash: table && table.initialized ? stateHash() : "", scroll: scrollY };
    shown = name;
    cards.clear();
    run.hidden = true;
    page.hidden = false;
    document.title = `${name} – RoomScout`;
    page.replaceChildren(bar(name), element("h1", { tabindex: "-1" }, name), element("p", { class: "note" }, "Loading…"));
    load(name).then((data) => { if (shown === name) show(name, data); }, (reason) => {
      if (shown === name) page.replaceChildren(bar(name), element("h1", {}, name), element("p", { class: "missing" }, String(reason)));
    });
  }

  function close() {
    const left = shown;
    shown = null;
    page.hidden = true;
    page.replaceChildren();
    run.hidden = false;
    document.title = document.querySelector("#run h1").textContent + " – RoomScout";
    table.redraw(!seen); // rows that were laid out while the table was hidden have no size
    seen = true;
    scrollTo({ top: returnTo.scroll, behavior: "instant" });
    const link = document.querySelector(`#table a[href="#${left}"]`);
    if (link) link.focus({ preventScroll: true });
  }

  function back() {
    location.hash = returnTo.hash || "#questions";
  }

  function load(name) {
    if (!byName.has(name)) return Promise.reject(`This report has no ${name}.`);
    if (pages.has(name)) return Promise.resolve(pages.get(name));
    const inline = document.getElementById("data-" + name);
    if (inline) return Promise.resolve(JSON.parse(inline.textContent));
    return new Promise((resolve, reject) => {
      const source = `${document.body.dataset.data}/${name}.js`;
      const script = element("script", { src: source });
      waiting.set(name, resolve);
      script.onerror = () => { script.remove(); reject(`${source} is missing: keep the folder beside this page, or write the report again.`); };
      script.onload = () => script.remove();
      document.head.append(script);
    });
  }

  function question(name, data) {
    pages.set(name, data);
    if (waiting.has(name)) waiting.get(name)(data);
    waiting.delete(name);
  }

  /* The rows in the order of the table: those that pass the filters if the question is among them, else all. */
  function neighbours(name) {
    const active = table && table.initialized ? table.getData("active") : rows;
    return active.some((row) => row.name === name) ? active : rows;
  }

  function next(name, step, wanted) {
    const list = neighbours(name);
    let at = list.findIndex((row) => row.name === name) + step;
    while (at >= 0 && at < list.length && !wanted(list[at])) at += step;
    return list[at] ? list[at].name : null;
  }

  function bar(name) {
    const step = (words, title, to) => (to ? element("a", { href: "#" + to, title }, words) : element("span", { class: "note", title }, words));
    const leave = element("a", { href: "#questions", title: "Esc" }, "All questions");
    leave.addEventListener("click", (event) => { event.preventDefault(); back(); });
    return element("nav", { "aria-label": "Questions" }, leave,
      step("‹ previous", "Previous question (k)", next(name, -1, () => true)),
      step("next ›", "Next question (j)", next(name, 1, () => true)),
      step("← previous wrong", "Previous question below full score (left arrow)", next(name, -1, below)),
      step("next wrong →", "Next question below full score (right arrow)", next(name, 1, below)));
  }

  function show(name, data) {
    page.replaceChildren(bar(name), element("h1", { tabindex: "-1" }, name), element("p", { class: "about" }, data.type), summary(name, data),
      element("h2", {}, "Turns"), element("ol", { class: "turns" }, ...data.turns.map(cardOf)));
    scrollTo({ top: 0, behavior: "instant" });
    page.querySelector("h1").focus({ preventScroll: true });
  }

  /* Shows what has changed of a question that is open, and leaves its other turns as they are. */
  function refresh(name, data) {
    page.querySelector("nav").replaceWith(bar(name));
    page.querySelector(".columns").replaceWith(summary(name, data));
    const list = page.querySelector(".turns");
    data.turns.map(cardOf).forEach((made, at) => {
      if (at >= list.children.length) list.append(made);
      else if (list.children[at] !== made) list.children[at].replaceWith(made);
    });
  }

  /* The question with its answer, and the map. */
  function summary(name, data) {
    const facts = element("dl", {});
    const fact = (label, value, css) => { if (value !== "" && value !== null) facts.append(element("dt", {}, label), element("dd", { class: css || null }, value)); };
    const score = data.score === null ? "" : `, score ${fixed(data.score, 2)}`;
    fact("Outcome", `${SYMBOLS[data.outcome]} ${data.outcome}${score}`, `verdict ${data.outcome}`);
    fact("Answer", data.answer);
    fact("Truth", data.truth);
    fact("Answered by", data.person);
    for (const [label, value] of Object.entries(data.scores)) fact(capital(label), value);
    fact("In view", data.sight, data.sight.startsWith("never") ? "noted" : null);
    fact("Failed at", data.failed);
    fact("Error", data.error, "noted");
    fact("Turns", `${data.turns.length}, ${fixed(data.distance, 2)} m moved`);
    fact("Time", `${fixed(data.seconds, 1)} s${data.turns.some((turn) => turn.batch > 1) ? ", its share of batched calls" : ""}`);
    fact("Cost", data.cost);
    fact("Scene", `${data.scene} (${data.dataset})`);
    fact("Id", data.id);
    fact("Folder", data.folder);
    if (data.replay) fact("In 3D", element("a", { href: data.replay }, "Replay"));
    else if (data.replay_command) {
      const [run] = data.folder.split("/");
      const command = element("code", { title: data.replay_command }, `roomscout replay ${run} ${name}`);
      fact("In 3D", document.getElementById("index") ? element("span", {}, "With the run folder: ", command) : command);
    }
    const options = data.options.map(([text, given, right]) => element("li", { class: [given ? "is-given" : "", right ? "is-right" : ""].join(" ").trim() || null }, text,
      given ? element("em", {}, "given") : null, right ? element("em", {}, "right answer") : null));
    const about = element("div", {}, element("p", { class: "asked" }, data.question || "The text of this question is not recorded."),
      options.length ? element("ul", { class: "options" }, ...options) : null, facts,
      data.missing.length ? element("ul", { class: "missing" }, ...data.missing.map((sentence) => element("li", {}, sentence))) : null,
      data.system ? element("details", {}, element("summary", {}, "System message"), element("pre", {}, data.system)) : null);
    return element("div", { class: "columns page" }, about, data.map ? map(data) : null, data.twins.length ? twins(name, data.twins) : null);
  }

  /* Both rooms of a pair beside each other. */
  function twins(name, both) {
    const figures = both.map((each) => element("figure", {},
      each.view ? element("img", { src: each.view, alt: `What ${each.name} saw of it` }) : null,
      element("figcaption", {}, each.name === name ? "This room" : element("a", { href: "#" + each.name }, `Its twin, ${each.name}`),
        `: ${each.answer}; right: ${each.truth}`)));
    return element("section", { class: "twins" }, element("h2", {}, "Twins"), ...figures);
  }

  /* The card of a turn, the same one while the turn is the same. */
  function cardOf(turn) {
    const key = JSON.stringify(turn);
    if (!cards.has(key)) cards.set(key, card(turn));
    return cards.get(key);
  }

  /* An object of the question with its pixels in a view: filled if it is seen well, dashed if it is not in view. */
  function chip([name, pixels, enough]) {
    const css = enough ? "well" : pixels ? "little" : "absent";
    return element("li", { class: css }, pixels ? `${name}, ${pixels.toLocaleString("en")} px` : `no ${name}`);
  }

  function card(turn) {
    const image = (address, name, alt) => {
      const gone = () => element("p", { class: "gone" }, `The ${name} of turn ${turn.turn} is missing.`);
      if (!address) return gone();
      const made = element("img", { src: address, loading: "lazy", alt });
      made.addEventListener("error", () => made.replaceWith(gone()));
      return made;
    };
    const captioned = ([name, address]) => element("figure", {}, image(address, name, `${capital(name)}, as turn ${turn.turn} showed it`),
      element("figcaption", { class: "note" }, capital(name)));
    const images = [image(turn.view, "view", `What the camera saw in turn ${turn.turn}, at ${turn.pose}`), ...(turn.more || []).map(captioned)];
    const [prompt, reused, generated] = turn.tokens;
    const [preprocess, prefill, decode, render] = turn.seconds;
    const before = preprocess + prefill; // a server does not say how long it decoded
    const spent = [
      generated ? `${prompt.toLocaleString("en")} prompt tokens${reused ? ` (${reused.toLocaleString("en")} reused)` : ""}, ${generated.toLocaleString("en")} generated` : "",
      decode ? `prefill ${fixed(before, 2)} s, decoding ${fixed(decode, 2)} s` + (turn.batch > 1 ? ` in a batch of ${turn.batch}` : "") : before ? `reply after ${fixed(before, 2)} s` : "",
      `move and view ${fixed(render, 2)} s`,
      turn.retries ? `${turn.retries} failed requests before this reply` : "",
    ].filter(Boolean).join("; ");
    const noted = [turn.requested && `The model asked for: ${turn.requested}`, turn.error && `Not parsed: ${turn.error}`, turn.truncated && "The reply was truncated at the token limit.", ...turn.clamped.map((each) => `Out of range: ${each}`)].filter(Boolean);
    const made = element("li", { class: "turn", id: `turn-${turn.turn}` }, ...images, element("div", { class: "text" },
      element("h3", {}, element("span", {}, `Turn ${turn.turn}`), element("span", {}, turn.action)),
      turn.camera ? element("p", { class: turn.stopped ? "noted" : null }, `Camera: ${turn.camera}`) : null,
      element("p", { class: "quiet" }, turn.pose + (turn.surface === null ? "" : `; ${turn.surface} % of the surface seen so far`)),
      turn.objects.length ? element("ul", { class: "in-view", "aria-label": "Objects of the question in view" }, ...turn.objects.map(chip)) : null,
      turn.reply ? element("pre", { tabindex: "0", "aria-label": "Reply of the model" }, turn.reply) : null,
      turn.comment ? element("p", {}, `Comment: ${turn.comment}`) : null,
      ...noted.map((words) => element("p", { class: "noted" }, words)),
      turn.forced ? element("details", {}, element("summary", {}, `If this turn were the last: ${turn.forced[0]}`), element("pre", {}, turn.forced[1])) : null,
      turn.belief ? element("details", {}, element("summary", {}, `Objects believed to be (m forward, m left): ${turn.belief[0]}`), element("pre", {}, turn.belief[1])) : null,
      element("p", { class: "quiet" }, spent),
      turn.read ? element("details", {}, element("summary", { class: "quiet" }, "What the model read"), element("pre", {}, turn.read)) : null));
    const light = (on) => () => page.querySelectorAll(`.pose[data-turns~="${turn.turn}"]`).forEach((each) => each.classList.toggle("lit", on));
    for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]]) made.addEventListener(event, light(on));
    return made;
  }

  /* The top-down map */

  function map(data) {
    const { width, height, metre, hfov, path, poses, stops, boxes, answers, image, about, unseen } = data.map;
    const words = `The room from above, with the camera's path over ${poses.length} turns` + (about ? ` and the objects that the question names: ${about}` : "");
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height + 30}`, role: "img", "aria-label": words });
    if (image) {
      const inline = image.startsWith("#") ? document.getElementById("map-" + image.slice(1)) : null;
      svg.append(drawn("image", { href: inline ? JSON.parse(inline.textContent) : image, width, height }));
    }
    for (const [name, corners, unseen] of boxes) {
      svg.append(drawn("polygon", { class: unseen ? "box unseen" : "box", points: corners.map((corner) => corner.join(",")).join(" ") }));
      const middle = [0, 1].map((axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / corners.length);
      const half = 3.6 * name.length + 4;
      const x = Math.min(Math.max(middle[0], half), Math.max(width - half, half));
      const [top, bottom] = [Math.min, Math.max].map((edge) => edge(...corners.map((corner) => corner[1])));
      const above = bottom - top < 26 && top > 16; // else the name would hide the object
      svg.append(drawn("text", { class: "name", x, y: above ? top - 5 : middle[1] + 4 }, name));
    }
    const line = path.map((point) => point.join(",")).join(" ");
    svg.append(drawn("polyline", { class: "halo", points: line }), drawn("polyline", { class: "path", points: line }));
    for (const [turn, blocked, x, y, goalX, goalY] of stops) {
      const words = drawn("title", {}, `turn ${turn}: ${blocked ? "blocked by a surface" : "stopped at the edge of the scan"}`);
      const cross = drawn("path", { class: "stop", d: `M${x - 6},${y - 6}l12,12m0,-12l-12,12` }, words);
      svg.append(drawn("line", { class: "goal", x1: x, y1: y, x2: goalX, y2: goalY }));
      const length = Math.hypot(goalX - x, goalY - y) || 1;
      cross.setAttribute("transform", `translate(${(14 * (goalX - x)) / length} ${(14 * (goalY - y)) / length})`);
      svg.append(cross);
    }
    for (const group of places(poses)) svg.append(pose(group, 0.9 * metre, hfov || 60));
    for (const each of answers) svg.append(placeOfAnswer(each, 0.9 * metre, hfov || 60));
    const y = height + 16;
    svg.append(drawn("line", { class: "scale", x1: 14, y1: y, x2: 14 + metre, y2: y }), drawn("text", { class: "metre", x: 22 + metre, y: y + 4 }, "1 m"));
    const legend = ["Numbers are turns, cones show where the camera looked."];
    if (stops.length) legend.push("✕ marks where a move was stopped, the dashed line where it should have gone.");
    for (const [name] of answers) legend.push(`${capital(ANSWERS[name].colour)}: ${ANSWERS[name].words}.`);
    if (about) legend.push(`Boxes: ${about}.`);
    return element("figure", { class: "map" }, svg, element("figcaption", { class: "note" }, legend.join(" "),
      unseen ? element("strong", { class: "wrong" }, ` Red: never in view (${unseen}).`) : null));
  }

  function cone(x, y, heading, length, hfov) {
    const edge = (degrees) => {
      const angle = (degrees * Math.PI) / 180;
      return `${(x + length * Math.cos(angle)).toFixed(1)},${(y - length * Math.sin(angle)).toFixed(1)}`;
    };
    return `M${x},${y}L${edge(heading - hfov / 2)}A${length},${length} 0 0 0 ${edge(heading + hfov / 2)}Z`;
  }

  /* Where the right or the given answer is, and where it looks if it says that. */
  function placeOfAnswer([name, x, y, heading], length, hfov) {
    const made = drawn("g", { class: `answer ${name}` }, drawn("title", {}, ANSWERS[name].words));
    if (heading !== null) made.append(drawn("path", { d: cone(x, y, heading, length, hfov) }));
    made.append(drawn("circle", { cx: x, cy: y, r: name === "right" ? 7 : 13 }));
    return made;
  }

  /* Poses at one place, which share a disc. */
  function places(poses) {
    const groups = [];
    for (const [turn, x, y, heading] of poses) {
      const there = groups.find((group) => Math.hypot(group.x - x, group.y - y) < 9);
      if (there) there.poses.push([turn, heading]);
      else groups.push({ x, y, poses: [[turn, heading]] });
    }
    return groups;
  }

  function pose({ x, y, poses }, length, hfov) {
    const turns = poses.map(([turn]) => turn);
    const made = drawn("g", { class: "pose", "data-turns": turns.join(" ") });
    for (const [turn, heading] of poses) {
      const view = drawn("path", { class: "cone", d: cone(x, y, heading, length, hfov) });
      made.append(drawn("g", { class: "pose", "data-turns": turn }, view));
    }
    const consecutive = turns.every((turn, at) => at === 0 || turn === turns[at - 1] + 1);
    const label = turns.length > 2 && consecutive ? `${turns[0]}–${turns.at(-1)}` : turns.join(",");
    const half = Math.max(10, 4 * label.length + 4);
    const disc = drawn("rect", { class: "disc", x: x - half, y: y - 10, width: 2 * half, height: 20, rx: 10 });
    made.append(disc, drawn("text", { class: "number", x, y }, label), drawn("title", {}, `turn ${turns.join(", ")}`));
    made.addEventListener("click", () => document.getElementById(`turn-${turns[0]}`).scrollIntoView({ block: "center" }));
    return made;
  }

  addEventListener("keydown", (event) => {
    if (shown === null || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    const steps = { ArrowLeft: [-1, below], ArrowRight: [1, below], k: [-1, () => true], j: [1, () => true] };
    if (event.key === "Escape") back();
    else if (event.key in steps) {
      const to = next(shown, ...steps[event.key]);
      if (to) location.hash = to;
      event.preventDefault();
    }
  });

  /* Folds what a phone has no room for; a link to a section unfolds it. */
  function fold() {
    const parts = [...run.querySelectorAll("details.fold")];
    if (matchMedia("(max-width: 760px)").matches) {
      for (const part of parts) part.open = false;
    }
    run.addEventListener("click", (event) => {
      const link = event.target.closest('nav a[href^="#"]');
      const part = link && document.querySelector(`${link.hash} > details.fold`);
      if (part) part.open = true;
    });
  }

  addEventListener("DOMContentLoaded", () => {
    fold();
    const inline = document.getElementById("index");
    if (inline) index(JSON.parse(inline.textContent));
  });

  return { index, question, update };
})();
