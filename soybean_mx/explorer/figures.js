// Pictures of tilings, and figures as texts.

function sizeText(count) {
  if (count === null || count === undefined) return "-";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024 || unit === "GiB") return unit === "B" ? `${Math.round(count)} B` : `${fourDigits(count)} ${unit}`;
    count /= 1024;
  }
}

// As Python's %.4g writes it for the sizes and times that occur.
function fourDigits(value) {
  if (value === 0) return "0";
  return Math.abs(value) >= 1e4 ? String(Math.round(value)) : String(Number(value.toPrecision(4)));
}

function secondsText(value) {
  if (value === null || value === undefined) return "-";
  return value >= 1 ? `${fourDigits(value)} s` : `${fourDigits(value * 1e3)} ms`;
}

function countText(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function shapeText(shape) {
  return shape.length ? shape.join("×") : "scalar";
}

function deviceColor(device, devices) {
  return d3.hcl(25 + (360 * device) / Math.max(devices, 2), 50, device % 2 ? 80 : 70).formatHex();
}

// The two dims that a picture shows, down and across: those that are divided most, in their order.
function pictureDims(shape, tiling, cuts) {
  const parts = shape.map(() => 1);
  tiling.map(parseChoice).forEach((choice, cut) => { if (choice.dim >= 0) parts[choice.dim] *= cuts[cut]; });
  const cut = shape.map((_, dim) => dim).filter((dim) => parts[dim] > 1).sort((a, b) => parts[b] - parts[a]);
  const shown = cut.slice(0, 2).sort((a, b) => a - b);
  if (shown.length === 1) return shown[0] === 0 || shape.length === 1 ? { down: shown[0], across: -1, more: [] } : { down: -1, across: shown[0], more: [] };
  return { down: shown[0] ?? -1, across: shown[1] ?? -1, more: cut.slice(2) };
}

// The tiles of a tensor: those that devices hold, by their place in the picture, each with its devices.
function tilesOf(shape, tiling, cuts) {
  const dims = pictureDims(shape, tiling, cuts);
  const tiles = new Map();
  for (const region of regionsOf(shape, tiling, cuts)) {
    const range = (dim) => (dim < 0 ? [0, 1] : [region.begin[dim] / shape[dim], region.end[dim] / shape[dim]]);
    const key = [...region.begin, ...region.end].join();
    if (!tiles.has(key)) tiles.set(key, { down: range(dims.down), across: range(dims.across), devices: [], stack: 0 });
    tiles.get(key).devices.push(region.device);
  }
  const found = [...tiles.values()];
  if (dims.more.length) {  // parts of further dims lie side by side in one place
    for (const place of d3.group(found, (tile) => `${tile.down}|${tile.across}`).values()) {
      place.forEach((tile, number) => {
        const [begin, end] = tile.across;
        tile.across = [begin + ((end - begin) * number) / place.length, begin + ((end - begin) * (number + 1)) / place.length];
      });
    }
  }
  return { tiles: found, dims };
}

// Draws a tensor's tiles into a <g>: a rectangle for each, in the color and with the number of its device; one that
// several devices hold as a pile of sheets with their numbers; a partial sum with a sigma.
function drawTiles(place, width, height, shape, tiling, cuts) {
  place.selectAll("*").remove();
  const devices = cuts.reduce((product, parts) => product * parts, 1);
  if (!tiling) return;
  const { tiles } = tilesOf(shape, tiling, cuts);
  const held = tiles.some((tile) => tile.devices.length > 1) && tiles.length <= 16;  // more are too small for piles
  const partial = tiling.includes("partial");
  const pile = held ? Math.min(4, height / 10) : 0;
  const [w, h] = [width - pile, height - pile];
  const gap = tiles.length > 32 ? 0 : tiles.length > 16 ? 0.3 : Math.min(1.5, w / 40);
  for (const tile of tiles) {
    const x = tile.across[0] * w, y = tile.down[0] * h + pile;
    const box = [Math.max((tile.across[1] - tile.across[0]) * w - gap, 0.3), Math.max((tile.down[1] - tile.down[0]) * h - gap, 0.3)];
    const count = tile.devices.length;
    if (count > 1 && pile > 0.5) {
      for (const step of [2, 1]) sheet(x + (step * pile) / 2, y - (step * pile) / 2, "sheet");
    }
    const front = sheet(x, y, count === devices && devices > 1 ? "sheet" : "tile");
    if (tiles.length > 16) front.style("stroke", "none");
    if (count < devices || devices === 1) front.style("fill", deviceColor(tile.devices[0], devices));
    if (count > 1 && box[1] > 8) pips(tile, x, y, box);
    const label = partial ? `Σ ${deviceList(tile.devices)}` : deviceList(tile.devices);
    const size = Math.min(12, box[1] - (count > 1 ? 4 : 1), (box[0] - 1) / (0.62 * label.length));
    if (size >= 2.5) {
      place.append("text").attr("class", count === devices && devices > 1 ? "replicas" : "owner").attr("x", x + box[0] / 2)
        .attr("y", y + box[1] / 2 - (count > 1 ? 1 : 0)).style("font-size", `${size}px`).classed("tiny", size < 4.5).text(label);
    }
    function sheet(left, top, name) {
      return place.append("rect").attr("class", name).attr("x", left).attr("y", top).attr("width", box[0]).attr("height", box[1]);
    }
  }
  // The colors of all devices that hold a tile, along its foot.
  function pips(tile, x, y, box) {
    const each = box[0] / tile.devices.length;
    if (each < 0.4) return;
    tile.devices.forEach((device, number) => place.append("rect").attr("x", x + each * number).attr("y", y + box[1] - 2.5)
      .attr("width", each).attr("height", 2.5).style("fill", deviceColor(device, devices)));
  }
}
