// The panels beside the graph: strategies, the chosen layer, the plan, memory, conversions.

const MEMORY_KINDS = ["parameters", "gradients", "optimizer", "inputs", "activations", "conversions", "workspace"];
const MEMORY_COLORS = ["#4c78a8", "#72b7b2", "#b279a2", "#9d9da1", "#eeca3b", "#f28b50", "#c9b99a"];
const MOST_CONVERSIONS = 12;

class StrategiesView {
  constructor(place) {
    this.place = d3.select(place);
    const least = d3.min(planned, (strategy) => strategy.summary.bytes_moved);
    const stepped = planned.some((strategy) => strategy.step);
    const timed = planned.some((strategy) => strategy.summary.predicted_seconds !== null);
    const heads = ["strategy", "bytes moved", "ratio", ...(stepped ? ["step"] : []), ...(timed && !stepped ? ["predicted"] : []), "peak memory"];
    const table = this.place.append("div").attr("role", "radiogroup").attr("aria-labelledby", "strategies-title").append("table");
    table.append("tr").selectAll("th").data(heads).join("th").attr("scope", "col").attr("class", (head) => (head === "strategy" ? null : "number"))
      .attr("title", (head) => ({ step: "of the modelled step in the time line, its computation included", ratio: "to the plan that moves least",
        predicted: "by the search: computation and communication one after the other", "bytes moved": "in a step, by all devices together" }[head] ?? null))
      .text((head) => head);
    this.rows = table.selectAll("tr.strategy").data(data.strategies).join("tr").attr("class", "strategy").attr("data-strategy", (strategy) => strategy.name);
    this.rows.append("td").append("label").each(function (strategy) {
      const label = d3.select(this);
      label.append("input").attr("type", "radio").attr("name", "strategy").attr("value", strategy.name)
        .property("disabled", strategy.error !== null).on("change", () => change({ strategy }));
      label.append("span").text(strategy.name);
    });
    const given = this.rows.filter((strategy) => strategy.error === null);
    given.append("td").attr("class", "number bytes").attr("data-bytes", (strategy) => strategy.summary.bytes_moved).text((strategy) => sizeText(strategy.summary.bytes_moved));
    given.append("td").attr("class", "number").text((strategy) => (least ? (strategy.summary.bytes_moved / least).toFixed(2) : "-"));
    if (stepped) given.append("td").attr("class", "number").text((strategy) => secondsText(strategy.step?.seconds));
    else if (timed) given.append("td").attr("class", "number").text((strategy) => secondsText(strategy.summary.predicted_seconds));
    given.append("td").attr("class", "number").text((strategy) => sizeText(strategy.summary.peak_bytes_per_device));
    this.rows.filter((strategy) => strategy.error !== null).append("td").attr("class", "refused").attr("colspan", heads.length - 1).text((strategy) => `refused: ${strategy.error}`);
  }

  redraw(changed) {
    if (!changed.includes("strategy")) return;
    this.rows.classed("chosen", (strategy) => strategy === state.strategy);
    this.rows.select("input").property("checked", (strategy) => strategy === state.strategy);
    const { name, summary } = state.strategy;
    say(`${name}: ${sizeText(summary.bytes_moved)} moved`);
  }
}

class PlanView {
  constructor(place) { this.place = d3.select(place); }

  redraw(changed) {
    if (!changed.includes("strategy")) return;
    const { name, summary, bytes, whole } = state.strategy;
    this.place.selectAll("*").remove();
    this.place.append("h2").text(`Plan: ${name}`);
    const proof = summary.exact ? " (proved to be the least)" : "";
    const rows = [["bytes moved", `${sizeText(bytes.total)} a step${proof}`],
      ["forward, backward", `${sizeText(bytes.forward)}, ${sizeText(bytes.backward)}`],
      ["lower bound", sizeText(summary.lower_bound_bytes)]];
    if (bytes.halo || bytes.statistics) rows.push(["within operators", `${sizeText(bytes.halo)} of halos, ${sizeText(bytes.statistics)} of statistics, not drawn`]);
    if (summary.predicted_seconds !== null) {
      rows.push(["predicted by the search", `${secondsText(summary.predicted_seconds)}: ${secondsText(summary.predicted_communication_seconds)} communication, ${secondsText(summary.predicted_compute_seconds)} computation`]);
    }
    rows.push(["searched in", secondsText(summary.search_seconds)]);
    if (whole.length) rows.push(["computed whole", whole.join(", ")]);
    definitions(this.place, rows);
    for (const note of data.model.notes) this.place.append("p").attr("class", "quiet").text(`Note: ${note}`);
  }
}

function definitions(place, rows) {
  const row = place.append("table").selectAll("tr").data(rows).join("tr");
  row.append("th").attr("scope", "row").text(([name]) => name);
  row.append("td").text(([, value]) => value);
}

class MemoryView {
  constructor(place) { this.place = d3.select(place); }

  redraw(changed) {
    if (!changed.includes("strategy")) return;
    const held = state.strategy.memory_by_device;
    const capacity = data.model.topology?.device.memory;
    this.place.selectAll("*").remove();
    this.place.append("h2").text("Memory of each device");
    const legend = this.place.append("div").attr("class", "legend").selectAll("span").data(MEMORY_KINDS.filter((kind) => held.some((memory) => memory[kind] > 0))).join("span");
    legend.append("i").style("background", (kind) => MEMORY_COLORS[MEMORY_KINDS.indexOf(kind)]);
    legend.append("span").text((kind) => kind);
    const row = devices <= 16 ? 20 : devices <= 64 ? 12 : 5;
    const [left, right, width] = [26, 66, 400];
    // To the scale of a device's memory, or else of the strategy that needs most.
    const top = capacity ? Math.max(capacity, d3.max(held, (memory) => memory.peak)) : d3.max(planned, (strategy) => d3.max(strategy.memory_by_device, (memory) => memory.peak));
    const scale = d3.scaleLinear([0, top || 1], [0, width - left - right]);
    const svg = this.place.append("svg").attr("viewBox", `0 0 ${width} ${row * held.length + 4}`).attr("width", "100%").attr("role", "list");
    const bars = svg.selectAll("g").data(held).join("g").attr("transform", (_, device) => `translate(0,${device * row + 2})`).attr("role", "listitem")
      .attr("aria-label", (memory, device) => `device ${device}: ${sizeText(memory.peak)}`).attr("data-peak", (memory) => memory.peak);
    if (row >= 12) {
      bars.append("text").attr("x", left - 6).attr("y", row / 2).attr("dy", "0.35em").attr("text-anchor", "end").style("font-size", `${Math.min(11, row - 2)}px`).text((_, device) => device);
      bars.append("text").attr("x", (memory) => left + scale(memory.peak) + 5).attr("y", row / 2).attr("dy", "0.35em").style("font-size", `${Math.min(11, row - 2)}px`).text((memory) => sizeText(memory.peak));
    }
    bars.each(function (memory, device) {
      let begin = 0;
      MEMORY_KINDS.forEach((kind, number) => {
        if (!memory[kind]) return;
        d3.select(this).append("rect").attr("x", left + scale(begin)).attr("y", row > 8 ? 2 : 0).attr("height", row > 8 ? row - 4 : row - 1).attr("width", scale(memory[kind])).style("fill", MEMORY_COLORS[number])
          .on("pointermove", (event) => hint(event, `device ${device}: ${sizeText(memory[kind])} of ${kind}, ${sizeText(memory.peak)} in all`)).on("pointerleave", (event) => hint(event, null));
        begin += memory[kind];
      });
    });
    if (capacity) {
      const peak = d3.max(held, (memory) => memory.peak);
      this.place.append("p").attr("class", "quiet").text(peak > capacity ? `MORE than the ${sizeText(capacity)} of a device.` : `A device has ${sizeText(capacity)}.`);
    }
  }
}

class ConversionsView {
  constructor(place) { this.place = d3.select(place); }

  redraw(changed) {
    if (!changed.includes("strategy")) return;
    const moving = moves.get(state.strategy.name).conversions.filter((item) => item.bytes > 0).sort((a, b) => b.bytes - a.bytes);
    this.place.selectAll("*").remove();
    this.place.append("h2").text(moving.length > MOST_CONVERSIONS ? `The largest ${MOST_CONVERSIONS} of ${moving.length} conversions that move bytes` : `${moving.length} conversions that move bytes`);
    if (moving.length) conversionTable(this.place, moving.slice(0, MOST_CONVERSIONS));
  }
}

function conversionTable(place, items) {
  const table = place.append("table");
  table.append("tr").selectAll("th").data(["conversion", "from, to", "bytes"]).join("th").attr("scope", "col").attr("class", (head) => (head === "bytes" ? "number" : null)).text((head) => head);
  const row = table.selectAll("tr.item").data(items).join("tr").attr("class", "item");
  const name = row.append("td");
  name.append("button").attr("type", "button").text((item) => (item.tensor >= 0 ? tensors[item.tensor].name : "-")).on("click", (event, item) => { change({ layer: layers[item.target] }); graph.reveal(layers[item.target], true); });
  name.append("div").attr("class", "quiet").text((item) => (item.user ? `for ${item.user}` : "to where it rests"));
  const tilings = row.append("td");
  tilings.append("div").text((item) => counted(cuts, item.from));
  tilings.append("div").text((item) => `→ ${counted(cuts, item.to)}`);
  row.append("td").attr("class", "number").text((item) => sizeText(item.bytes));
}

class LayerView {
  constructor(place) { this.place = d3.select(place); }

  redraw(changed) {
    if (!changed.includes("strategy") && !changed.includes("layer")) return;
    this.place.selectAll("*").remove();
    const layer = state.layer;
    if (!layer) return;
    if (changed.includes("layer")) say(`${graph.words(layer)}: shown beside the graph`);
    const head = this.place.append("header");
    head.append("h2").text(layer.label);
    head.append("button").attr("type", "button").attr("aria-label", "Close the layer").text("×").on("click", () => close());
    const first = layer.main;
    if (first) {
      const cut = cutOf(first);
      definitions(this.place, [["operator", `${first.name}, ${first.operator}`], ["cut", cut ? counted(cuts, cut) : "-"]]);
      this.place.append("p").append("code").text(first.rule ?? "no rule: computed whole by the first device");
    }
    this.figures(layer);
    const moved = moves.get(state.strategy.name).conversions.filter((item) => item.bytes > 0 && (item.target === layer.number || item.source === layer.number)).sort((a, b) => b.bytes - a.bytes);
    this.place.append("h3").text(moved.length ? `Conversions: ${sizeText(d3.sum(moved, (item) => item.bytes))}` : "No conversion moves bytes here");
    if (moved.length) conversionTable(this.place, moved.slice(0, MOST_CONVERSIONS));
    if (layer.operators.length > 1) this.operators(layer);
  }

  figures(layer) {
    const read = [...new Set(data.edges.filter((edge) => edge[1] === layer.number).map((edge) => edge[2]))];
    const made = [...new Set(data.edges.filter((edge) => edge[0] === layer.number).map((edge) => edge[2]))];
    if (!made.length && layer.output >= 0) made.push(layer.output);
    const shown = layer.kind === "output" ? [["result", read]] : [["reads", read], ["parameters", layer.parameters], [layer.kind === "input" ? "input" : "makes", made]];
    for (const [title, numbers] of shown) {
      if (!numbers.length) continue;
      this.place.append("h3").text(title);
      const figure = this.place.append("div").attr("class", "figures").selectAll("figure").data(numbers).join("figure");
      figure.each(function (number) {
        const tensor = tensors[number], tiling = tilingOf(number);
        const height = tensor.shape.length > 1 ? 92 : 46;
        const svg = d3.select(this).append("svg").attr("width", 190).attr("height", height + 14).attr("role", "img").attr("aria-label", `${tensor.name}: ${tiling ? counted(cuts, tiling) : "not in the plan"}`);
        drawTiles(svg.append("g").attr("class", "tiles").attr("transform", "translate(0,12)"), 188, height, tensor.shape, tiling, cuts);
        if (tiling) svg.append("text").attr("class", "dim").attr("x", 0).attr("y", 8).text(dimsText(tensor.shape, tiling));
        const caption = d3.select(this).append("figcaption");
        caption.append("div").text(tensor.name);
        caption.append("div").attr("class", "quiet").text(`${shapeText(tensor.shape)}, ${sizeText(tensor.bytes)}`);
        caption.append("div").text(tiling ? counted(cuts, tiling) : "");
      });
    }
  }

  operators(layer) {
    const more = this.place.append("details");
    more.append("summary").text(`${layer.operators.length} operators`);
    const row = more.append("table").selectAll("tr").data(layer.operators).join("tr");
    row.append("td").text((operator) => operator.operator);
    const name = row.append("td");
    name.append("div").text((operator) => operator.name);
    name.append("code").attr("class", "quiet").text((operator) => operator.rule ?? "no rule");
    row.append("td").attr("class", "number").text((operator) => (cutOf(operator) ? counted(cuts, cutOf(operator)) : "-"));
  }
}

// Which dims a picture has down and across.
function dimsText(shape, tiling) {
  const { down, across, more } = pictureDims(shape, tiling, cuts);
  const words = [];
  if (down >= 0) words.push(`down: dim ${down} (${shape[down]})`);
  if (across >= 0) words.push(`across: dim ${across} (${shape[across]})`);
  if (more.length) words.push(`within: dim ${more.join(", ")}`);
  return words.join(", ");
}

function close() {
  const layer = state.layer;
  change({ layer: null });
  if (layer) graph.focus(layer);
}
