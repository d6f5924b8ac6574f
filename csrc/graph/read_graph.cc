#include "graph/read_graph.h"

#include <limits>
#include <unordered_map>

#include "graph/given_rule.h"
#include "graph/json.h"

namespace soybean {
namespace {

// Member look-up by name for the large objects of a request.
class Members {
 public:
  Members(const Json& object, const std::string& what) {
    for (const Json::Member& m : object.as_object(what)) index_.emplace(m.first, &m.second);
  }
  const Json* find(const std::string& name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : it->second;
  }

 private:
  std::unordered_map<std::string, const Json*> index_;
};

int checked_index(const Json& value, const std::string& what) {
  const int64_t i = value.as_int(what);
  if (i < 0 || i > std::numeric_limits<int>::max()) {
    throw Error(what + " is " + std::to_string(i) + ": it must be an index");
  }
  return static_cast<int>(i);
}

bool is_hidden(const std::string& key) {
  return key.size() > 4 && key.compare(0, 2, "__") == 0 &&
         key.compare(key.size() - 2, 2, "__") == 0;
}

Entry read_entry(const Json& value, const std::string& what) {
  const Json::Array& parts = value.as_array(what);
  if (parts.size() < 2) throw Error(what + " must be [node, output, version]");
  return Entry{checked_index(parts[0], what), checked_index(parts[1], what)};
}

Attributes read_attributes(const Json& node, const std::string& name) {
  Attributes attrs;
  for (const char* key : {"attrs", "attr", "param"}) {  // newest to oldest name in MXNet's JSON
    const Json* object = node.find(key);
    if (object == nullptr) continue;
    for (const Json::Member& m : object->as_object("the attributes of '" + name + "'")) {
      if (!is_hidden(m.first)) {
        attrs[m.first] = m.second.as_string("attribute " + m.first + " of '" + name + "'");
      }
    }
  }
  return attrs;
}

std::vector<TensorType> read_types(const std::string& name, const Members& shapes,
                                   const Members& itemsizes) {
  const Json* shape_list = shapes.find(name);
  const Json* size_list = itemsizes.find(name);
  if (shape_list == nullptr) throw Error("the request gives no shape for node '" + name + "'");
  if (size_list == nullptr) throw Error("the request gives no item size for node '" + name + "'");
  const Json::Array& all_shapes = shape_list->as_array("the shapes of '" + name + "'");
  const Json::Array& all_sizes = size_list->as_array("the item sizes of '" + name + "'");
  if (all_shapes.size() != all_sizes.size()) {
    throw Error("node '" + name + "' has " + std::to_string(all_shapes.size()) + " shapes but " +
                std::to_string(all_sizes.size()) + " item sizes");
  }
  std::vector<TensorType> types;
  for (size_t i = 0; i < all_shapes.size(); ++i) {
    TensorType type;
    int64_t elements = 1;
    for (const Json& extent : all_shapes[i].as_array("a shape of '" + name + "'")) {
      type.shape.push_back(extent.as_int("an extent of '" + name + "'"));
      // A tensor above 2^40 elements is a mistake, and would overflow the byte counts.
      constexpr int64_t kMost = int64_t{1} << 40;
      const int64_t length = type.shape.back();
      if (length > 0) elements = length > kMost / elements ? kMost + 1 : elements * length;
      if (elements > kMost) {
        throw Error("tensor '" + name + "' has shape " + shape_text(type.shape) +
                    ": more than 2^40 elements");
      }
    }
    type.itemsize = checked_index(all_sizes[i], "an item size of '" + name + "'");
    types.push_back(std::move(type));
  }
  return types;
}

void read_variable(const Members& variables, Node* node) {
  const Json* entry = variables.find(node->name);
  const std::string what = "variable '" + node->name + "'";
  if (entry == nullptr) throw Error("the request does not describe " + what);
  const std::string& role = entry->at("role", what).as_string("the role of " + what);
  if (role == "input") node->role = Role::kInput;
  else if (role == "parameter") node->role = Role::kParameter;
  else if (role == "auxiliary") node->role = Role::kAuxiliary;
  else throw Error(what + " has role '" + role + "': input, parameter or auxiliary are possible");
  node->requires_grad = entry->at("requires_grad", what).as_bool("requires_grad of " + what);
}

}  // namespace

SerialProgram read_program(const std::string& request_text) {
  const Json request = Json::parse(request_text);
  const Json symbol = Json::parse(
      request.at("symbol", "the request").as_string("the symbol of the request"));
  const Members shapes(request.at("shapes", "the request"), "the shapes");
  const Members itemsizes(request.at("itemsizes", "the request"), "the item sizes");
  const Members variables(request.at("variables", "the request"), "the variables");
  const Json no_rules = Json::object();
  const Json* given_rules = request.find("rules");
  const Members rules(given_rules == nullptr ? no_rules : *given_rules, "the rules");

  std::vector<Node> nodes;
  for (const Json& item : symbol.at("nodes", "the symbol").as_array("the nodes of the symbol")) {
    Node node;
    node.name = item.at("name", "a node").as_string("the name of a node");
    node.op = item.at("op", "node '" + node.name + "'").as_string("the op of '" + node.name + "'");
    for (const Json& input :
         item.at("inputs", "node '" + node.name + "'").as_array("the inputs of '" + node.name + "'")) {
      node.inputs.push_back(read_entry(input, "an input of '" + node.name + "'"));
    }
    if (!node.is_variable()) node.attrs = read_attributes(item, node.name);
    if (const Json* subgraphs = item.find("subgraphs")) node.subgraphs = subgraphs->text();
    node.outputs = read_types(node.name, shapes, itemsizes);
    if (node.is_variable()) read_variable(variables, &node);
    if (const Json* rule = rules.find(node.name)) {
      node.rule = std::make_shared<const GivenRule>(read_given_rule(*rule, node.name));
    }
    nodes.push_back(std::move(node));
  }
  std::vector<Entry> outputs;
  for (const Json& head : symbol.at("heads", "the symbol").as_array("the heads of the symbol")) {
    outputs.push_back(read_entry(head, "a head of the symbol"));
  }
  const auto flag = [&](const char* name) {
    const Json* member = request.find(name);
    return member != nullptr && member->as_bool(name);
  };
  return SerialProgram{Graph(std::move(nodes), std::move(outputs)), flag("training"),
                       flag("own_operators")};
}

}  // namespace soybean
