// Reads the attributes of an operator as MXNet writes them: "3", "True", "1",
// "(1, 1)", "[0]", "None".
//
// A reader never throws. A missing required attribute, or a text that does not
// parse, sets failed() and yields the default; a rule asks failed() once, after
// all its reads, and then says that it does not know the operator.
#ifndef SOYBEAN_RULES_ATTRIBUTES_H_
#define SOYBEAN_RULES_ATTRIBUTES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace soybean {

using Integers = std::vector<int64_t>;
using OptionalIntegers = std::vector<std::optional<int64_t>>;  // with None inside

class AttributeReader {
 public:
  explicit AttributeReader(const Attributes& attrs) : attrs_(attrs) {}

  bool failed() const { return failed_; }
  bool has(const std::string& name) const { return attrs_.count(name) > 0; }

  int64_t integer(const std::string& name);  // required
  int64_t integer(const std::string& name, int64_t fallback);
  // Absent and "None" are both no value.
  std::optional<int64_t> optional_integer(const std::string& name);
  double number(const std::string& name, double fallback);
  bool boolean(const std::string& name, bool fallback);
  std::string text(const std::string& name, const std::string& fallback);
  // A tuple; a lone number is a tuple of one. Absent: empty.
  Integers integers(const std::string& name);
  // A tuple, or no value when absent or "None".
  std::optional<Integers> optional_integers(const std::string& name);
  // A tuple in which items may be None. Absent: empty.
  OptionalIntegers integers_or_none(const std::string& name);
  // A tuple of tuples without its inner brackets: "((0, 0), (1, 1))" -> 0 0 1 1.
  Integers flattened_integers(const std::string& name);

 private:
  const std::string* find(const std::string& name) const;
  Integers without_none(const OptionalIntegers& items);

  const Attributes& attrs_;
  bool failed_ = false;
};

// Parses a whole text; no value when anything in it is not understood.
std::optional<int64_t> parse_integer(const std::string& text);
std::optional<double> parse_number(const std::string& text);  // finite
std::optional<bool> parse_boolean(const std::string& text);
// `depth`: how deep brackets may nest (1 for a plain tuple).
std::optional<OptionalIntegers> parse_integers(const std::string& text, int depth);

}  // namespace soybean

#endif  // SOYBEAN_RULES_ATTRIBUTES_H_
