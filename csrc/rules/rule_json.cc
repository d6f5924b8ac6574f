#include "rules/rule_json.h"

#include "graph/json.h"

namespace soybean {
namespace {

Json factor_json(const Factor& factor) {
  Json json = Json::object();
  json.set("name", factor.name);
  json.set("size", factor.size);
  json.set("reduced", factor.reduced);
  json.set("same", factor.same);
  json.set("statistic", factor.statistic);
  json.set("even", factor.even);
  json.set("batch", factor.batch);
  json.set("spatial", factor.spatial);
  return json;
}

Json operands_json(const std::vector<TensorRule>& operands) {
  Json json = Json::array();
  for (const TensorRule& operand : operands) {
    Json dims = Json::array();
    for (int dim : operand.dims) dims.push(dim);
    Json item = Json::object();
    item.set("dims", dims);
    item.set("addend", operand.addend);
    item.set("merged", operand.merged);
    json.push(item);
  }
  return json;
}

Json windows_json(const std::vector<Window>& windows) {
  Json json = Json::array();
  for (const Window& window : windows) {
    Json item = Json::object();
    item.set("input", static_cast<int64_t>(window.input));
    item.set("dim", static_cast<int64_t>(window.dim));
    item.set("factor", window.factor);
    item.set("kernel", window.kernel);
    item.set("stride", window.stride);
    item.set("pad", window.pad);
    item.set("dilate", window.dilate);
    item.set("round_up", window.round_up);
    json.push(item);
  }
  return json;
}

Json attributes_json(const Attributes& attrs) {
  Json json = Json::object();
  for (const auto& attr : attrs) json.set(attr.first, attr.second);
  return json;
}

Json extents_json(const std::map<std::string, Extent>& extents) {
  Json json = Json::object();
  for (const auto& extent : extents) {
    Json value = Json::object();
    value.set("factor", extent.second.factor);
    value.set("block", extent.second.block);
    json.set(extent.first, value);
  }
  return json;
}

}  // namespace

std::string rule_json(const Rule& rule) {
  Json factors = Json::array();
  for (const Factor& factor : rule.factors) factors.push(factor_json(factor));
  Json shapes = Json::object();
  for (const auto& attr : rule.shape_attrs) {
    Json value = Json::object();
    value.set("output", attr.second.output);
    value.set("begin", static_cast<int64_t>(attr.second.begin));
    value.set("behind", static_cast<int64_t>(attr.second.behind));
    shapes.set(attr.first, value);
  }

  Json indices = Json::array();
  for (const IndexInto& item : rule.indices) {
    Json value = Json::object();
    value.set("input", static_cast<int64_t>(item.input));
    value.set("factor", item.factor);
    indices.push(value);
  }

  Json starts = Json::object();
  for (const auto& start : rule.start_attrs) {
    Json value = Json::object();
    value.set("factor", start.second.factor);
    value.set("first", start.second.first);
    value.set("step", start.second.step);
    value.set("at_end", start.second.at_end);
    starts.set(start.first, value);
  }

  Json own_operands = Json::array();
  for (const OwnOperand& operand : rule.own_operands) {
    Json value = Json::object();
    value.set("op", operand.op);
    value.set("dtype", operand.dtype);
    value.set("factor", operand.factor);
    own_operands.push(value);
  }

  Json statistics = Json::array();
  for (const Statistics& item : rule.statistics) {
    Json dims = Json::array();
    for (int dim : item.dims) dims.push(dim);
    Json value = Json::object();
    value.set("shape", json_array(item.shape));
    value.set("dims", dims);
    value.set("itemsize", item.itemsize);
    value.set("gradient", item.gradient);
    statistics.push(value);
  }

  Json json = Json::object();
  json.set("known", rule.known);
  json.set("factors", factors);
  json.set("inputs", operands_json(rule.inputs));
  json.set("outputs", operands_json(rule.outputs));
  json.set("windows", windows_json(rule.windows));
  json.set("extent_attrs", extents_json(rule.extent_attrs));
  json.set("shape_attrs", shapes);
  json.set("start_attrs", starts);
  json.set("indices", indices);
  json.set("restated", attributes_json(rule.restated));
  json.set("runs_as", Json(rule.runs_as));
  json.set("own_operands", own_operands);
  json.set("without_addends", attributes_json(rule.without_addends));
  json.set("runs_without_addends_as", Json(rule.runs_without_addends_as));
  json.set("zero_addends", rule.zero_addends);
  json.set("average", rule.average);
  json.set("joined_by", Json(rule.joined_by));
  json.set("statistics", statistics);
  json.set("random", rule.random);
  return json.text();
}

}  // namespace soybean
