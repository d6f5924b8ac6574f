// The graph of layers: laid out by Graphviz, once, and drawn anew where another plan is chosen.

const BOX = { layer: [212, 84], plain: [150, 84], output: [84, 28] };
const PICTURE = [62, 42];
const FAR = 0.62;      // below this scale, small letters are left out and the others are larger
const FARTHER = 0.42;  // below this one, only names and pictures are left
const CLOSE = 1.6;     // above this one, the smallest numbers are shown
const READABLE = 0.22;  // below this scale, a part is shown first and not all
const WIDEST = 13;

class GraphView {
  constructor(place) {
    this.place = place;
    this.edges = [...d3.rollup(data.edges, (group) => group.map((edge) => edge[2]), ([source]) => source, ([, target]) => target)]
      .flatMap(([source, targets]) => [...targets].map(([target, carried]) => ({ source, target, carried, key: `${source}>${target}` })));
    for (const edge of this.edges) edge.moves = [...moves.values()].some((move) => (move.edges.get(edge.key) ?? 0) > 0);
  }

  async start() {
    const viz = await Viz.instance();
    this.extent = layOut(viz, layers, this.edges, (layer) => this.boxOf(layer), this.size());
    this.place.replaceChildren();
    this.svg = d3.select(this.place).append("svg").attr("role", "group").attr("aria-label", "Layers, from the inputs down. Arrow keys go from layer to layer, Enter shows one.");
    this.canvas = this.svg.append("g");
    this.zoom = d3.zoom().scaleExtent([0.02, 6]).on("zoom", ({ transform }) => {
      this.canvas.attr("transform", transform).classed("far", transform.k < FAR).classed("farther", transform.k < FARTHER).classed("close", transform.k > CLOSE);
    });
    this.svg.call(this.zoom).on("dblclick.zoom", null);
    this.draw();
    this.redraw(["strategy", "layer", "query"]);
    this.fit(true);
    addEventListener("resize", () => this.fit(true));
  }

  boxOf(layer) {
    return layer.kind === "output" ? BOX.output : layer.weight >= 0 ? BOX.layer : BOX.plain;
  }

  draw() {
    const edge = this.canvas.append("g").selectAll("g").data(this.edges).join("g").attr("class", "edge")
      .on("pointermove", (event, item) => hint(event, this.edgeText(item))).on("pointerleave", (event) => hint(event, null));
    edge.append("path").attr("d", (item) => item.path);
    this.edgeGroups = edge;
    this.nodes = this.canvas.append("g").selectAll("g").data(layers).join("g").attr("class", "node").attr("role", "button")
      .attr("tabindex", (_, number) => (number === 0 ? 0 : -1)).attr("data-layer", (layer) => layer.name)
      .attr("transform", (layer) => { const [w, h] = this.boxOf(layer); return `translate(${layer.place[0] - w / 2},${layer.place[1] - h / 2})`; })
      .on("click", (event, layer) => change({ layer })).on("focus", (event, layer) => this.reveal(layer))
      .on("keydown", (event, layer) => this.key(event, layer));
    this.nodes.append("rect").attr("class", "box").attr("width", (layer) => this.boxOf(layer)[0]).attr("height", (layer) => this.boxOf(layer)[1]);
    this.nodes.each((layer, number, groups) => this.drawNode(d3.select(groups[number]), layer));
    // Figures lie above the boxes' lines.
    this.labels = this.canvas.append("g").selectAll("g").data(this.edges.filter((item) => item.label)).join("g").attr("class", "edge");
    this.labels.append("text").attr("transform", (item) => `translate(${item.label[0] + 5},${item.label[1]})`).attr("dy", "0.35em");
  }

  drawNode(group, layer) {
    const [width, height] = this.boxOf(layer);
    if (layer.kind === "output") {
      group.append("text").attr("class", "title").attr("x", width / 2).attr("y", height / 2).attr("dy", "0.35em").attr("text-anchor", "middle").text(layer.label);
      return;
    }
    const [w, h] = PICTURE;
    group.append("text").attr("class", "title").attr("x", 10).attr("y", 17).text(shortened(layer.label, layer.weight >= 0 ? 19 : 15))
      .style("--far", `${Math.min(25, (width - 16) / (0.66 * Math.min(layer.label.length, 19)))}px`);
    group.append("text").attr("class", "cut").attr("x", width - 10).attr("y", 17);
    const right = width - 10 - w;
    const body = group.append("g").attr("class", "body");
    if (layer.weight >= 0) {
      body.append("line").attr("class", "pipe").attr("x1", 10 + w).attr("x2", right).attr("y1", 24 + h / 2).attr("y2", 24 + h / 2);
      body.append("text").attr("class", "moved").attr("x", (10 + w + right) / 2);
      body.append("g").attr("class", "weight").attr("transform", "translate(10,24)");
      group.append("text").attr("class", "caption").attr("x", 10).attr("y", height - 7).text(shapeText(tensors[layer.weight].shape));
    } else {
      const made = [...new Set(layer.operators.map((operator) => operator.operator.replace(/^_+/, "")))];
      const words = layer.kind === "input" ? ["input"] : made.slice(0, 3);
      words.forEach((word, line) => group.append("text").attr("class", "caption").attr("x", 10).attr("y", 36 + 12 * line).text(shortened(word, 13)));
    }
    body.append("g").attr("class", "output").attr("transform", `translate(${right},24)`);
    group.append("text").attr("class", "caption").attr("x", width - 10).attr("y", height - 7).attr("text-anchor", "end").text(shapeText(tensors[layer.output].shape));
  }

  redraw(changed) {
    if (!this.nodes) return;
    if (changed.includes("strategy")) this.redrawPlan();
    if (changed.includes("layer")) {
      this.nodes.classed("chosen", (layer) => layer === state.layer).attr("aria-pressed", (layer) => layer === state.layer);
    }
    if (changed.includes("query")) {
      const found = new Set(matching(state.query));
      this.canvas.classed("searching", found.size > 0);
      this.nodes.classed("found", (layer) => found.has(layer));
    }
  }

  redrawPlan() {
    const move = moves.get(state.strategy.name);
    const wide = (bytes) => (bytes > 0 ? 1.6 + (WIDEST - 1.6) * Math.sqrt(bytes / mostMoved) : 1.2);
    this.edgeGroups.classed("moves", (edge) => move.edges.get(edge.key) > 0)
      .select("path").style("stroke-width", (edge) => wide(move.edges.get(edge.key) ?? 0));
    this.labels.select("text").text((edge) => (move.edges.get(edge.key) > 0 ? sizeText(move.edges.get(edge.key)) : ""));
    this.nodes.each((layer, number, groups) => {
      const group = d3.select(groups[number]);
      const draw = (name, tensor) => group.select(name).each(function () {
        drawTiles(d3.select(this), ...PICTURE, tensors[tensor].shape, tilingOf(tensor), cuts);
      });
      draw(".weight", layer.weight);
      if (layer.kind !== "output") draw(".output", layer.output);
      const bytes = move.parameters.get(layer.number) ?? 0;
      group.select(".pipe").classed("moves", bytes > 0).style("stroke-width", wide(bytes));
      group.select(".moved").attr("y", 21 + PICTURE[1] / 2 - wide(bytes) / 2).text(bytes > 0 ? sizeText(bytes) : "");
      const cut = layer.main ? cutOf(layer.main) : null;
      group.select(".cut").text(cut ? shortened(counted(cuts, cut), 16) : "");
      group.attr("aria-label", this.words(layer));
    });
  }

  words(layer) {
    const cut = layer.main ? cutOf(layer.main) : null;
    const bytes = moves.get(state.strategy.name).parameters.get(layer.number) ?? 0;
    const words = [layer.label, layer.main?.operator ?? layer.kind];
    if (cut) words.push(`cut ${counted(cuts, cut)}`);
    if (layer.output >= 0 && tilingOf(layer.output)) words.push(`result ${counted(cuts, tilingOf(layer.output))}`);
    if (bytes) words.push(`parameters move ${sizeText(bytes)}`);
    return words.join(", ");
  }

  edgeText(edge) {
    const bytes = moves.get(state.strategy.name).edges.get(edge.key) ?? 0;
    const names = edge.carried.map((tensor) => `${tensors[tensor].name} ${shapeText(tensors[tensor].shape)}`);
    return `${layers[edge.source].label} to ${layers[edge.target].label}: ${bytes ? `${sizeText(bytes)} moved` : "nothing moved"}\n${names.join("\n")}`;
  }

  key(event, layer) {
    const beside = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    if (event.key === "Enter" || event.key === " ") change({ layer });
    else if (beside) this.focus(this.neighbour(layer, beside));
    else return;
    event.preventDefault();
  }

  // Up and down along an edge, the straightest one; left and right to the nearest box there.
  neighbour(layer, [dx, dy]) {
    const linked = dy > 0 ? this.edges.filter((edge) => edge.source === layer.number).map((edge) => layers[edge.target])
      : this.edges.filter((edge) => edge.target === layer.number).map((edge) => layers[edge.source]);
    const candidates = dy !== 0 ? linked : layers.filter((other) => Math.sign(other.place[0] - layer.place[0]) === dx);
    const far = (other) => Math.abs(other.place[0] - layer.place[0]) + (dx !== 0 ? 8 : 0.2) * Math.abs(other.place[1] - layer.place[1]);
    return d3.least(candidates, far) ?? layer;
  }

  focus(layer) {
    this.nodes.attr("tabindex", -1);
    const node = this.nodes.filter((other) => other === layer).attr("tabindex", 0).node();
    node.focus({ preventScroll: true });
    this.reveal(layer);
  }

  size() {
    const { width, height } = this.place.getBoundingClientRect();
    return [width, height];
  }

  // Brings a layer into view, where it is not.
  reveal(layer, centre = false) {
    const [width, height] = this.size();
    const transform = d3.zoomTransform(this.svg.node());
    const [x, y] = transform.apply(layer.place);
    const margin = 60;
    if (!centre && x > margin && x < width - margin && y > margin && y < height - margin) return;
    const scale = centre ? Math.max(transform.k, 0.9) : transform.k;
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(width / 2, height / 2).scale(scale).translate(-layer.place[0], -layer.place[1]));
  }

  // All of the graph; or, to begin with, its head at a scale that can be read, where all would be too small.
  fit(readable = false) {
    const [width, height] = this.size();
    const margin = 24;
    const whole = Math.min((width - 2 * margin) / this.extent.width, (height - 2 * margin) / this.extent.height, 1.2);
    const scale = readable ? Math.max(whole, READABLE) : whole;
    const left = this.extent.width * scale <= width ? (width - this.extent.width * scale) / 2 : margin;
    const top = (this.extent.height * scale <= height ? (height - this.extent.height * scale) / 2 : margin);
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(left, top).scale(scale));
  }

  scaleBy(factor) {
    this.svg.call(this.zoom.scaleBy, factor);
  }
}

function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
