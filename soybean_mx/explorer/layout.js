// Where layers and edges are drawn. Graphviz lays the graph out from the inputs down. A long graph is divided into
// columns, so that it can be read at a glance; each is laid out on its own.

const POINTS_PER_INCH = 72;
const GUTTER = 44;  // between columns, where edges from one to the next run
// How many layers' results may go on from one column to the next: more only where the graph is too small otherwise.
const CROSSING = [1, 3, 10], CLEAR = 0.25;
const APART = 34;   // about what Graphviz leaves between ranks and between boxes

// Gives each layer a `place` (its centre), each edge a `path` and, if it ever moves bytes, a `label` (a point).
// `boxOf(layer)` is [width, height]; `space` what there is to draw in. Returns the extent, {width, height}.
function layOut(viz, layers, edges, boxOf, space) {
  const columnOf = columns(layers, edges, boxOf, space);
  const count = Math.max(...columnOf) + 1;
  let left = 0, height = 0;
  for (let column = 0; column < count; column++) {
    const own = layers.filter((layer) => columnOf[layer.number] === column);
    const extent = layOutColumn(viz, own, edges.filter((edge) => columnOf[edge.target] === column), boxOf, left);
    left += extent.width + GUTTER;
    height = Math.max(height, extent.height);
  }
  for (const edge of edges) {
    if (columnOf[edge.source] !== columnOf[edge.target]) turn(edge, layers, boxOf, columnOf);
  }
  return { width: left - GUTTER, height: height + APART };
}

// The column of each layer: divided so that all of the graph is drawn largest.
function columns(layers, edges, boxOf, space) {
  const ranks = ranksOf(layers, edges);
  let best = null;
  for (const most of CROSSING) {
    const places = breaks(layers, edges, most);
    for (let longest = Math.max(...ranks) + 1; longest > 0; longest--) {
      const columnOf = divided(layers, ranks, places, longest);
      const [width, height] = estimate(layers, ranks, columnOf, boxOf);
      const scale = Math.min(space[0] / width, space[1] / height, 1);
      if (!best || scale > best.scale * 1.05) best = { scale, columnOf };
    }
    if (best.scale > CLEAR) break;
  }
  return best.columnOf;
}

function ranksOf(layers, edges) {
  const ranks = layers.map(() => 0);
  const bySource = d3.group(edges, (edge) => edge.source);
  for (const layer of layers) {  // in a topological order
    for (const edge of bySource.get(layer.number) ?? []) ranks[edge.target] = Math.max(ranks[edge.target], ranks[layer.number] + 1);
  }
  return ranks;
}

// The layers before which a column may end: where all edges from before to behind come from so many layers.
function breaks(layers, edges, most) {
  const ends = layers.map((layer) => layer.number);
  for (const edge of edges) ends[edge.source] = Math.max(ends[edge.source], edge.target);
  return layers.filter((layer) => layer.number > 0 && layers.slice(0, layer.number).filter((before) => ends[before.number] >= layer.number).length <= most);
}

// Columns of up to so many ranks, as far as they may end there.
function divided(layers, ranks, places, longest) {
  const columnOf = layers.map(() => 0);
  let first = 0, column = 0;
  places.forEach((place, number) => {
    const next = places[number + 1]?.number ?? layers.length;
    const last = Math.max(...ranks.slice(place.number, next));
    if (last - first + 1 > longest) {
      column++;
      first = ranks[place.number];
    }
    columnOf.fill(column, place.number);
  });
  return columnOf;
}

function estimate(layers, ranks, columnOf, boxOf) {
  let width = 0, height = 0;
  for (const group of d3.group(layers, (layer) => columnOf[layer.number]).values()) {
    const rows = [...d3.group(group, (layer) => ranks[layer.number]).values()];
    width += GUTTER + d3.max(rows, (row) => d3.sum(row, (layer) => boxOf(layer)[0] + APART / 2));
    height = Math.max(height, d3.sum(rows, (row) => APART + d3.max(row, (layer) => boxOf(layer)[1])));
  }
  return [width, height];
}

// Lays a column out. Edges into it from others begin at a point of their layer's own.
function layOutColumn(viz, layers, edges, boxOf, left) {
  const within = new Map(layers.map((layer) => [layer.number, layer]));
  const from = (edge) => (within.has(edge.source) ? edge.source : `enters${edge.source}`);
  const nodes = layers.map((layer) => {
    const [width, height] = boxOf(layer);
    return `${layer.number} [width=${width / POINTS_PER_INCH} height=${height / POINTS_PER_INCH}]`;
  });
  for (const name of new Set(edges.map(from).filter((name) => typeof name === "string"))) nodes.push(`${name} [width=0.01 height=0.01]`);
  // Room for the figure of an edge that moves bytes under some strategy.
  const lines = edges.map((edge) => `${from(edge)} -> ${edge.target}${edge.moves ? ' [label="0000.0 MiB" fontsize=11]' : ""}`);
  const laidOut = viz.renderJSON(`digraph { rankdir=TB nodesep=0.22 ranksep=0.3 node [shape=box fixedsize=true label=""] edge [arrowhead=none]
    ${nodes.join("; ")}; ${lines.join("; ")} }`, { engine: "dot" });
  const [, , width, height] = laidOut.bb.split(",").map(Number);
  const point = (text) => { const [x, y] = text.split(",").map(Number); return [left + x, height - y]; };  // its y goes up
  const byKey = new Map(edges.map((edge) => [`${from(edge)}>${edge.target}`, edge]));
  for (const item of laidOut.objects ?? []) if (within.has(Number(item.name))) within.get(Number(item.name)).place = point(item.pos);
  for (const item of laidOut.edges ?? []) {
    const edge = byKey.get(`${laidOut.objects[item.tail].name}>${laidOut.objects[item.head].name}`);
    const points = item.pos.split(" ").filter((text) => !/^[es],/.test(text)).map(point);
    edge.begin = points[0];
    edge.path = `M${points[0]}C${points.slice(1).join(" ")}`;
    edge.label = item.lp ? point(item.lp) : null;
  }
  return { width, height };
}

// An edge to a later column: below its own, up beside the next one, and to where Graphviz has it begin.
function turn(edge, layers, boxOf, columnOf) {
  const source = layers[edge.source];
  const [first, last] = [columnOf[edge.source], columnOf[edge.target]];
  const bottom = (layer) => layer.place[1] + boxOf(layer)[1] / 2;
  const low = d3.max(layers.filter((layer) => columnOf[layer.number] >= first && columnOf[layer.number] < last), bottom) + APART / 2 + ((edge.source % 7) - 3) * 2;
  const shift = ((edge.source % 7) - 3) * 4;  // so that the lines of several layers are told apart
  const beside = d3.min(layers.filter((layer) => columnOf[layer.number] === last), (layer) => layer.place[0] - boxOf(layer)[0] / 2) - GUTTER / 2 + shift;
  const [x, y] = source.place;
  const [to, end] = edge.begin;
  const round = 8, high = end - round;
  edge.path = `M${x},${y + boxOf(source)[1] / 2}V${low - round}q0,${round} ${round},${round}H${beside - round}q${round},0 ${round},${-round}V${high + round}`
    + `q0,${-round} ${round},${-round}H${to - round}q${round},0 ${round},${round}${edge.path.replace("M", "L")}`;
}
