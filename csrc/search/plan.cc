#include "search/plan.h"

#include <algorithm>

#include "graph/share_parameters.h"
#include "graph/state_extents.h"
#include "rules/merged_dims.h"
#include "search/ties.h"

namespace soybean {
namespace {

std::string cuts_text(const Rule& rule, int choice) {
  if (choice == kReplicated) return "replicated";
  if (choice == kOwner) return "owner";
  return rule.factors[static_cast<size_t>(choice)].name;
}

}  // namespace

Json tiling_json(const Tiling& tiling) {
  Json out = Json::array();
  for (const std::string& text : tiling_texts(tiling)) out.push(Json(text));
  return Json::written(out.text());
}

namespace {

Tiling read_tiling(const Json& json, const std::string& what) {
  std::vector<std::string> texts;
  for (const Json& item : json.as_array(what)) texts.push_back(item.as_string(what));
  return parse_tiling(texts, what);
}

Json operator_json(const Rule& rule, const OperatorCuts& cuts) {
  Json out = Json::array();
  for (size_t i = 0; i < cuts.size(); ++i) {
    std::string text = cuts_text(rule, cuts[i]);
    if (!cuts.is_usual(i)) text += "/" + std::to_string(cuts.level(i));
    out.push(Json(text));
  }
  return Json::written(out.text());
}

OperatorCuts read_operator(const Rule& rule, const Json& json, const std::string& what) {
  std::vector<int> choices, order;
  for (const Json& item : json.as_array(what)) {
    std::string text = item.as_string(what);
    const int level = take_level(&text);
    // Where no level is given the last cut divides first.
    order.push_back(level >= 0 ? level : 1000 - static_cast<int>(order.size()));
    choices.push_back(parse_operator_choice(rule, text, what));
  }
  return OperatorCuts(std::move(choices), order);
}

// The results in the JSON: outputs by position, statistics are variables.
constexpr const char* kOutputs = "outputs";

void check_length(size_t length, const Mesh& mesh, const std::string& what) {
  if (length != static_cast<size_t>(mesh.cut_count())) {
    throw Error(what + " has " + std::to_string(length) + " choices in the plan, but " +
                std::to_string(mesh.devices()) + " devices are " +
                std::to_string(mesh.cut_count()) + " cuts");
  }
}

}  // namespace

int parse_operator_choice(const Rule& rule, const std::string& text, const std::string& what) {
  if (text == "replicated") return kReplicated;
  if (text == "owner") return kOwner;
  std::string known;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].name == text) return static_cast<int>(f);
    known += rule.factors[f].name + ", ";
  }
  throw Error(what + " is cut by '" + text + "': " + known + "replicated or owner are possible");
}

void check_operator(const Mesh& mesh, const Rule& rule, const OperatorCuts& cuts,
                    const std::string& what) {
  check_length(cuts.size(), mesh, what);
  std::vector<int64_t> parts(rule.factors.size(), 1);
  for (int cut = 0; cut < mesh.cut_count(); ++cut) {
    const int choice = cuts[static_cast<size_t>(cut)];
    if (choice == kReplicated && (rule.random || !rule.known)) {
      throw Error(what + " cannot be replicated: it may be computed by one group only");
    }
    if (choice < 0) continue;
    const Factor& f = rule.factors[static_cast<size_t>(choice)];
    int64_t& n = parts[static_cast<size_t>(choice)];
    n *= mesh.parts(cut);
    if (n > f.size || (f.even && f.size % n != 0)) {
      throw Error(what + " has factor " + f.name + " of size " + std::to_string(f.size) +
                  ", which cannot be cut in " + std::to_string(n));
    }
  }
}

void check_tensor(const Program& program, const Mesh& mesh, Entry e, const Tiling& tiling,
                  const std::string& what) {
  const Shape& shape = program.graph().type(e).shape;
  check_length(tiling.size(), mesh, what);
  if (!fits(mesh, tiling, shape)) {
    throw Error(what + " of shape " + shape_text(shape) +
                " is split in the plan on a dim that it does not have or that is too short");
  }
  const Node& node = program.graph().node(e.node);
  if (node.is_held_once() && tiling.has(kReplicated)) {
    throw Error(what + " is replicated in the plan: a variable that gets a gradient is held once "
                "(split or owner)");
  }
}

std::vector<Entry> Program::results() const {
  std::vector<Entry> all = graph().outputs();
  for (const Statistic& s : expanded.statistics) all.push_back(s.value);
  return all;
}

Program prepare(const std::string& graph_request, const std::string& batch_norm) {
  if (batch_norm != "exact" && batch_norm != "fused" && batch_norm != "local") {
    throw Error("batch_norm is '" + batch_norm + "': 'exact', 'fused' or 'local' are possible");
  }
  SerialProgram serial = share_parameters(separate_merged_dims(state_extents(read_program(graph_request))));
  const bool training = serial.training;
  ExpandedGraph expanded = batch_norm == "exact"
                               ? expand_batch_norm(serial)
                               : ExpandedGraph{std::move(serial.graph), {}, training};
  std::vector<Rule> rules;
  std::vector<bool> gradients;
  for (size_t i = 0; i < expanded.graph.nodes().size(); ++i) {
    const Node& node = expanded.graph.nodes()[i];
    // Local statistics: what a group computes is final, as in prediction.
    const bool local = batch_norm == "local" && node.op == "BatchNorm";
    rules.push_back(node.is_variable()
                        ? Rule{}
                        : find_rule(expanded.graph, static_cast<int>(i), training && !local));
    gradients.push_back(carries_gradient(node, gradients));
  }
  mark_samples(expanded.graph, &rules);
  return Program{std::move(expanded), std::move(rules), std::move(gradients)};
}

Tiling input_tiling(const Rule& rule, size_t input, const OperatorCuts& cuts) {
  if (!rule.known) return cuts;
  std::vector<int> choices;
  for (const int choice : cuts) {
    if (choice < 0) {
      choices.push_back(choice);
      continue;
    }
    const TensorRule& t = rule.inputs[input];
    const auto it = std::find(t.dims.begin(), t.dims.end(), choice);
    if (it != t.dims.end()) {
      choices.push_back(static_cast<Choice>(it - t.dims.begin()));
    } else if (t.addend && rule.factors[static_cast<size_t>(choice)].reduced) {
      choices.push_back(kOwner);
    } else {
      choices.push_back(kReplicated);
    }
  }
  return cuts.with_choices(choices);
}

Tiling output_tiling(const Rule& rule, size_t output, const OperatorCuts& cuts) {
  if (!rule.known) return cuts;
  std::vector<int> choices;
  for (const int choice : cuts) {
    if (choice < 0) {
      choices.push_back(choice);
      continue;
    }
    const std::vector<int>& dims = rule.outputs[output].dims;
    const auto it = std::find(dims.begin(), dims.end(), choice);
    if (it != dims.end()) {
      choices.push_back(static_cast<Choice>(it - dims.begin()));
    } else {
      choices.push_back(rule.factors[static_cast<size_t>(choice)].reduced ? kPartial : kReplicated);
    }
  }
  return cuts.with_choices(choices);
}

namespace {

Tiling statistics_tiling(const Rule& rule, const Statistics& statistics, const OperatorCuts& cuts, Choice joined) {
  std::vector<int> choices;
  for (const int choice : cuts) {
    const auto it = std::find(statistics.dims.begin(), statistics.dims.end(), choice);
    if (choice < 0) {
      choices.push_back(choice);
    } else if (it != statistics.dims.end()) {
      choices.push_back(static_cast<Choice>(it - statistics.dims.begin()));
    } else {
      choices.push_back(rule.factors[static_cast<size_t>(choice)].statistic ? joined : kReplicated);
    }
  }
  return cuts.with_choices(choices);
}

}  // namespace

Tiling statistics_made(const Rule& rule, const Statistics& statistics, const OperatorCuts& cuts) {
  return statistics_tiling(rule, statistics, cuts, kPartial);
}

Tiling statistics_needed(const Rule& rule, const Statistics& statistics, const OperatorCuts& cuts) {
  return statistics_tiling(rule, statistics, cuts, kReplicated);
}

int statistics_ways(const Program& program, int node, const Statistics& statistics) {
  return statistics.gradient && program.requires_grad(program.graph().node(node).inputs[0]) ? 2 : 1;
}

void check_plan(const Program& program, const Plan& plan) {
  const Graph& graph = program.graph();
  const Mesh& mesh = plan.mesh;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!node.is_variable()) {
      check_operator(mesh, program.rules[i], plan.operators[i], "operator '" + node.name + "'");
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Entry e{static_cast<int>(i), static_cast<int>(k)};
      const std::string what = "tensor '" + graph.tensor_name(e) + "'";
      const auto it = plan.tensors.find(e);
      if (it == plan.tensors.end()) throw Error("the plan has no tiling for " + what);
      check_tensor(program, mesh, e, it->second, what);
    }
  }
  const std::vector<Entry> results = program.results();
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string what = "output '" + graph.tensor_name(results[i]) + "'";
    check_length(plan.results[i].size(), mesh, what);
    if (!fits(mesh, plan.results[i], graph.type(results[i]).shape)) {
      throw Error(what + " of shape " + shape_text(graph.type(results[i]).shape) +
                  " is split in the plan on a dim that it does not have or that is too short");
    }
    if (plan.results[i].has(kReplicated)) {
      throw Error(what + " is replicated in the plan: split or owner are possible");
    }
  }
}

Json write_plan(const Program& program, const Plan& plan) {
  const Graph& graph = program.graph();
  const Mesh& mesh = plan.mesh;
  Json cuts = Json::array();
  for (int i = 0; i < mesh.cut_count(); ++i) cuts.push(Json(mesh.parts(i)));
  Json tensors = Json::object(), operators = Json::object(), whole = Json::array();
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Entry e{static_cast<int>(i), static_cast<int>(k)};
      tensors.set(graph.tensor_name(e), tiling_json(plan.tensors.at(e)));
    }
    if (node.is_variable()) continue;
    operators.set(node.name, operator_json(program.rules[i], plan.operators[i]));
    if (!program.rules[i].known) whole.push(Json(node.name));
  }
  Json results = Json::array();
  for (const Tiling& tiling : plan.results) results.push(tiling_json(tiling));

  Json out = Json::object();
  out.set("version", Json(1));
  out.set("devices", Json(mesh.devices()));
  out.set("cuts", std::move(cuts));
  out.set("strategy", Json(plan.strategy));
  out.set("exact", Json(plan.exact));
  out.set("batch_norm", Json(plan.batch_norm));
  out.set("boundary", Json(plan.whole_boundary ? "whole" : "tiled"));
  out.set("tensors", std::move(tensors));
  out.set("operators", std::move(operators));
  out.set(kOutputs, std::move(results));
  out.set("whole", std::move(whole));
  return out;
}

std::string plan_batch_norm(const Json& plan) {
  const Json* member = plan.find("batch_norm");
  return member == nullptr ? "exact" : member->as_string("batch_norm of the plan");
}

namespace {

Mesh read_mesh(const Json& json) {
  const Mesh usual(json.at("devices", "the plan").as_int("devices of the plan"));
  const Json* cuts = json.find("cuts");
  if (cuts == nullptr) return usual;
  std::vector<int> parts;
  for (const Json& item : cuts->as_array("cuts of the plan")) {
    const int64_t p = item.as_int("a cut of the plan");
    if (p < 2 || p > usual.devices()) throw Error("a cut of the plan has " + std::to_string(p) + " parts");
    parts.push_back(static_cast<int>(p));
  }
  const Mesh mesh(std::move(parts));
  if (mesh.devices() != usual.devices()) {
    throw Error("the cuts of the plan make " + std::to_string(mesh.devices()) + " devices, but it is for " +
                std::to_string(usual.devices()));
  }
  return mesh;
}

}  // namespace

Plan read_plan(const Program& program, const Json& json) {
  const Graph& graph = program.graph();
  Plan plan;
  plan.mesh = read_mesh(json);
  plan.strategy = json.at("strategy", "the plan").as_string("strategy of the plan");
  plan.batch_norm = plan_batch_norm(json);
  if (const Json* exact = json.find("exact")) plan.exact = exact->as_bool("exact of the plan");
  if (const Json* boundary = json.find("boundary")) {
    plan.whole_boundary = boundary->as_string("boundary of the plan") == "whole";
  }
  const Json& tensors = json.at("tensors", "the plan");
  const Json& operators = json.at("operators", "the plan");
  plan.operators.resize(graph.nodes().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!node.is_variable()) {
      const std::string what = "operator '" + node.name + "'";
      plan.operators[i] = read_operator(program.rules[i],
                                        operators.at(node.name, "the operators of the plan"), what);
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Entry e{static_cast<int>(i), static_cast<int>(k)};
      const std::string name = graph.tensor_name(e);
      plan.tensors[e] =
          read_tiling(tensors.at(name, "the tensors of the plan"), "tensor '" + name + "'");
    }
  }
  for (const Json& item : json.at(kOutputs, "the plan").as_array("outputs of the plan")) {
    plan.results.push_back(read_tiling(item, "an output of the plan"));
  }
  if (plan.results.size() != program.results().size()) {
    throw Error("the plan has " + std::to_string(plan.results.size()) + " outputs, the graph " +
                std::to_string(program.results().size()));
  }
  leave_statistics_alike(program, &plan);
  return plan;
}

bool leave_statistics_alike(const Program& program, Plan* plan) {
  bool changed = false;
  const size_t outputs = program.graph().outputs().size();
  std::map<int, size_t> first;
  for (size_t s = 0; s < program.expanded.statistics.size(); ++s) {
    const int variable = program.expanded.statistics[s].variable;
    const size_t shared = first.emplace(variable, outputs + s).first->second;
    if (shared == outputs + s || plan->results[outputs + s] == plan->results[shared]) continue;
    plan->results[outputs + s] = plan->results[shared];
    plan->tensors[{variable, 0}] = plan->results[shared];
    changed = true;
  }
  return changed;
}

}  // namespace soybean
