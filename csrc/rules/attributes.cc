#include "rules/attributes.h"

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>

namespace soybean {
namespace {

std::string trimmed(const std::string& text) {
  const char* spaces = " \t\r\n";
  const size_t first = text.find_first_not_of(spaces);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

bool is_none(const std::string& text) { return trimmed(text) == "None"; }

// Splits "(1, (2, None))" into brackets, commas and words.
std::vector<std::string> tokens(const std::string& text) {
  std::vector<std::string> found;
  std::string word;
  auto flush = [&] {
    if (!word.empty()) found.push_back(word);
    word.clear();
  };
  for (char c : text) {
    if (std::isspace(static_cast<unsigned char>(c))) {
      flush();
    } else if (c == '(' || c == '[' || c == ')' || c == ']' || c == ',') {
      flush();
      found.emplace_back(1, c);
    } else {
      word += c;
    }
  }
  flush();
  return found;
}

std::optional<std::optional<int64_t>> parse_item(const std::string& word) {
  if (word == "None") return std::optional<int64_t>();
  const auto value = parse_integer(word);
  if (!value) return std::nullopt;
  return std::optional<int64_t>(value);
}

}  // namespace

std::optional<int64_t> parse_integer(const std::string& text) {
  const std::string word = trimmed(text);
  const size_t digits = !word.empty() && (word[0] == '-' || word[0] == '+') ? 1 : 0;
  if (word.size() == digits) return std::nullopt;
  for (size_t i = digits; i < word.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(word[i]))) return std::nullopt;
  }
  errno = 0;
  const long long value = std::strtoll(word.c_str(), nullptr, 10);
  if (errno == ERANGE) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<double> parse_number(const std::string& text) {
  const std::string word = trimmed(text);
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_boolean(const std::string& text) {
  std::string word = trimmed(text);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  return std::nullopt;
}

std::optional<OptionalIntegers> parse_integers(const std::string& text, int depth) {
  OptionalIntegers items;
  const std::vector<std::string> words = tokens(text);
  if (words.size() == 1) {
    const auto item = parse_item(words[0]);
    if (!item) return std::nullopt;
    items.push_back(*item);
    return items;
  }
  std::string open;  // the brackets that are open, innermost last
  bool item_may_follow = true;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (i > 0 && open.empty()) return std::nullopt;  // text after the last bracket
    if (word == "(" || word == "[") {
      if (!item_may_follow || static_cast<int>(open.size()) == depth) return std::nullopt;
      open += word;
    } else if (word == ")" || word == "]") {
      if (open.empty() || (word == ")") != (open.back() == '(')) return std::nullopt;
      open.pop_back();
      item_may_follow = false;
    } else if (word == ",") {
      if (item_may_follow) return std::nullopt;
      item_may_follow = true;
    } else {
      const auto item = parse_item(word);
      if (!item || !item_may_follow || open.empty()) return std::nullopt;
      items.push_back(*item);
      item_may_follow = false;
    }
  }
  if (words.empty() || !open.empty()) return std::nullopt;
  return items;
}

const std::string* AttributeReader::find(const std::string& name) const {
  const auto at = attrs_.find(name);
  return at == attrs_.end() ? nullptr : &at->second;
}

int64_t AttributeReader::integer(const std::string& name) {
  if (!has(name)) failed_ = true;
  return integer(name, 0);
}

int64_t AttributeReader::integer(const std::string& name, int64_t fallback) {
  const std::string* text = find(name);
  if (text == nullptr) return fallback;
  const auto value = parse_integer(*text);
  if (!value) failed_ = true;
  return value.value_or(fallback);
}

std::optional<int64_t> AttributeReader::optional_integer(const std::string& name) {
  const std::string* text = find(name);
  if (text == nullptr || is_none(*text)) return std::nullopt;
  const auto value = parse_integer(*text);
  if (!value) failed_ = true;
  return value;
}

double AttributeReader::number(const std::string& name, double fallback) {
  const std::string* text = find(name);
  if (text == nullptr) return fallback;
  const auto value = parse_number(*text);
  if (!value) failed_ = true;
  return value.value_or(fallback);
}

bool AttributeReader::boolean(const std::string& name, bool fallback) {
  const std::string* text = find(name);
  if (text == nullptr || is_none(*text)) return fallback;
  const auto value = parse_boolean(*text);
  if (!value) failed_ = true;
  return value.value_or(fallback);
}

std::string AttributeReader::text(const std::string& name, const std::string& fallback) {
  const std::string* found = find(name);
  return found == nullptr ? fallback : *found;
}

Integers AttributeReader::without_none(const OptionalIntegers& items) {
  Integers values;
  for (const auto& item : items) {
    if (!item) failed_ = true;
    values.push_back(item.value_or(0));
  }
  return values;
}

Integers AttributeReader::integers(const std::string& name) {
  return without_none(integers_or_none(name));
}

std::optional<Integers> AttributeReader::optional_integers(const std::string& name) {
  const std::string* text = find(name);
  if (text == nullptr || is_none(*text)) return std::nullopt;
  return integers(name);
}

OptionalIntegers AttributeReader::integers_or_none(const std::string& name) {
  const std::string* text = find(name);
  if (text == nullptr) return {};
  const auto items = parse_integers(*text, 1);
  if (!items) failed_ = true;
  return items.value_or(OptionalIntegers());
}

Integers AttributeReader::flattened_integers(const std::string& name) {
  const std::string* text = find(name);
  if (text == nullptr) return {};
  const auto items = parse_integers(*text, 2);
  if (!items) failed_ = true;
  return without_none(items.value_or(OptionalIntegers()));
}

}  // namespace soybean
