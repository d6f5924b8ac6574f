// JSON texts with something wrong in them, for the tests that call with whatever arrives.
#ifndef SOYBEAN_TESTS_MUTATIONS_H_
#define SOYBEAN_TESTS_MUTATIONS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/json.h"

namespace soybean_tests {

using soybean::Json;
using Random = std::mt19937;

inline size_t below(size_t n, Random* random) { return n == 0 ? 0 : (*random)() % n; }

template <typename T>
const T& one_of(const std::vector<T>& items, Random* random) {
  return items[below(items.size(), random)];
}

// ---- Mutations of the text: mostly malformed JSON.

inline std::string mutate_bytes(std::string text, Random* random) {
  static const std::string pieces = "{}[]\",:\\0123456789-.eEu\n\xff";
  for (size_t n = 1 + below(4, random); n > 0 && !text.empty(); --n) {
    const size_t at = below(text.size(), random);
    switch (below(4, random)) {
      case 0: text[at] = pieces[below(pieces.size(), random)]; break;
      case 1: text.erase(at, 1 + below(20, random)); break;
      case 2: text.insert(at, 1, pieces[below(pieces.size(), random)]); break;
      default: text.resize(at); break;
    }
  }
  return text;
}

// ---- Mutations of the value: JSON that says something wrong.

inline size_t count_values(const Json& value) {
  size_t count = 1;
  if (value.is_array()) for (const Json& item : value.as_array("")) count += count_values(item);
  if (value.is_object()) for (const auto& member : value.as_object("")) count += count_values(member.second);
  return count;
}

inline const Json& value_at(const Json& value, size_t* index) {
  if ((*index)-- == 0) return value;
  const auto inside = [index](const Json& item) -> const Json* {
    const size_t count = count_values(item);
    if (*index < count) return &item;
    *index -= count;
    return nullptr;
  };
  if (value.is_array()) {
    for (const Json& item : value.as_array("")) {
      if (const Json* found = inside(item)) return value_at(*found, index);
    }
  }
  if (value.is_object()) {
    for (const auto& member : value.as_object("")) {
      if (const Json* found = inside(member.second)) return value_at(*found, index);
    }
  }
  return value;
}

inline Json strange_value(const Json& document, Random* random) {
  static const std::vector<Json> values = {
      Json(), Json(true), Json(0), Json(-1), Json(1), Json(3), Json(1000003), Json(int64_t{1} << 31),
      Json(int64_t{1} << 40), Json(INT64_MAX), Json(INT64_MIN), Json(1e308), Json(0.5), Json(""),
      Json("(3, 3)"), Json("(0, 0)"), Json("(-1, 2)"), Json("(1"), Json("split 0"), Json("split 99"), Json("split 0/1"), Json("n/1"), Json("split 0/"),
      Json("split -1"), Json("replicated"), Json("owner"), Json("99999999999999999999"), Json("-1"),
      Json("0"), Json("None"), Json("True"), Json("nan"), Json::array(), Json::object()};
  if (below(2, random) == 0) return one_of(values, random);
  size_t index = below(count_values(document), random);  // a part of the document, out of place
  return value_at(document, &index);
}

// `value` with the part number *index (in the order of count_values) changed.
inline Json with_change(const Json& value, size_t* index, const Json& document, Random* random) {
  if ((*index)-- == 0) return strange_value(document, random);
  if (value.is_array()) {
    Json result = Json::array();
    for (const Json& item : value.as_array("")) {
      const bool dropped = *index == 0 && below(3, random) == 0;
      Json changed = with_change(item, index, document, random);
      if (!dropped) result.push(std::move(changed));
    }
    return result;
  }
  if (value.is_object()) {
    Json result = Json::object();
    for (const auto& member : value.as_object("")) {
      const bool dropped = *index == 0 && below(3, random) == 0;
      Json changed = with_change(member.second, index, document, random);
      if (!dropped) result.set(member.first, std::move(changed));
    }
    return result;
  }
  return value;
}

inline Json mutate_value(Json value, Random* random) {
  for (size_t n = 1 + below(3, random); n > 0; --n) {
    size_t index = below(count_values(value), random);
    value = with_change(value, &index, value, random);
  }
  return value;
}

inline std::string mutate(const Json& document, Random* random) {
  if (below(4, random) == 0) return mutate_bytes(document.text(), random);
  return mutate_value(document, random).text();
}

}  // namespace soybean_tests

#endif  // SOYBEAN_TESTS_MUTATIONS_H_
