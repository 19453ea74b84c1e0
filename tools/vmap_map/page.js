// SPDX-License-Identifier: GPL-2.0
// Draws the tiles of snapshots. A tile is [kind, start, bytes, unit, runs, cpu, current, slot]; a run is [letter, cells, owner].
const STATES = {
  "B": ["#0072B2", "busy, first page of an area"], "b": ["#56B4E9", "busy"], "u": ["#CC79A7", "leaving"], "l": ["#E69F00", "lazy"],
  "f": ["#F0E442", "being flushed"], ".": ["#e4e4e4", "free in a block"], "?": ["#666666", "changing"],
  "!": ["#D55E00", "leaked"], "-": ["#009E73", "behind the last slot"], " ": ["#ffffff", "not reserved"],
};
const ROW = 32, ROWS = 16;
let data, cell = 4, wanted = "";

const size_text = bytes => {
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return (bytes >= 100 || bytes === Math.round(bytes) ? bytes.toFixed(0) : bytes.toFixed(1)) + [" B", " KiB", " MiB", " GiB", " TiB"][unit];
};
const hex = value => "0x" + value.toString(16);

// A cell in the colour of its state, with a pattern where there is room: stripe lazy, cross flushed, dot behind the last slot, upright bar
// leaving, level bar changing or leaked.
function draw_cell(ctx, x, y, s, letter, dim) {
  const grid = s >= 5 ? 1 : 0;
  ctx.globalAlpha = dim ? 0.22 : 1;
  ctx.fillStyle = STATES[letter][0];
  ctx.fillRect(x, y, s - grid, s - grid);
  if (s >= 4) {
    const e = s - grid;
    ctx.strokeStyle = "#000"; ctx.lineWidth = s >= 8 ? 1.5 : 1;
    ctx.beginPath();
    if (letter === "l" || letter === "f") { ctx.moveTo(x, y + e); ctx.lineTo(x + e, y); }
    if (letter === "f") { ctx.moveTo(x, y); ctx.lineTo(x + e, y + e); }
    if (letter === "u") { ctx.moveTo(x + e / 2, y); ctx.lineTo(x + e / 2, y + e); }
    if (letter === "?" || letter === "!") { ctx.moveTo(x, y + e / 2); ctx.lineTo(x + e, y + e / 2); }
    if (letter === "-") { ctx.rect(x + e / 2 - 0.5, y + e / 2 - 0.5, 1, 1); }
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
}

function draw_tile(canvas, tile) {
  const ratio = window.devicePixelRatio || 1, wide = tile[0] === "fold" ? 8 : ROW;
  canvas.width = wide * cell * ratio; canvas.height = ROWS * cell * ratio;
  canvas.style.width = wide * cell + "px"; canvas.style.height = ROWS * cell + "px";
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  let at = 0;
  for (const [letter, cells, owner] of tile[4]) {
    const dim = wanted && !(owner >= 0 && data.owners[owner].includes(wanted));
    for (let i = 0; i < cells && at < wide * ROWS; i++, at++)
      draw_cell(ctx, at % wide * cell, Math.floor(at / wide) * cell, cell, letter === "B" && i ? "b" : letter, dim);
  }
}

// The run at a cell, the cell where it begins, and all of it that the tile has.
function run_at(tile, at) {
  let first = 0;
  for (const run of tile[4]) {
    if (at < first + run[1]) return [run, first];
    first += run[1];
  }
  return [null, 0];
}

function describe(tile, at) {
  const start = BigInt("0x" + tile[1]);
  if (tile[0] === "gap") return `gap\n${hex(start)}\n${size_text(tile[2])}`;
  const [run, first] = run_at(tile, at), lines = [];
  if (tile[0] === "block") {
    lines.push(`block of CPU ${tile[5]}${tile[6] ? ", current" : ", in the pool"}; slots of ${size_text(tile[7])}`);
    lines.push(`${hex(start)}-${hex(start + BigInt(tile[2]))}`);
  }
  if (run) {
    const fold = tile[0] === "fold", from = fold ? start : start + BigInt(first * tile[3]);
    const bytes = fold ? tile[2] : run[1] * tile[3];
    lines.push(`${STATES[run[0] === "B" ? "b" : run[0]][1]}: ${size_text(bytes)}${tile[0] === "block" ? " in slots" : ""}`);
    lines.push(`${hex(from)}-${hex(from + BigInt(bytes))}`);
    if (run[2] >= 0) lines.push("owner: " + data.owners[run[2]]);
  }
  return lines.join("\n");
}

function show_tip(event, text) {
  const tip = document.getElementById("tip");
  tip.textContent = text; tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 6)) + "px";
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 8 : event.clientY + 18) + "px";
}
const hide_tip = () => { document.getElementById("tip").hidden = true; };

function make_tile(tile) {
  const box = document.createElement("div");
  box.tile = tile;
  if (tile[0] === "gap") {
    box.className = "gap";
    box.textContent = "gap " + size_text(tile[2]);
    box.onmousemove = event => show_tip(event, describe(tile, 0));
    box.onmouseleave = hide_tip;
    return box;
  }
  box.className = "tile" + (tile[6] ? " current" : "");
  const label = document.createElement("small"), canvas = document.createElement("canvas");
  label.textContent = tile[0] === "block" ? `CPU ${tile[5]} · ${size_text(tile[7])}`
    : tile[0] === "fold" ? size_text(tile[2]) : "…" + tile[1].slice(-8);
  box.append(label, canvas);
  canvas.onmousemove = event => {
    const wide = tile[0] === "fold" ? 8 : ROW;
    const at = Math.floor(event.offsetY / cell) * wide + Math.floor(event.offsetX / cell);
    show_tip(event, describe(tile, Math.max(0, Math.min(at, 511))));
  };
  canvas.onmouseleave = hide_tip;
  canvas.onclick = () => { set_cell(cell < 10 ? 10 : 4); box.scrollIntoView({block: "center"}); };
  return box;
}

// The whole space from the first to the last tile; gaps have the width of the square root of their size.
function draw_strip(canvas, panel) {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  canvas.width = box.width * ratio; canvas.height = box.height * ratio;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  const weight = tile => tile[0] === "gap" || tile[0] === "fold" ? 1 + Math.log2(1 + tile[2] / (1 << 21)) : 4;
  const total = panel.tiles.reduce((sum, tile) => sum + weight(tile), 0);
  let x = 0;
  canvas.places = panel.tiles.map(tile => {
    const width = weight(tile) * box.width / total;
    const letters = {};
    for (const [letter, cells] of tile[4]) letters[letter === "B" ? "b" : letter] = (letters[letter === "B" ? "b" : letter] || 0) + cells;
    let y = 0;
    for (const letter of ["b", "u", "f", "l", "!", "?", "-", "."]) {
      const height = (letters[letter] || 0) / 512 * box.height;
      ctx.fillStyle = STATES[letter][0];
      ctx.fillRect(x, y, Math.max(width - (width > 3 ? 1 : 0), 0.5), height);
      y += height;
    }
    if (tile[0] === "gap") { ctx.fillStyle = "#fff"; ctx.fillRect(x, 0, width, box.height); ctx.fillStyle = "#bbb"; ctx.fillRect(x, box.height / 2, width, 1); }
    x += width;
    return x;
  });
}

function draw() {
  document.body.classList.toggle("small", cell < 3);
  document.getElementById("size").textContent = cell + " px";
  const gaps = document.getElementById("gaps").checked;
  for (const box of document.querySelectorAll(".gap")) box.hidden = !gaps, box.style.display = gaps ? "" : "none";
  for (const box of document.querySelectorAll(".tile")) {
    // The canvas of a tile out of sight is drawn when it comes into sight.
    const canvas = box.lastChild, wide = box.tile[0] === "fold" ? 8 : ROW;
    canvas.style.width = wide * cell + "px"; canvas.style.height = ROWS * cell + "px";
    box.firstChild.style.width = Math.max(wide * cell, box.tile[0] === "fold" ? 48 : 0) + "px";
    canvas.stale = true;
  }
  watcher.disconnect();
  for (const box of document.querySelectorAll(".tile")) watcher.observe(box);
  document.querySelectorAll(".strip").forEach((strip, i) => draw_strip(strip, data.panels[i]));
}
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const canvas = entry.target.lastChild;
    if (entry.isIntersecting && canvas.stale) { canvas.stale = false; draw_tile(canvas, entry.target.tile); }
  }
}, {rootMargin: "300px"});

function set_cell(size) {
  cell = Math.max(1, Math.min(14, size));
  document.getElementById("zoom").value = cell;
  draw();
}

function make_panel(panel) {
  const box = document.createElement("div"), head = document.createElement("h2");
  box.className = "panel";
  head.textContent = panel.name;
  const strip = document.createElement("canvas"), list = document.createElement("div");
  strip.className = "strip"; list.className = "tiles";
  list.append(...panel.tiles.map(make_tile));
  const place = event => Math.max(0, strip.places.findIndex(end => event.offsetX < end));
  strip.onmousemove = event => { const tile = panel.tiles[place(event)]; show_tip(event, tile[0] === "gap" ? describe(tile, 0) : describe(tile, 0) + "\nclick: go there"); };
  strip.onmouseleave = hide_tip;
  strip.onclick = event => list.children[place(event)].scrollIntoView({block: "center"});
  box.append(head, strip, list);
  return box;
}

function make_table() {
  const table = document.getElementById("figures");
  for (const [i, row] of [["", ...data.panels.map(panel => panel.name)], ...data.table].entries()) {
    const line = table.insertRow();
    for (const text of row) {
      const box = document.createElement(i ? "td" : "th");
      box.textContent = text;
      line.append(box);
    }
  }
}

function make_legend() {
  for (const [letter, [, meaning]] of Object.entries(STATES)) {
    const box = document.createElement("span"), canvas = document.createElement("canvas"), ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.height = 14 * ratio; canvas.style.width = canvas.style.height = "14px"; canvas.style.border = "1px solid #888";
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    draw_cell(ctx, 0, 0, 15, letter, false);
    box.append(canvas, meaning);
    document.getElementById("legend").append(box);
  }
}

async function start() {
  const bytes = Uint8Array.from(atob(PACKED), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  data = JSON.parse(await new Response(stream).text());
  document.getElementById("panels").append(...data.panels.map(make_panel));
  document.getElementById("owners").append(...data.owners.map(name => Object.assign(document.createElement("option"), {value: name})));
  make_legend();
  make_table();
  document.getElementById("zoom").oninput = event => set_cell(+event.target.value);
  document.getElementById("find").oninput = event => { wanted = event.target.value.trim(); draw(); };
  document.getElementById("gaps").onchange = draw;
  document.getElementById("to_figures").onclick = () => document.getElementById("figures").scrollIntoView({block: "end"});
  document.getElementById("panels").addEventListener("wheel", event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    set_cell(cell + (event.deltaY < 0 ? 1 : -1));
  }, {passive: false});
  addEventListener("resize", draw);
  const many = Math.max(...data.panels.map(panel => panel.tiles.length));
  set_cell(+new URLSearchParams(location.search).get("cell") || (many > 1500 ? 1 : many > 300 ? 2 : 4));
}
start();
