"use strict";
// Draws a replay: the scan with WebGL 2, and the conversation beside it. World: metres, z up. `data` is what page.py wrote.

const data = JSON.parse(document.getElementById("data").textContent);
const turns = data.turns;
const byId = (id) => document.getElementById(id);
const NEAR_M = 0.03, PLAY_MS = 1500, FIELD_OF_VIEW = 0.9, CLICK_PX = 5, PICK_PX = 30;
const BLUE = [0.15, 0.39, 0.92], ORANGE = [0.92, 0.45, 0.05], GREY = [0.55, 0.58, 0.62];

let current = 0;
let throughCamera = false;

// Vectors, and 4 x 4 matrices by columns, as WebGL takes them.

const add = (a, b) => a.map((x, i) => x + b[i]);
const scaled = (a, s) => a.map((x) => x * s);
const minus = (a, b) => a.map((x, i) => x - b[i]);
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => scaled(a, 1 / (Math.hypot(...a) || 1));

function product(a, b) {
  const out = new Float32Array(16);
  for (let column = 0; column < 4; column++)
    for (let row = 0; row < 4; row++)
      for (let k = 0; k < 4; k++) out[4 * column + row] += a[4 * k + row] * b[4 * column + k];
  return out;
}

function perspective(verticalHalf, aspect, near, far) {
  return [1 / (verticalHalf * aspect), 0, 0, 0, 0, 1 / verticalHalf, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0,
    (2 * far * near) / (near - far), 0];
}

function looking(eye, ahead, up) {
  const z = scaled(unit(ahead), -1), x = unit(cross(up, z)), y = cross(z, x);
  return [x[0], y[0], z[0], 0, x[1], y[1], z[1], 0, x[2], y[2], z[2], 0, -dot(x, eye), -dot(y, eye), -dot(z, eye), 1];
}

// The observer: outside, turning around a place, or at a turn's camera.

const middle = scaled(add(data.scan.room_lower, data.scan.room_upper), 0.5);
const size = Math.hypot(...minus(data.scan.room_upper, data.scan.room_lower));
const wide = data.scan.room_upper[0] - data.scan.room_lower[0] >= data.scan.room_upper[1] - data.scan.room_lower[1];
const startingOrbit = () => ({ target: [...middle], distance: size, yaw: (wide ? 0.5 : 1) * Math.PI - 0.15, pitch: 1.1 });
let orbit = startingOrbit();

// The matrix from world to clip coordinates.
function observed(aspect) {
  if (throughCamera) {
    const { eye, ahead, down, half } = turns[current];
    const view = looking(eye, ahead, scaled(down, -1));
    return product(perspective(verticalHalf(half, aspect), aspect, NEAR_M, 10 * size), view);
  }
  const ahead = orbitAhead();
  const eye = minus(orbit.target, scaled(ahead, orbit.distance));
  const up = orbit.pitch > 1.5 ? [Math.cos(orbit.yaw), Math.sin(orbit.yaw), 0] : [0, 0, 1];
  const vertical = Math.tan(FIELD_OF_VIEW / 2) * Math.max(1, 1 / aspect);
  const view = looking(eye, ahead, up);
  return product(perspective(vertical, aspect, orbit.distance / 100, orbit.distance + 10 * size), view);
}

// Half the height of what a canvas shows at distance 1, so that the whole view of a turn fits.
const verticalHalf = (half, aspect) => Math.max(half[1], half[0] / aspect);

function orbitAhead() {
  const level = Math.cos(orbit.pitch);
  return [level * Math.cos(orbit.yaw), level * Math.sin(orbit.yaw), -Math.sin(orbit.pitch)];
}

// Drawing.

const canvas = byId("canvas");
const gl = canvas.getContext("webgl2", { antialias: true });
let scan = null, draw = () => {};

const VERTEX = `#version 300 es
layout(location = 0) in vec3 place;
layout(location = 1) in vec3 colour;
layout(location = 2) in vec2 uv;
uniform mat4 matrix;
uniform vec3 lower, extent;
uniform float pointPx;
out vec3 tint;
out vec2 at;
out float height;
void main() {
  vec3 world = lower + place * extent;
  gl_Position = matrix * vec4(world, 1.0);
  gl_PointSize = max(2.0, pointPx / gl_Position.w);
  tint = colour; at = uv; height = world.z;
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec3 tint;
in vec2 at;
in float height;
uniform float cut;
uniform bool textured;
uniform sampler2D view;
out vec4 result;
void main() {
  if (height > cut) discard;
  result = vec4(textured ? texture(view, at).rgb : tint, 1.0);
}`;

function program() {
  const made = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made));
  return made;
}

function buffer(values, target = gl.ARRAY_BUFFER) {
  const made = gl.createBuffer();
  gl.bindBuffer(target, made);
  gl.bufferData(target, values, gl.STATIC_DRAW);
  return made;
}

function attribute(location, values, width, type, normalized) {
  buffer(values);
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, width, type, normalized, 0, 0);
}

async function unpacked(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

// page.py explains the numbers in `_packed_mesh`.
async function loadScan() {
  const [steps, columns, bytes] = await Promise.all([
    unpacked(data.scan.places, Uint16Array), unpacked(data.scan.colours, Uint8Array), unpacked(data.scan.faces, Uint8Array)]);
  const vertices = steps.length / 3, triangles = bytes.length / 12;
  const places = new Uint16Array(steps.length), colours = new Uint8Array(steps.length), faces = new Uint32Array(3 * triangles);
  for (let axis = 0; axis < 3; axis++)
    for (let i = 0, place = 0; i < vertices; i++) {
      places[3 * i + axis] = place += steps[axis * vertices + i]; // modulo 2 ** 16
      colours[3 * i + axis] = columns[axis * vertices + i];
    }
  const step = (column, i) => [3, 2, 1, 0].reduce((value, each) => 256 * value + bytes[(4 * column + each) * triangles + i], 0);
  for (let i = 0, first = 0; i < triangles; i++) {
    first += step(0, i);
    faces.set([first, first + step(1, i), first + step(2, i)], 3 * i);
  }
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  attribute(0, places, 3, gl.UNSIGNED_SHORT, true);
  attribute(1, colours, 3, gl.UNSIGNED_BYTE, true);
  buffer(faces, gl.ELEMENT_ARRAY_BUFFER);
  gl.bindVertexArray(null);
  return { array, faces: faces.length, points: vertices };
}

// A bar with a square profile for each edge: WebGL draws lines one pixel wide.
function bars(edges, thickness) {
  const triangles = [];
  for (const [a, b] of edges) {
    const along = unit(minus(b, a));
    const side = unit(cross(along, Math.abs(along[2]) > 0.9 ? [1, 0, 0] : [0, 0, 1])), other = cross(along, side);
    const ring = [[1, 1], [-1, 1], [-1, -1], [1, -1]].map(([s, t]) => add(scaled(side, s * thickness), scaled(other, t * thickness)));
    ring.forEach((corner, i) => {
      const next = ring[(i + 1) % 4];
      triangles.push(add(a, corner), add(b, corner), add(b, next), add(a, corner), add(b, next), add(a, next));
    });
  }
  return new Float32Array(triangles.flat());
}

function shape(values, uvs = null) {
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  attribute(0, values, 3, gl.FLOAT, false);
  if (uvs) attribute(2, uvs, 2, gl.FLOAT, false);
  gl.bindVertexArray(null);
  return { array, count: values.length / 3 };
}

function cameraShapes(turn) {
  const [a, b, c, d] = turn.corners, length = Math.hypot(...minus(a, turn.eye));
  const edges = [[turn.eye, a], [turn.eye, b], [turn.eye, c], [turn.eye, d], [a, b], [b, c], [c, d], [d, a]];
  const made = { edges: shape(bars(edges, length / 90)), strong: shape(bars(edges, length / 45)), image: null, view: null };
  if (turn.view) {
    made.image = shape(new Float32Array([a, b, c, a, c, d].flat()), new Float32Array([0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1]));
    made.view = gl.createTexture();
    const image = new Image();
    image.onload = () => {
      gl.bindTexture(gl.TEXTURE_2D, made.view);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, gl.RGB, gl.UNSIGNED_BYTE, image);
      gl.generateMipmap(gl.TEXTURE_2D);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR_MIPMAP_LINEAR);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE);
      made.ready = true;
      draw();
    };
    image.src = turn.view;
  }
  return made;
}

async function startDrawing() {
  const used = program();
  const at = Object.fromEntries(["matrix", "lower", "extent", "pointPx", "cut", "textured"].map((name) =>
    [name, gl.getUniformLocation(used, name)]));
  scan = await loadScan();
  const thickness = size / 500;
  const cameras = turns.map(cameraShapes);
  const steps = turns.slice(1).map((turn, i) => shape(bars([[turns[i].eye, turn.eye]], thickness)));
  let asked = false;
  const paint = () => {
    asked = false;
    const ratio = window.devicePixelRatio || 1, { clientWidth, clientHeight } = canvas;
    if (!clientWidth || !clientHeight) return;
    canvas.width = Math.round(clientWidth * ratio);
    canvas.height = Math.round(clientHeight * ratio);
    const aspect = clientWidth / clientHeight, matrix = observed(aspect);
    const back = window.matchMedia("(prefers-color-scheme: dark)").matches ? 0.09 : 1;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(back, back, back, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.useProgram(used);
    gl.uniformMatrix4fv(at.matrix, false, matrix);
    gl.uniform3fv(at.lower, data.scan.lower);
    gl.uniform3fv(at.extent, data.scan.extent);
    gl.uniform1f(at.pointPx, data.scan.point_m * canvas.height * 1.5);
    gl.uniform1f(at.cut, throughCamera || byId("ceiling").checked ? 1e9 : data.scan.cut_z);
    gl.uniform1i(at.textured, 0);
    gl.bindVertexArray(scan.array);
    if (scan.faces) gl.drawElements(gl.TRIANGLES, scan.faces, gl.UNSIGNED_INT, 0);
    else gl.drawArrays(gl.POINTS, 0, scan.points);
    gl.uniform3f(at.lower, 0, 0, 0);
    gl.uniform3f(at.extent, 1, 1, 1);
    gl.uniform1f(at.cut, 1e9);
    if (!throughCamera) {
      steps.forEach((step, i) => drawPlain(step, i < current ? BLUE : GREY));
      cameras.forEach((camera, i) => {
        const chosen = i === current;
        drawPlain(chosen ? camera.strong : camera.edges, chosen ? ORANGE : i < current ? BLUE : GREY);
        if (camera.ready && i <= current) {
          gl.uniform1i(at.textured, 1);
          gl.bindTexture(gl.TEXTURE_2D, camera.view);
          gl.bindVertexArray(camera.image.array);
          gl.drawArrays(gl.TRIANGLES, 0, camera.image.count);
          gl.uniform1i(at.textured, 0);
        }
      });
    }
    gl.bindVertexArray(null);
    placeLabels(matrix, clientWidth, clientHeight);
    placeFrame(clientWidth, clientHeight);
  };
  function drawPlain(what, colour) {
    gl.bindVertexArray(what.array);
    gl.vertexAttrib3fv(1, colour);
    gl.drawArrays(gl.TRIANGLES, 0, what.count);
  }
  draw = () => {
    if (!asked) requestAnimationFrame(paint);
    asked = true;
  };
  new ResizeObserver(draw).observe(canvas);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  draw();
}

// Where a place is on the canvas, in CSS pixels; null behind the observer.
function onScreen(place, matrix, width, height) {
  const [x, y, , w] = [0, 1, 2, 3].map((row) => matrix[row] * place[0] + matrix[4 + row] * place[1] + matrix[8 + row] * place[2] + matrix[12 + row]);
  return w > 0 ? [(x / w + 1) / 2 * width, (1 - y / w) / 2 * height] : null;
}

const labelPlace = (turn) => scaled(add(turn.corners[0], turn.corners[1]), 0.5); // above the view
const labels = turns.map((turn) => {
  const label = document.createElement("span");
  label.textContent = turn.turn;
  byId("labels").append(label);
  return label;
});

function placeLabels(matrix, width, height) {
  labels.forEach((label, i) => {
    const at = throughCamera ? null : onScreen(labelPlace(turns[i]), matrix, width, height);
    label.hidden = !at;
    label.classList.toggle("current", i === current);
    label.style.zIndex = i === current ? 1 : 0;
    if (at) label.style.transform = `translate(${at[0]}px, ${at[1]}px) translate(-50%, -100%)`;
  });
}

// Around what the camera saw: the canvas shows more above and below, or on both sides.
function placeFrame(width, height) {
  const frame = byId("frame"), { half } = turns[current], vertical = verticalHalf(half, width / height);
  frame.hidden = !throughCamera;
  frame.style.width = `${(height * half[0]) / vertical}px`;
  frame.style.height = `${(height * half[1]) / vertical}px`;
}

// Moving the observer: one pointer turns, the right button or two fingers move, the wheel or a pinch zooms.

const pointers = new Map();
let moved = 0;

function pan(dx, dy) {
  const ahead = orbitAhead(), right = unit(cross(ahead, [0, 0, 1])), up = cross(right, ahead);
  const metres = (2 * Math.tan(FIELD_OF_VIEW / 2) * orbit.distance) / canvas.clientHeight;
  orbit.target = add(orbit.target, add(scaled(right, -dx * metres), scaled(up, dy * metres)));
}

function zoom(factor) {
  orbit.distance = Math.min(Math.max(orbit.distance * factor, size / 50), size * 5);
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
  moved = 0;
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return;
  const here = [event.clientX, event.clientY], [dx, dy] = minus(here, before);
  moved += Math.abs(dx) + Math.abs(dy);
  if (moved > CLICK_PX && throughCamera) look(false);
  if (pointers.size === 2) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
    zoom(Math.hypot(...minus(before, other)) / (Math.hypot(...minus(here, other)) || 1));
    pan(dx / 2, dy / 2);
  } else if (event.buttons & 2 || event.shiftKey) pan(dx, dy);
  else {
    orbit.yaw -= dx * 0.007;
    orbit.pitch = Math.min(Math.max(orbit.pitch + dy * 0.007, -1.5), 1.55);
  }
  pointers.set(event.pointerId, here);
  draw();
});
canvas.addEventListener("pointerup", (event) => {
  pointers.delete(event.pointerId);
  if (moved <= CLICK_PX && !throughCamera) pick(event);
});
canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (throughCamera) look(false);
  zoom(Math.exp(event.deltaY * 0.001));
  draw();
}, { passive: false });

function pick(event) {
  const box = canvas.getBoundingClientRect(), matrix = observed(box.width / box.height);
  const place = [event.clientX - box.left, event.clientY - box.top];
  const distances = turns.map((turn) => {
    const centre = scaled(turn.corners.reduce(add), 0.25), at = onScreen(centre, matrix, box.width, box.height);
    return at ? Math.hypot(...minus(at, place)) : Infinity;
  });
  const nearest = distances.indexOf(Math.min(...distances));
  if (distances[nearest] < PICK_PX) show(nearest);
}

function look(through) {
  throughCamera = through;
  byId("through").setAttribute("aria-pressed", through);
  byId("above").setAttribute("aria-pressed", !through);
  draw();
}

// The conversation. All text is set as text, never as markup.

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function folded(title, text, className) {
  const made = element("details");
  made.append(element("summary", title), element("p", text, className));
  return made;
}

function writeQuestion() {
  const { text, options, scene, type, id, truth, unit, answer, score, status, error } = data.question, header = byId("question");
  const list = element("ul");
  list.append(...options.map((option) => element("li", option)));
  header.append(element("h1", text), list);
  const withUnit = (value) => unit && unit !== "objects" ? `${value} ${unit}` : value;
  const outcome = answer === null ? `No answer: ${status}` : `Answer: ${withUnit(answer)}`;
  const verdict = element("p", outcome, score === null ? "" : score >= 0.5 ? "right" : "wrong");
  if (score !== null) verdict.append(`, score ${score.toFixed(2).replace(/\.?0+$/, "")}`);
  header.append(verdict);
  if (truth !== null) header.append(element("p", `Truth: ${withUnit(truth)}`));
  if (error) header.append(element("p", error, "wrong"));
  header.append(element("p", `${data.title} · ${scene} · ${type} · id ${id}`, "quiet"));
  data.system.forEach((message) => header.append(folded("System message", message, "system")));
}

function writeTurn(turn, place) {
  const item = element("li"), heading = element("h2"), button = element("button", `Turn ${turn.turn}`), facts = element("dl");
  button.addEventListener("click", () => show(place));
  heading.append(button, element("span", ` ${turn.place}`, "quiet"));
  item.append(heading);
  if (turn.view) {
    const image = element("img");
    image.src = turn.view;
    image.style.aspectRatio = turn.half[0] / turn.half[1]; // known before the image is, so that scrolling lands right
    image.alt = `View of turn ${turn.turn} from ${turn.place}`;
    image.addEventListener("click", () => show(place));
    item.append(image);
  } else item.append(element("p", turn.no_view, "wrong"));
  if (turn.told) item.append(folded("What the model read", turn.told, "told"));
  if (turn.said) item.append(element("p", turn.said, "said"));
  const fact = (name, value, className = "") => value && facts.append(element("dt", name), element("dd", value, className));
  fact("Action", turn.action);
  fact("Camera", turn.camera);
  turn.clamped.forEach((each) => fact("Out of range", each, "wrong"));
  fact("Not understood", turn.error, "wrong");
  if (turn.truncated) fact("Truncated", "the reply reached the token limit", "wrong");
  item.append(facts);
  return item;
}

// The timeline.

let playing = null;

function show(place) {
  current = Math.min(Math.max(place, 0), turns.length - 1);
  byId("slider").value = current;
  byId("now").textContent = `turn ${turns[current].turn} of ${turns[turns.length - 1].turn}`;
  byId("previous").disabled = current === 0;
  byId("next").disabled = current === turns.length - 1;
  [...byId("turns").children].forEach((item, i) => item.classList.toggle("current", i === current));
  const item = byId("turns").children[current], talk = byId("talk");
  talk.scrollTop = current ? item.offsetTop - talk.offsetTop - 8 : 0;
  history.replaceState(null, "", `#${turns[current].turn}`);
  draw();
}

function play(on) {
  clearInterval(playing);
  playing = null;
  if (on) {
    if (current === turns.length - 1) show(0);
    playing = setInterval(() => (current < turns.length - 1 ? show(current + 1) : play(false)), PLAY_MS);
  }
  byId("play").textContent = on ? "Pause" : "Play";
  byId("play").setAttribute("aria-pressed", Boolean(on));
}

function go(place) {
  play(false);
  show(place);
}

document.title = data.title;
byId("about").textContent = data.scan.about;
byId("slider").max = turns.length - 1;
byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
byId("previous").addEventListener("click", () => go(current - 1));
byId("next").addEventListener("click", () => go(current + 1));
byId("play").addEventListener("click", () => play(!playing));
byId("ceiling").addEventListener("change", () => draw());
byId("through").addEventListener("click", () => look(true));
byId("above").addEventListener("click", () => {
  orbit = startingOrbit();
  look(false);
});
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowRight") go(current + 1);
  else if (event.key === "ArrowLeft") go(current - 1);
  else if (event.key === "c") look(!throughCamera);
  else if (event.key === "o") byId("above").click();
});
writeQuestion();
byId("turns").append(...turns.map(writeTurn));
const named = turns.findIndex((turn) => `#${turn.turn}` === location.hash);
show(Math.max(named, 0));
function refuse(reason) {
  byId("failed").textContent = `This browser cannot draw the scan (${reason}). The conversation is complete.`;
  byId("failed").hidden = false;
}
if (gl) startDrawing().catch((error) => refuse(error.message));
else refuse("it has no WebGL 2");
