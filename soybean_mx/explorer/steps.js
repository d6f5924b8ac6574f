// The time line: what each device does in the modelled step.

const KIND_COLORS = { forward: "#4c78a8", backward: "#59a14f", sum: "#b8a1c9", copy: "#f28b50" };
const LEFT = 30, AXIS = 18;

class StepsView {
  constructor(place) {
    this.place = d3.select(place);
    const line = this.place.append("div").attr("class", "line");
    line.append("h2").text("Time line");
    this.text = line.append("span");
    const legend = line.append("span").attr("class", "legend").selectAll("span").data(["forward", "backward", "sum", "copy"]).join("span");
    legend.append("i").style("background", (kind) => KIND_COLORS[kind]);
    legend.append("span").text((kind) => ({ sum: "sum of gradients", copy: "copy (by sender)" }[kind] ?? kind));
    this.row = Math.max(3, Math.min(15, Math.floor(200 / devices)));
    this.height = devices * this.row + AXIS;
    this.reference = planned.find((strategy) => strategy.name === "data" && strategy.step);
    this.canvas = this.place.append("canvas").attr("tabindex", 0).attr("role", "img").style("height", `${this.height}px`);
    this.transform = d3.zoomIdentity;
    this.zoom = d3.zoom().scaleExtent([1, 400]).filter((event) => !event.button && (event.type !== "wheel" || event.ctrlKey || !this.overflows()))
      .on("zoom", ({ transform }) => { this.transform = transform; this.draw(); });
    this.canvas.call(this.zoom).on("pointermove", (event) => this.point(event)).on("pointerleave", (event) => hint(event, null))
      .on("click", (event) => { const bar = this.at(event); if (bar && bar[2] >= 0) { change({ layer: layers[bar[2]] }); graph.reveal(layers[bar[2]], true); } })
      .on("keydown", (event) => this.key(event));
    addEventListener("resize", () => this.resize());
  }

  overflows() { return this.place.node().scrollHeight > this.place.node().clientHeight + 1; }

  redraw(changed) {
    if (changed.includes("strategy")) {
      const { step, name } = state.strategy;
      this.canvas.style("display", step ? null : "none");
      this.place.select(".legend").style("display", step ? null : "none");
      this.text.text(step ? `${name}: ${secondsText(step.seconds)} a step in the model${data.model.topology ? "" : " of GPUs with 10 TFLOP/s and links of 10 GB/s, as no topology was given"}; devices idle ${percents(step)}`
        : "not modelled for this strategy, as operators times devices are more than 20,000 (40,000 for the strategy asked for)");
      if (step) this.canvas.attr("aria-label", `Time line of ${name}: ${secondsText(step.seconds)} a step; devices idle ${percents(step)}. Left and right move, plus and minus zoom.`);
      // Data parallelism is drawn to the same scale, as far as it is longer.
      if (step) this.longest = Math.max(step.seconds, this.reference?.step.seconds ?? 0) * 1.01;
      this.resize();
    } else if (changed.includes("layer") || changed.includes("scheme")) this.draw();
  }

  resize() {
    const node = this.canvas.node();
    const width = this.place.node().clientWidth - 28;
    const ratio = devicePixelRatio || 1;
    node.width = width * ratio;
    node.height = this.height * ratio;
    this.width = width;
    this.zoom.translateExtent([[0, 0], [width, 0]]).extent([[0, 0], [width, this.height]]);
    this.draw();
  }

  scale() {
    return this.transform.rescaleX(d3.scaleLinear([0, this.longest], [LEFT, this.width - 8]));
  }

  // A device's row is divided: above what it computes, below what it sends.
  place_of([device, kind]) {
    const top = device * this.row + 1;
    const name = state.strategy.step.kinds[kind];
    const upper = Math.round((this.row - 2) * 0.62);
    return name === "copy" ? [top + upper, this.row - 2 - upper] : [top, upper];
  }

  draw() {
    const { step } = state.strategy;
    if (!step || !this.width) return;
    const context = this.canvas.node().getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const [text, line, strong] = ["--quiet", "--line", "--strong"].map((name) => style.getPropertyValue(name));
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    const x = this.scale();
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, this.width - LEFT, this.height);
    context.clip();
    for (const tick of x.ticks(8)) { context.fillStyle = line; context.fillRect(x(tick), 0, 1, this.height - AXIS); }
    const chosen = state.layer?.number;
    for (const bar of step.bars) {
      const [from, to] = [x(bar[3] / step.ticks_per_second), x(bar[4] / step.ticks_per_second)];
      if (to < LEFT || from > this.width) continue;
      const [top, height] = this.place_of(bar);
      context.globalAlpha = chosen === undefined || bar[2] === chosen ? 1 : 0.25;
      context.fillStyle = KIND_COLORS[step.kinds[bar[1]]];
      context.fillRect(from, top, Math.max(to - from, 0.6), height);
    }
    context.globalAlpha = 1;
    context.fillStyle = strong;
    context.fillRect(x(step.seconds), 0, 1.5, this.height - AXIS);
    context.restore();
    context.fillStyle = text;
    context.font = '10px system-ui, "DejaVu Sans", sans-serif';
    context.textAlign = "center";
    for (const tick of x.ticks(8)) if (x(tick) >= LEFT - 1) context.fillText(secondsText(tick), Math.min(x(tick), this.width - 20), this.height - 5);
    if (this.reference && this.reference !== state.strategy && this.reference.step.seconds > 1.03 * step.seconds) {
      const end = x(this.reference.step.seconds);
      context.textAlign = "right";
      context.fillText(`data: ${secondsText(this.reference.step.seconds)} ▸`, Math.min(end, this.width - 4) - 4, 12);
      context.fillRect(end, 0, 1, this.height - AXIS);
    }
    context.fillStyle = text;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let device = 0; device < devices; device += this.row < 5 ? 8 : this.row < 9 ? 4 : 1) context.fillText(String(device), LEFT - 6, (device + 0.5) * this.row);
    context.textBaseline = "alphabetic";
  }

  at(event) {
    const { step } = state.strategy;
    const [px, py] = d3.pointer(event, this.canvas.node());
    const time = this.scale().invert(px) * step.ticks_per_second;
    const slack = (this.scale().invert(1) - this.scale().invert(0)) * step.ticks_per_second;
    return step.bars.find((bar) => {
      const [top, height] = this.place_of(bar);
      return py >= top && py < top + height && time >= bar[3] - slack && time <= bar[4] + slack;
    });
  }

  point(event) {
    const bar = this.at(event);
    if (!bar) { hint(event, null); return; }
    const { step } = state.strategy;
    const [begin, end, busy] = bar.slice(3).map((ticks) => ticks / step.ticks_per_second);
    hint(event, `device ${bar[0]}, ${step.kinds[bar[1]]}: ${bar[2] >= 0 ? layers[bar[2]].label : "small parameters of several layers"}\n${secondsText(begin)} to ${secondsText(end)}, busy for ${secondsText(busy)}`);
  }

  key(event) {
    const pan = { ArrowLeft: 0.2, ArrowRight: -0.2 }[event.key];
    const factor = { "+": 1.6, "=": 1.6, "-": 1 / 1.6 }[event.key];
    if (pan) this.canvas.call(this.zoom.translateBy, (pan * this.width) / this.transform.k, 0);
    else if (factor) this.canvas.call(this.zoom.scaleBy, factor);
    else if (event.key === "0") this.canvas.call(this.zoom.transform, d3.zoomIdentity);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function percents(step) {
  const idle = step.idle.map((seconds) => (100 * seconds) / step.seconds);
  const [least, most] = [d3.min(idle), d3.max(idle)].map((value) => value.toFixed(0));
  return least === most ? `${least} %` : `${least} to ${most} %`;
}
