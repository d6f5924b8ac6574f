// What is shown, and who redraws when that changes.

const data = JSON.parse(document.getElementById("data").textContent);
const cuts = data.cuts;
const devices = cuts.reduce((product, parts) => product * parts, 1);
for (const strategy of data.strategies) strategy.step = data.steps[strategy.step] ?? null;
const planned = data.strategies.filter((strategy) => strategy.error === null);
const tensors = data.tensors.map(([name, shape, itemsize, role]) => ({ name, shape, itemsize, role, bytes: shape.reduce((n, extent) => n * extent, itemsize) }));
const operators = data.operators.map(([name, operator, inputs, outputs, rule]) => ({ name, operator, inputs, outputs, rule: data.rules[rule] }));
const layers = data.layers.map((layer, number) => ({ ...layer, number, operators: layer.operators.map((position) => ({ ...operators[position], position })),
  main: layer.main < 0 ? null : { ...operators[layer.main], position: layer.main } }));

// The conversions of a strategy by where they are drawn: on an edge, or within a layer.
const moves = new Map(planned.map((strategy) => [strategy.name, movesOf(strategy)]));

function movesOf(strategy) {
  const conversions = strategy.conversions.map(([tensor, user, source, target, from, to, bytes, seconds]) => ({ tensor, user, source, target, from: data.choices[from], to: data.choices[to], bytes, seconds }));
  const edges = new Map(), parameters = new Map(), inner = new Map();
  const add = (map, key, bytes) => map.set(key, (map.get(key) ?? 0) + bytes);
  for (const item of conversions) {
    if (item.source !== item.target) add(edges, `${item.source}>${item.target}`, item.bytes);
    else if (item.tensor >= 0 && ["parameter", "auxiliary"].includes(tensors[item.tensor].role)) add(parameters, item.target, item.bytes);
    else add(inner, item.target, item.bytes);
  }
  return { conversions, edges, parameters, inner };
}

// The most that one edge or the parameters of one layer move, of all strategies: what the widest line stands for.
const mostMoved = Math.max(1, ...[...moves.values()].flatMap((move) => [...move.edges.values(), ...move.parameters.values()]));

const state = { strategy: planned.find((strategy) => strategy.name === data.selected) ?? planned[0], layer: null, query: "" };
const views = [];  // each has redraw(what changed)

function change(changes) {
  Object.assign(state, changes);
  for (const view of views) view.redraw(Object.keys(changes));
}

function tilingOf(tensor) {
  return data.choices[state.strategy.tilings[tensor]] ?? null;
}

function cutOf(operator) {
  return data.choices[state.strategy.cuts[operator.position]] ?? null;
}

// The layers that a search finds: by the names of layers, operators, operator types and tensors.
function matching(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return layers.filter((layer) => words.every((word) => layer.terms.some((term) => term.includes(word))));
}

for (const layer of layers) {
  layer.terms = [layer.name, layer.label, layer.kind,
    ...layer.operators.flatMap((operator) => [operator.name, operator.operator]), ...layer.parameters.map((number) => tensors[number].name)].map((term) => term.toLowerCase());
}

// A word to screen readers.
function say(text) {
  document.getElementById("said").textContent = text;
}

// A hint beside the pointer.
function hint(event, text) {
  const place = document.getElementById("hint");
  place.hidden = !text;
  if (!text) return;
  place.textContent = text;
  const { width, height } = place.getBoundingClientRect();
  place.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
  place.style.top = `${Math.max(8, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
}
