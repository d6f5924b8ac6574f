// The graph pass "soybean_mx", for programs that use MXNet's symbols without
// Gluon:
//
//   mx.library.load(soybean_mx.library_path())
//   tiled = sym.optimize_for("soybean_mx", args=args, aux=aux, devices=4)
//   exe = tiled.bind(mx.cpu(0), args, grads,
//                    group2ctx={"d0": mx.cpu(0), ..., "d3": mx.cpu(3)})
//
// MXNet's graph becomes the request of docs/interface.md with the boundary
// "whole", and the lowered graph takes its place: same arguments, same outputs.
// MXNet sorts the nodes of the result anew; the order that the lowering chose
// stays with them in the attribute __soybean_order__.
#include <mxnet/lib_api.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>

#include "c_api.h"
#include "graph/graph.h"
#include "graph/json.h"
#include "rules/rule.h"

namespace soybean {
namespace {

using MxGraph = mxnet::ext::Graph;
using MxNode = mxnet::ext::Node;
using Options = std::unordered_map<std::string, std::string>;

constexpr int kMxnetVersion = 10901;

// ---- Options

int64_t read_count(const std::string& key, const std::string& value) {
  const bool digits = !value.empty() && value.size() < 10 &&
                      std::all_of(value.begin(), value.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || std::stoll(value) < 1) {
    throw Error("option " + key + " is '" + value + "': give a whole number of 1 or more");
  }
  return std::stoll(value);
}

struct PassOptions {
  int64_t devices = 0;
  std::string strategy = "optimal";
};

PassOptions read_options(const Options& given) {
  PassOptions options;
  for (const auto& [key, value] : given) {
    if (key == "devices") options.devices = read_count(key, value);
    else if (key == "strategy") options.strategy = value;
    else throw Error("there is no option '" + key + "' (it is '" + value +
                     "'): give devices or strategy");
  }
  if (options.devices == 0) {
    throw Error("option devices is missing: give the number of devices, as in "
                "optimize_for(\"soybean_mx\", args=args, aux=aux, devices=4)");
  }
  return options;
}

// ---- From MXNet's graph to a request

// Bytes per element and whether gradients exist, by MXNet's type code.
struct ElementType {
  int64_t itemsize;
  bool real;
};

ElementType element_type(int64_t code, const std::string& node) {
  static const std::map<int64_t, ElementType> types = {
      {0, {4, true}},  {1, {8, true}},  {2, {2, true}},  {3, {1, false}}, {4, {4, false}},
      {5, {1, false}}, {6, {8, false}}, {7, {1, false}}, {8, {2, false}}, {9, {2, false}},
      {10, {4, false}}, {11, {8, false}}, {12, {2, true}}};
  const auto found = types.find(code);
  if (found == types.end()) {
    throw Error("node '" + node + "' has the element type " + std::to_string(code) +
                ", which MXNet 1.9.1 does not have: pass args to optimize_for, so that types "
                "are known");
  }
  return found->second;
}

// MXNet lists the outputs that an operator hides too (the mean and variance of
// BatchNorm). Those that somebody uses are visible, and so are all of an
// operator that states their number.
size_t visible_outputs(const MxNode& node, size_t listed) {
  if (node.attrs.count("num_outputs") != 0) return listed;
  size_t used = 1;
  for (const auto& user : node.outputs) {
    const auto& entry = user.node->inputs[static_cast<size_t>(user.entry)];
    used = std::max(used, static_cast<size_t>(entry.entry) + 1);
  }
  return std::min(used, listed);
}

// The attribute `key`, which MXNet sets where it knows shapes and types.
Json inferred(const MxNode& node, const std::string& key) {
  const auto found = node.attrs.find(key);
  if (found == node.attrs.end()) {
    throw Error("the shape of node '" + node.name + "' is not known: pass arrays for all "
                "arguments, as in optimize_for(\"soybean_mx\", args=args, aux=aux, devices=4)");
  }
  return Json::parse(found->second);
}

// The variables that an operator changes while it runs.
std::set<const MxNode*> auxiliary_variables(const MxGraph& graph) {
  static const std::map<std::string, std::vector<size_t>> mutated = {
      {"BatchNorm", {3, 4}},
      {"BatchNorm_v1", {3, 4}},
      {"CuDNNBatchNorm", {3, 4}},
      {"_contrib_SyncBatchNorm", {3, 4}},
      {"_contrib_BatchNormWithReLU", {3, 4}},
      {"_npx_batch_norm", {3, 4}},
      {"IdentityAttachKLSparseReg", {1}}};
  std::set<const MxNode*> result;
  for (size_t i = 0; i < graph.size(); ++i) {
    const MxNode& node = *graph.getNode(i);
    const auto found = mutated.find(node.op);
    if (found == mutated.end()) continue;
    for (const size_t input : found->second) {
      if (input < node.inputs.size()) result.insert(node.inputs[input].node);
    }
  }
  return result;
}

Json describe_variable(bool auxiliary, bool real) {
  Json variable = Json::object();
  variable.set("role", auxiliary ? "auxiliary" : "parameter");
  variable.set("requires_grad", !auxiliary && real);
  return variable;
}

Json make_request(const MxGraph& graph) {
  const std::set<const MxNode*> auxiliary = auxiliary_variables(graph);
  std::map<const MxNode*, size_t> used_by_heads;
  for (const auto& head : graph.outputs) {
    size_t& used = used_by_heads[head.node];
    used = std::max(used, static_cast<size_t>(head.entry) + 1);
  }
  Json shapes = Json::object(), itemsizes = Json::object(), variables = Json::object();
  for (size_t i = 0; i < graph.size(); ++i) {
    const MxNode& node = *graph.getNode(i);
    const std::string what = "node '" + node.name + "'";
    const Json all_shapes = inferred(node, "__ext_shape__");
    const Json all_types = inferred(node, "__ext_dtype__");
    const Json::Array& shape_list = all_shapes.as_array("the shapes of " + what);
    const Json::Array& type_list = all_types.as_array("the types of " + what);
    const size_t listed = std::min(shape_list.size(), type_list.size());
    const size_t visible =
        std::max(visible_outputs(node, listed), std::min(listed, used_by_heads[&node]));
    Json node_shapes = Json::array(), node_sizes = Json::array();
    for (size_t k = 0; k < visible; ++k) {
      node_shapes.push(shape_list[k]);
      node_sizes.push(element_type(type_list[k].as_int("a type of " + what), node.name).itemsize);
    }
    if (node.op == "null" && visible > 0) {
      const bool real = element_type(type_list[0].as_int("the type of " + what), node.name).real;
      variables.set(node.name, describe_variable(auxiliary.count(&node) != 0, real));
    }
    shapes.set(node.name, std::move(node_shapes));
    itemsizes.set(node.name, std::move(node_sizes));
  }
  Json request = Json::object();
  request.set("symbol", graph.toString());
  request.set("shapes", std::move(shapes));
  request.set("itemsizes", std::move(itemsizes));
  request.set("variables", std::move(variables));
  request.set("training", true);
  return request;
}

// ---- The planner, through its C interface

struct FreeText {
  void operator()(char* text) const { SoybeanFree(text); }
};

std::string checked(int status, char* text) {
  const std::unique_ptr<char, FreeText> owner(text);
  if (status != 0) throw Error(SoybeanLastError());
  return text;
}

std::string plan(const std::string& request, const PassOptions& given) {
  Json options = Json::object();
  options.set("devices", given.devices);
  options.set("strategy", given.strategy);
  // A plain symbol has nobody who would update moving statistics in the place of
  // BatchNorm itself, and it may be run in training and in inference mode.
  options.set("batch_norm", "fused");
  options.set("boundary", "whole");
  char* text = nullptr;
  const int status = SoybeanPlan(request.c_str(), options.text().c_str(), &text);
  return checked(status, text);
}

std::string lower(const std::string& request, const std::string& plan_text) {
  char* text = nullptr;
  const int status = SoybeanLower(request.c_str(), plan_text.c_str(), "{}", &text);
  return checked(status, text);
}

// ---- From the lowered graph back to MXNet's

// Serial name of each variable of the lowered graph.
std::map<std::string, std::string> serial_names(const Json& lowered) {
  std::map<std::string, std::string> names;
  std::set<std::string> sources;
  for (const Json& item : lowered.at("variables", "the lowered graph").as_array("the variables")) {
    const std::string name = item.at("name", "a variable").as_string("a variable's name");
    const std::string source = item.at("source", "a variable").as_string("a variable's source");
    if (!sources.insert(source).second) {
      throw Error("variable '" + source + "' is held in several tiles, which a plain symbol "
                  "cannot express: use net.hybridize(backend=\"soybean_mx\") instead");
    }
    names.emplace(name, source);
  }
  return names;
}

// What the user wrote on a variable (__init__, __lr_mult__, ...), but not what
// MXNet added for passes.
std::map<std::string, std::unordered_map<std::string, std::string>> variable_attributes(
    const MxGraph& graph) {
  std::map<std::string, std::unordered_map<std::string, std::string>> result;
  for (const MxNode* node : graph.inputs) {
    auto& kept = result[node->name];
    for (const auto& [key, value] : node->attrs) {
      if (key != "__ext_shape__" && key != "__ext_dtype__" && key != "__ctx_group__") {
        kept.emplace(key, value);
      }
    }
  }
  return result;
}

// Replaces the nodes of `graph` by those of the lowered symbol.
void rewrite(MxGraph* graph, const Json& lowered) {
  const std::string& symbol =
      lowered.at("symbol", "the lowered graph").as_string("the lowered symbol");
  const std::map<std::string, std::string> names = serial_names(lowered);
  const auto attributes = variable_attributes(*graph);

  // lib_api's Graph can take nodes in but not out, and owns them by pointer. So
  // the old nodes are deleted here, and the new graph's are adopted by plain
  // assignment; its emptied shell is released and not destroyed, as its
  // destructor would delete the nodes.
  std::unique_ptr<MxGraph> fresh(MxGraph::fromString(symbol));
  for (size_t i = 0; i < fresh->size(); ++i) {
    MxNode* node = fresh->getNode(i);
    if (!takes_hidden_attributes(node->op)) node->attrs["__soybean_order__"] = std::to_string(i);
    if (node->op != "null") continue;
    const auto name = names.find(node->name);
    if (name != names.end()) node->name = name->second;
    const auto kept = attributes.find(node->name);
    if (kept != attributes.end()) node->attrs.insert(kept->second.begin(), kept->second.end());
  }
  for (size_t i = 0; i < graph->size(); ++i) delete graph->getNode(i);
  const auto graph_attributes = graph->attrs;  // MXNet's version, by which it reads the result
  *graph = *fresh.release();
  graph->attrs.insert(graph_attributes.begin(), graph_attributes.end());
}

void tile(MxGraph* graph, const Options& given) {
  const PassOptions options = read_options(given);
  const std::string request = make_request(*graph).text();
  const Json lowered = Json::parse(lower(request, plan(request, options)));
  rewrite(graph, lowered);
}

// ---- What MXNet calls

// MXNet prints every message since the library was loaded, so a failure takes
// the place of the one before it.
void report(const char* message) {
  static std::stringstream* place = &(MX_ERROR_MSG);
  place->str("");
  *place << "soybean_mx: " << message;
}

mxnet::ext::MXReturnValue run_pass(MxGraph* graph, const Options& options) {
  try {
    tile(graph, options);
    return mxnet::ext::MX_SUCCESS;
  } catch (const std::exception& error) {
    report(error.what());
  } catch (...) {
    report("an unknown error");
  }
  return mxnet::ext::MX_FAIL;
}

}  // namespace
}  // namespace soybean

REGISTER_PASS(soybean_mx).setBody(soybean::run_pass);

extern "C" SOYBEAN_API mxnet::ext::MXReturnValue initialize(int version) {
  if (version == soybean::kMxnetVersion) return mxnet::ext::MX_SUCCESS;
  MX_ERROR_MSG << "soybean_mx is built for MXNet 1.9.1 (" << soybean::kMxnetVersion
               << "), and this is version number " << version << ": install mxnet==1.9.1.";
  return mxnet::ext::MX_FAIL;
}
