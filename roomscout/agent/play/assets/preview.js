/* What a composed move looks like from above, and where the view was clicked. */
const SVG = "http://www.w3.org/2000/svg";
const REACH_PX = 30;

function drawn(tag, attributes, ...inside) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

/* The places to which a move leads from above, metres with y down, and the last heading in degrees to the right. */
function pathOf(parts) {
  const places = [[0, 0]];
  let heading = 0;
  for (const { way, side, amount } of parts) {
    const signed = side === "plus" ? amount : -amount;
    const [x, y] = places.at(-1);
    const angle = (heading * Math.PI) / 180;
    if (way === "rotation_angle_degrees") heading -= signed;
    if (way === "forward_meters") places.push([x + signed * Math.sin(angle), y - signed * Math.cos(angle)]);
    if (way === "left_meters") places.push([x - signed * Math.cos(angle), y - signed * Math.sin(angle)]);
  }
  return { places, heading };
}

/* The move from above: a pale arrow where one looks now, and a strong one where one is going to. */
function compass(parts) {
  const { places, heading } = pathOf(parts);
  const farthest = Math.max(1, ...places.map(([x, y]) => Math.hypot(x, y)));
  const scaled = places.map(([x, y]) => [(x / farthest) * REACH_PX, (y / farthest) * REACH_PX]);
  const arrow = (className, [x, y], degrees) => drawn("path", { class: className, d: "M0-13 L8 9 L0 4 L-8 9 Z", transform: `translate(${x} ${y}) rotate(${degrees})` });
  const words = parts.length ? say("move.preview", { move: moveInWords(parts, false) }) : say("move.preview_none");
  const picture = drawn("svg", { viewBox: "-46 -46 92 92", role: "img", "aria-label": words });
  picture.append(drawn("circle", { class: "ground", r: 44 }), arrow("now", [0, 0], 0));
  if (parts.length) {
    picture.append(drawn("polyline", { class: "path", points: scaled.map((place) => place.join(",")).join(" ") }));
    picture.append(arrow("then", scaled.at(-1), heading));
  }
  return picture;
}

/* Mark pixels of an image in its figure. */
function markPoints(figure, points) {
  figure.querySelectorAll(".mark").forEach((mark) => mark.remove());
  const { naturalWidth, naturalHeight } = figure.querySelector("img");
  for (const [x, y] of points) {
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.style.left = `${(100 * x) / naturalWidth}%`;
    mark.style.top = `${(100 * y) / naturalHeight}%`;
    figure.querySelector(".frame").append(mark);
  }
}
