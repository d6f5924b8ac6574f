// What each device holds of a tensor, from its tiling: csrc/tiling/tiling.h in the page's language.

// One cut's choice, "split 0/1", "replicated", "owner" or "partial", as an object.
function parseChoice(text) {
  const [choice, level] = text.split("/");
  const split = choice.startsWith("split ");
  return { kind: split ? "split" : choice, dim: split ? Number(choice.slice(6)) : -1, level: level === undefined ? null : Number(level) };
}

// A device's number within its group at each cut: cut 0 divides first and is the most significant.
function digitsOf(device, cuts) {
  const digits = [];
  for (let cut = cuts.length - 1; cut >= 0; cut--) {
    digits[cut] = device % cuts[cut];
    device = Math.floor(device / cuts[cut]);
  }
  return digits;
}

// Part `number` of `parts` of a range, as even as possible, longer parts first.
function partOf([begin, end], parts, number) {
  const least = Math.floor((end - begin) / parts);
  const longer = (end - begin) % parts;
  const first = begin + number * least + Math.min(number, longer);
  return [first, first + least + (number < longer ? 1 : 0)];
}

// The cuts that split a dim, the one that divides first in front: by level, or else the last cut first.
function cutsOfDim(choices, dim) {
  const found = choices.map((choice, cut) => ({ ...choice, cut })).filter((choice) => choice.dim === dim);
  const usual = found.map((choice) => choice.cut).reverse();
  return found.sort((a, b) => (a.level ?? usual.indexOf(a.cut)) - (b.level ?? usual.indexOf(b.cut))).map((choice) => choice.cut);
}

// The region of every device that holds a part: [{device, begin: [...], end: [...]}].
function regionsOf(shape, tiling, cuts) {
  const choices = tiling.map(parseChoice);
  const devices = cuts.reduce((product, parts) => product * parts, 1);
  const order = shape.map((_, dim) => cutsOfDim(choices, dim));
  const regions = [];
  for (let device = 0; device < devices; device++) {
    const digits = digitsOf(device, cuts);
    if (choices.some((choice, cut) => choice.kind === "owner" && digits[cut] !== 0)) continue;
    const ranges = shape.map((extent, dim) =>
      order[dim].reduce((range, cut) => partOf(range, cuts[cut], digits[cut]), [0, extent]));
    regions.push({ device, begin: ranges.map((range) => range[0]), end: ranges.map((range) => range[1]) });
  }
  return regions;
}

// "split 0 ×8": the choices of all cuts put together, as the command line prints them.
function counted(cuts, choices) {
  const parts = new Map();
  choices.forEach((text, cut) => {
    const choice = text.split("/")[0];
    parts.set(choice, (parts.get(choice) ?? 1) * cuts[cut]);
  });
  return [...parts].map(([choice, count]) => `${choice} ×${count}`).join(", ");
}

// "0-3,6": a list of device numbers, short.
function deviceList(devices) {
  const runs = [];
  for (const device of devices) {
    const last = runs[runs.length - 1];
    if (last && last[1] === device - 1) last[1] = device;
    else runs.push([device, device]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}
