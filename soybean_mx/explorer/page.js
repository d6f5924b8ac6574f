// Puts the page together, and what concerns all of it: search, keys, dark and light.

const byId = (id) => document.getElementById(id);
const graph = new GraphView(byId("graph"));

function describe() {
  const { model, batch_size, input_shapes, dtype, topology } = data.model;
  document.querySelector("#about h1").textContent = `${model} on ${countText(devices, "device")}`;
  const shapes = Object.entries(input_shapes).map(([name, shape]) => `${name} ${shapeText(shape)}`).join(", ");
  const where = topology ? `, ${topology.name}` : "";
  document.querySelector("#about p").textContent = `${shapes}, ${dtype}, batch ${batch_size}${where}; cuts ${cuts.join(" × ") || "none"}; ${countText(layers.length, "layer")}, ${countText(operators.length, "operator")}`;
}

function stepStrategy(by) {
  const number = planned.indexOf(state.strategy);
  change({ strategy: planned[(number + by + planned.length) % planned.length] });
}

// ---- search ----

function startSearch() {
  const input = document.querySelector("#search input");
  const found = document.querySelector("#search output");
  let at = -1;
  input.addEventListener("input", () => {
    at = -1;
    change({ query: input.value });
    const matches = matching(input.value);
    found.textContent = input.value.trim() ? `${matches.length} of ${layers.length}` : "";
    if (matches.length) graph.reveal(matches[0], true);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    input.value = "";
    found.textContent = "";
    change({ query: "" });
    input.blur();
    event.stopPropagation();
  });
  document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const matches = matching(input.value);
    if (!matches.length) return;
    at = (at + 1) % matches.length;
    found.textContent = `${at + 1} of ${matches.length}`;
    change({ layer: matches[at] });
    graph.reveal(matches[at], true);
  });
}

// ---- keys ----

function startKeys() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    const writes = event.target.matches?.('input[type="search"]');
    if (writes) return;
    const action = { "/": () => document.querySelector("#search input").focus(), "?": () => byId("keys").showModal(), "[": () => stepStrategy(-1), "]": () => stepStrategy(1),
      "+": () => graph.scaleBy(1.4), "=": () => graph.scaleBy(1.4), "-": () => graph.scaleBy(1 / 1.4), 0: () => graph.fit(), Escape: close }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  byId("closer").addEventListener("click", () => graph.scaleBy(1.4));
  byId("farther").addEventListener("click", () => graph.scaleBy(1 / 1.4));
  byId("whole").addEventListener("click", () => graph.fit());
  byId("help").addEventListener("click", () => byId("keys").showModal());
}

// ---- dark and light: as the system has it, until the button is used ----

function startScheme() {
  const button = byId("scheme");
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const show = () => {
    const scheme = chosen ?? (preferred.matches ? "dark" : "light");
    document.documentElement.dataset.scheme = scheme;
    button.textContent = scheme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", scheme === "dark" ? "Light colors" : "Dark colors");
    change({ scheme });
  };
  button.addEventListener("click", () => { chosen = document.documentElement.dataset.scheme === "dark" ? "light" : "dark"; show(); });
  preferred.addEventListener("change", show);
  show();
}

describe();
views.push(new StrategiesView(byId("strategies")), new LayerView(byId("layer")), new PlanView(byId("plan")), new MemoryView(byId("memory")), new ConversionsView(byId("conversions")), new StepsView(byId("steps")), graph);
startScheme();
startSearch();
startKeys();
change({ strategy: state.strategy });
graph.start().then(() => { document.documentElement.dataset.ready = "true"; });
