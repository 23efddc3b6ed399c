"use strict";
/* Draws the scan of a replay, the camera's path and its views with WebGL 2. World: metres, z up. */
const makeRoom = (() => {
  const NEAR_M = 0.03, FIELD_OF_VIEW = 0.9, CLICK_PX = 5, PICK_PX = 30, EVERYTHING_M = 1e9;
  const BLUE = [0.15, 0.39, 0.92], ORANGE = [0.92, 0.45, 0.05], GREY = [0.55, 0.58, 0.62], RED = [0.82, 0.12, 0.18], PURPLE = [0.78, 0.13, 0.72], GREEN = [0.04, 0.55, 0.22], GOLD = [0.85, 0.65, 0], TEAL = [0, 0.55, 0.6];
  const HIDDEN_OPACITY = 0.35, SAME_PLACE_M = 0.05, MARKER_M = 0.08, PIN_M = 0.9;

  /* Vectors, and 4 x 4 matrices by columns, as WebGL takes them */

  const add = (a, b) => a.map((x, i) => x + b[i]);
  const minus = (a, b) => a.map((x, i) => x - b[i]);
  const scaled = (a, factor) => a.map((x) => x * factor);
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
    return [1 / (verticalHalf * aspect), 0, 0, 0, 0, 1 / verticalHalf, 0, 0, 0, 0, (far + near) / (near - far), -1,
      0, 0, (2 * far * near) / (near - far), 0];
  }

  function looking(eye, ahead, up) {
    const z = scaled(unit(ahead), -1), x = unit(cross(up, z)), y = cross(z, x);
    return [x[0], y[0], z[0], 0, x[1], y[1], z[1], 0, x[2], y[2], z[2], 0, -dot(x, eye), -dot(y, eye), -dot(z, eye), 1];
  }

  /* Where a place is on a canvas, in CSS pixels; null behind the observer. */
  function onScreen(place, matrix, width, height) {
    const [x, y, , w] = [0, 1, 2, 3].map((row) => dot([matrix[row], matrix[4 + row], matrix[8 + row]], place) + matrix[12 + row]);
    return w > 0 ? [((x / w + 1) / 2) * width, ((1 - y / w) / 2) * height] : null;
  }

  /* Shaders and buffers */

  const VERTEX = `#version 300 es
    layout(location = 0) in vec3 place;
    layout(location = 1) in vec3 colour;
    layout(location = 2) in vec2 uv;
    uniform mat4 matrix;
    uniform vec3 lower;
    uniform float extent, pointPx;
    out vec3 tint;
    out vec2 at;
    out vec3 world;
    void main() {
      world = lower + place * extent;
      gl_Position = matrix * vec4(world, 1.0);
      gl_PointSize = max(2.0, pointPx / gl_Position.w);
      tint = colour;
      at = uv;
    }`;
  const FRAGMENT = `#version 300 es
    precision highp float;
    in vec3 tint;
    in vec2 at;
    in vec3 world;
    uniform float cut, wall, cell;
    uniform vec2 insideFrom, eye;
    uniform sampler2D inside;
    uniform bool textured;
    uniform float opacity;
    uniform sampler2D view;
    out vec4 result;
    /* Whether a wall between the observer and the room: a little nearer to the observer, nothing of the room is left. */
    bool hides() {
      vec2 nearer = world.xy + min(0.12, distance(eye, world.xy)) * normalize(eye - world.xy);
      ivec2 at = ivec2(floor((nearer - insideFrom) / cell)), size = textureSize(inside, 0);
      bool outside = any(lessThan(at, ivec2(0))) || any(greaterThanEqual(at, size));
      return outside || texelFetch(inside, at, 0).r < 0.5;
    }
    void main() {
      if (world.z > cut) discard;
      if (world.z > wall && hides()) discard;
      result = vec4(textured ? texture(view, at).rgb : tint, 1.0) * opacity;
    }`;

  function makeProgram(gl) {
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

  function makeBuffer(gl, values, target) {
    gl.bindBuffer(target, gl.createBuffer());
    gl.bufferData(target, values, gl.STATIC_DRAW);
  }

  function attribute(gl, location, values, width, type, normalized) {
    makeBuffer(gl, values, gl.ARRAY_BUFFER);
    gl.enableVertexAttribArray(location);
    gl.vertexAttribPointer(location, width, type, normalized, 0, 0);
  }

  function shape(gl, values, uvs = null) {
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    attribute(gl, 0, values, 3, gl.FLOAT, false);
    if (uvs) attribute(gl, 2, uvs, 2, gl.FLOAT, false);
    return { array, count: values.length / 3 };
  }

  /* A bar with a square profile for each edge: WebGL draws lines one pixel wide. */
  function bars(edges, thickness) {
    const triangles = [];
    for (const [a, b] of edges) {
      const along = unit(minus(b, a));
      const side = unit(cross(along, Math.abs(along[2]) > 0.9 ? [1, 0, 0] : [0, 0, 1])), other = cross(along, side);
      const ring = [[1, 1], [-1, 1], [-1, -1], [1, -1]].map(([s, t]) => scaled(add(scaled(side, s), scaled(other, t)), thickness));
      ring.forEach((corner, i) => {
        const next = ring[(i + 1) % 4];
        triangles.push(add(a, corner), add(b, corner), add(b, next), add(a, corner), add(b, next), add(a, next));
      });
    }
    return new Float32Array(triangles.flat());
  }

  /* Unpacks what `packed` in page.py writes; its docstring explains the numbers. */
  async function unpacked(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Kind(await new Response(stream).arrayBuffer());
  }

  async function loadMesh(gl, mesh) {
    const [steps, columns, bytes] = await Promise.all([
      unpacked(mesh.places, Uint16Array), unpacked(mesh.colours, Uint8Array), unpacked(mesh.faces, Uint8Array)]);
    const vertices = steps.length / 3, triangles = bytes.length / 12;
    const places = new Uint16Array(steps.length), colours = new Uint8Array(steps.length), faces = new Uint32Array(3 * triangles);
    for (let axis = 0; axis < 3; axis++)
      for (let i = 0, place = 0; i < vertices; i++) {
        places[3 * i + axis] = place += steps[axis * vertices + i]; // modulo 2 ** 16
        colours[3 * i + axis] = columns[axis * vertices + i];
      }
    const step = (column, i) => {
      let value = 0;
      for (let byte = 3; byte >= 0; byte--) value = 256 * value + bytes[(4 * column + byte) * triangles + i];
      return value;
    };
    for (let i = 0, first = 0; i < triangles; i++) {
      first += step(0, i);
      faces[3 * i] = first;
      faces[3 * i + 1] = first + step(1, i);
      faces[3 * i + 2] = first + step(2, i);
    }
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    attribute(gl, 0, places, 3, gl.UNSIGNED_SHORT, true);
    attribute(gl, 1, colours, 3, gl.UNSIGNED_BYTE, true);
    makeBuffer(gl, faces, gl.ELEMENT_ARRAY_BUFFER);
    return { array, indices: faces.length, points: vertices };
  }

  /* The cells that are inside the room, as a texture: see `hides_of` in page.py. */
  async function loadInside(gl, { inside, columns }) {
    const cells = await unpacked(inside, Uint8Array), texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.R8, columns, cells.length / columns, 0, gl.RED, gl.UNSIGNED_BYTE, cells);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    return texture;
  }

  /* What is drawn of a turn: its camera, its view in the far end of it, and a move that was stopped. */
  function makeCamera(gl, turn, thickness, draw) {
    const { eye, corners: [a, b, c, d] } = turn.place, length = Math.hypot(...minus(a, eye));
    const edges = [[eye, a], [eye, b], [eye, c], [eye, d], [a, b], [b, c], [c, d], [d, a]];
    const made = {
      edges: shape(gl, bars(edges, length / 90)), strong: shape(gl, bars(edges, length / 45)), view: null, image: null,
      stop: turn.goal && shape(gl, bars([[turn.goal.from, turn.goal.to]], thickness)),
    };
    if (turn.view) {
      const image = new Image();
      image.onload = () => {
        const texture = gl.createTexture();
        gl.bindTexture(gl.TEXTURE_2D, texture);
        gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, gl.RGB, gl.UNSIGNED_BYTE, image);
        gl.generateMipmap(gl.TEXTURE_2D);
        gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR_MIPMAP_LINEAR);
        made.view = texture;
        draw();
      };
      made.image = shape(gl, new Float32Array([a, b, c, a, c, d].flat()), new Float32Array([0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1]));
      image.src = turn.view;
    }
    return made;
  }

  /* What is drawn of the place of an answer: the camera there with the photo, or a cross of bars. */
  function makeAnswer(gl, { place, point }, photo, thickness, draw) {
    if (place) {
      const top = scaled(add(place.corners[0], place.corners[1]), 0.5);
      return { ...makeCamera(gl, { place, view: photo, goal: null }, thickness, draw), top };
    }
    const arms = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((axis) => scaled(axis, MARKER_M));
    return { strong: shape(gl, bars(arms.map((arm) => [minus(point, arm), add(point, arm)]), 2 * thickness)), top: add(point, arms[2]) };
  }

  /* What is drawn of an object that is believed to be somewhere: a pin that stands there. */
  function makePin(gl, foot, thickness) {
    const top = add(foot, [0, 0, PIN_M]);
    return { bar: shape(gl, bars([[foot, top]], thickness)), top };
  }

  /* The turns by the place of their camera: lists of positions, of which those that turned on the spot share one. */
  function byPlace(turns) {
    const groups = [];
    turns.forEach((turn, i) => {
      const same = groups.find(([first]) => Math.hypot(...minus(turns[first].place.eye, turn.place.eye)) < SAME_PLACE_M);
      if (same) same.push(i);
      else groups.push([i]);
    });
    return groups;
  }

  /* What is drawn of an object: the edges of its box, which join the corners whose places differ in one bit. */
  function makeBox(gl, { corners }, thickness) {
    const edges = corners.flatMap((corner, i) => [1, 2, 4].filter((bit) => !(i & bit)).map((bit) => [corner, corners[i | bit]]));
    const middle = scaled(corners.reduce(add), 1 / corners.length);
    const top = [middle[0], middle[1], Math.max(...corners.map((corner) => corner[2]))];
    return { edges: shape(gl, bars(edges, thickness)), thin: shape(gl, bars(edges, thickness / 4)), top };
  }

  /* Draws into a canvas, with `labels` and a `frame` above it. `picked` is called with the place of a turn in `turns` that
     was clicked, `moved` when the observer leaves the turn's camera. Throws an Error if the browser cannot draw. */
  async function makeRoom({ canvas, labels, frame, scan, turns, objects, answers, photo, picked, moved }) {
    const gl = canvas.getContext("webgl2", { antialias: true });
    if (!gl) throw new Error("it has no WebGL 2");
    const middle = scaled(add(scan.room_lower, scan.room_upper), 0.5);
    const sides = minus(scan.room_upper, scan.room_lower), size = Math.hypot(...sides);
    const start = () => ({ target: middle, distance: 1.1 * size, yaw: (sides[0] >= sides[1] ? 0.5 : 1) * Math.PI - 0.15, pitch: 1.1 });
    let orbit = start(), current = 0, through = false, ceiling = false, boxed = true, asked = false;

    const program = makeProgram(gl);
    const at = Object.fromEntries(["matrix", "lower", "extent", "pointPx", "cut", "wall", "cell", "insideFrom", "eye", "inside", "textured", "opacity"].map((name) => [name, gl.getUniformLocation(program, name)]));
    const mesh = await loadMesh(gl, scan.mesh);
    const inside = await loadInside(gl, scan.hides);
    const cameras = turns.map((turn) => makeCamera(gl, turn, size / 700, draw));
    const path = turns.slice(1).map((turn, i) => shape(gl, bars([[turns[i].place.eye, turn.place.eye]], size / 500)));
    const boxes = objects.map((object) => makeBox(gl, object, size / 900));
    const objectTags = objects.map((object) => makeTag(object.name, object.unseen ? "object unseen" : "object"));
    const groups = byPlace(turns);
    const tags = groups.map(() => makeTag(""));
    const spokes = turns.map(({ place: { eye, corners } }) => shape(gl, bars([[eye, scaled(corners.reduce(add), 1 / corners.length)]], size / 900)));
    const endIsAnswer = answers.some(({ name, place }) => name === "given" && place);
    const marked = answers.filter(({ name, place }) => name === "right" || !place); // the others are the camera of the last turn
    const goals = marked.map((answer) => makeAnswer(gl, answer, answer.name === "right" ? photo : null, size / 700, draw));
    const pins = turns.map(({ believed }) => believed.map(({ foot }) => makePin(gl, foot, size / 700)));
    const pinTags = turns.map(({ believed }) => believed.map(({ name }) => makeTag(name, "believed")));
    const goalTags = marked.map(({ name }) => makeTag(name === "right" ? "right answer" : "answer given", name));

    function makeTag(text, css = "") {
      const tag = document.createElement("span");
      tag.textContent = text;
      tag.className = css;
      labels.append(tag);
      return tag;
    }

    /* The observer: outside, turning around a place, or at a turn's camera */

    const verticalHalf = (half, aspect) => Math.max(half[1], half[0] / aspect); // so that the whole view of a turn fits

    function orbitAhead() {
      const level = Math.cos(orbit.pitch);
      return [level * Math.cos(orbit.yaw), level * Math.sin(orbit.yaw), -Math.sin(orbit.pitch)];
    }

    const observer = () => minus(orbit.target, scaled(orbitAhead(), orbit.distance));

    /* Half the height of what the canvas shows at distance 1. */
    const verticalOf = (aspect) => (through ? verticalHalf(turns[current].place.half, aspect) : Math.tan(FIELD_OF_VIEW / 2) * Math.max(1, 1 / aspect));

    /* The matrix from world to clip coordinates. */
    function observed(aspect) {
      if (through) {
        const { eye, ahead, down } = turns[current].place;
        return product(perspective(verticalOf(aspect), aspect, NEAR_M, 10 * size), looking(eye, ahead, scaled(down, -1)));
      }
      return product(perspective(verticalOf(aspect), aspect, orbit.distance / 100, orbit.distance + 10 * size), looking(observer(), orbitAhead(), [0, 0, 1]));
    }

    function draw() {
      if (!asked) requestAnimationFrame(paint);
      asked = true;
    }

    function paint() {
      asked = false;
      const { clientWidth: width, clientHeight: height } = canvas, ratio = window.devicePixelRatio || 1;
      if (!width || !height) return;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.background = through ? scan.background : ""; // behind holes, as the camera saw them
      const matrix = observed(width / height);
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      gl.enable(gl.DEPTH_TEST);
      gl.useProgram(program);
      gl.uniformMatrix4fv(at.matrix, false, matrix);
      gl.uniform3fv(at.lower, scan.mesh.lower);
      gl.uniform1f(at.extent, scan.mesh.extent);
      gl.uniform1f(at.pointPx, (scan.point_m * canvas.height) / (2 * verticalOf(width / height)));
      const whole = through || ceiling;
      gl.uniform1f(at.cut, whole ? EVERYTHING_M : scan.hides.cut_z);
      gl.uniform1f(at.wall, whole ? EVERYTHING_M : scan.hides.wall_z);
      gl.uniform1f(at.cell, scan.hides.cell);
      gl.uniform2fv(at.insideFrom, scan.hides.lower);
      gl.uniform2fv(at.eye, observer().slice(0, 2));
      gl.uniform1i(at.inside, 1);
      gl.activeTexture(gl.TEXTURE1);
      gl.bindTexture(gl.TEXTURE_2D, inside);
      gl.activeTexture(gl.TEXTURE0);
      gl.uniform1i(at.textured, 0);
      gl.uniform1f(at.opacity, 1);
      gl.bindVertexArray(mesh.array);
      if (mesh.indices) gl.drawElements(gl.TRIANGLES, mesh.indices, gl.UNSIGNED_INT, 0);
      else gl.drawArrays(gl.POINTS, 0, mesh.points);
      gl.uniform3f(at.lower, 0, 0, 0);
      gl.uniform1f(at.extent, 1);
      gl.uniform1f(at.cut, EVERYTHING_M);
      gl.uniform1f(at.wall, EVERYTHING_M);
      if (!through) paintCameras();
      if (boxed) paintBoxes();
      gl.bindVertexArray(null);
      placeLabels(matrix, width, height);
      placeFrame(width, height);
    }

    /* The boxes, with fainter edges where something hides them. */
    function paintBoxes() {
      const paintAll = () => boxes.forEach((box, i) => paintPlain(through ? box.thin : box.edges, objects[i].unseen ? RED : PURPLE));
      paintAll();
      gl.enable(gl.BLEND);
      gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
      gl.depthMask(false);
      gl.depthFunc(gl.GREATER);
      gl.uniform1f(at.opacity, HIDDEN_OPACITY);
      paintAll();
      gl.depthFunc(gl.LESS);
      gl.depthMask(true);
      gl.disable(gl.BLEND);
    }

    /* Of several turns at one place, the current or the latest one is a camera, and the others are spokes. */
    function paintCameras() {
      path.forEach((step, i) => paintPlain(step, i < current ? BLUE : GREY));
      const colourOf = (i) => (i === current ? ORANGE : i < current ? BLUE : GREY);
      for (const group of groups) {
        const whole = wholeOf(group);
        for (const i of group) {
          const { strong, edges, stop } = cameras[i];
          const camera = i === current ? strong : edges;
          paintPlain(i === whole ? camera : spokes[i], colourOf(i));
          if (stop && i <= current) paintPlain(stop, RED);
        }
        if (whole <= current) paintView(cameras[whole]);
      }
      if (boxed) pins[current].forEach(({ bar }) => paintPlain(bar, TEAL));
      marked.forEach(({ name }, i) => {
        paintPlain(goals[i].strong, name === "right" ? GREEN : GOLD);
        paintView(goals[i]);
      });
    }

    const wholeOf = (group) => (group.includes(current) ? current : group.findLast((i) => i < current) ?? group[0]);

    function paintView({ view, image }) {
      if (!view) return;
      gl.uniform1i(at.textured, 1);
      gl.bindTexture(gl.TEXTURE_2D, view);
      gl.bindVertexArray(image.array);
      gl.drawArrays(gl.TRIANGLES, 0, image.count);
      gl.uniform1i(at.textured, 0);
    }

    /* The turns at a place, such as "3–5", after the current one if it is among them. */
    function namesOf(group) {
      const numbers = group.map((i) => turns[i].turn);
      const inRow = numbers.every((number, at) => at === 0 || number === numbers[at - 1] + 1);
      const all = inRow && numbers.length > 1 ? `${numbers[0]}–${numbers.at(-1)}` : numbers.join(", ");
      const named = group.length > 1 && group.includes(current) ? `${turns[current].turn} of ${all}` : all;
      return endIsAnswer && group.includes(turns.length - 1) ? `${named}: answer given` : named;
    }

    function paintPlain(what, colour) {
      gl.bindVertexArray(what.array);
      gl.vertexAttrib3fv(1, colour);
      gl.drawArrays(gl.TRIANGLES, 0, what.count);
    }

    function placeLabels(matrix, width, height) {
      tags.forEach((tag, i) => {
        const { corners } = turns[wholeOf(groups[i])].place, above = scaled(add(corners[0], corners[1]), 0.5);
        tag.textContent = namesOf(groups[i]);
        tag.classList.toggle("current", groups[i].includes(current));
        placeTag(tag, through ? null : onScreen(above, matrix, width, height));
      });
      pinTags.forEach((tags, turn) => tags.forEach((tag, i) => {
        placeTag(tag, through || !boxed || turn !== current ? null : onScreen(pins[turn][i].top, matrix, width, height));
      }));
      goalTags.forEach((tag, i) => placeTag(tag, through ? null : onScreen(goals[i].top, matrix, width, height)));
      objectTags.forEach((tag, i) => placeTag(tag, boxed ? onScreen(boxes[i].top, matrix, width, height) : null));
    }

    /* Put a label above a place; hide it without one. */
    function placeTag(tag, place) {
      tag.hidden = !place;
      if (place) tag.style.transform = `translate(${place[0]}px, ${place[1]}px) translate(-50%, -100%)`;
    }

    /* Around what the camera saw: the canvas shows more above and below it, or on both sides. */
    function placeFrame(width, height) {
      const { half } = turns[current].place, vertical = verticalHalf(half, width / height);
      frame.hidden = !through;
      frame.style.width = `${(height * half[0]) / vertical}px`;
      frame.style.height = `${(height * half[1]) / vertical}px`;
    }

    /* One pointer turns, the right button or two fingers move, the wheel or a pinch zooms. */

    const pointers = new Map();
    let dragged = 0;

    function leaveCamera() {
      if (!through) return;
      through = false;
      moved();
    }

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
      dragged = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const here = [event.clientX, event.clientY], [dx, dy] = minus(here, before);
      dragged += Math.abs(dx) + Math.abs(dy);
      if (dragged > CLICK_PX) leaveCamera();
      if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        zoom(Math.hypot(...minus(before, other)) / (Math.hypot(...minus(here, other)) || 1));
        pan(dx / 2, dy / 2);
      } else if (event.buttons & 2 || event.shiftKey) pan(dx, dy);
      else {
        orbit.yaw -= dx * 0.007;
        orbit.pitch = Math.min(Math.max(orbit.pitch + dy * 0.007, -1.5), 1.5);
      }
      pointers.set(event.pointerId, here);
      draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      pointers.delete(event.pointerId);
      if (dragged <= CLICK_PX && !through) pick(event);
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      leaveCamera();
      zoom(Math.exp(event.deltaY * 0.001));
      draw();
    }, { passive: false });

    function pick(event) {
      const box = canvas.getBoundingClientRect(), matrix = observed(box.width / box.height);
      const distances = turns.map((turn) => {
        const place = onScreen(scaled(turn.place.corners.reduce(add), 0.25), matrix, box.width, box.height);
        return place ? Math.hypot(place[0] + box.left - event.clientX, place[1] + box.top - event.clientY) : Infinity;
      });
      const nearest = distances.indexOf(Math.min(...distances));
      if (distances[nearest] < PICK_PX) picked(nearest);
    }

    new ResizeObserver(draw).observe(canvas);
    return {
      show(place) { current = place; draw(); },
      lookThrough(camera) { through = camera; draw(); },
      overview() { through = false; orbit = start(); draw(); },
      withCeiling(shown) { ceiling = shown; draw(); },
      withObjects(shown) { boxed = shown; draw(); },
    };
  }

  return makeRoom;
})();
